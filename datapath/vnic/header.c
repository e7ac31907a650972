// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "vnic/header.h"

#include "link/switch.h"
#include "wire/ipv4.h"

enum {
	PORTS_LEN = 4,
	PROTO_HOP_BY_HOP = 0,
	PROTO_ROUTING = 43,
	PROTO_FRAGMENT = 44,
	PROTO_AUTHENTICATION = 51,
	PROTO_DESTINATION = 60,
	FRAGMENT_OFFSET = 0xfff8,
};

/* The TCP header (RFC 9293, 3.1): offsets and lengths. */
enum {
	TCP_LEN = 20, /* without options */
	TCP_OFFSET = 12,
	TCP_FLAGS = 13,
	TCP_SUM = 16,
	TCP_SYN = 2,
	TCP_END = 0, /* kinds of options */
	TCP_NOP = 1,
	TCP_MSS = 2,
	TCP_MSS_LEN = 4,
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

static bool is_extension(uint8_t protocol)
{
	return protocol == PROTO_HOP_BY_HOP || protocol == PROTO_ROUTING ||
	       protocol == PROTO_FRAGMENT || protocol == PROTO_AUTHENTICATION ||
	       protocol == PROTO_DESTINATION;
}

/* 0: of a fragment that is not the first, which has no further headers. */
static uint32_t extension_len(const uint8_t *extension, uint8_t protocol)
{
	if (protocol == PROTO_FRAGMENT)
		return dp_get16(extension + 2) & FRAGMENT_OFFSET ? 0 : 8;
	if (protocol == PROTO_AUTHENTICATION)
		return (extension[1] + 2u) * 4;
	return (extension[1] + 1u) * 8;
}

/* Reads the type of an ICMPv6 message, behind whatever extension headers.  false: they are cut
 * short, which a first fragment must not do either (RFC 7112). */
static bool read_icmp6(const uint8_t *b, uint32_t len, struct header *h)
{
	uint8_t protocol = b[ETH_LEN + 6];
	uint32_t at = ETH_LEN + IPV6_LEN, n;

	while (is_extension(protocol)) {
		if (at + 8 > len)
			return false;
		n = extension_len(b + at, protocol);
		if (!n)
			return true;
		protocol = b[at];
		at += n;
	}
	if (protocol != PROTO_ICMPV6)
		return true;
	if (at >= len)
		return false;
	h->icmp6 = b[at];
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
	return read_icmp6(b, len, h);
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
	int order = memcmp(h->src.b, h->dst.b, sizeof(h->src.b));

	if (order > 0 || (!order && h->sport > h->dport))
		return dp_flow_hash(&h->dst, &h->src, h->dport, h->sport);
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

/* Offset of the option that offers a largest segment, in a SYN of `len` bytes; 0: there is none. */
static uint32_t mss_option(const uint8_t *tcp, uint32_t len)
{
	uint32_t at = TCP_LEN, end;

	if (len < TCP_LEN || !(tcp[TCP_FLAGS] & TCP_SYN))
		return 0;
	end = (tcp[TCP_OFFSET] >> 4) * 4u;
	if (end > len)
		return 0;
	while (at + 1 < end && tcp[at] != TCP_END) {
		uint32_t option = tcp[at] == TCP_NOP ? 1 : tcp[at + 1];

		if (!option || at + option > end)
			return 0;
		if (tcp[at] == TCP_MSS)
			return option == TCP_MSS_LEN ? at : 0;
		at += option;
	}
	return 0;
}

static uint16_t swapped(uint16_t v)
{
	return (uint16_t)(v << 8 | v >> 8);
}

bool header_fit_mss(uint8_t *b, uint32_t len, const struct header *h, uint32_t room)
{
	uint8_t *tcp = b + h->transport;
	uint32_t headers = h->transport + TCP_LEN, at, full;
	uint16_t before, after;

	if (h->protocol != PROTO_TCP || !h->has_ports)
		return false;
	at = mss_option(tcp, len - h->transport);
	before = at ? dp_get16(tcp + at + 2) : 0;
	full = (headers + before) / room * room;
	if (full <= headers || full == headers + before)
		return false;
	after = (uint16_t)(full - headers);
	dp_put16(tcp + at + 2, after);
	if (at % 2) { /* it lies across two words */
		before = swapped(before);
		after = swapped(after);
	}
	dp_put16(tcp + TCP_SUM, dp_sum_update(dp_get16(tcp + TCP_SUM), before, after));
	return true;
}
