/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The invariant CRC (IBTA vol. 1, section 7.8.1, and annex A17.3.3): CRC-32
 * of eight bytes of ones, the IP and UDP headers with the fields that routers
 * change taken as ones, the BTH with its FECN/BECN byte as ones, and the rest.
 * Stored little-endian behind the payload.
 *
 * Both functions rebuild the IP and UDP headers from struct dp_packet: IPv4
 * with DF set and no options when src is IPv4-mapped, IPv6 with flow label 0
 * otherwise.  Extended opcodes take the identification as zero (wire/ext.h), and
 * the room for telemetry in a request as ones (wire/telemetry.h).
 */
#ifndef DP_WIRE_ICRC_H
#define DP_WIRE_ICRC_H

#include <stdbool.h>

#include "wire/packet.h"

/* Appends the ICRC: data[len..len+4), len grows by 4.  Needs that room. */
void dp_icrc_append(struct dp_packet *);
/* Whether the last four bytes are the ICRC of the bytes before them. */
bool dp_icrc_check(const struct dp_packet *);

#endif
