/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The IPv4 header (RFC 791) without options: offsets, and checksums. */
#ifndef DP_WIRE_IPV4_H
#define DP_WIRE_IPV4_H

#include "wire/headers.h"

enum {
	DP_IPV4_LEN = 20,

	DP_IPV4_TOS = 1,
	DP_IPV4_TOTAL = 2,
	DP_IPV4_ID = 4,
	DP_IPV4_FRAG = 6,
	DP_IPV4_TTL = 8,
	DP_IPV4_PROTO = 9,
	DP_IPV4_SUM = 10,
	DP_IPV4_SRC = 12,
	DP_IPV4_DST = 16,
	DP_IPV4_DF = 0x4000,
	DP_IPV4_FRAGMENT = 0x3fff, /* more-fragments flag and offset */
};

/* The value of the checksum field (RFC 1071). */
static inline uint16_t dp_ipv4_sum(const uint8_t *ip)
{
	uint32_t sum = 0;

	for (int i = 0; i < DP_IPV4_LEN; i += 2)
		sum += i == DP_IPV4_SUM ? 0 : dp_get16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~((sum & 0xffff) + (sum >> 16));
}

/* RFC 1624, equation 3: a checksum after one of the 16-bit words under it has changed. */
static inline uint16_t dp_sum_update(uint16_t sum, uint16_t before, uint16_t after)
{
	uint32_t n = (uint16_t)~sum + (uint32_t)(uint16_t)~before + after;

	n = (n & 0xffff) + (n >> 16);
	return (uint16_t) ~((n & 0xffff) + (n >> 16));
}

#endif
