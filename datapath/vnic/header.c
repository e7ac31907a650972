// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "vnic/header.h"

#include "link/switch.h"
#include "wire/ipv4.h"

enum {
	PORTS_LEN = 4,
	PROTO_HOP_BY_HOP = 0,
	PROTO_FRAGMENT = 44,
};

static void read_transport(const uint8_t *b, uint32_t len, struct header *h)
{
	bool has_ports = h->protocol == PROTO_UDP || h->protocol == PROTO_TCP;

	if (h->fragment || !has_ports || h->transport + PORTS_LEN > len)
		return;
	h->has_ports = true;
	h->sport = dp_get16(b + h->transport);
	h->dport = dp_get16(b + h->transport + 2);
}

static bool read_ipv4(const uint8_t *b, uint32_t len, struct header *h)
{
	const uint8_t *ip = b + ETH_LEN;
	uint32_t header_len;

	if (len < ETH_LEN + DP_IPV4_LEN || ip[0] >> 4 != 4)
		return false;
	header_len = (ip[0] & 15) * 4u;
	if (header_len < DP_IPV4_LEN || ETH_LEN + header_len > len)
		return false;
	h->version = 4;
	h->protocol = ip[DP_IPV4_PROTO];
	h->ecn = ip[DP_IPV4_TOS] & DP_ECN_MASK;
	h->fragment = dp_get16(ip + DP_IPV4_FRAG) & DP_IPV4_FRAGMENT;
	h->transport = ETH_LEN + header_len;
	dp_addr_from_v4(&h->src, ip + DP_IPV4_SRC);
	dp_addr_from_v4(&h->dst, ip + DP_IPV4_DST);
	read_transport(b, len, h);
	return true;
}

static bool read_ipv6(const uint8_t *b, uint32_t len, struct header *h)
{
	const uint8_t *ip = b + ETH_LEN;

	if (len < ETH_LEN + IPV6_LEN || ip[0] >> 4 != 6)
		return false;
	h->version = 6;
	h->protocol = ip[6];
	h->ecn = ip[1] >> 4 & DP_ECN_MASK;
	h->transport = ETH_LEN + IPV6_LEN;
	memcpy(h->src.b, ip + 8, sizeof(h->src.b));
	memcpy(h->dst.b, ip + 24, sizeof(h->dst.b));
	/* Multicast listener reports come behind a router alert option. */
	if (h->protocol == PROTO_HOP_BY_HOP) {
		if (h->transport + 8 > len)
			return false;
		h->protocol = b[h->transport];
		h->transport += (b[h->transport + 1] + 1u) * 8;
	}
	h->fragment = h->protocol == PROTO_FRAGMENT;
	read_transport(b, len, h);
	return true;
}

bool header_read(const uint8_t *b, uint32_t len, struct header *h)
{
	*h = (struct header){ .dst_mac = b, .src_mac = b + MAC_LEN };
	if (len < ETH_LEN)
		return false;
	h->ethertype = dp_get16(b + 2 * MAC_LEN);
	if (h->ethertype == ETHERTYPE_IPV4)
		return read_ipv4(b, len, h);
	if (h->ethertype == ETHERTYPE_IPV6)
		return read_ipv6(b, len, h);
	return true;
}

uint32_t header_hash(const struct header *h)
{
	return dp_flow_hash(&h->src, &h->dst, h->sport, h->dport);
}

void link_local_address(const uint8_t mac[MAC_LEN], struct dp_addr *out)
{
	*out = (struct dp_addr){ .b = { 0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe,
					mac[3], mac[4], mac[5] } };
}

bool header_mark_ce(uint8_t *b, const struct header *h)
{
	uint8_t *ip = b + ETH_LEN;

	if (h->ecn == DP_ECN_NOT_ECT)
		return false;
	if (h->version == 6) {
		ip[1] |= DP_ECN_CE << 4;
		return true;
	}
	/* dp_ipv4_sum() knows no options. */
	if ((ip[0] & 15) * 4 != DP_IPV4_LEN)
		return false;
	ip[DP_IPV4_TOS] |= DP_ECN_CE;
	dp_put16(ip + DP_IPV4_SUM, dp_ipv4_sum(ip));
	return true;
}
