/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * In-band telemetry of the extended mode (after HPCC, SIGCOMM 2019, section
 * 3.1): what each switch on the path knew when it sent the packet on.
 *
 * A request whose XDH says so (flags, bits 4-7: number of records) has a room
 * directly behind the XDH:
 *   n_hops(8) resv(24), then that many records of 16 bytes, of which the first
 *   n_hops are filled in:
 *   queue_bytes(32)  length of the egress queue
 *   ts_ns(32)        the switch's clock, modulo 2^32
 *   tx_bytes(40)     sent by the egress port, modulo 2^40
 *   rate_mbps(24)    of the egress port
 * The ICRC takes every byte of the room as ones, so switches fill it in flight.
 * The receiver echoes the newest records in its acknowledgement (XAH).
 */
#ifndef DP_WIRE_TELEMETRY_H
#define DP_WIRE_TELEMETRY_H

#include "wire/ext.h"

struct dp_telemetry {
	uint64_t queue_bytes, ts_ns, tx_bytes, rate_mbps;
};

/* Bytes of the room of a datagram (BTH first, len bytes); 0: it has none. */
static inline uint32_t dp_telemetry_len(const uint8_t *bth, uint32_t len)
{
	uint32_t mask = dp_opcodes[dp_bth_opcode(bth)].mask, records, room;

	if ((mask & (DP_HAS_XDH | DP_IS_REQUEST)) != (DP_HAS_XDH | DP_IS_REQUEST) ||
	    len < DP_BTH_LEN + DP_XDH_LEN)
		return 0;
	records = dp_xdh_records(bth + DP_BTH_LEN);
	room = dp_room_len(records);
	return records <= DP_HOPS_MAX && DP_BTH_LEN + DP_XDH_LEN + room <= len ? room : 0;
}

static inline void dp_telemetry_set(uint8_t *r, const struct dp_telemetry *in)
{
	dp_put32(r, in->queue_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)in->queue_bytes);
	dp_put32(r + 4, (uint32_t)in->ts_ns);
	dp_put64(r + 8, in->tx_bytes << 24 | (in->rate_mbps & 0xffffff));
}

static inline void dp_telemetry_get(const uint8_t *r, struct dp_telemetry *out)
{
	uint64_t last = dp_get64(r + 8);

	out->queue_bytes = dp_get32(r);
	out->ts_ns = dp_get32(r + 4);
	out->tx_bytes = last >> 24;
	out->rate_mbps = last & 0xffffff;
}

/* What a switch does to a datagram (BTH first, len bytes) that it sends on: adds
 * its record.  1; 0 if the packet has no room, or none left. */
static inline int dp_telemetry_stamp(uint8_t *bth, uint32_t len, const struct dp_telemetry *record)
{
	uint32_t room = dp_telemetry_len(bth, len);
	uint8_t *at = bth + DP_BTH_LEN + DP_XDH_LEN;

	if (!room || dp_room_len(at[0] + 1u) > room)
		return 0;
	dp_telemetry_set(at + DP_ROOM_HEAD_LEN + at[0] * DP_HOP_LEN, record);
	at[0]++;
	return 1;
}

#endif
