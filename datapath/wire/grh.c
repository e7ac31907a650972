// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "wire/grh.h"

#include "wire/ipv4.h"

enum { UDP_LEN = 8, PROTO_UDP = 17 };

static void set_ipv4(uint8_t *ip, const struct dp_packet *pkt, uint16_t carried)
{
	ip[0] = 0x45;
	ip[DP_IPV4_TOS] = pkt->tos;
	dp_put16(ip + DP_IPV4_TOTAL, DP_IPV4_LEN + carried);
	dp_put16(ip + DP_IPV4_ID, pkt->ip_id);
	dp_put16(ip + DP_IPV4_FRAG, DP_IPV4_DF);
	ip[DP_IPV4_PROTO] = PROTO_UDP;
	memcpy(ip + DP_IPV4_SRC, pkt->src.b + 12, 4);
	memcpy(ip + DP_IPV4_DST, pkt->dst.b + 12, 4);
	dp_put16(ip + DP_IPV4_SUM, dp_ipv4_sum(ip));
}

static void set_ipv6(uint8_t *ip, const struct dp_packet *pkt, uint16_t carried)
{
	dp_put32(ip, 6u << 28 | (uint32_t)pkt->tos << 20);
	dp_put16(ip + 4, carried);
	ip[6] = PROTO_UDP;
	memcpy(ip + 8, pkt->src.b, 16);
	memcpy(ip + 24, pkt->dst.b, 16);
}

void dp_grh_set(uint8_t grh[40], const struct dp_packet *pkt)
{
	uint16_t carried = (uint16_t)(UDP_LEN + pkt->len + pkt->frag_len);

	memset(grh, 0, DP_GRH_LEN);
	if (dp_addr_is_v4(&pkt->src))
		set_ipv4(grh + DP_GRH_LEN - DP_IPV4_LEN, pkt, carried);
	else
		set_ipv6(grh, pkt, carried);
}
