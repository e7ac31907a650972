# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plan of a collective: a table of steps, and which step waits for which.

`plan.h` has the same layout for C.  A plan is of one size and one number of ranks; the data type
matters only by its size.

Buffers of each rank, in bytes:

- DATA, `data_bytes`: the result, and where the collective works in place, the input as well.
- INPUT, `input_bytes`: what an all-to-all sends; nothing writes to it.
- SCRATCH, `scratch_bytes`: begins with undefined content.

Steps:

- SEND: rank sends `bytes` at `offset` of `buffer` to peer.
- RECEIVE: what peer's step `match` sent is put at `offset` of `buffer`.
- REDUCE: what peer's step `match` sent is combined with what is at `offset` of `buffer`.
- COPY_LOCAL, REDUCE_LOCAL: the same with bytes of the rank itself, from `from_offset` of
  `from_buffer`.

A step may begin when all steps that it waits for are done.  A SEND is done when the peer's
transport has it all; any other step when its bytes are in their place, `compute_ns` of work later.
SENDs of one connection (rank, peer, channel) go out in the order of the table, and their RECEIVEs
and REDUCEs are done in that order.  Nothing else is ordered.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from datapath.errors import LocalError

if TYPE_CHECKING:
    import pandas as pd

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

ABI = 1  # DP_PLAN_ABI
MAGIC = b"DPPLAN"
NO_STEP = 2**32 - 1  # DP_PLAN_NONE


class Op(enum.IntEnum):
    """enum dp_plan_op."""

    SEND = 0
    RECEIVE = 1
    REDUCE = 2
    COPY_LOCAL = 3
    REDUCE_LOCAL = 4


class Buffer(enum.IntEnum):
    """enum dp_plan_buffer."""

    DATA = 0
    INPUT = 1
    SCRATCH = 2


COLLECTIVES = (
    *("allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall"),
    *("reduce", "gather", "scatter"),
)
"""By enum dp_plan_collective."""

STEP_DTYPE = np.dtype(
    [
        ("rank", "<u4"),
        ("step", "<u4"),  # its number among the steps of its rank
        ("channel", "<u4"),
        ("op", "<u4"),
        ("peer", "<u4"),  # the rank itself: a local step
        ("match", "<u4"),  # row of the other end's step; NO_STEP: a local step
        ("buffer", "<u4"),
        ("from_buffer", "<u4"),
        ("offset", "<u8"),
        ("from_offset", "<u8"),
        ("bytes", "<u8"),
        ("compute_ns", "<u8"),
    ]
)
"""struct dp_plan_step."""

WAIT_DTYPE = np.dtype([("step", "<u4"), ("on", "<u4")])
"""struct dp_plan_wait: row `step` waits for row `on`."""

HEAD_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("abi", "<u4"),
        ("step_bytes", "<u4"),
        ("ranks", "<u4"),
        ("channels", "<u4"),
        ("collective", "<u4"),
        ("root", "<u4"),
        ("item_bytes", "<u4"),
        ("slot_bytes", "<u4"),  # the largest transfer
        ("data_bytes", "<u8"),
        ("input_bytes", "<u8"),
        ("scratch_bytes", "<u8"),
        ("steps", "<u8"),
        ("waits", "<u8"),
    ]
)
"""struct dp_plan_head."""


@dataclass(frozen=True, eq=False)
class Plan:
    """One collective among `ranks`.

    steps: array of STEP_DTYPE, by rank and, of one rank, in the order of the algorithm.
    waits: array of WAIT_DTYPE, by step.  root: of a broadcast, reduce, gather or scatter.
    parts: of an all-to-all with parts of several sizes, bytes from each rank to each, shape
    (ranks, ranks); buffers are as large as those of the rank that needs most.  Files lack it.
    """

    algorithm: str
    collective: str
    ranks: int
    channels: int
    item_bytes: int
    data_bytes: int
    input_bytes: int
    scratch_bytes: int
    steps: Array
    waits: Array
    root: int = 0
    parts: Array | None = None

    def size_of(self, buffer: int) -> int:
        """Bytes of a buffer of each rank."""
        return (self.data_bytes, self.input_bytes, self.scratch_bytes)[buffer]

    @property
    def sends(self) -> Array:
        """Rows of the table that are SENDs."""
        return np.flatnonzero(self.steps["op"] == Op.SEND)

    def inside(self, node: int) -> Array:
        """Of each of `sends`, whether both ends are in one node: so many ranks in a row."""
        sent = self.steps[self.sends]
        return np.asarray(sent["rank"] // node == sent["peer"] // node)

    @property
    def slot_bytes(self) -> int:
        """The largest transfer."""
        sent = self.steps["bytes"][self.sends]
        return int(sent.max()) if len(sent) else 0

    def connections(self) -> Array:
        """Of each row the number of its connection (sender, receiver, channel); -1: none."""
        steps = self.steps
        out = steps["op"] == Op.SEND
        sender = np.where(out, steps["rank"], steps["peer"]).astype(np.uint64)
        receiver = np.where(out, steps["peer"], steps["rank"]).astype(np.uint64)
        width = np.uint64(max(self.ranks, self.channels, 1))
        key = (sender * width + receiver) * width + steps["channel"]
        numbers = np.unique(key, return_inverse=True)[1].astype(np.int64)
        numbers[steps["op"] >= Op.COPY_LOCAL] = -1
        return numbers

    def name_of(self, row: int) -> str:
        """A step in words, as errors have it."""
        step = self.steps[row]
        op, peer = Op(int(step["op"])), int(step["peer"])
        what = {
            Op.SEND: f"send to rank {peer}",
            Op.RECEIVE: f"receive from rank {peer}",
            Op.REDUCE: f"reduce from rank {peer}",
            Op.COPY_LOCAL: "local copy",
            Op.REDUCE_LOCAL: "local reduce",
        }[op]
        begin = int(step["offset"])
        where = f"{Buffer(int(step['buffer'])).name.lower()}[{begin}:{begin + int(step['bytes'])}]"
        return (
            f"rank {step['rank']} step {step['step']} ({what}, channel {step['channel']}, {where})"
        )

    def frame(self) -> pd.DataFrame:
        """The table for people: a row for each step, with names and what it waits for."""
        import pandas as pd

        table = pd.DataFrame(self.steps)
        table["op"] = [Op(int(op)).name.lower() for op in self.steps["op"]]
        for column in ("buffer", "from_buffer"):
            table[column] = [Buffer(int(b)).name.lower() for b in self.steps[column]]
        waits: list[list[int]] = [[] for _ in range(len(self.steps))]
        for row, on in zip(self.waits["step"].tolist(), self.waits["on"].tolist(), strict=True):
            waits[row].append(int(self.steps["step"][on]))
        table["waits_for"] = waits
        matched = self.steps["match"].astype(np.int64)
        matched[matched == NO_STEP] = -1
        table["match"] = np.where(matched >= 0, self.steps["step"][matched], -1)
        return table

    def of(self, steps: Array | None = None, waits: Array | None = None) -> Plan:
        """The same with another table."""
        return replace(
            self,
            steps=self.steps if steps is None else steps,
            waits=self.waits if waits is None else waits,
        )

    def to_bytes(self) -> bytes:
        """The plan as plan.h has it."""
        head = np.zeros(1, HEAD_DTYPE)
        head[0] = (
            *(MAGIC, ABI, STEP_DTYPE.itemsize, self.ranks, self.channels),
            *(COLLECTIVES.index(self.collective), self.root, self.item_bytes, self.slot_bytes),
            *(self.data_bytes, self.input_bytes, self.scratch_bytes),
            *(len(self.steps), len(self.waits)),
        )
        return head.tobytes() + self.steps.tobytes() + self.waits.tobytes()

    def write(self, path: Path) -> None:
        path.write_bytes(self.to_bytes())


def read(path: Path) -> Plan:
    """A plan from a file, unchecked; LocalError when the file is not a whole plan."""
    data = path.read_bytes()
    if len(data) < HEAD_DTYPE.itemsize:
        raise LocalError(f"{path}: {len(data)} bytes are less than the head of a plan")
    head = np.frombuffer(data, HEAD_DTYPE, 1)[0]
    if head["magic"] != MAGIC or head["abi"] != ABI or head["step_bytes"] != STEP_DTYPE.itemsize:
        raise LocalError(
            f"{path}: not a plan of version {ABI}", hint="make it with dpctl collective plan"
        )
    steps_end = HEAD_DTYPE.itemsize + int(head["steps"]) * STEP_DTYPE.itemsize
    whole = steps_end + int(head["waits"]) * WAIT_DTYPE.itemsize
    if len(data) != whole or int(head["collective"]) >= len(COLLECTIVES):
        raise LocalError(f"{path}: {len(data)} bytes where its head tells of {whole}")
    return Plan(
        algorithm=path.stem,
        collective=COLLECTIVES[int(head["collective"])],
        ranks=int(head["ranks"]),
        channels=int(head["channels"]),
        item_bytes=int(head["item_bytes"]),
        data_bytes=int(head["data_bytes"]),
        input_bytes=int(head["input_bytes"]),
        scratch_bytes=int(head["scratch_bytes"]),
        steps=np.frombuffer(data[HEAD_DTYPE.itemsize : steps_end], STEP_DTYPE).copy(),
        waits=np.frombuffer(data[steps_end:], WAIT_DTYPE).copy(),
        root=int(head["root"]),
    )
