# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Algorithms, and what they write down when they are called.

    @algorithm("ring", collective="allreduce")
    def ring(plan: Trace) -> None:
        plan.divide(plan.ranks)
        for index in range(plan.ranks):
            total = plan.chunk(index, "data", index)
            for k in range(1, plan.ranks):
                total = plan.chunk((index + k) % plan.ranks, "data", index).reduce(total)
            ...

The function is called once, for all ranks.  It moves no data: copy() and reduce() append to a list.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, SupportsIndex

from datapath.cc.source import RAISED, display, reason
from datapath.collectives.plan import COLLECTIVES, Buffer
from datapath.errors import LocalError
from datapath.spelling import counted

BufferName = Literal["data", "input", "scratch"]
_BUFFERS = {buffer.name.lower(): buffer for buffer in Buffer}
Value = int | float | str | bool
_MOST = 2**20
_FLAGS: Mapping[Value, bool] = {True: True, False: False, "true": True, "false": False}
_OURS = "datapath.collectives.algorithms."


class Crashed(LocalError):
    """An algorithm of the user's own has a mistake; the message names the line.

    Another LocalError of it says that it is not for these ranks or parameters.
    """


@dataclass(frozen=True)
class Algorithm:
    """A registered function.  params: name -> default, of its keyword parameters."""

    name: str
    collective: str
    function: Callable[..., None]
    doc: str
    params: Mapping[str, Value]

    @property
    def file(self) -> str:
        return self.function.__code__.co_filename

    @property
    def ours(self) -> bool:
        """Whether the toolkit brings it."""
        return self.function.__module__.startswith(_OURS)


registered: dict[str, Algorithm] = {}


def algorithm(name: str, *, collective: str) -> Callable[[Callable[..., None]], Algorithm]:
    """Register the function below as an algorithm of a collective (COLLECTIVES)."""
    if collective not in COLLECTIVES:
        raise LocalError(
            f"algorithm {name}: there is no collective {collective!r}",
            hint=f"there are {', '.join(COLLECTIVES)}",
        )

    def register(function: Callable[..., None]) -> Algorithm:
        params = list(inspect.signature(function).parameters.values())[1:]
        without = [p.name for p in params if p.default is inspect.Parameter.empty]
        if without:
            raise LocalError(f"algorithm {name}: parameter {without[0]} needs a default")
        doc = inspect.getdoc(function) or ""
        made = Algorithm(name, collective, function, doc, {p.name: p.default for p in params})
        registered[name] = made
        return made

    return register


@dataclass(frozen=True)
class Place:
    """Chunks index ... index + count - 1 of a buffer of a rank."""

    rank: int
    buffer: Buffer
    index: int
    count: int = 1


@dataclass(frozen=True)
class Operation:
    """target = source, or target += source.

    like: chunks that are as large as what is moved; chunks of SCRATCH have no size of their own.
    """

    reduces: bool
    source: Place
    target: Place
    channel: int
    like: Place


@dataclass(frozen=True)
class Chunk:
    """A place, as an algorithm handles it; it stands for what is there at that point."""

    trace: Trace = field(repr=False)
    place: Place

    @property
    def rank(self) -> int:
        return self.place.rank

    @property
    def index(self) -> int:
        return self.place.index

    def copy(
        self,
        rank: int,
        buffer: BufferName | None = None,
        index: int | None = None,
        *,
        channel: int = 0,
    ) -> Chunk:
        """Copy to a rank; unless told otherwise, to the same place there.  Returns the copy."""
        place = self.place
        to = self.trace.chunk(
            rank,
            place.buffer.name.lower() if buffer is None else buffer,
            place.index if index is None else index,
            place.count,
        )
        self.trace.move(False, place, to.place, channel)
        return to

    def reduce(self, other: Chunk, *, channel: int = 0) -> Chunk:
        """Combine another chunk, of this rank or another, into this one.  Returns this one."""
        self.trace.move(True, other.place, self.place, channel)
        return self


class Trace:
    """The argument of an algorithm's function.

    ranks: of the collective.  root: of a broadcast, reduce, gather or scatter.
    """

    def __init__(self, made_for: Algorithm, ranks: int, root: int = 0) -> None:
        self.algorithm = made_for
        self.ranks = ranks
        self.root = root
        self.chunks = ranks if by_parts(made_for.collective) else 1
        self.scratch_chunks = 0
        self.channels = 1
        self.operations: list[Operation] = []
        self._sizes: dict[tuple[int, int], Place] = {}  # of chunks of SCRATCH, by rank and index

    def divide(self, chunks: int) -> None:
        """Divide DATA into so many chunks, before anything moves; unset: 1, or one a rank.

        Where each rank has a part of its own (by_parts()) chunk i belongs to rank
        i // (chunks // ranks), and chunks is a multiple of ranks.
        """
        chunks = _whole(chunks, "chunks")
        if self.operations:
            raise self.wrong("divide() comes before the first copy or reduce")
        if chunks < 1 or (by_parts(self.algorithm.collective) and chunks % self.ranks):
            raise self.wrong(f"cannot divide the data of {self.ranks} ranks into {chunks} chunks")
        self.chunks = chunks

    def chunk(self, rank: int, buffer: str, index: int, count: int = 1) -> Chunk:
        """Chunks of a rank's buffer: "data", "input" (alltoall alone) or "scratch"."""
        if buffer not in _BUFFERS:
            raise self.wrong(f"there is no buffer {buffer!r}: use data, input or scratch")
        kind = _BUFFERS[buffer]
        rank, index, count = _whole(rank, "rank"), _whole(index, "index"), _whole(count, "count")
        if not 0 <= rank < self.ranks:
            raise self.wrong(f"rank {rank} is not one of the {self.ranks} ranks")
        if kind == Buffer.INPUT and self.algorithm.collective != "alltoall":
            raise self.wrong(f"{self.algorithm.collective} works in place: use buffer data")
        if kind == Buffer.SCRATCH:
            if index < 0 or count != 1:
                raise self.wrong("chunks of scratch are taken one at a time, from index 0")
            self.scratch_chunks = max(self.scratch_chunks, index + 1)
        elif index < 0 or count < 1 or index + count > self.chunks:
            raise self.wrong(
                f"rank {rank} has chunks 0 to {self.chunks - 1} of {buffer}, "
                f"not {index} to {index + count - 1}"
            )
        return Chunk(self, Place(rank, kind, index, count))

    def move(self, reduces: bool, source: Place, target: Place, channel: int) -> None:
        """Append an operation."""
        if source.count != target.count:
            raise self.wrong(f"{source.count} chunks and {target.count} do not fit together")
        if target.buffer == Buffer.INPUT:
            raise self.wrong(f"rank {target.rank}: buffer input cannot be written to")
        if source == target:
            raise self.wrong(f"rank {source.rank}: chunk {source.index} is moved to itself")
        channel = _whole(channel, "channel")
        if channel < 0:
            raise self.wrong(f"channel {channel}: channels are numbered from 0")
        self.channels = max(self.channels, channel + 1)
        like = source if source.buffer != Buffer.SCRATCH else target
        if like.buffer == Buffer.SCRATCH:
            key = (source.rank, source.index)
            if key not in self._sizes:
                raise self.wrong(f"rank {source.rank}: scratch chunk {source.index} is empty")
            like = self._sizes[key]
        if target.buffer == Buffer.SCRATCH and not reduces:
            self._sizes[target.rank, target.index] = like
        self.operations.append(Operation(reduces, source, target, channel, like))

    def wrong(self, what: str) -> LocalError:
        """An error that names the algorithm."""
        return LocalError(f"algorithm {self.algorithm.name}: {what}")


def _whole(value: SupportsIndex, of: str) -> int:
    """A rank, or a number of chunks or channels; another error for what cannot be one."""
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{of}={value!r} is not a whole number: divide by //") from None
    if found > _MOST:
        raise ValueError(f"{of}={value!r} is more than {_MOST:,}")
    return found


def by_parts(collective: str) -> bool:
    """Whether each rank has a part of the data of its own."""
    return collective in ("reduce_scatter", "allgather", "alltoall", "gather", "scatter")


def trace(made_for: Algorithm, ranks: int, root: int, params: Mapping[str, Value]) -> Trace:
    """Call an algorithm; LocalError when a parameter or what it does makes no sense."""
    given = typed(made_for, params)
    if ranks < 1 or not 0 <= root < ranks:
        raise LocalError(f"{ranks} ranks with root {root}: there is no such collective")
    made = Trace(made_for, ranks, root)
    try:
        made_for.function(made, **{**made_for.params, **given})
    except MemoryError:
        raise
    except RAISED as error:
        if made_for.ours:
            raise
        if isinstance(error, LocalError):
            where = place_of(error, made_for.file)
            raise LocalError(f"{where}: {error}", hint=error.hint) from error
        raise crashed(error, made_for.file, f" (with {counted(ranks, 'rank')})") from error
    if ranks > 1 and not made.operations:
        where = f"{display(made_for.file)}:{made_for.function.__code__.co_firstlineno}"
        raise Crashed(f"{where}: {made.wrong(f'with {ranks} ranks it copies and reduces nothing')}")
    return made


def typed(made_for: Algorithm, params: Mapping[str, Value]) -> dict[str, Value]:
    """Parameters, as the types of their defaults want them; LocalError when one cannot be so."""
    found = dict(params)
    for name, value in sorted(params.items()):
        if name not in made_for.params:
            have = ", ".join(made_for.params) or "none"
            raise LocalError(
                f"algorithm {made_for.name} has no parameter {name}", hint=f"it has {have}"
            )
        wanted = type(made_for.params[name])
        if wanted is str:
            found[name] = str(value)
        elif wanted is bool:
            if value not in _FLAGS:
                raise LocalError(
                    f"algorithm {made_for.name}: {name}={value!r} is not true or false"
                )
            found[name] = _FLAGS[value]
        elif wanted in (int, float) and not isinstance(value, (int, wanted)):
            what = "a whole number" if wanted is int else "a number"
            raise LocalError(f"algorithm {made_for.name}: {name}={value!r} is not {what}")
    return found


def crashed(error: BaseException, file: str, when: str = "") -> Crashed:
    """The error for the user whose file raised another one."""
    return Crashed(f"{place_of(error, file)}: {reason(error)}{when}")


def place_of(error: BaseException, file: str) -> str:
    """FILE:LINE, the line of the file where an error was made; FILE, if it was not there."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{display(file)}:{error.lineno}"
    lines = []
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == file:
            lines.append(at.tb_lineno)
        at = at.tb_next
    return f"{display(file)}:{lines[-1]}" if lines else display(file)
