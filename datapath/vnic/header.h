/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The headers that the card reads from a frame.  The frame may come from a guest or from the
 * network, and nothing in it is believed: all reads stay within the bytes that are there.
 */
#ifndef DP_VNIC_HEADER_H
#define DP_VNIC_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/packet.h"

enum {
	ETH_LEN = 14,
	MAC_LEN = 6,
	IPV6_LEN = 40,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_IPV6 = 0x86dd,
	PROTO_TCP = 6,
	PROTO_UDP = 17,
	PROTO_ICMPV6 = 58,
};

/* Addresses are in struct dp_addr, IPv4 and those of ARP as ::ffff:a.b.c.d. */
struct header {
	const uint8_t *dst_mac, *src_mac; /* in the frame */
	uint16_t ethertype;
	uint8_t version; /* of IP: 4, 6; 0: another protocol */
	uint8_t protocol;
	uint8_t ecn;
	bool fragment; /* has no ports */
	bool has_ports;
	uint16_t sport, dport;
	uint32_t transport; /* offset of the header behind that of IP */
	uint8_t icmp6;	    /* type of an ICMPv6 message, also in a first fragment; 0: none */
	struct dp_addr src, dst;
};

/* Reads the headers, all of which must lie in the first `len` bytes of a frame.  false: a header is
 * cut short, or contradicts itself. */
bool header_read(const uint8_t *frame, uint32_t len, struct header *out);
/* Equal for all frames of a flow, and for answers, whose ports are swapped: both take one QP of the
 * tunnel, so that its acknowledgements ride on frames. */
uint32_t header_hash(const struct header *);
/* fe80:: with the interface identifier that RFC 4291, appendix A makes of a link address. */
void link_local_address(const uint8_t mac[MAC_LEN], struct dp_addr *out);
/* An IPv4 or IPv6 frame that is ECN-capable gets the mark CE.  false: it is not. */
bool header_mark_ce(uint8_t *frame, const struct header *);

/*
 * Lowers the largest segment size that a TCP SYN offers (RFC 9293, 3.7.1), so that a full frame fills
 * whole packets of `room` bytes: the tunnel's headers would otherwise leave a part of each frame for a
 * packet of its own.  false: it is no SYN, offers nothing or less, or is shorter than a packet.
 */
bool header_fit_mss(uint8_t *frame, uint32_t len, const struct header *, uint32_t room);

static inline bool is_group_mac(const uint8_t *mac)
{
	return mac[0] & 1;
}

/* A request for the link address of another guest. */
struct question {
	struct dp_addr target; /* IP address whose link address is wanted */
	struct dp_addr asker;  /* IP address that the asker claims to have */
	uint8_t asker_mac[MAC_LEN];
};

/* ARP (RFC 826) and neighbour solicitations (RFC 4861, 4.3).  false: the frame asks nothing;
 * a host that only announces its own address asks nothing either. */
bool question_read(const uint8_t *frame, uint32_t len, const struct header *, struct question *);
/* Whether the frame tells its receiver where an IPv6 neighbour or a router is, as all messages of
 * neighbour discovery do (RFC 4861, 4): solicitations tell it of their sender.  Receivers believe
 * that without a proof, and need it from nobody but the card. */
bool tells_of_neighbours(const struct header *);
/* Turns the frame with the question into the answer, from the target to the asker.  Returns the
 * length, which is at most ANSWER_LEN. */
enum { ANSWER_LEN = ETH_LEN + IPV6_LEN + 32 };
uint32_t answer_write(uint8_t *frame, const struct header *, const struct question *,
		      const uint8_t mac[MAC_LEN]);

#endif
