/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of opcodes (IBTA vol. 1, table 38 and figure 79 onwards).
 *
 * RC() makes two rows of one line: the opcode's own and its extended form.
 * Its arguments: name, headers and kind, and what the extended form adds.
 *
 * FIRST, MIDDLE and LAST say which part of a message the packet is; ONLY
 * packets, READ requests and atomics are both FIRST and LAST.  IS_READ and
 * IS_ATOMIC are the requests; their answers are READ_RESP and the packets
 * that carry an AtomicAckETH.  FLUSH and ATOMIC WRITE (annex A19) are executed
 * once and in order, as atomics are; their answer is a READ_RESP of no bytes.
 * Extended READ_RESPs have no AETH: they are all equally long, and the kernel
 * takes packets of one length in one batch.
 */
#include "wire/credit.h"
#include "wire/ext.h"
#include "wire/headers.h"
#include "wire/opcode.h"

#define HAS(mask, flag, len) (((mask) & (flag)) ? (len) : 0)

/* A CNP carries 16 reserved bytes after the BTH (annex A17.9.3). */
#define HDR_LEN(mask)                                                                              \
	(DP_BTH_LEN + HAS(mask, DP_HAS_XDH, DP_XDH_LEN) + HAS(mask, DP_HAS_RETH, DP_RETH_LEN) +    \
	 HAS(mask, DP_HAS_ATOMIC_ETH, DP_ATOMIC_ETH_LEN) + HAS(mask, DP_HAS_AETH, DP_AETH_LEN) +   \
	 HAS(mask, DP_HAS_ATOMIC_ACK_ETH, DP_ATOMIC_ACK_ETH_LEN) +                                 \
	 HAS(mask, DP_HAS_IMM, DP_IMM_LEN) + HAS(mask, DP_HAS_IETH, DP_IETH_LEN) +                 \
	 HAS(mask, DP_HAS_XAH, DP_XAH_LEN) + HAS(mask, DP_HAS_HELLO, DP_HELLO_LEN) +               \
	 HAS(mask, DP_IS_CNP, DP_CNP_RESV_LEN) + HAS(mask, DP_HAS_DETH, DP_DETH_LEN) +             \
	 HAS(mask, DP_HAS_FETH, DP_FETH_LEN) + HAS(mask, DP_HAS_DEMAND, DP_DEMAND_LEN) +           \
	 HAS(mask, DP_HAS_GRANT, DP_GRANT_LEN) + HAS(mask, DP_HAS_CREDIT, DP_CREDIT_LEN))

#define ROW(op, label, m) [op] = { .name = label, .mask = (m), .hdr_len = HDR_LEN(m) }
#define EXT_ROW(op, m) ROW(DP_OP_EXT | DP_OP_##op, "EXT_" #op, m)
#define RC(op, m, ext) ROW(DP_OP_##op, #op, m), EXT_ROW(op, (m) | (ext))
#define RC_READ_RESP(op, m, std) ROW(DP_OP_##op, #op, (m) | (std)), EXT_ROW(op, (m) | DP_HAS_XDH)

#define FIRST DP_IS_FIRST
#define MIDDLE DP_IS_MIDDLE
#define LAST DP_IS_LAST
#define ONLY (DP_IS_FIRST | DP_IS_LAST)
#define IMM DP_HAS_IMM
#define INV DP_HAS_IETH
#define RETH DP_HAS_RETH
#define AETH DP_HAS_AETH
#define XDH DP_HAS_XDH
#define DETH DP_HAS_DETH
#define SEND (DP_IS_SEND | DP_IS_REQUEST | DP_HAS_PAYLOAD)
#define WRITE (DP_IS_WRITE | DP_IS_REQUEST | DP_HAS_PAYLOAD)
#define READ (DP_IS_READ | DP_IS_REQUEST | ONLY)
#define READ_RESP (DP_IS_READ_RESP | DP_IS_RESPONSE | DP_HAS_PAYLOAD)
#define ONCE (DP_IS_ATOMIC | DP_IS_REQUEST | ONLY)
#define ATOMIC (ONCE | DP_HAS_ATOMIC_ETH)

const struct dp_opcode_info dp_opcodes[256] = {
	RC(SEND_FIRST, SEND | FIRST, XDH),
	RC(SEND_MIDDLE, SEND | MIDDLE, XDH),
	RC(SEND_LAST, SEND | LAST, XDH),
	RC(SEND_LAST_IMM, SEND | LAST | IMM, XDH),
	RC(SEND_ONLY, SEND | ONLY, XDH),
	RC(SEND_ONLY_IMM, SEND | ONLY | IMM, XDH),
	RC(SEND_LAST_INV, SEND | LAST | INV, XDH),
	RC(SEND_ONLY_INV, SEND | ONLY | INV, XDH),
	RC(WRITE_FIRST, WRITE | FIRST | RETH, XDH),
	RC(WRITE_MIDDLE, WRITE | MIDDLE, XDH | RETH),
	RC(WRITE_LAST, WRITE | LAST, XDH | RETH),
	RC(WRITE_LAST_IMM, WRITE | LAST | IMM, XDH | RETH),
	RC(WRITE_ONLY, WRITE | ONLY | RETH, XDH),
	RC(WRITE_ONLY_IMM, WRITE | ONLY | RETH | IMM, XDH),
	RC(READ_REQUEST, READ | RETH, XDH),
	RC_READ_RESP(READ_RESP_FIRST, READ_RESP | FIRST, AETH),
	RC_READ_RESP(READ_RESP_MIDDLE, READ_RESP | MIDDLE, 0),
	RC_READ_RESP(READ_RESP_LAST, READ_RESP | LAST, AETH),
	RC_READ_RESP(READ_RESP_ONLY, READ_RESP | ONLY, AETH),
	RC(ACK, DP_IS_RESPONSE | AETH, DP_HAS_XAH),
	RC(ATOMIC_ACK, DP_IS_RESPONSE | AETH | DP_HAS_ATOMIC_ACK_ETH, 0),
	RC(COMPARE_SWAP, ATOMIC, XDH),
	RC(FETCH_ADD, ATOMIC, XDH),
	RC(FLUSH, ONCE | DP_HAS_FETH | RETH, XDH),
	RC(ATOMIC_WRITE, ONCE | RETH | DP_HAS_PAYLOAD, XDH),
	ROW(DP_OP_UD_SEND_ONLY, "UD_SEND_ONLY", SEND | ONLY | DETH),
	ROW(DP_OP_UD_SEND_ONLY_IMM, "UD_SEND_ONLY_IMM", SEND | ONLY | DETH | IMM),
	ROW(DP_OP_CNP, "CNP", DP_IS_CNP),
	ROW(DP_OP_HELLO, "HELLO", DP_HAS_HELLO),
	ROW(DP_OP_HELLO_REPLY, "HELLO_REPLY", DP_HAS_HELLO),
	ROW(DP_OP_PROBE, "PROBE", DP_IS_PROBE | DP_HAS_PAYLOAD),
	ROW(DP_OP_PROBE_REPLY, "PROBE_REPLY", DP_IS_PROBE | DP_HAS_PAYLOAD),
	ROW(DP_OP_DEMAND, "DEMAND", DP_HAS_DEMAND),
	ROW(DP_OP_GRANT, "GRANT", DP_HAS_GRANT),
	ROW(DP_OP_CREDIT, "CREDIT", DP_HAS_CREDIT),
	ROW(DP_OP_WRITE_BUNDLE, "WRITE_BUNDLE", WRITE | ONLY | XDH | DP_IS_BUNDLE),
	ROW(DP_OP_SEND_BUNDLE, "SEND_BUNDLE", SEND | ONLY | XDH | DP_IS_BUNDLE),
};
