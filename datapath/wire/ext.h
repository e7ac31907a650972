/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Headers of the extended mode, which two of our engines agree on in band.
 *
 * HELLO and HELLO_REPLY (opcodes 0xE0, 0xE1; after the BTH, 20 bytes):
 *   version(8) window_psns(24) features(32) qpn(32: sender's QPN)
 *   segment(16: most payload bytes of a packet) flags(16)
 *   ts_ns(32: the sender's clock, modulo 2^32; in a reply that of the HELLO)
 *   flag 1: the peer's last HELLO or HELLO_REPLY came to another queue of our network device
 *   than that of the QP's port, and was handed on; from another UDP source port it may not be
 * A peer that does not know the opcode drops it; silence is standard mode.
 *
 * PROBE and PROBE_REPLY (opcodes 0xE2, 0xE3): payload of zeros, as long as the
 * packets that the requester would like to send; the reply is as long.
 *
 * XDH (20 bytes, directly after the BTH of every extended request and READ
 * response, before the RETH/AtomicETH/ImmDt/IETH of its RC opcode; such a
 * response has no AETH):
 *   ts_ns(32)   the sender's clock, modulo 2^32, echoed by the acknowledgement;
 *               in a READ response the ts_ns of the request that it answers
 *   a word of 32 bits, by the type of the packet:
 *     segment   READ request: payload bytes of each PSN of the answer
 *     held_ns   READ response: how long the responder held the request; all ones: that
 *               long or longer
 *     rq_seq    others: how many messages that consume a receive (SEND, WRITE with
 *               immediate) preceded this one on the QP, modulo 2^32
 *   offset(32)  where this packet's payload lies in its message, bytes;
 *               in a bundle instead
 *     parts     messages in it, 1..DP_BUNDLE_MAX
 *   ack(32)     in a request: PSN(24) flags(8). With flag 1 the PSN acknowledges
 *               packets of the other direction, as an extended ACK without bitmap would;
 *               bits 1-3 of the flags: how thin acknowledgements may be, 0..DP_THIN_MAX;
 *               each step halves their number;
 *               bits 4-7: records that the room for telemetry behind the XDH holds
 *               (wire/telemetry.h), 0: there is none
 *   ack_ts_ns(32) with it: XDH timestamp of the newest packet received, plus how
 *               long the receiver held it; so by the receiver's clock that packet
 *               arrived this hold time before the ts_ns of this XDH
 * Every extended WRITE packet, not only the first, carries a RETH; its VA is
 * that of the packet's own payload and its length that of the whole message.
 * So any packet can be placed when it arrives, in whatever order.
 *
 * XAH (28 bytes and what it announces, after the AETH of extended ACK 0xD1; BTH
 * PSN = last PSN received in order, in a NAK the PSN that it refuses):
 *   ts_echo_ns(32)   XDH timestamp of the newest packet received
 *   ack_delay_ns(32) how long the receiver held it; all ones: none received yet, or none
 *                    within 2^32 ns
 *   marked(32)       packets received so far with IP CE, modulo 2^32
 *   duplicates(32)   packets received so far that had been received before
 *   sack_base(24)    PSN of bit 0 of the bitmap, a multiple of 32
 *   words(8)         32-bit words of bitmap that follow, 0..DP_SACK_WORDS_MAX;
 *                    bit i (LSB first) of word w is PSN sack_base + 32 w + i
 *   n_trimmed(8)     PSNs that follow the bitmap, 32 bits each, 0..DP_LIST_MAX: of
 *                    each of them a packet without its payload has arrived
 *   n_hops(8)        telemetry records that follow at the end, 0..DP_HOPS_MAX: from
 *                    the newest packet that had room for them
 *   n_marked(8)      PSNs that follow those, 0..DP_LIST_MAX: received with CE since
 *                    the last acknowledgement; for a peer with several paths
 *   resv(8)
 *   arrived_ns(32)   when the newest packet arrived, by the receiver's clock, modulo 2^32
 *
 * WRITE_BUNDLE, SEND_BUNDLE (opcodes 0xE7, 0xE8): several short messages of
 * consecutive PSNs, the first of which is that of the BTH.  The payload has for each
 * of them a RETH (WRITE) or its length(32) (SEND), its bytes, and zeros up to a
 * multiple of 4.  rq_seq is that of the first; each SEND counts one on.
 *
 * The ICRC of extended packets takes the IPv4 identification as zero, since a
 * sender that lets the kernel segment a batch does not know it.
 */
#ifndef DP_WIRE_EXT_H
#define DP_WIRE_EXT_H

#include <stdbool.h>

#include "wire/headers.h"

enum {
	DP_EXT_VERSION = 8,
	DP_HELLO_LEN = 20,
	DP_HELLO_HANDED_ON = 1, /* flag */
	DP_SEGMENT_MAX = 8960,	/* payload bytes of a packet */
	/* a probe is as long as the longest packet of a segment: WRITE with immediate */
	DP_PROBE_EXTRA = 20 + DP_RETH_LEN + DP_IMM_LEN,
	DP_XDH_LEN = 20,
	DP_XDH_ACK = 1,		/* flag of the ack field */
	DP_PART_LEN = 4,	/* head of a SEND in a bundle */
	DP_BUNDLE_MAX = 64,	/* messages */
	DP_BUNDLE_BYTES = 2048, /* of payload: it lies in one piece in any port's buffers */
	DP_THIN_MAX = 7,
	DP_XAH_LEN = 28,
	DP_SACK_WORDS_MAX = 64, /* 2048 PSNs */
	DP_LIST_MAX = 32,	/* PSNs of a list in an acknowledgement */
	DP_HOPS_MAX = 8,
	DP_HOP_LEN = 16,      /* a telemetry record */
	DP_ROOM_HEAD_LEN = 4, /* in front of the records of a request */
	DP_FEATURE_TELEMETRY = 1 << 0,
	DP_FEATURE_PATHS = 1 << 1,  /* the sender's packets take several paths */
	DP_FEATURE_GRANTS = 1 << 2, /* the sender's peer may send only what is granted */
	DP_PATHS_MAX = 64,
};

struct dp_hello {
	uint8_t version;
	uint32_t window_psns; /* PSNs beyond the expected one that the sender tracks */
	uint32_t features;    /* DP_FEATURE_* */
	uint32_t qpn;
	uint16_t segment; /* payload bytes of the longest packet that the sender takes */
	bool handed_on;
	uint32_t ts_ns;
};

static inline void dp_hello_get(const uint8_t *h, struct dp_hello *out)
{
	out->version = h[0];
	out->window_psns = dp_get32(h) & 0xffffff;
	out->features = dp_get32(h + 4);
	out->qpn = dp_get32(h + 8);
	out->segment = dp_get16(h + 12);
	out->handed_on = dp_get16(h + 14) & DP_HELLO_HANDED_ON;
	out->ts_ns = dp_get32(h + 16);
}

static inline void dp_hello_set(uint8_t *h, const struct dp_hello *in)
{
	dp_put32(h, (uint32_t)in->version << 24 | in->window_psns);
	dp_put32(h + 4, in->features);
	dp_put32(h + 8, in->qpn);
	dp_put16(h + 12, in->segment);
	dp_put16(h + 14, in->handed_on ? DP_HELLO_HANDED_ON : 0);
	dp_put32(h + 16, in->ts_ns);
}

struct dp_xdh {
	uint32_t ts_ns;
	union { /* one word */
		uint32_t rq_seq;
		uint32_t segment; /* READ request */
		uint32_t held_ns; /* READ response */
	};
	union { /* one word */
		uint32_t offset;
		uint32_t parts; /* bundle */
	};
	bool ack;
	uint32_t ack_psn;
	uint32_t ack_ts_ns;
	uint32_t thin;	  /* acknowledgements may be 2^thin times as rare */
	uint32_t records; /* room for telemetry: records */
};

static inline uint32_t dp_xdh_records(const uint8_t *h)
{
	return h[15] >> 4;
}

/* Whether it acknowledges packets of the other direction. */
static inline bool dp_xdh_has_ack(const uint8_t *h)
{
	return h[15] & 1;
}

/* Messages in a bundle. */
static inline uint32_t dp_xdh_parts(const uint8_t *h)
{
	return dp_get32(h + 8);
}

static inline void dp_xdh_set_parts(uint8_t *h, uint32_t parts)
{
	dp_put32(h + 8, parts);
}

/* Bytes of a room for so many records. */
static inline uint32_t dp_room_len(uint32_t records)
{
	return records ? DP_ROOM_HEAD_LEN + DP_HOP_LEN * records : 0;
}

static inline void dp_xdh_get(const uint8_t *h, struct dp_xdh *out)
{
	out->ts_ns = dp_get32(h);
	out->rq_seq = dp_get32(h + 4);
	out->offset = dp_get32(h + 8);
	out->ack = h[15] & DP_XDH_ACK;
	out->ack_psn = dp_get32(h + 12) >> 8;
	out->ack_ts_ns = dp_get32(h + 16);
	out->thin = h[15] >> 1 & DP_THIN_MAX;
	out->records = dp_xdh_records(h);
}

static inline void dp_xdh_set(uint8_t *h, const struct dp_xdh *in)
{
	dp_put32(h, in->ts_ns);
	dp_put32(h + 4, in->rq_seq);
	dp_put32(h + 8, in->offset);
	dp_put32(h + 12,
		 in->ack_psn << 8 | in->records << 4 | in->thin << 1 | (in->ack ? DP_XDH_ACK : 0));
	dp_put32(h + 16, in->ack_ts_ns);
}

struct dp_xah {
	uint32_t ts_echo_ns;
	uint32_t ack_delay_ns;
	uint32_t marked;
	uint32_t duplicates;
	uint32_t sack_base;
	uint8_t words, n_trimmed, n_hops, n_marked;
	uint32_t arrived_ns;
};

static inline void dp_xah_get(const uint8_t *h, struct dp_xah *out)
{
	out->ts_echo_ns = dp_get32(h);
	out->ack_delay_ns = dp_get32(h + 4);
	out->marked = dp_get32(h + 8);
	out->duplicates = dp_get32(h + 12);
	out->sack_base = dp_get32(h + 16) >> 8;
	out->words = h[19];
	out->n_trimmed = h[20];
	out->n_hops = h[21];
	out->n_marked = h[22];
	out->arrived_ns = dp_get32(h + 24);
}

static inline void dp_xah_set(uint8_t *h, const struct dp_xah *in)
{
	dp_put32(h, in->ts_echo_ns);
	dp_put32(h + 4, in->ack_delay_ns);
	dp_put32(h + 8, in->marked);
	dp_put32(h + 12, in->duplicates);
	dp_put32(h + 16, in->sack_base << 8 | in->words);
	h[20] = in->n_trimmed;
	h[21] = in->n_hops;
	h[22] = in->n_marked;
	h[23] = 0;
	dp_put32(h + 24, in->arrived_ns);
}

#endif
