# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases of memory that is not the program's: device memory, buffers, DMA-BUFs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pair import LOCAL, READABLE, TARGET, WRITABLE, pair, refused
from pyverbs import enums as e
from pyverbs.device import DM, AllocDmAttr, Context
from pyverbs.mr import DMMR, DmaBufMR
from pyverbs.pd import PD

ZERO_BASED = e.IBV_ACCESS_ZERO_BASED


def dm(context: Context, length: int) -> DM:
    return DM(context, AllocDmAttr(length=length))


def case_device_memory_by_copying() -> None:
    memory = dm(TARGET.open(), 4096)
    assert memory.copy_from_dm(0, 4096) == bytes(4096)
    memory.copy_to_dm(8, b"abcd" * 4, 16)
    assert memory.copy_from_dm(4, 24) == bytes(4) + b"abcd" * 4 + bytes(4)
    refused(errno.EINVAL, memory.copy_to_dm, 2, b"abcd", 4)
    refused(errno.EINVAL, memory.copy_from_dm, 0, 3)
    refused(errno.EFAULT, memory.copy_to_dm, 4096, b"abcd", 4)
    refused(errno.EFAULT, memory.copy_from_dm, 4, 4096)


def case_device_memory_by_the_peer() -> None:
    """WRITE, READ and an atomic on a part of it, whose first byte has address 0."""
    a, b = pair()
    memory = dm(b.context, 4096)
    rights = READABLE | WRITABLE | e.IBV_ACCESS_REMOTE_ATOMIC | ZERO_BASED
    part = DMMR(b.pd, 1024, rights, memory, 256)
    a.put(b"to the device")
    a.write([a.sge(13)], (part.rkey, 8))
    a.done()
    assert memory.copy_from_dm(264, 16) == b"to the device" + bytes(3)
    a.read([a.sge(13, 500)], (part.rkey, 8))
    a.done()
    assert a.get(13, 500) == b"to the device"
    a.write([a.sge(13)], (part.rkey, 1024 - 12))
    a.failed(e.IBV_WC_REM_ACCESS_ERR)


def case_device_memory_has_an_end() -> None:
    context = TARGET.open()
    size = context.query_device_ex().max_dm_size
    refused(errno.ENOMEM, dm, context, size + 4)
    whole = dm(context, size)
    refused(errno.ENOMEM, dm, context, 4)
    whole.close()
    dm(context, size).close()
    refused(errno.EINVAL, dm, context, 0)


def case_device_memory_registered() -> None:
    context = TARGET.open()
    pd, memory = PD(context), dm(context, 4096)
    refused(errno.EINVAL, DMMR, pd, 4096, LOCAL, memory, 0)  # it has no address but 0
    refused(errno.EINVAL, DMMR, pd, 4096, LOCAL | ZERO_BASED, memory, 4)
    region = DMMR(pd, 4096, LOCAL | ZERO_BASED, memory, 0)
    region.close()
    memory.close()


def case_device_memory_ends_with_its_context() -> None:
    """What a closed context had is free for the next one."""
    first = TARGET.open()
    size = first.query_device_ex().max_dm_size
    keeper = TARGET.open()
    dm(first, size)
    first.close()
    dm(keeper, size)


def case_only_dmabufs_are_dmabufs() -> None:
    pd = PD(TARGET.open())
    memfd = os.memfd_create("no DMA-BUF")
    os.truncate(memfd, 4096)
    refused(errno.EINVAL, DmaBufMR, pd, 4096, LOCAL, memfd, 0)
    with Path(os.devnull).open() as null:
        refused(errno.EINVAL, DmaBufMR, pd, 4096, LOCAL, null.fileno(), 0)
