/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ethernet, IP and UDP headers around a RoCEv2 datagram (RFC 894, 791, 8200, 768; IBTA annex
 * A17.3), for ports that write and read whole frames.
 *
 * The headers of a path are made once, as a template.  Each packet gets a copy with its own
 * lengths, TOS, checksum and source port.
 */
#ifndef DP_IO_FRAME_H
#define DP_IO_FRAME_H

#include "wire/ipv4.h"
#include "wire/packet.h"

enum {
	DP_ETH_LEN = 14,
	DP_IPV6_LEN = 40,
	DP_UDP_LEN = 8,
	DP_FRAME_HDR_MAX = DP_ETH_LEN + DP_IPV6_LEN + DP_UDP_LEN,
};

struct dp_frame_template {
	uint8_t hdr[DP_FRAME_HDR_MAX];
	uint32_t len;	 /* length of Ethernet, IP and UDP headers together */
	uint32_t v4_sum; /* sum over the IPv4 header, without TOS and total length */
};

void dp_frame_template(struct dp_frame_template *, const uint8_t dst_mac[6],
		       const uint8_t src_mac[6], const struct dp_addr *dst,
		       const struct dp_addr *src);

/* Writes the headers in front of pkt->data, which needs DP_FRAME_HDR_MAX bytes
 * of room there; they begin at pkt->data - template->len. */
void dp_frame_write(const struct dp_frame_template *, const struct dp_packet *pkt);

/* Trims the frame of a data packet as a full switch does (wire/trim.h); returns its
 * new length, 0 if it cannot be trimmed. */
uint32_t dp_frame_trim(uint8_t *frame, uint32_t len);

/* Reads the headers of a frame of `total` bytes, whose first `len` lie at
 * `frame`; fills src, dst, sport, ip_id, tos, data and len of `out` (len: of
 * the whole datagram, without Ethernet padding).  0 or -EBADMSG. */
int dp_frame_read(uint8_t *frame, uint32_t len, uint32_t total, struct dp_packet *out);

#endif
