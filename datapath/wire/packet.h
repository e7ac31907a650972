/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The unit that crosses the border between a port and the engine: one UDP
 * datagram of RoCEv2, from the BTH to the ICRC, and what its IP and UDP
 * headers say.
 *
 * The files of this folder:
 *
 *   opcode.c, headers.h  opcodes, a row each; fields of headers
 *   parse.c              from a datagram to checked pointers
 *   icrc.c, crc32.c      the invariant CRC
 *   ipv4.h, grh.c        the IPv4 header; the GRH of datagrams
 *   ext.h, credit.h      headers of the extended mode; grants
 *   telemetry.h, trim.h  what switches write into packets, and cut off
 *   mad.c                messages of the connection manager
 *   sizes.c              how long packets may be
 *   random.h             random numbers
 */
#ifndef DP_WIRE_PACKET_H
#define DP_WIRE_PACKET_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A time that does not come. */
#define DP_NEVER UINT64_MAX

/* IPv6, or IPv4 as ::ffff:a.b.c.d, network byte order: the same as a GID. */
struct dp_addr {
	uint8_t b[16];
};

static inline bool dp_addr_is_v4(const struct dp_addr *a)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(a->b, mapped, sizeof(mapped));
}

static inline void dp_addr_from_v4(struct dp_addr *a, const void *four_bytes)
{
	memset(a->b, 0, 10);
	memset(a->b + 10, 0xff, 2);
	memcpy(a->b + 12, four_bytes, 4);
}

/* A multicast group: 224.0.0.0/4 or ff00::/8. */
static inline bool dp_addr_is_group(const struct dp_addr *a)
{
	return dp_addr_is_v4(a) ? a->b[12] >> 4 == 14 : a->b[0] == 0xff;
}

enum dp_ecn {
	DP_ECN_NOT_ECT = 0,
	DP_ECN_ECT1 = 1,
	DP_ECN_ECT0 = 2,
	DP_ECN_CE = 3,
	DP_ECN_MASK = 3,
};

enum dp_packet_flags {
	/* rx: the port could not see the IPv4 identification field (UDP socket) */
	DP_PKT_IP_ID_UNKNOWN = 1 << 0,
	/* payload-less (simulator): data holds headers only, pay_len the length
	 * of payload that is not there; no ICRC is made or checked */
	DP_PKT_NO_PAYLOAD = 1 << 1,
	/* rx: it came to another queue of the network device, and then to this port by a socket */
	DP_PKT_HANDED_ON = 1 << 2,
};

struct dp_packet {
	struct dp_addr src, dst;
	uint16_t sport;	     /* UDP source port, host order */
	uint16_t ip_id;	     /* IPv4 identification, host order; 0 on transmit */
	uint8_t tos;	     /* DSCP and ECN */
	uint8_t flags;	     /* enum dp_packet_flags */
	uint32_t path_id;    /* tx: the port's handle of the route (from its resolve()) */
	uint32_t len;	     /* bytes at data; tx: set by the engine */
	uint32_t cap;	     /* tx: room at data */
	uint32_t frag_len;   /* rx: bytes at frag, 0 if the packet is in one piece */
	uint32_t pay_len;    /* DP_PKT_NO_PAYLOAD only: bytes of payload left out */
	uint8_t *data;	     /* first byte of the BTH */
	const uint8_t *frag; /* rx: the rest of a packet that lies in two buffers;
			      * the first always holds all headers */
	uint64_t cookie;     /* the port's own: buffer address, batch index */
	/* rx: when it reached this host, by the kernel or the simulator; the clock is that
	 * of dp_engine_rx()'s now_ns (CLOCK_MONOTONIC).  0: not known */
	uint64_t arrived_ns;
	/* rx: by how much sooner an emulated link had let it go; 0: it was not late, or no such
	 * link tells */
	uint32_t late_ns;
};

#endif
