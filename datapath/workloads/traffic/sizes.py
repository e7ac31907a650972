# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Distributions of flow sizes: piecewise linear CDFs, from files.

A file has one point a line, bytes and the percentage of flows that are not larger, from 0 % to
100 %; lines that begin with # are comments.  Shares grow from line to line.  Between two points
sizes are spread evenly, and a size that is repeated with a higher share is a step: so many flows
have just this size.  That is the form and the meaning of the HPCC artefact's files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from datapath import foreign
from datapath.errors import LocalError
from datapath.units import parse_bytes

if TYPE_CHECKING:
    import numpy as np

PUBLISHED = ("websearch", "fb_hadoop", "alistorage2019")
"""Names of the files in cdf/, each of which states its source."""

_BYTES_MAX = 2**20
_SIZE_MAX = 2**30
_FOLDER = Path(__file__).parent / "cdf"


@dataclass(frozen=True)
class Sizes:
    """A distribution of flow sizes.

    bytes, shares: the points of the CDF; shares grow from 0 to 1, and sizes do not fall.
    """

    name: str
    bytes: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def mean_bytes(self) -> float:
        """Of the piecewise linear CDF."""
        return sum(
            (self.bytes[i] + self.bytes[i - 1]) / 2 * (self.shares[i] - self.shares[i - 1])
            for i in range(1, len(self.bytes))
        )

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
        """Whole bytes, at least 1; shape (count,), uint64."""
        import numpy as np

        drawn = np.interp(rng.random(count), self.shares, self.bytes)
        return np.maximum(drawn, 1).astype(np.uint64)

    def cdf(self, sizes: Any) -> Any:
        """Share of flows that are not larger than each of `sizes`."""
        import numpy as np

        return np.interp(sizes, self.bytes, self.shares)


def _known(value: object) -> object:
    """What may name sizes, as text; ValueError for text that does not."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value}B"
    if not isinstance(value, str) or value in PUBLISHED or "/" in value:
        return value
    try:
        constant = parse_bytes(value)
    except ValueError:
        raise ValueError(
            f"no distribution {value!r}: there are {', '.join(PUBLISHED)}; a file of your own is "
            "written with a slash, ./my.cdf; one size for all flows with its unit, 64KiB"
        ) from None
    if not 1 <= constant <= _SIZE_MAX:
        raise ValueError("sizes are 1 byte to 1 GiB")
    return value


SizesName = Annotated[
    str,
    BeforeValidator(_known),
    WithJsonSchema({"type": ["string", "integer"], "minLength": 1, "minimum": 1}),
]
"""One of PUBLISHED, a file (with a slash), or a number of bytes."""


def named(name: str, folder: Path) -> Sizes:
    """Those of a SizesName.  folder: where a relative file name begins."""
    if "/" in name:
        return read(folder / name)
    if name in PUBLISHED:
        return published(name)
    size = float(parse_bytes(name))
    return Sizes(name, (size, size), (0.0, 1.0))


def mistakes(path: Path) -> list[str]:
    """What is wrong with a file; the first mistake only."""
    try:
        read(path)
    except LocalError as error:
        return [f"{error}; {error.hint}" if error.hint else str(error)]
    return []


def published(name: str) -> Sizes:
    """One of PUBLISHED."""
    return read(_FOLDER / f"{name}.cdf")


def read(path: Path) -> Sizes:
    """A distribution of a file; LocalError names the line that is wrong."""
    try:
        text = foreign.read_text(path, _BYTES_MAX)
    except (OSError, ValueError) as error:
        raise LocalError(f"flow sizes {path}: {error}") from None
    points: list[tuple[float, float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            points.append(_point(path, number, words, points[-1] if points else None))
    if len(points) < 2 or points[0][1] != 0 or points[-1][1] != 100:
        raise LocalError(
            f"flow sizes {path}: a CDF goes from 0 to 100 %",
            hint="one point a line: bytes, and the percentage of flows that are not larger",
        )
    if points[-1][0] < 1:
        raise LocalError(f"flow sizes {path}: all flows would be empty; one has at least 1 byte")
    return Sizes(
        path.stem, tuple(size for size, _ in points), tuple(share / 100 for _, share in points)
    )


def _point(
    path: Path, number: int, words: list[str], before: tuple[float, float] | None
) -> tuple[float, float]:
    try:
        size, share = map(float, words)
    except ValueError:
        raise LocalError(f"{path}:{number}: {' '.join(words)!r} is not two numbers") from None
    if not (0 <= size <= _SIZE_MAX and 0 <= share <= 100):
        raise LocalError(f"{path}:{number}: sizes are 0 to 1 GiB, shares 0 to 100 %")
    if before is not None and not (size >= before[0] and share > before[1]):
        raise LocalError(
            f"{path}:{number}: shares have to grow from line to line, and sizes must not fall"
        )
    return size, share
