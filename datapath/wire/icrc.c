/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The CRC register is seeded with what eight bytes of ones (the masked LRH of
 * an InfiniBand packet) leave in it, so that they are not computed each time.
 *
 * dp_crc32() has the convention of zlib's crc32(): it inverts its first argument
 * and its result, so pieces chain by passing the result on
 * and the final inversion that the ICRC asks for is already done.
 */
#include "wire/icrc.h"

#include <stdint.h>
#include <string.h>

#include "wire/crc32.h"
#include "wire/ipv4.h"
#include "wire/telemetry.h"

enum {
	ICRC_SEED = 0x2144df1c, /* ~0xdebb20e3: crc32() of eight 0xff bytes */
	IPV6_LEN = 40,
	UDP_LEN = 8,
	IPPROTO_UDP_VALUE = 17,
	/* Shorter rests are copied behind the pseudo headers: one call, not two. */
	SHORT_REST = 128,
};

static uint32_t put_ipv4(uint8_t *h, const struct dp_packet *pkt, uint16_t id, uint32_t udp_len)
{
	static const uint8_t fixed[DP_IPV4_LEN] = {
		0x45,	    0xff,	       /* version, header length; TOS masked */
		[6] = 0x40,		       /* DF */
		[8] = 0xff, IPPROTO_UDP_VALUE, /* TTL masked */
		0xff,	    0xff,	       /* header checksum masked */
	};

	memcpy(h, fixed, sizeof(fixed));
	dp_put16(h + 2, (uint16_t)(DP_IPV4_LEN + udp_len));
	dp_put16(h + 4, id);
	memcpy(h + 12, pkt->src.b + 12, 4);
	memcpy(h + 16, pkt->dst.b + 12, 4);
	return DP_IPV4_LEN;
}

static uint32_t put_ipv6(uint8_t *h, const struct dp_packet *pkt, uint32_t udp_len)
{
	dp_put32(h, 0x6fffffff); /* traffic class and flow label masked */
	dp_put16(h + 4, (uint16_t)udp_len);
	h[6] = IPPROTO_UDP_VALUE;
	h[7] = 0xff; /* hop limit masked */
	memcpy(h + 8, pkt->src.b, 16);
	memcpy(h + 24, pkt->dst.b, 16);
	return IPV6_LEN;
}

/* The pseudo headers and the masked BTH; returns their length. */
static uint32_t put_pseudo(uint8_t *h, const struct dp_packet *pkt, uint16_t id, uint32_t total)
{
	uint32_t udp_len = UDP_LEN + total;
	uint32_t n = dp_addr_is_v4(&pkt->src) ? put_ipv4(h, pkt, id, udp_len) :
						put_ipv6(h, pkt, udp_len);

	dp_put16(h + n, pkt->sport);
	dp_put16(h + n + 2, DP_ROCE_PORT);
	dp_put16(h + n + 4, (uint16_t)udp_len);
	dp_put16(h + n + 6, 0xffff);
	n += UDP_LEN;
	memcpy(h + n, pkt->data, DP_BTH_LEN);
	h[n + 4] = 0xff; /* FECN, BECN, reserved */
	return n + DP_BTH_LEN;
}

/* The XDH, and the room for telemetry behind it as ones: switches fill it in. */
static uint32_t masked_room(uint32_t crc, const uint8_t *xdh, uint32_t room)
{
	uint8_t ones[DP_ROOM_HEAD_LEN + DP_HOP_LEN * DP_HOPS_MAX];

	memset(ones, 0xff, room);
	return dp_crc32(dp_crc32(crc, xdh, DP_XDH_LEN), ones, room);
}

/*
 * ICRC over `body` bytes, BTH included, the first `here` of which are at
 * pkt->data and the rest at pkt->frag.
 */
static uint32_t icrc(const struct dp_packet *pkt, uint16_t id, uint32_t here, uint32_t body)
{
	uint8_t h[IPV6_LEN + UDP_LEN + DP_BTH_LEN + SHORT_REST];
	uint32_t n = put_pseudo(h, pkt, id, body + DP_ICRC_LEN);
	const uint8_t *rest = pkt->data + DP_BTH_LEN;
	uint32_t rest_len = here - DP_BTH_LEN;
	uint32_t crc, room = dp_telemetry_len(pkt->data, here);

	if (room) {
		crc = masked_room(dp_crc32(ICRC_SEED, h, n), rest, room);
		crc = dp_crc32(crc, rest + DP_XDH_LEN + room, rest_len - DP_XDH_LEN - room);
	} else if (rest_len <= SHORT_REST) {
		memcpy(h + n, rest, rest_len);
		crc = dp_crc32(ICRC_SEED, h, n + rest_len);
	} else {
		crc = dp_crc32(ICRC_SEED, h, n);
		crc = dp_crc32(crc, rest, rest_len);
	}
	if (body > here)
		crc = dp_crc32(crc, pkt->frag, body - here);
	return crc;
}

/* Product of two polynomials modulo CRC-32's, bit 31 being the coefficient of x^0. */
static uint32_t gf_mul(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		product ^= b & -(a >> 31);
		b = b >> 1 ^ (0xedb88320 & -(b & 1));
	}
	return product;
}

/*
 * Whether another IPv4 identification than zero explains `diff`, the
 * difference between the ICRC received and the one computed with zero.
 *
 * A CRC is linear: an identification, two bytes with n more bytes after them,
 * changes it by id(x) * x^(8n+32) mod P, where id(x) has degree below 16.  So
 * diff is multiplied by x^-(8n+32), and what comes out must have degree below
 * 16.  The check that remains is as strong as a CRC of 16 bits: one random
 * error in 65536 passes.  It is used only for standard packets that come in
 * through a UDP socket, which is not told the identification.
 */
static bool explained_by_id(uint32_t diff, uint32_t bytes_after)
{
	/* x^(-8 * 2^k) */
	static const uint32_t inverse[16] = {
		0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d,
		0x5139de12, 0xba340226, 0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8,
		0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5,
	};
	uint32_t n = bytes_after + 4; /* x^32: four more bytes */
	int k;

	for (k = 0; n; k++, n >>= 1)
		if (n & 1)
			diff = gf_mul(inverse[k], diff);
	return (diff & 0xffff) == 0;
}

void dp_icrc_append(struct dp_packet *pkt)
{
	uint16_t id = dp_op_is_ext(dp_bth_opcode(pkt->data)) ? 0 : pkt->ip_id;
	uint32_t crc = __builtin_bswap32(icrc(pkt, id, pkt->len, pkt->len));

	dp_put32(pkt->data + pkt->len, crc);
	pkt->len += DP_ICRC_LEN;
}

/* The four bytes from `at` on, little-endian, across the two pieces. */
static uint32_t stored_icrc(const struct dp_packet *pkt, uint32_t at)
{
	uint32_t crc = 0;
	uint32_t i;

	if (at + DP_ICRC_LEN <= pkt->len)
		return __builtin_bswap32(dp_get32(pkt->data + at));
	for (i = 0; i < DP_ICRC_LEN; i++, at++) {
		uint8_t byte = at < pkt->len ? pkt->data[at] : pkt->frag[at - pkt->len];

		crc |= (uint32_t)byte << 8 * i;
	}
	return crc;
}

bool dp_icrc_check(const struct dp_packet *pkt)
{
	uint64_t total = (uint64_t)pkt->len + pkt->frag_len;
	uint32_t body, here, diff;
	bool any_id;

	/* The IPv4 and UDP length fields have 16 bits. */
	if (pkt->len < DP_BTH_LEN || total < DP_BTH_LEN + DP_ICRC_LEN ||
	    total > UINT16_MAX - DP_IPV4_LEN - UDP_LEN)
		return false;
	any_id = !dp_op_is_ext(dp_bth_opcode(pkt->data)) && dp_addr_is_v4(&pkt->src) &&
		 (pkt->flags & DP_PKT_IP_ID_UNKNOWN);
	body = (uint32_t)total - DP_ICRC_LEN;
	here = pkt->len < body ? pkt->len : body;
	diff = stored_icrc(pkt, body);
	if (any_id || dp_op_is_ext(dp_bth_opcode(pkt->data)))
		diff ^= icrc(pkt, 0, here, body);
	else
		diff ^= icrc(pkt, pkt->ip_id, here, body);
	if (diff == 0)
		return true;
	/* After the identification: the rest of IPv4, UDP, and the body. */
	return any_id && explained_by_id(diff, DP_IPV4_LEN - 6 + UDP_LEN + body);
}
