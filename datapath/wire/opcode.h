/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RoCEv2 opcodes of RC and UD, one row each (IBTA vol. 1, section 9.2 and table 38).
 *
 * A row gives the extension headers that follow the BTH, in order, and what
 * kind of packet it is.  Lengths and offsets follow from the mask, so a fact
 * about an opcode stands in one place only.
 *
 * The extended form of an RC opcode is the opcode itself plus DP_OP_EXT
 * (0xC0): the manufacturer's range, which a standard peer drops.  It carries
 * an XDH after the BTH; see wire/ext.h.
 */
#ifndef DP_WIRE_OPCODE_H
#define DP_WIRE_OPCODE_H

#include <stdbool.h>
#include <stdint.h>

enum dp_opcode {
	DP_OP_SEND_FIRST = 0x00,
	DP_OP_SEND_MIDDLE = 0x01,
	DP_OP_SEND_LAST = 0x02,
	DP_OP_SEND_LAST_IMM = 0x03,
	DP_OP_SEND_ONLY = 0x04,
	DP_OP_SEND_ONLY_IMM = 0x05,
	DP_OP_WRITE_FIRST = 0x06,
	DP_OP_WRITE_MIDDLE = 0x07,
	DP_OP_WRITE_LAST = 0x08,
	DP_OP_WRITE_LAST_IMM = 0x09,
	DP_OP_WRITE_ONLY = 0x0a,
	DP_OP_WRITE_ONLY_IMM = 0x0b,
	DP_OP_READ_REQUEST = 0x0c,
	DP_OP_READ_RESP_FIRST = 0x0d,
	DP_OP_READ_RESP_MIDDLE = 0x0e,
	DP_OP_READ_RESP_LAST = 0x0f,
	DP_OP_READ_RESP_ONLY = 0x10,
	DP_OP_ACK = 0x11,
	DP_OP_ATOMIC_ACK = 0x12,
	DP_OP_COMPARE_SWAP = 0x13,
	DP_OP_FETCH_ADD = 0x14,
	DP_OP_SEND_LAST_INV = 0x16,
	DP_OP_SEND_ONLY_INV = 0x17,
	DP_OP_FLUSH = 0x1c,
	DP_OP_ATOMIC_WRITE = 0x1d,
	DP_OP_UD_SEND_ONLY = 0x64,
	DP_OP_UD_SEND_ONLY_IMM = 0x65,
	DP_OP_CNP = 0x81,

	DP_OP_EXT = 0xc0,	   /* + RC opcode: its extended form */
	DP_OP_HELLO = 0xe0,	   /* offer of extended mode */
	DP_OP_HELLO_REPLY = 0xe1,  /* acceptance of it */
	DP_OP_PROBE = 0xe2,	   /* does the path carry a packet of this size? */
	DP_OP_PROBE_REPLY = 0xe3,  /* yes, both ways: as long as the probe */
	DP_OP_DEMAND = 0xe4,	   /* a sender tells how much it wants to send */
	DP_OP_GRANT = 0xe5,	   /* a receiver tells how much the sender may send */
	DP_OP_CREDIT = 0xe6,	   /* a receiver lets the sender send one packet */
	DP_OP_WRITE_BUNDLE = 0xe7, /* several short WRITEs in one packet */
	DP_OP_SEND_BUNDLE = 0xe8,  /* several short SENDs in one packet */
};

/* The kind of a packet, and the headers that it carries (mask). */
enum dp_op_mask {
	DP_HAS_RETH = 1 << 0,
	DP_HAS_ATOMIC_ETH = 1 << 1,
	DP_HAS_AETH = 1 << 2,
	DP_HAS_ATOMIC_ACK_ETH = 1 << 3,
	DP_HAS_IMM = 1 << 4,
	DP_HAS_IETH = 1 << 5,
	DP_HAS_XDH = 1 << 6, /* extended request or read response */
	DP_HAS_XAH = 1 << 7, /* extended acknowledgement */
	DP_HAS_HELLO = 1 << 8,
	DP_HAS_PAYLOAD = 1 << 9,
	DP_IS_FIRST = 1 << 10,
	DP_IS_MIDDLE = 1 << 11,
	DP_IS_LAST = 1 << 12,
	DP_IS_SEND = 1 << 13,
	DP_IS_WRITE = 1 << 14,
	DP_IS_READ = 1 << 15,
	DP_IS_ATOMIC = 1 << 16,
	DP_IS_REQUEST = 1 << 17,
	DP_IS_RESPONSE = 1 << 18, /* READ response, ACK or ATOMIC ACK */
	DP_IS_READ_RESP = 1 << 19,
	DP_IS_CNP = 1 << 20,
	DP_IS_PROBE = 1 << 21,
	DP_HAS_DETH = 1 << 22, /* of an unreliable datagram; no other packet has one */
	DP_HAS_FETH = 1 << 23,
	DP_HAS_DEMAND = 1 << 24,
	DP_HAS_GRANT = 1 << 25,
	DP_HAS_CREDIT = 1 << 26,
	DP_IS_BUNDLE = 1 << 27, /* its payload is several messages, each behind a head */
};

struct dp_opcode_info {
	const char *name; /* NULL: no such opcode */
	uint32_t mask;	  /* enum dp_op_mask */
	uint8_t hdr_len;  /* BTH and extension headers, bytes, without what they announce */
};

/* One row for each of the 256 values of the BTH opcode field. */
extern const struct dp_opcode_info dp_opcodes[256];

static inline bool dp_op_is_ext(uint8_t opcode)
{
	return opcode >= DP_OP_EXT;
}

#endif
