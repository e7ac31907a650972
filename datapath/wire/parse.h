/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a received datagram to checked pointers: after dp_packet_parse() has
 * returned 0, every header that the opcode calls for is present and whole.
 */
#ifndef DP_WIRE_PARSE_H
#define DP_WIRE_PARSE_H

#include "wire/credit.h"
#include "wire/ext.h"
#include "wire/packet.h"

struct dp_parsed {
	uint8_t opcode; /* with the DP_OP_EXT bits */
	bool ack_req, solicited, becn;
	bool handed_on; /* as DP_PKT_HANDED_ON */
	bool cut;	/* trimmed: the payload is missing, and nothing is proven */
	uint32_t mask;	/* dp_opcodes[opcode].mask */
	uint32_t psn;
	uint32_t dest_qpn;
	/* NULL where the opcode has no such header */
	const uint8_t *hello, *xdh, *reth, *atomic, *aeth, *atomic_ack, *imm, *ieth, *xah, *deth,
		*feth, *demand, *grant, *credit;
	const uint8_t *room; /* request: room for telemetry; NULL: none */
	/* xah: 4 * words bytes of bitmap, 4 * n_trimmed and 4 * n_marked of PSNs, 16 * n_hops
	 * of telemetry */
	const uint8_t *sack, *trimmed, *marked, *hops;
	/* payload without pad and ICRC, in one piece or two */
	const uint8_t *payload, *payload2;
	uint32_t payload_len, payload2_len;
	uint64_t arrived_ns; /* when the packet left the network, not checked; 0: not known */
};

/* 0; -EBADMSG: truncated, bad TVer or pad; -EOPNOTSUPP: opcode not known.
 * Does not look at the ICRC.  With DP_PKT_NO_PAYLOAD, payload is NULL and
 * payload_len is pkt->pay_len. */
int dp_packet_parse(const struct dp_packet *, struct dp_parsed *out);

#endif
