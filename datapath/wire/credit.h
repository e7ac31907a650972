/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DEMAND, GRANT and CREDIT: how a receiver that gives grants paces its senders (extended mode).
 *
 * DEMAND (opcode 0xE4; BTH with PSN 0, then 20 bytes), from the sender of data:
 *   settled(32)  payload bytes of SENDs and WRITEs that it has sent, copies as well, and that are
 *                no longer in flight, modulo 2^32: they have arrived or are lost
 *   wanted(32)   the bytes that it has sent and those that it wants to send, modulo 2^32
 *   rtt_ns(32)   lowest time from a DEMAND to the GRANT that knows of it, 0: not known
 *   number(32)   of the newest CREDIT that it has received, 0: none
 *   heard(32)    how many CREDITs it has received, modulo 2^32
 *
 * GRANT (opcode 0xE5; BTH with PSN 0, then 12 bytes), from the receiver of data:
 *   granted(32)  how many bytes the sender may have sent altogether, modulo 2^32
 *   wanted(32)   of the newest DEMAND
 *   dscp(8)      of the packets that leave by grants, 255: that of the QP's other packets
 *   reserved(24) 0
 *
 * CREDIT (opcode 0xE6; BTH with PSN 0, then 4 bytes), from the receiver of data:
 *   number(32)   1 for the first of a connection, then one more for each, modulo 2^32
 *
 * All numbers of DEMAND and GRANT are totals.  So a lost packet is made up for by the next one, and
 * a late one does nothing.  A CREDIT is not a total: it lets the sender send the bytes of one full
 * packet, and one that is lost is lost, so that the network can limit data by dropping CREDITs.
 */
#ifndef DP_WIRE_CREDIT_H
#define DP_WIRE_CREDIT_H

#include "wire/headers.h"

enum {
	DP_DEMAND_LEN = 20,
	DP_GRANT_LEN = 12,
	DP_CREDIT_LEN = 4,
	DP_GRANT_OWN_DSCP = 255,
};

struct dp_demand {
	uint32_t settled, wanted, rtt_ns;
	uint32_t number, heard; /* of CREDITs */
};

static inline void dp_demand_get(const uint8_t *h, struct dp_demand *out)
{
	out->settled = dp_get32(h);
	out->wanted = dp_get32(h + 4);
	out->rtt_ns = dp_get32(h + 8);
	out->number = dp_get32(h + 12);
	out->heard = dp_get32(h + 16);
}

static inline void dp_demand_set(uint8_t *h, const struct dp_demand *in)
{
	dp_put32(h, in->settled);
	dp_put32(h + 4, in->wanted);
	dp_put32(h + 8, in->rtt_ns);
	dp_put32(h + 12, in->number);
	dp_put32(h + 16, in->heard);
}

struct dp_grant {
	uint32_t granted, wanted;
	uint8_t dscp;
};

static inline void dp_grant_get(const uint8_t *h, struct dp_grant *out)
{
	out->granted = dp_get32(h);
	out->wanted = dp_get32(h + 4);
	out->dscp = h[8];
}

static inline void dp_grant_set(uint8_t *h, const struct dp_grant *in)
{
	dp_put32(h, in->granted);
	dp_put32(h + 4, in->wanted);
	dp_put32(h + 8, (uint32_t)in->dscp << 24);
}

#endif
