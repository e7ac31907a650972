/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fields that pace.bpf.c reads from a packet. */
#ifndef DP_XDP_PACE_PACKET_H
#define DP_XDP_PACE_PACKET_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "xdp/pace.h"

enum {
	IP_FRAGMENT = 0x3fff,
	ECN_MASK = 3,
	ECN_ECT0 = 2,
	ECN_CE = 3,
	PSN_MASK = 0xffffff,
	ICRC_LEN = 4,
	AETH_LEN = 4,
	PACED = 0x64707061, /* mark of a packet that waits in the qdisc */
	BECN = 0x40,
	RC_LAST = 0x1f, /* opcodes of reliable connections: 0 to here */
	RC_WRITE_LAST = 0x0b,
	RC_READ_REQUEST = 0x0c,
	RC_READ_FIRST = 0x0d,
	RC_READ_LAST = 0x0f,
	RC_READ_ONLY = 0x10,
	RC_ACK = 0x11,
	RC_ATOMIC_ACK = 0x12,
	RC_COMPARE_SWAP = 0x13,
	CNP = 0x81,
	AETH_KIND = 0x60,
	AETH_RNR = 0x20,
	AETH_NAK = 0x60,
	NAK_SEQUENCE = 0x60,
};

struct bth {
	__u8 opcode;
	__u8 flags;
	__be16 pkey;
	__u8 congestion; /* FECN, BECN */
	__u8 qpn[3];
	__be32 psn; /* below the bit that asks for an acknowledgement */
};

struct key {
	__u32 peer[4];
	__u32 port; /* UDP source port of both directions */
};

struct packet {
	struct key key;
	__u8 ecn;
	__u8 version;
	__u32 bth_at;
	__u32 payload; /* bytes after the BTH, without padding and ICRC */
	__u32 psn, qpn;
	__u8 opcode;
	__u8 asks; /* for an acknowledgement */
	__u8 congestion;
	__u8 syndrome;
};

/* Finds the BTH; `outgoing` tells which address is the peer's. */
static __always_inline bool parse(struct __sk_buff *ctx, struct packet *p, bool outgoing)
{
	__u32 at = ETH_HLEN, total;
	struct udphdr udp;
	struct bth bth;

	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(ctx, at, &ip, sizeof(ip)) || ip.protocol != IPPROTO_UDP)
			return false;
		if (ip.ihl != 5 || ip.frag_off & bpf_htons(IP_FRAGMENT & ~0x4000))
			return false;
		p->version = 4;
		p->ecn = ip.tos & ECN_MASK;
		p->key.peer[0] = p->key.peer[1] = 0;
		p->key.peer[2] = bpf_htonl(0xffff);
		p->key.peer[3] = outgoing ? ip.daddr : ip.saddr;
		at += sizeof(ip);
	} else if (ctx->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(ctx, at, &ip, sizeof(ip)) || ip.nexthdr != IPPROTO_UDP)
			return false;
		p->version = 6;
		p->ecn = ip.flow_lbl[0] >> 4 & ECN_MASK;
		__builtin_memcpy(p->key.peer, outgoing ? &ip.daddr : &ip.saddr, 16);
		at += sizeof(ip);
	} else {
		return false;
	}
	if (bpf_skb_load_bytes(ctx, at, &udp, sizeof(udp)) ||
	    udp.dest != bpf_htons(DP_PACE_ROCE_PORT))
		return false;
	p->key.port = bpf_ntohs(udp.source);
	total = bpf_ntohs(udp.len);
	at += sizeof(udp);
	if (bpf_skb_load_bytes(ctx, at, &bth, sizeof(bth)))
		return false;
	p->bth_at = at;
	p->opcode = bth.opcode;
	p->congestion = bth.congestion;
	p->psn = bpf_ntohl(bth.psn) & PSN_MASK;
	p->asks = bpf_ntohl(bth.psn) >> 31;
	p->qpn = (__u32)bth.qpn[0] << 16 | (__u32)bth.qpn[1] << 8 | bth.qpn[2];
	p->syndrome = 0;
	at = sizeof(udp) + sizeof(bth) + ICRC_LEN + (bth.flags >> 4 & 3);
	p->payload = total > at ? total - at : 0;
	return true;
}

/* By how much PSN a is behind PSN b; below 0: before it. */
static __always_inline int behind(__u32 a, __u32 b)
{
	return (int)((a - b) << 8) >> 8;
}

static __always_inline bool is_request(__u8 opcode)
{
	return opcode <= RC_READ_REQUEST || (opcode >= RC_COMPARE_SWAP && opcode <= RC_LAST);
}

static __always_inline bool has_aeth(__u8 opcode)
{
	return opcode == RC_ACK || opcode == RC_ATOMIC_ACK || opcode == RC_READ_FIRST ||
	       opcode == RC_READ_LAST || opcode == RC_READ_ONLY;
}

#endif
