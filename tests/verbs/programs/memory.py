# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases: memory regions and their keys."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile

from pair import LOCAL, READABLE, SIGNALED, TARGET, WRITABLE, Side, needs, pair, refused
from pyverbs import enums as e
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.wr import SendWR

PAGE = mmap.PAGESIZE


def mapping(protection: int, length: int = PAGE) -> int:
    """Address of fresh anonymous memory that stays mapped."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(
        None,
        ctypes.c_size_t(length),
        protection,
        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        -1,
        ctypes.c_size_t(0),
    )
    assert address not in (None, ctypes.c_void_p(-1).value)
    return address


def case_keys_differ() -> None:
    context = TARGET.open()
    pd = PD(context)
    regions = [MR(pd, 4096, TARGET.everything()) for _ in range(100)]
    assert len({region.rkey for region in regions}) == 100
    assert len({region.lkey for region in regions}) == 100
    assert 0 not in {region.rkey for region in regions}


def case_any_address_and_length() -> None:
    """A region begins and ends where the program says, not at a page."""
    a, b = pair()
    part = MR(b.pd, 777, TARGET.everything(), address=b.mr.buf + 12_345)
    a.put(bytes(range(250)) * 4)
    a.write([a.sge(777)], (part.rkey, part.buf))
    a.read([a.sge(1, 5000)], (part.rkey, part.buf + 776))
    a.done()
    a.done()
    assert b.get(777, 12_345) == a.get(777)
    assert b.get(16, 12_329) == bytes(16)
    assert b.get(16, 12_345 + 777) == bytes(16)
    assert a.get(1, 5000) == a.get(1, 776)


def case_overlapping_regions() -> None:
    """Each key carries its own rights to the same bytes."""
    a, b = pair()
    reading = MR(b.pd, 4096, READABLE, address=b.mr.buf)
    writing = MR(b.pd, 4096, WRITABLE, address=b.mr.buf)
    a.put(b"abcd" * 10)
    a.write([a.sge(40)], (writing.rkey, writing.buf))
    a.read([a.sge(40, 100)], (reading.rkey, reading.buf))
    a.done()
    a.done()
    assert a.get(40, 100) == b"abcd" * 10


def case_large_region() -> None:
    """64 MiB; its first, middle and last bytes are reached."""
    size = 64 << 20
    a, b = pair()
    large = MR(b.pd, size, TARGET.everything(), address=mapping(3, size))
    a.put(b"xyz")
    for offset in (0, size // 2 + 1, size - 3):
        a.write([a.sge(3)], (large.rkey, large.buf + offset))
        a.read([a.sge(3, 100)], (large.rkey, large.buf + offset))
        a.done()
        a.done()
        assert ctypes.string_at(large.buf + offset, 3) == b"xyz", offset
        assert a.get(3, 100) == b"xyz", offset
        a.put(bytes(3), 100)


@needs("page crossing")
def case_across_pages() -> None:
    """A few bytes that lie in two pages, split in every way."""
    a, b = pair()
    page = PAGE - b.mr.buf % PAGE
    for length in (2, 3, 4, 8, 16, 28):
        data = bytes(range(65, 65 + length))
        for before in range(1, length):
            b.put(data, page - before)
            a.put(bytes(32))
            a.read([a.sge(length)], b.target(page - before))
            a.done()
            assert a.get(length) == data, (length, before)
            a.put(data)
            b.put(bytes(64), page - 32)
            a.write([a.sge(length)], b.target(page - before))
            a.done()
            assert b.holds(data, page - before), (length, before)


def case_memory_of_a_file() -> None:
    """A shared mapping: the peer's WRITE reaches the file."""
    a, b = pair()
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), 4 * PAGE)
        with mmap.mmap(file.fileno(), 4 * PAGE) as shared:
            view = (ctypes.c_char * (4 * PAGE)).from_buffer(shared)
            region = MR(b.pd, 4 * PAGE, TARGET.everything(), address=ctypes.addressof(view))
            a.put(b"into the file")
            a.write([a.sge(13)], (region.rkey, region.buf + PAGE - 5))
            a.read([a.sge(1)], (region.rkey, region.buf))
            a.done()
            a.done()
            region.close()
            del view
        assert os.pread(file.fileno(), 13, PAGE - 5) == b"into the file"


def case_memory_that_is_not_there() -> None:
    pd = PD(TARGET.open())
    refused(errno.EFAULT, MR, pd, 4096, TARGET.everything(), address=4096)


def case_read_only_memory() -> None:
    """It may be registered for reading, and for nothing else."""
    pd = PD(TARGET.open())
    address = mapping(1)
    refused(errno.EFAULT, MR, pd, 4096, TARGET.everything(), address=address)
    MR(pd, 4096, e.IBV_ACCESS_REMOTE_READ, address=address)


def case_senseless_rights() -> None:
    """Remote writing needs local writing."""
    pd = PD(TARGET.open())
    refused(errno.EINVAL, MR, pd, 4096, e.IBV_ACCESS_REMOTE_WRITE)
    if TARGET.has("atomics"):
        refused(errno.EINVAL, MR, pd, 4096, e.IBV_ACCESS_REMOTE_ATOMIC)
    MR(pd, 4096, LOCAL | e.IBV_ACCESS_REMOTE_WRITE)


def case_registered_again_and_again() -> None:
    """Registering and taking back as fast as it goes, with use in between."""
    a, b = pair()
    old = set()
    for i in range(200):
        region = MR(b.pd, 4096, TARGET.everything())
        if i % 20 == 0:
            a.write([a.sge(4)], (region.rkey, region.buf))
            a.done()
        old.add(region.rkey)
        region.close()
    assert len(old) > 20, "a key comes back at once"
    assert a.state() == e.IBV_QPS_RTS


def case_memory_is_kept_by_its_context() -> None:
    """Two contexts of one device do not share domains or keys."""
    a, b = pair()
    other = Side(TARGET.open())
    a.write([a.sge(4)], other.target())
    a.poll()
    b.broken()
    assert other.get(16) == bytes(16)


def bindable(side: Side) -> MR:
    return MR(side.pd, 4096, WRITABLE | READABLE | e.IBV_ACCESS_MW_BIND)


@needs("windows")
def case_window_of_type_1() -> None:
    a, b = pair()
    region = bindable(b)
    window = MW(b.pd, e.IBV_MW_TYPE_1)
    info = MWBindInfo(region, region.buf + 100, 10, WRITABLE)
    b.qp.bind_mw(window, MWBind(info, SIGNALED))
    b.done(e.IBV_WC_BIND_MW)
    a.put(b"through it")
    a.write([a.sge(10)], (window.rkey, region.buf + 100))
    a.done()
    assert region.read(10, 100) == b"through it"
    b.qp.bind_mw(window, MWBind(MWBindInfo(region, region.buf, 0, 0), SIGNALED))
    b.done(e.IBV_WC_BIND_MW)
    a.write([a.sge(10)], (window.rkey, region.buf + 100))
    a.failed(e.IBV_WC_REM_ACCESS_ERR)


@needs("windows")
def case_window_of_type_2() -> None:
    """Bound under a key of the program's, used, and taken away by a request."""
    a, b = pair()
    region = bindable(b)
    window = MW(b.pd, e.IBV_MW_TYPE_2)
    wr = SendWR(opcode=e.IBV_WR_BIND_MW, send_flags=SIGNALED)
    wr.set_bind_wr(window, MWBindInfo(region, region.buf, 100, WRITABLE))
    b.qp.post_send(wr)
    b.done(e.IBV_WC_BIND_MW)
    a.put(b"bound")
    a.write([a.sge(5)], (wr.rkey, region.buf))
    a.done()
    assert region.read(5, 0) == b"bound"
    invalidate = SendWR(opcode=e.IBV_WR_LOCAL_INV, send_flags=SIGNALED)
    invalidate.imm_data = wr.rkey
    b.qp.post_send(invalidate)
    b.done(e.IBV_WC_LOCAL_INV)
    a.write([a.sge(5)], (wr.rkey, region.buf))
    a.failed(e.IBV_WC_REM_ACCESS_ERR)


@needs("registration anew")
def case_registered_anew() -> None:
    a, b = pair()
    region = MR(b.pd, 4096, WRITABLE)
    place = mapping(3)
    region.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, None, place, PAGE, 0)
    a.put(b"moved")
    a.write([a.sge(5)], (region.rkey, place))
    a.done()
    assert ctypes.string_at(place, 5) == b"moved"
    region.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, None, 0, 0, LOCAL)
    a.write([a.sge(5)], (region.rkey, place))
    a.failed(e.IBV_WC_REM_ACCESS_ERR)
    other = PD(b.context)
    region.rereg(e.IBV_REREG_MR_CHANGE_PD, other, 0, 0, 0)
    flags = e.IBV_REREG_MR_CHANGE_TRANSLATION
    refused(errno.EFAULT, region.rereg, flags, None, PAGE, PAGE, 0)
