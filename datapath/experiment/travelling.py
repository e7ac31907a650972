# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The files of a simulated run on their way to a machine that does not have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datapath.cc.source import neighbours
from datapath.errors import RunFailed
from datapath.experiment.spec import PointSpec


def packed(spec: PointSpec, folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The point as JSON has it, with other names for its files; their content by these names.

    folder: where names of files begin.  Files of several folders may have one name, and a file of
    code may import what is beside it: each folder gets a number, below which its files stay
    together.  RunFailed for a file that is gone.
    """
    text: dict[str, Any] = spec.model_dump(mode="json")
    files: dict[str, bytes] = {}
    beside: dict[str, Path] = {}
    numbers: dict[tuple[Path, Path], int] = {}
    for place, name in (spec.code | spec.data).items():
        path = folder / name
        source = path.resolve()
        # Of a link, the neighbours are those of the file that it leads to.
        number = numbers.setdefault((path.parent.resolve(), source.parent), len(numbers))
        files[f"{number}/{path.name}"] = _content(path)
        if place in spec.code:
            beside |= {f"{number}/{each.name}": each for each in neighbours(source)}
        section: Any = text
        for step in place[:-1]:
            section = section[step]
        section[place[-1]] = f"./{number}/{path.name}{section[place[-1]].removeprefix(name)}"
    return text, {name: _content(path) for name, path in beside.items()} | files


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Write them below a folder, where their names begin from now on."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:  # it was there when the sweep began
        raise RunFailed(f"{path}: {error.strerror}") from None
