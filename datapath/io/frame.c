// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/frame.h"

#include <errno.h>
#include <string.h>

#include "io/addr.h"
#include "wire/ipv4.h"
#include "wire/trim.h"

enum {
	ETHERTYPE_OFF = 12,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_IPV6 = 0x86dd,

	V6_PAYLOAD = 4,
	V6_NEXT = 6,
	V6_HOPS = 7,
	V6_SRC = 8,
	V6_DST = 24,

	UDP_SPORT = 0,
	UDP_DPORT = 2,
	UDP_LENGTH = 4,
	UDP_CHECKSUM = 6,

	HOP_LIMIT = 64,
};

void dp_frame_template(struct dp_frame_template *t, const uint8_t dst_mac[6],
		       const uint8_t src_mac[6], const struct dp_addr *dst,
		       const struct dp_addr *src)
{
	uint8_t *ip = t->hdr + DP_ETH_LEN, *udp;

	memset(t, 0, sizeof(*t));
	memcpy(t->hdr, dst_mac, 6);
	memcpy(t->hdr + 6, src_mac, 6);
	if (dp_addr_is_v4(dst)) {
		dp_put16(t->hdr + ETHERTYPE_OFF, ETHERTYPE_IPV4);
		ip[0] = 0x45;
		dp_put16(ip + DP_IPV4_FRAG, DP_IPV4_DF);
		ip[DP_IPV4_TTL] = HOP_LIMIT;
		ip[DP_IPV4_PROTO] = IPPROTO_UDP;
		memcpy(ip + DP_IPV4_SRC, src->b + 12, 4);
		memcpy(ip + DP_IPV4_DST, dst->b + 12, 4);
		for (int i = 0; i < DP_IPV4_LEN; i += 2)
			t->v4_sum += dp_get16(ip + i);
		udp = ip + DP_IPV4_LEN;
	} else {
		dp_put16(t->hdr + ETHERTYPE_OFF, ETHERTYPE_IPV6);
		ip[0] = 0x60;
		ip[V6_NEXT] = IPPROTO_UDP;
		ip[V6_HOPS] = HOP_LIMIT;
		memcpy(ip + V6_SRC, src->b, 16);
		memcpy(ip + V6_DST, dst->b, 16);
		udp = ip + DP_IPV6_LEN;
	}
	dp_put16(udp + UDP_DPORT, DP_ROCE_PORT);
	t->len = (uint32_t)(udp + DP_UDP_LEN - t->hdr);
}

void dp_frame_write(const struct dp_frame_template *t, const struct dp_packet *pkt)
{
	uint8_t *udp = pkt->data - DP_UDP_LEN;
	uint8_t *ip = pkt->data - t->len + DP_ETH_LEN;
	uint16_t udp_len = (uint16_t)(pkt->len + DP_UDP_LEN);

	memcpy(pkt->data - t->len, t->hdr, t->len);
	if (t->v4_sum) {
		uint16_t total = udp_len + DP_IPV4_LEN;
		uint32_t sum = t->v4_sum + pkt->tos + total;

		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		ip[DP_IPV4_TOS] = pkt->tos;
		dp_put16(ip + DP_IPV4_TOTAL, total);
		dp_put16(ip + DP_IPV4_SUM, (uint16_t)~sum);
	} else {
		ip[0] = 0x60 | pkt->tos >> 4;
		ip[1] = (uint8_t)(pkt->tos << 4);
		dp_put16(ip + V6_PAYLOAD, udp_len);
	}
	/* The UDP checksum stays zero, as in rxe: the ICRC covers the packet. */
	dp_put16(udp + UDP_SPORT, pkt->sport);
	dp_put16(udp + UDP_LENGTH, udp_len);
}

/* Both functions return the bytes behind the IP header, or 0 if the header is not valid. */
static uint32_t read_ipv4(const uint8_t *ip, uint32_t room, struct dp_packet *out)
{
	uint32_t total = dp_get16(ip + DP_IPV4_TOTAL);

	if (ip[0] != 0x45 || ip[DP_IPV4_PROTO] != IPPROTO_UDP || total > room ||
	    total < DP_IPV4_LEN || dp_get16(ip + DP_IPV4_FRAG) & DP_IPV4_FRAGMENT)
		return 0;
	dp_addr_from_v4(&out->src, ip + DP_IPV4_SRC);
	dp_addr_from_v4(&out->dst, ip + DP_IPV4_DST);
	out->tos = ip[DP_IPV4_TOS];
	out->ip_id = dp_get16(ip + DP_IPV4_ID);
	return total - DP_IPV4_LEN;
}

static uint32_t read_ipv6(const uint8_t *ip, uint32_t room, struct dp_packet *out)
{
	uint32_t payload = dp_get16(ip + V6_PAYLOAD);

	if (ip[0] >> 4 != 6 || ip[V6_NEXT] != IPPROTO_UDP || payload + DP_IPV6_LEN > room)
		return 0;
	memcpy(out->src.b, ip + V6_SRC, 16);
	memcpy(out->dst.b, ip + V6_DST, 16);
	out->tos = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
	out->ip_id = 0;
	return payload;
}

int dp_frame_read(uint8_t *frame, uint32_t len, uint32_t total, struct dp_packet *out)
{
	uint8_t *ip = frame + DP_ETH_LEN, *udp;
	uint32_t carried, udp_len;

	if (len < DP_FRAME_HDR_MAX && len < total)
		return -EBADMSG; /* the headers lie in two pieces */
	if (len < DP_ETH_LEN + DP_IPV4_LEN + DP_UDP_LEN)
		return -EBADMSG;
	if (dp_get16(frame + ETHERTYPE_OFF) == ETHERTYPE_IPV4) {
		carried = read_ipv4(ip, total - DP_ETH_LEN, out);
		udp = ip + DP_IPV4_LEN;
	} else if (dp_get16(frame + ETHERTYPE_OFF) == ETHERTYPE_IPV6 && len >= DP_FRAME_HDR_MAX) {
		carried = read_ipv6(ip, total - DP_ETH_LEN, out);
		udp = ip + DP_IPV6_LEN;
	} else {
		return -EBADMSG;
	}
	if (carried < DP_UDP_LEN || dp_get16(udp + UDP_DPORT) != DP_ROCE_PORT)
		return -EBADMSG;
	udp_len = dp_get16(udp + UDP_LENGTH);
	/* In RoCE the two lengths agree; if they differ, the packet is damaged. */
	if (udp_len != carried)
		return -EBADMSG;
	out->sport = dp_get16(udp + UDP_SPORT);
	out->data = udp + DP_UDP_LEN;
	out->len = udp_len - DP_UDP_LEN;
	return 0;
}

uint32_t dp_frame_trim(uint8_t *frame, uint32_t len)
{
	struct dp_packet pkt = { 0 };
	uint8_t *ip = frame + DP_ETH_LEN, *udp;
	uint32_t total;

	if (dp_frame_read(frame, len, len, &pkt) || !dp_trim(&pkt))
		return 0;
	udp = pkt.data - DP_UDP_LEN;
	total = (uint32_t)(pkt.data - frame) + pkt.len;
	if (ip[0] >> 4 == 4) {
		ip[DP_IPV4_TOS] = pkt.tos;
		dp_put16(ip + DP_IPV4_TOTAL, (uint16_t)(total - DP_ETH_LEN));
		dp_put16(ip + DP_IPV4_SUM, dp_ipv4_sum(ip));
	} else {
		ip[0] = 0x60 | pkt.tos >> 4;
		ip[1] = (uint8_t)(pkt.tos << 4) | (ip[1] & 0xf);
		dp_put16(ip + V6_PAYLOAD, (uint16_t)(pkt.len + DP_UDP_LEN));
	}
	dp_put16(udp + UDP_LENGTH, (uint16_t)(pkt.len + DP_UDP_LEN));
	dp_put16(udp + UDP_CHECKSUM, 0);
	return total;
}
