# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The C half of the tests, `tests/libdptest.so` of the chosen build folder.

`testlib` has the wire headers' inline functions (X_...), the two-engine soak
and the fuzz target's entry; it is linked to the same libdpcore.so that
datapath.native opens, so objects of one may be given to the other.  in_c() is for bytes that
C code reads: AddressSanitizer does not watch those of Python.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cffi

from datapath.native import ffi, paths

CDEF = """
uint8_t X_dp_bth_opcode(const uint8_t *h);
unsigned X_dp_bth_solicited(const uint8_t *h);
unsigned X_dp_bth_pad(const uint8_t *h);
unsigned X_dp_bth_tver(const uint8_t *h);
uint16_t X_dp_bth_pkey(const uint8_t *h);
unsigned X_dp_bth_becn(const uint8_t *h);
uint32_t X_dp_bth_dest_qpn(const uint8_t *h);
unsigned X_dp_bth_ack_req(const uint8_t *h);
uint32_t X_dp_bth_psn(const uint8_t *h);
uint64_t X_dp_reth_va(const uint8_t *h);
uint32_t X_dp_reth_rkey(const uint8_t *h);
uint32_t X_dp_reth_len(const uint8_t *h);
uint32_t X_dp_deth_qkey(const uint8_t *h);
uint32_t X_dp_deth_src_qpn(const uint8_t *h);
uint64_t X_dp_atomic_va(const uint8_t *h);
uint32_t X_dp_atomic_rkey(const uint8_t *h);
uint64_t X_dp_atomic_swap_add(const uint8_t *h);
uint64_t X_dp_atomic_compare(const uint8_t *h);
uint8_t X_dp_aeth_syndrome(const uint8_t *h);
uint32_t X_dp_aeth_msn(const uint8_t *h);
uint16_t X_dp_get16(const uint8_t *h);
uint32_t X_dp_get32(const uint8_t *h);
uint64_t X_dp_get64(const uint8_t *h);
void X_dp_put16(uint8_t *h, uint16_t v);
void X_dp_put32(uint8_t *h, uint32_t v);
void X_dp_put64(uint8_t *h, uint64_t v);
int X_state_after_crc(const uint8_t *data, size_t len);
int32_t X_dp_psn_diff(uint32_t a, uint32_t b);
uint32_t X_dp_psn_add(uint32_t psn, uint32_t n);
void X_dp_bth_set(uint8_t *h, const uint64_t *f);
void X_dp_reth_set(uint8_t *h, const uint64_t *f);
void X_dp_deth_set(uint8_t *h, const uint64_t *f);
void X_dp_atomic_set(uint8_t *h, const uint64_t *f);
void X_dp_aeth_set(uint8_t *h, const uint64_t *f);
void X_dp_hello_set(uint8_t *h, const uint64_t *f);
void X_dp_hello_get(const uint8_t *h, uint64_t *f);
void X_dp_xdh_set(uint8_t *h, const uint64_t *f);
void X_dp_xdh_get(const uint8_t *h, uint64_t *f);
void X_dp_xah_set(uint8_t *h, const uint64_t *f);
void X_dp_xah_get(const uint8_t *h, uint64_t *f);
int X_dp_telemetry_stamp(uint8_t *bth, uint32_t len, const uint64_t *f);
void X_dp_telemetry_get(const uint8_t *r, uint64_t *f);

struct X_wheel;
struct X_wheel *X_wheel_new(uint64_t now_ns, unsigned timers);
void X_wheel_free(struct X_wheel *w);
void X_wheel_arm(struct X_wheel *w, unsigned timer, uint64_t expires_ns);
void X_wheel_cancel(struct X_wheel *w, unsigned timer);
int X_wheel_armed(const struct X_wheel *w, unsigned timer);
uint64_t X_wheel_next(const struct X_wheel *w);
int X_wheel_pop(struct X_wheel *w, uint64_t now_ns);

int X_give_many(struct dp_engine *e, const struct dp_packet *first, uint32_t count, uint64_t now);
size_t X_qp_bytes(const struct dp_qp *qp);
void X_qp_copy(const struct dp_qp *qp, uint8_t *to);
int X_qp_remains(const struct dp_qp *qp, const uint8_t *made);
const char *X_spoil(struct dp_qp *, int number, int by);
const char *X_spoil_datagram(struct dp_qp *, int number, int by);

int X_fuzz_packet(const uint8_t *data, size_t size);
int X_fuzz_cm(const uint8_t *data, size_t size);
int X_fuzz_vnic(const uint8_t *data, size_t size);
"""

HEADERS = (
    paths.PACKAGE / "engine" / "oneway.h",
    paths.PACKAGE / "engine" / "rtt.h",
    paths.PACKAGE / "engine" / "thinning.h",
    paths.PACKAGE / "engine" / "rc" / "rack.h",
    Path(__file__).parent / "engine" / "soak.h",
    Path(__file__).parent / "vnic" / "frames.h",
    Path(__file__).parent / "vnic" / "shares.h",
)


def declarations(header: Path) -> str:
    """Of a header that has nothing but structs, functions and comments."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def _open() -> tuple[Any, Any]:
    own = cffi.FFI()
    own.include(ffi)
    own.cdef(CDEF + "".join(map(declarations, HEADERS)))
    path = paths.ROOT / paths.build_name() / "tests" / "libdptest.so"
    return own, own.dlopen(str(path))


testffi, testlib = _open()


def in_c(data: bytes) -> Any:
    """A copy of the bytes, in memory of just their size."""
    memory = ffi.new("uint8_t[]", len(data))
    ffi.memmove(memory, data, len(data))
    return memory
