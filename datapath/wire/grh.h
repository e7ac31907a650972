/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The 40 bytes that stand in front of a datagram in its receive buffer: the global
 * routing header of InfiniBand, whose place RoCEv2 gives to the packet's IP header
 * (IBTA annex A17).  An IPv6 header fills it; an IPv4 header takes the last 20 bytes,
 * and the first 20 are zero.
 */
#ifndef DP_WIRE_GRH_H
#define DP_WIRE_GRH_H

#include "wire/packet.h"

enum { DP_GRH_LEN = 40 };

/* From what the port tells of the packet's IP header.  No port tells the hop limit and
 * the IPv6 flow label, which are 0 here. */
void dp_grh_set(uint8_t grh[40], const struct dp_packet *);

#endif
