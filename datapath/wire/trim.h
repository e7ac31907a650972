/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Trimming: a switch whose queue is full cuts the payload off a data packet of the
 * extended mode and sends the headers on, with a DSCP that says so (as NDP,
 * SIGCOMM 2017, and Ultra Ethernet have it).  The IP and UDP lengths become those
 * of what is left.  The ICRC is gone with the payload, so a trimmed packet proves
 * nothing: the receiver tells the sender, who may send the PSN again.
 */
#ifndef DP_WIRE_TRIM_H
#define DP_WIRE_TRIM_H

#include <stdbool.h>

#include "wire/packet.h"
#include "wire/telemetry.h"

enum { DP_DSCP_TRIMMED = 43 }; /* of the values for local use, RFC 2474 */

/* Whether packets of this opcode can be trimmed: they are data of the extended mode. */
static inline bool dp_can_be_trimmed(const struct dp_opcode_info *info)
{
	return info->mask & DP_HAS_XDH && info->mask & DP_HAS_PAYLOAD;
}

/* Of a packet with a whole BTH.  Any other packet may have the DSCP as well: a standard peer is
 * free to choose it, and a network may write it. */
static inline bool dp_is_trimmed(const struct dp_packet *pkt)
{
	return pkt->tos >> 2 == DP_DSCP_TRIMMED &&
	       dp_can_be_trimmed(&dp_opcodes[dp_bth_opcode(pkt->data)]);
}

/* What trimming leaves of a datagram (BTH first, len bytes): its headers.  0: it
 * cannot be trimmed, since it is not of the extended mode or has no payload
 * by its opcode. */
static inline uint32_t dp_trim_len(const uint8_t *bth, uint32_t len)
{
	const struct dp_opcode_info *info;
	uint32_t left;

	if (len < DP_BTH_LEN)
		return 0;
	info = &dp_opcodes[dp_bth_opcode(bth)];
	if (!dp_can_be_trimmed(info))
		return 0;
	left = info->hdr_len + dp_telemetry_len(bth, len);
	return left <= len ? left : 0;
}

/* Trims a packet in place; false: it cannot be, or there is nothing to cut. */
static inline bool dp_trim(struct dp_packet *pkt)
{
	uint32_t left = dp_trim_len(pkt->data, pkt->len);

	if (!left || (left == pkt->len && !pkt->pay_len))
		return false;
	pkt->len = left;
	pkt->frag_len = pkt->pay_len = 0;
	pkt->tos = (uint8_t)(DP_DSCP_TRIMMED << 2 | (pkt->tos & DP_ECN_MASK));
	return true;
}

#endif
