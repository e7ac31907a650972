// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Frames: literal bytes, what is written is read back, and damaged frames in
 * buffers of their exact size, so that AddressSanitizer sees any step outside.
 */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/addr.h"
#include "io/frame.h"
#include "wire/trim.h"
#include "wire/headers.h"

enum { DAMAGED_FRAMES = 200000, PAYLOAD = 48 };

static const uint8_t mac_a[6] = { 2, 0, 0, 0, 0, 1 };
static const uint8_t mac_b[6] = { 2, 0, 0, 0, 0, 2 };

/* A frame from `src` to `dst` in `buffer`; returns where it begins. */
static uint8_t *make_frame(const char *src, const char *dst, uint8_t *buffer, uint32_t *len)
{
	struct dp_frame_template t;
	struct dp_packet p = { .sport = 0xc011, .tos = 0x2a, .len = PAYLOAD };

	assert(!dp_addr_parse(src, &p.src) && !dp_addr_parse(dst, &p.dst));
	p.data = buffer + DP_FRAME_HDR_MAX;
	for (int i = 0; i < PAYLOAD; i++)
		p.data[i] = (uint8_t)i;
	dp_frame_template(&t, mac_b, mac_a, &p.dst, &p.src);
	dp_frame_write(&t, &p);
	*len = t.len + p.len;
	return p.data - t.len;
}

static void check_literal_ipv4(void)
{
	/* the checksum, 0x2675, was computed apart, by RFC 1071 */
	static const uint8_t expected[] = {
		2,    0,    0,	  0,	0,    2,    2,	  0,	0,    0,    0,	  1,	0x08, 0x00,
		0x45, 0x2a, 0x00, 0x4c, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0x75, 0x0a, 0x00,
		0x00, 0x01, 0x0a, 0x00, 0x00, 0x02, 0xc0, 0x11, 0x12, 0xb7, 0x00, 0x38, 0x00, 0x00,
	};
	uint8_t buffer[DP_FRAME_HDR_MAX + PAYLOAD];
	uint32_t len;
	uint8_t *frame = make_frame("10.0.0.1", "10.0.0.2", buffer, &len);

	assert(len == sizeof(expected) + PAYLOAD);
	assert(!memcmp(frame, expected, sizeof(expected)));
}

static void check_literal_ipv6(void)
{
	static const uint8_t expected[] = {
		0x86, 0xdd, 0x62, 0xa0, 0x00, 0x00, 0x00, 0x38, 0x11, 0x40, 0xfd, 0, 0,
		0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0,    0,	  0, 1,
		0xfd, 0,    0,	  0,	0,    0,    0,	  0,	0,    0,    0,	  0, 0,
		0,    0,    2,	  0xc0, 0x11, 0x12, 0xb7, 0,	0x38, 0,    0,
	};
	uint8_t buffer[DP_FRAME_HDR_MAX + PAYLOAD];
	uint32_t len;
	uint8_t *frame = make_frame("fd00::1", "fd00::2", buffer, &len);

	assert(len == 12 + sizeof(expected) + PAYLOAD);
	assert(!memcmp(frame + 12, expected, sizeof(expected)));
}

static void check_round_trip(const char *src, const char *dst)
{
	uint8_t buffer[DP_FRAME_HDR_MAX + PAYLOAD + 18] = {};
	struct dp_packet out = {};
	struct dp_addr a;
	uint32_t len;
	uint8_t *frame = make_frame(src, dst, buffer, &len);

	/* alone, and with Ethernet padding behind it */
	for (uint32_t pad = 0; pad <= 18; pad += 18) {
		assert(!dp_frame_read(frame, len + pad, len + pad, &out));
		assert(out.len == PAYLOAD && out.data == frame + len - PAYLOAD);
		assert(out.sport == 0xc011 && out.tos == 0x2a && out.ip_id == 0);
		assert(!dp_addr_parse(src, &a) && dp_addr_equal(&a, &out.src));
		assert(!dp_addr_parse(dst, &a) && dp_addr_equal(&a, &out.dst));
	}
	/* the first piece of two */
	assert(!dp_frame_read(frame, DP_FRAME_HDR_MAX, len, &out) && out.len == PAYLOAD);
	assert(dp_frame_read(frame, DP_FRAME_HDR_MAX - 1, len, &out));
	assert(dp_frame_read(frame, len - 1, len - 1, &out));
}

/* Whatever is read lies inside the frame. */
static void check_damaged(const char *src, const char *dst)
{
	uint8_t buffer[DP_FRAME_HDR_MAX + PAYLOAD];
	uint32_t len, accepted = 0;
	uint8_t *frame = make_frame(src, dst, buffer, &len);

	srand(1);
	for (int i = 0; i < DAMAGED_FRAMES; i++) {
		uint32_t total = (uint32_t)rand() % (len + 1), first = total;
		uint8_t *copy;
		struct dp_packet out = {};

		if (i & 1)
			total = len;
		first = i & 2 ? (uint32_t)rand() % (total + 1) : total;
		copy = malloc(first ? first : 1);
		memcpy(copy, frame, first);
		for (int k = rand() % 4; k && first; k--)
			copy[(uint32_t)rand() % first] = (uint8_t)rand();
		if (!dp_frame_read(copy, first, total, &out)) {
			accepted++;
			assert(out.data >= copy && out.data <= copy + first);
			assert(out.len <= total - (uint32_t)(out.data - copy));
		}
		free(copy);
	}
	assert(accepted > DAMAGED_FRAMES / 20);
}

/* An extended WRITE ONLY loses its payload; its checksums and lengths are right. */
static void check_trim(const char *src, const char *dst)
{
	enum { DATA = 1000, HEADERS = DP_BTH_LEN + DP_XDH_LEN + DP_RETH_LEN };
	uint8_t buffer[DP_FRAME_HDR_MAX + HEADERS + DATA + DP_ICRC_LEN] = {};
	struct dp_frame_template t;
	struct dp_packet pkt = { .sport = 0xc011, .tos = 0x2a, .data = buffer + DP_FRAME_HDR_MAX },
			 out = {};
	struct dp_addr to, from;
	uint8_t mac[6] = { 2 }, *frame;
	uint32_t sum = 0, len, left;

	assert(!dp_addr_parse(src, &from) && !dp_addr_parse(dst, &to));
	dp_frame_template(&t, mac, mac, &to, &from);
	dp_bth_set(pkt.data, DP_OP_EXT | DP_OP_WRITE_ONLY, 0, 0, 17, 1, 100);
	pkt.len = HEADERS + DATA + DP_ICRC_LEN;
	dp_frame_write(&t, &pkt);
	frame = pkt.data - t.len;
	len = t.len + pkt.len;
	left = dp_frame_trim(frame, len);
	assert(left == t.len + HEADERS);
	assert(!dp_frame_read(frame, left, left, &out));
	assert(out.len == HEADERS && dp_is_trimmed(&out) && (out.tos & 3) == 2);
	for (int i = 0; frame[DP_ETH_LEN] >> 4 == 4 && i < DP_IPV4_LEN; i += 2)
		sum += dp_get16(frame + DP_ETH_LEN + i);
	assert((sum & 0xffff) + (sum >> 16) == (sum ? 0xffff : 0));
	assert(!dp_frame_trim(frame, left)); /* nothing more to cut */
	pkt.data[0] = DP_OP_WRITE_ONLY;
	dp_frame_write(&t, &pkt);
	assert(!dp_frame_trim(frame, len)); /* standard mode */
}

int main(void)
{
	check_literal_ipv4();
	check_literal_ipv6();
	check_round_trip("10.0.0.1", "192.168.255.254");
	check_round_trip("fd00::1", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff");
	check_damaged("10.0.0.1", "10.0.0.2");
	check_damaged("fd00::1", "fd00::2");
	check_trim("10.0.0.1", "192.168.255.254");
	check_trim("fd00::1", "fd00::2");
	puts("ok");
	return 0;
}
