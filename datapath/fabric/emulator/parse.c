// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Reads frames as xdp/impair.bpf.c does: the same frames are exempt, and the same bytes are
 * payload. */
#include <string.h>

#include "fabric/emulator/emulator.h"
#include "wire/ipv4.h"
#include "wire/opcode.h"
#include "wire/trim.h"

enum {
	ETH_LEN = 14,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_IPV6 = 0x86dd,
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	IP_FRAGMENT_OFFSET = 0x1fff,
	PROTO_HOP_BY_HOP = 0,
	PROTO_TCP = 6,
	PROTO_UDP = 17,
	PROTO_ICMPV6 = 58,
	UDP_LEN = 8,
	PORTS_LEN = 4, /* source and destination */
	ROCE_PORT = 4791,
	/* neighbour discovery and multicast listener discovery (RFC 4861, 2710, 3810) */
	ICMP6_MLD_QUERY = 130,
	ICMP6_REDIRECT = 137,
	ICMP6_MLD2_REPORT = 143,
};

/* All headers must lie in the first chunk, of which `len` bytes are valid. */
static bool parse_transport(const uint8_t *b, uint32_t len, uint32_t at, uint8_t protocol,
			    struct chunk *c)
{
	uint32_t payload = at;

	if ((protocol == PROTO_UDP || protocol == PROTO_TCP) && at + PORTS_LEN <= len)
		c->ports = (uint16_t)at;
	if (protocol == PROTO_UDP && at + UDP_LEN <= len) {
		payload = at + UDP_LEN;
		if (dp_get16(b + at + 2) == ROCE_PORT && payload + DP_BTH_LEN <= c->end) {
			c->bth = (uint16_t)payload;
			c->credit = dp_bth_opcode(b + payload) == DP_OP_CREDIT;
			payload += DP_BTH_LEN;
		}
	} else if (protocol == PROTO_TCP && at + 13 <= len) {
		payload = at + (b[at + 12] >> 4) * 4u;
	} else if (protocol == PROTO_ICMPV6 && at < len) {
		if ((b[at] >= ICMP6_MLD_QUERY && b[at] <= ICMP6_REDIRECT) ||
		    b[at] == ICMP6_MLD2_REPORT)
			return false;
	}
	c->payload = (uint16_t)payload;
	return true;
}

static bool parse_ipv4(const uint8_t *b, uint32_t len, struct chunk *c)
{
	const uint8_t *ip = b + ETH_LEN;
	uint32_t at;

	if (len < ETH_LEN + IPV4_LEN)
		return false;
	at = ETH_LEN + (ip[0] & 15) * 4u;
	c->version = 4;
	c->frame.ecn = ip[1] & DP_ECN_MASK;
	c->dscp = ip[1] >> 2;
	c->payload = (uint16_t)at;
	c->end = ETH_LEN + dp_get16(ip + 2);
	if (dp_get16(ip + 6) & IP_FRAGMENT_OFFSET)
		return true;
	return parse_transport(b, len, at, ip[9], c);
}

static bool parse_ipv6(const uint8_t *b, uint32_t len, struct chunk *c)
{
	const uint8_t *ip = b + ETH_LEN;
	uint32_t at = ETH_LEN + IPV6_LEN;
	uint8_t next;

	if (len < at)
		return false;
	c->version = 6;
	c->frame.ecn = ip[1] >> 4 & DP_ECN_MASK;
	c->dscp = (uint8_t)((ip[0] & 15) << 2 | ip[1] >> 6);
	c->payload = (uint16_t)at;
	c->end = at + dp_get16(ip + 4);
	next = ip[6];
	/* Multicast listener reports come behind a router alert option. */
	if (next == PROTO_HOP_BY_HOP && at + 8 <= len) {
		next = b[at];
		at += (b[at + 1] + 1u) * 8;
	}
	return parse_transport(b, len, at, next, c);
}

bool parse_frame(const uint8_t *b, struct chunk *c)
{
	uint16_t type = c->raw.len >= ETH_LEN ? dp_get16(b + 12) : 0;
	bool ip = false;

	c->version = 0;
	c->bth = 0;
	c->ports = 0;
	c->frame.ecn = 0;
	c->dscp = 0;
	c->credit = false;
	if (type == ETHERTYPE_IPV4)
		ip = parse_ipv4(b, c->raw.len, c);
	else if (type == ETHERTYPE_IPV6)
		ip = parse_ipv6(b, c->raw.len, c);
	/* A length that lies touches nothing beyond the frame. */
	if (c->end > c->raw.total)
		c->end = c->raw.total;
	return ip;
}

uint32_t hash_flow(const uint8_t *b, const struct chunk *c)
{
	struct dp_addr src = { .b = { [10] = 0xff, [11] = 0xff } }, dst = src;
	const uint8_t *ip = b + ETH_LEN;
	uint16_t sport = 0, dport = 0;

	if (c->version == 6) {
		memcpy(src.b, ip + 8, 16);
		memcpy(dst.b, ip + 24, 16);
	} else {
		memcpy(src.b + 12, ip + 12, 4);
		memcpy(dst.b + 12, ip + 16, 4);
	}
	if (c->ports) {
		sport = dp_get16(b + c->ports);
		dport = dp_get16(b + c->ports + 2);
	}
	return dp_flow_hash(&src, &dst, sport, dport);
}

static void mark_ipv4(uint8_t *ip)
{
	uint16_t word = dp_get16(ip), marked = word | DP_ECN_CE;

	dp_put16(ip, marked);
	dp_put16(ip + DP_IPV4_SUM, dp_sum_update(dp_get16(ip + DP_IPV4_SUM), word, marked));
}

void mark_ce(uint8_t *b, const struct chunk *c)
{
	if (c->version == 4)
		mark_ipv4(b + ETH_LEN);
	else if (c->version == 6)
		b[ETH_LEN + 1] |= DP_ECN_CE << 4;
}

/* Flips one bit of the payload, in whichever chunk it lies. */
void flip_bit(struct emulator *e, uint32_t first, uint32_t random)
{
	const struct chunk *c = &e->chunk[first];
	uint32_t at, i = first;

	if (c->payload >= c->end)
		return;
	at = c->payload + (uint32_t)((uint64_t)(c->end - c->payload) * random >> 32);
	while (at >= e->chunk[i].raw.len) {
		at -= e->chunk[i].raw.len;
		i = e->chunk[i].raw.next;
		if (i == DP_NO_CHUNK)
			return;
	}
	dp_raw_bytes(&e->raw, i)[at] ^= 1u << (random & 7);
}

/* ---- the work of a switch on packets of ours ---------------------------------------- */

static uint32_t sum_words(const uint8_t *b, uint32_t len)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i + 1 < len; i += 2)
		sum += dp_get16(b + i);
	return len & 1 ? sum + ((uint32_t)b[len - 1] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* The bytes of the datagram from its BTH that lie in the first chunk. */
static uint32_t datagram_len(const struct chunk *c)
{
	uint32_t end = c->raw.len < c->end ? c->raw.len : c->end;

	return end > c->bth ? end - c->bth : 0;
}

/* Updates the UDP checksum after words of the datagram changed their sum; 0: the datagram has no
 * checksum. */
static void update_udp_checksum(uint8_t *udp, uint32_t before, uint32_t after)
{
	uint16_t check = dp_get16(udp + 6);

	if (!check)
		return;
	check = (uint16_t)~fold((uint16_t)~check + (uint32_t)(uint16_t)~fold(before) + fold(after));
	dp_put16(udp + 6, check ? check : 0xffff);
}

void stamp_telemetry(uint8_t *b, const struct chunk *c)
{
	uint8_t *bth = b + c->bth;
	uint32_t room = dp_telemetry_len(bth, datagram_len(c)), before;
	int stamped = 0;

	if (!room)
		return;
	room += DP_BTH_LEN + DP_XDH_LEN;
	before = sum_words(bth, room);
	for (uint32_t i = 0; i < c->frame.n_hops; i++)
		stamped |= dp_telemetry_stamp(bth, datagram_len(c), &c->hop[i]);
	if (stamped)
		update_udp_checksum(bth - UDP_LEN, before, sum_words(bth, room));
}

uint32_t trimmed_len(const uint8_t *b, const struct chunk *c)
{
	uint32_t left = c->bth ? dp_trim_len(b + c->bth, c->end - c->bth) : 0;

	return left && c->bth + left <= c->raw.len ? c->bth + left : 0;
}

/* The checksum of a datagram that lies in one piece, with the pseudo-header (RFC 768, RFC 8200). */
static uint16_t udp_checksum(const uint8_t *ip, bool v6, const uint8_t *udp, uint32_t len)
{
	uint32_t sum = PROTO_UDP + len + sum_words(udp, len);
	uint16_t check = (uint16_t)~fold(sum + sum_words(ip + (v6 ? 8 : 12), v6 ? 32 : 8));

	return check ? check : 0xffff;
}

void trim_payload(uint8_t *b, struct chunk *c)
{
	uint32_t left = trimmed_len(b, c);
	uint8_t *ip = b + ETH_LEN, *udp = b + c->bth - UDP_LEN;
	bool v6 = c->version == 6, summed = dp_get16(udp + 6);
	uint32_t udp_len = left - c->bth + UDP_LEN;

	if (v6) {
		dp_put32(ip, (dp_get32(ip) & ~(0xfcu << 20)) | (uint32_t)DP_DSCP_TRIMMED << 22);
		dp_put16(ip + 4, (uint16_t)(left - ETH_LEN - IPV6_LEN));
	} else {
		ip[1] = (uint8_t)(DP_DSCP_TRIMMED << 2 | (ip[1] & DP_ECN_MASK));
		dp_put16(ip + 2, (uint16_t)(left - ETH_LEN));
		dp_put16(ip + 10, 0);
		dp_put16(ip + 10, (uint16_t)~fold(sum_words(ip, (ip[0] & 15) * 4u)));
	}
	dp_put16(udp + 4, (uint16_t)udp_len);
	dp_put16(udp + 6, 0);
	if (summed)
		dp_put16(udp + 6, udp_checksum(ip, v6, udp, udp_len));
	c->raw.len = c->raw.total = c->end = left;
}
