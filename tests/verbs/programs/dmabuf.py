#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A memory region of a DMA-BUF, which /dev/udmabuf makes of a memfd; says "done".

The memfd is the other way to the same memory: what a peer writes stands there, and what stands
there a peer reads.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct

from pair import LOCAL, READABLE, WRITABLE, pair, refused
from pyverbs import enums as e
from pyverbs.mr import DmaBufMR

UDMABUF_CREATE = 0x40187542  # _IOW('u', 0x42, struct udmabuf_create)
PAGES = 4
SIZE = PAGES * mmap.PAGESIZE
OFFSET = mmap.PAGESIZE + 100


def make() -> tuple[mmap.mmap, int]:
    """The memory, and a descriptor of its DMA-BUF."""
    memfd = os.memfd_create("shared", os.MFD_ALLOW_SEALING)
    os.truncate(memfd, SIZE)
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    device = os.open("/dev/udmabuf", os.O_RDWR)
    request = bytearray(struct.pack("=IIQQ", memfd, 1, 0, SIZE))
    dmabuf = fcntl.ioctl(device, UDMABUF_CREATE, request, True)
    return mmap.mmap(memfd, SIZE), dmabuf


class Region(ctypes.Structure):
    """struct ibv_mr_init_attr of newer headers."""

    _fields_ = (
        ("length", ctypes.c_size_t),
        ("access", ctypes.c_int),
        ("comp_mask", ctypes.c_uint64),
        ("iova", ctypes.c_uint64),
        ("addr", ctypes.c_void_p),
        ("fd", ctypes.c_int),
        ("fd_offset", ctypes.c_uint64),
        ("others", ctypes.c_void_p * 2),
    )


FD, FD_OFFSET = 1 << 2, 1 << 3


def unset_fields_are_not_read(dmabuf: int) -> None:
    """ibv_reg_mr_ex without an address and without an IOVA."""
    verbs = ctypes.CDLL(None)
    for name in ("get_device_list", "open_device", "alloc_pd", "reg_mr_ex"):
        getattr(verbs, f"ibv_{name}").restype = ctypes.c_void_p
    devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
    context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
    pd = ctypes.c_void_p(verbs.ibv_alloc_pd(context))
    rubbish = 2**64 - 1  # a region that begins there would pass the end of the address space
    region = Region(SIZE, LOCAL, FD | FD_OFFSET, rubbish, rubbish, dmabuf, 0)
    assert verbs.ibv_reg_mr_ex(pd, ctypes.byref(region))
    verbs.ibv_close_device(context)


def read_only_at_first(memory: mmap.mmap, dmabuf: int) -> None:
    """A region that may be written later."""
    a, b = pair()
    region = DmaBufMR(b.pd, 2000, e.IBV_ACCESS_REMOTE_READ, dmabuf, OFFSET)
    region.rereg(flags=e.IBV_REREG_MR_CHANGE_ACCESS, access=WRITABLE)
    a.put(b"written later")
    a.write([a.sge(13)], (region.rkey, OFFSET))
    a.done()
    assert memory[OFFSET : OFFSET + 13] == b"written later"
    region.close()


def main() -> None:
    memory, dmabuf = make()
    a, b = pair()
    region = DmaBufMR(b.pd, 2000, READABLE | WRITABLE, dmabuf, OFFSET)
    a.put(b"into the buffer")
    a.write([a.sge(15)], (region.rkey, OFFSET))
    a.done()
    assert memory[OFFSET : OFFSET + 15] == b"into the buffer"
    memory[OFFSET + 1990 : OFFSET + 2000] = b"the end of"
    a.read([a.sge(10, 500)], (region.rkey, OFFSET + 1990))
    a.done()
    assert a.get(10, 500) == b"the end of"
    refused(errno.EINVAL, DmaBufMR, b.pd, SIZE, WRITABLE, dmabuf, 1)
    a.write([a.sge(15)], (region.rkey, OFFSET + 1990))
    a.failed(10)  # IBV_WC_REM_ACCESS_ERR
    region.close()
    read_only_at_first(memory, dmabuf)
    unset_fields_are_not_read(dmabuf)
    print("done")


if __name__ == "__main__":
    main()
