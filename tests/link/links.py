# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Vocabulary for tests of the link model: a link in virtual time, driven by its deadlines.

link = Link(rate_bps=10**9, delay_ns=1000)
link.offer(0, bytes=1538)
assert link.arrivals() == [Arrival(0, 13304)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from datapath.link.impairments import IMPAIRMENTS
from datapath.native import ffi, lib

NEVER = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


class Arrival(NamedTuple):
    """A frame at the far end: its number in order of offering, and when it arrived."""

    frame: int
    at_ns: int


class Link:
    """One dp_link and the frames offered to it, numbered from 0; closed by its fixture."""

    def __init__(self, **config: Any) -> None:
        self._keep: list[Any] = []
        self.frames: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self.dropped: list[tuple[int, str]] = []
        self.copies = 0
        self.clones = True
        ops = ffi.new("struct dp_link_ops *")
        ops.drop = self._own(
            ffi.callback("void(void *, struct dp_frame *, enum dp_drop)", self._drop)
        )
        ops.clone = self._own(
            ffi.callback("struct dp_frame *(void *, const struct dp_frame *)", self._clone)
        )
        out = ffi.new("struct dp_link **")
        error = lib.dp_link_create(self.configuration(config), ops, ffi.NULL, out)
        if error:
            raise OSError(-error, "dp_link_create")
        self.link: Any = out[0]

    def _own(self, thing: Any) -> Any:
        self._keep.append(thing)
        return thing

    def configuration(self, config: Mapping[str, Any]) -> Any:
        """struct dp_link_config *; arrays are lists.

        classes: list of (weight, limit_bytes[, rate_bps, jitter]).  impairments: settings by name.
        """
        rest = dict(config)
        classes = rest.pop("classes", [])
        impairments = rest.pop("impairments", {})
        rest["impairment"] = [impairments.get(name, 0) for name in IMPAIRMENTS]
        for holder, array, count, kind in (
            ("trace", "ms", "n", "uint32_t[]"),
            ("jitter", "sample", "n_samples", "double[]"),
        ):
            given = rest.get(holder, {})
            if array in given:
                values = self._own(ffi.new(kind, given[array]))
                rest[holder] = {**given, array: values, count: len(given[array])}
        out = self._own(ffi.new("struct dp_link_config *", rest))
        if classes:
            out.n_classes = len(classes)
        for index, one in enumerate(classes):
            members = ("weight", "limit_bytes", "rate_bps", "jitter")
            for name, value in zip(members, one, strict=False):
                setattr(getattr(out, "class")[index], name, value)
        return out

    def configure(self, now: int, **config: Any) -> int:
        return int(lib.dp_link_configure(self.link, self.configuration(config), now))

    def frame(self, bytes: int = 1538, **fields: Any) -> Any:  # noqa: A002
        """A new struct dp_frame *, numbered."""
        frame = ffi.new("struct dp_frame *")
        frame.bytes = bytes
        frame.ingress = lib.DP_NO_INGRESS
        for name, value in fields.items():
            setattr(frame, name, value)
        self.adopt(frame)
        return frame

    def adopt(self, frame: Any) -> int:
        """Number a frame that comes from another link."""
        self._numbers[frame] = len(self.frames)
        self.frames.append(frame)
        return self._numbers[frame]

    def offer(self, now: int, bytes: int = 1538, **fields: Any) -> int:  # noqa: A002
        frame = self.frame(bytes, **fields)
        lib.dp_link_offer(self.link, frame, now)
        return self._numbers[frame]

    def take(self, now: int) -> Iterator[Arrival]:
        """What has arrived by now; a time in the future would be an error of the link."""
        while frame := lib.dp_link_take(self.link, now):
            assert frame.at_ns <= now
            yield Arrival(self._numbers[frame], frame.at_ns)

    @property
    def deadline(self) -> int:
        return int(lib.dp_link_deadline(self.link))

    def arrivals(self, until: int = NEVER - 1) -> list[Arrival]:
        """Called at each deadline up to `until`; every frame must come exactly at one."""
        seen: list[Arrival] = []
        while (now := self.deadline) <= until:
            for arrival in self.take(now):
                assert arrival.at_ns == now, "a deadline came late"
                seen.append(arrival)
            assert self.deadline > now, "the deadline did not move"
        return seen

    def pause(self, now: int, mask: int = 1) -> None:
        lib.dp_link_pause(self.link, mask, True, now)

    def resume(self, now: int, mask: int = 1) -> None:
        lib.dp_link_pause(self.link, mask, False, now)

    def advance(self, now: int) -> int:
        """Bytes that wait at that time."""
        lib.dp_link_advance(self.link, now)
        return int(lib.dp_link_queue_bytes(self.link))

    def stats_at(self, now: int) -> Any:
        out = ffi.new("struct dp_link_stats *")
        lib.dp_link_stats(self.link, now, out)
        return out

    @property
    def stats(self) -> Any:
        """Of a link that is not paused: the time of a pause needs stats_at()."""
        return self.stats_at(0)

    def _drop(self, _user: Any, frame: Any, why: int) -> None:
        names = ("loss", "queue", "buffer", "policer", "aqm", "shaped", "shutdown")
        self.dropped.append((self._numbers[frame], names[why]))

    def _clone(self, _user: Any, frame: Any) -> Any:
        if not self.clones:
            return ffi.NULL
        copy = self.frame()
        ffi.memmove(copy, frame, ffi.sizeof("struct dp_frame"))
        self.copies += 1
        return copy

    def close(self) -> None:
        if self.link:
            lib.dp_link_destroy(self.link)
            self.link = None


def wide_draws(seed: int) -> Iterator[int]:
    """splitmix64's sequence (Steele, Lea and Flood, OOPSLA 2014)."""
    state = seed & MASK
    while True:
        state = (state + GOLDEN) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def draws(seed: int) -> Iterator[int]:
    """The top 32 bits of splitmix64's sequence."""
    return (wide >> 32 for wide in wide_draws(seed))


def stream_start(seed: int, number: int) -> int:
    """Where one of a link's random streams begins: 0 loss, 1 marks, 2 corruption ..."""
    start = draws(seed)
    for _ in range(2 * number):
        next(start)
    return next(start) << 32 | next(start)


def stream(seed: int, number: int) -> Iterator[int]:
    """Draws of one of a link's random streams."""
    return draws(stream_start(seed, number))


class TimedStates:
    """Gilbert-Elliott in continuous time, by logarithms of the published generator's draws.

    The model computes in whole numbers, so that the end of a state may differ by margin_ns.
    """

    def __init__(self, rng: int, good_ns: int, bad_ns: int, begin_ns: int) -> None:
        self._draws = wide_draws(rng)
        self._means = {False: good_ns, True: bad_ns}
        self.bad = next(self._draws) % (good_ns + bad_ns) < bad_ns
        self.until_ns = begin_ns + self._period()
        self.margin_ns = 1.0

    def _period(self) -> float:
        """Exponentially distributed, by inversion."""
        return -math.log((next(self._draws) | 1) / 2**64) * self._means[self.bad]

    def at(self, now: int) -> bool | None:
        """Whether the state is bad; None: too near to an end to tell."""
        while now >= self.until_ns:
            if now - self.until_ns < self.margin_ns:
                return None
            self.bad = not self.bad
            self.until_ns += self._period()
            # 24 bits of fraction of a period's length in mean times, and whole nanoseconds.
            self.margin_ns += 2 + 2**-23 * max(self._means.values())
        return None if self.until_ns - now < self.margin_ns else self.bad


MakeLink = Callable[..., Link]

TYPICAL = {"share": 0.3, "bytes": 1000, "ns": 7_000}
"""A setting of an impairment, by its unit."""


def impairment_settings() -> st.SearchStrategy[dict[str, float]]:
    """Some impairments of the table, each with a typical setting."""
    names = st.lists(st.sampled_from(sorted(IMPAIRMENTS)), max_size=2, unique=True)
    return names.map(lambda some: {name: TYPICAL[IMPAIRMENTS[name].unit] for name in some})
