#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A memory region of a DMA-BUF, which /dev/udmabuf makes of a memfd; says "done".

The memfd is the other way to the same memory: what a peer writes stands there, and what stands
there a peer reads.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct

from pair import READABLE, WRITABLE, pair, refused
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
    print("done")


if __name__ == "__main__":
    main()
