/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reliable connections: the state of one, which all files of this folder share.
 *
 *   rc.c                      the type's row: states, packets in and out, deadlines
 *   negotiate.c               HELLO and PROBE: extended mode, segment
 *   stray.c                   packets of a connection before
 *   probed.c                  what PROBEs have shown of the paths to the peers
 *   packets.c                 packets out of work requests
 *   requester.c               what a QP sends next, and its acknowledgement, both modes
 *   requester_gbn.c           requester of the standard mode: go-back-N
 *   requester_sr.c            requester of the extended mode: selective repeat
 *   timeouts.c                its RTO, and when a silent peer counts as dead
 *   bundle.c                  short messages that share a packet, both ways
 *   delivery.c                its acknowledgements and responses
 *   paths.c                   its paths: which is next, what each has delivered
 *   scoreboard.c              its record of each PSN in flight
 *   loss.c                    which of these are lost, and probes
 *   rack.c                    RACK-TLP as arithmetic
 *   credit.c                  DEMAND and GRANT, both ways
 *   cnp.c                     congestion notification packets, both ways
 *   responder_in_order.c      requests executed in order, acknowledged
 *   responder_out_of_order.c  extended mode: packets ahead of a gap
 *   received.c                the set of these, and the SACK bitmap
 *   placing.c                 payload into memory, where the highest PSN stays
 *   spans.c                   memory that they were placed in
 *   answers.c                 READs and atomics: executed, answered, replayed
 *   store.c                   memory for windows
 *   check.c                   the invariants of all this
 *
 * A QP's requester numbers its packets from snd_una (oldest not acknowledged)
 * over snd_nxt (next to send) to snd_max (highest ever sent, plus one); its
 * responder expects epsn.  All PSNs are 24 bits; compare with dp_psn_diff().
 */
#ifndef DP_ENGINE_RC_RC_H
#define DP_ENGINE_RC_RC_H

#include "engine/flow.h"
#include "engine/qp.h"
#include "engine/rc/rack.h"
#include "engine/rc/store.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/parse.h"

enum {
	DP_STD_WINDOW = 128,   /* PSNs that a standard requester may have unacknowledged */
	DP_STD_FIRST = 32,     /* ...while it offers extended mode, on an unknown path */
	DP_STD_ACK_EVERY = 32, /* packets between two requests for an ACK */
	DP_EXT_ACK_EVERY = 16,
	DP_PATHS_ACK_EVERY = 4, /* the same for a peer whose packets take several paths */
	DP_READ_CHUNK = 32,	/* extended mode: PSNs that one READ request asks for */
	DP_HELLO_TRIES = 12,
	DP_PROBE_TRIES = 5,
	DP_PAGE_PSNS = 256,  /* PSNs of one page of a window */
	DP_REPLIES_MIN = 8,  /* messages that the program replied to: it will to the next */
	DP_REPLIES_MAX = 16, /* that are remembered */
	DP_UNREPLIED = 4,    /* ...less so many for each to which it did not */
	DP_TRIES = 4,	     /* time-outs in a row that each retry of the attributes grants */
	DP_STARVED = 16, /* times the patience, for a peer that answers HELLOs and nothing else */
};

/* How long an ACK waits for the program's reply, to go with it: if it is not known whether the program
 * replies, and if it has replied to messages before, each within DP_REPLY_NS.  An ACK alone completes
 * the peer's WRITE before the reply does: a peer that spins on memory then no longer polls, and has to
 * wait for its device's thread.  Others that want the CPU hold up the reply for 100 us and more. */
#define DP_ACK_HOLD_NS 4000ull
#define DP_REPLY_HOLD_NS 150000ull
/* Longer than the hold: an ACK of its own takes the program's CPU first. */
#define DP_REPLY_NS 300000ull
/* A time of arrival that is older than this is wrong. */
#define DP_ARRIVAL_AGE_NS 1000000000ull

struct dp_requester {
	uint32_t snd_una, snd_nxt, snd_max;
	uint32_t cum;	   /* extended mode: PSNs below it are acknowledged, though answers may be
			    * missing */
	uint32_t segment;  /* payload bytes of each PSN of the numbered requests */
	uint32_t post_psn; /* first PSN of the request that is posted next */
	uint32_t post_rq_seq;
	uint32_t since_ack_req;
	uint8_t retry_left;
	uint8_t rnr_naks; /* of one PSN in a row, each of which began a wait */
	bool implied_nak; /* a READ was asked for again, and there was no progress since */
	uint8_t path;	  /* extended mode: path of the packet that is being built */
	uint8_t probes;	  /* sent since an acknowledgement came */
	bool forced;	  /* the next copy leaves whatever the window: probe or time-out */
	uint16_t backoff; /* time-outs in a row */
	uint64_t rnr_until_ns;
	uint64_t timer_ns; /* standard: IB time-out; extended: RTO. 0: off */
	/* extended mode */
	struct dp_tx_block *block;
	uint64_t progress_ns;
};

/* What a connection has once it has sent a packet.  Most connections of a large program only
 * wait. */
struct dp_sender {
	struct dp_flow flow;
	uint32_t rnr_psn;     /* of the last RNR NAK that began a wait */
	uint64_t rnr_over_ns; /* when that wait was to end; 0: there was none */
	/* extended mode */
	struct dp_reordering reordering;
	uint64_t tlp_ns, reorder_ns; /* when to probe, when a packet counts as lost; 0: off */
	uint64_t timeout_ns;	     /* when the first time-out of a row came; 0: no row */
	uint64_t asked_ns; /* when the first probe or time-out since a delivery came; 0: none */
	uint64_t heard_ns; /* when the peer last replied to a HELLO; 0: never */
	uint32_t peer_duplicates, peer_marked;
	uint8_t caution;	      /* see dp_caution() */
	bool judged;		      /* false: the caution of the engine counts */
	bool peer_replies;	      /* a request of the peer has carried an acknowledgement */
	struct dp_sender_stats stats; /* since the QP was made, whatever states it was in */
};

struct dp_responder {
	uint32_t epsn, msn;
	uint32_t rq_seq; /* receives consumed so far */
	/* standard mode: the message under way */
	uint32_t rkey, left, offset;
	uint64_t va;
	uint8_t message; /* 0 none, else DP_IS_SEND or DP_IS_WRITE >> 13 */
	bool nak_sent;
	/* acknowledgement to send */
	bool ack_now;
	uint8_t syndrome;   /* syndrome of the next acknowledgement */
	uint8_t sacks;	    /* acknowledgements that told only a part of the bitmap */
	uint8_t thin;	    /* extended mode: how thin the peer wants acknowledgements */
	uint16_t sack_turn; /* first word of the part that is told next, in turn */
	uint32_t nak_psn;
	uint32_t newest; /* standard mode: PSN of the newest SEND or WRITE, for ACKs */
	/* extended mode */
	uint32_t unacked;
	uint32_t ts_ns;
	uint64_t ts_at_ns;
	uint64_t ack_ns; /* delayed acknowledgement, 0: off */
	uint32_t marked, duplicates;
	uint32_t told_marked, told_duplicates; /* values that the last acknowledgement told */
	uint32_t highest;		       /* PSN behind the highest received */
	uint32_t latest;		       /* PSN of the latest arrival ahead of a gap */
	struct dp_rx_block *block;
	struct dp_answers *answers;
	uint64_t expected;	      /* epsn, as a 64-bit number that does not wrap */
	struct dp_accepted *accepted; /* ring of the newest requests; NULL: there was none yet */
	uint8_t accepted_room; /* of the ring: the largest max_dest_rd_atomic since it was made */
	uint8_t accepted_next; /* entry of the ring that is written next: empty, or the oldest */
	uint8_t replies;       /* extended mode: messages that the program replied to, on balance */
	bool reply_due;	       /* ...and no request was sent since the last message */
	bool cnp_due;
	uint64_t cnp_ns; /* when the last CNP became due; 0: none did */
};

struct dp_rc {
	struct dp_qp qp;
	bool comm_est : 1;
	/* extended mode: agreed with the peer, and used by the requester */
	bool extended : 1;
	bool hello_done : 1;  /* a HELLO of the peer, or a reply, has arrived */
	bool telemetry : 1;   /* agreed: some requests have room for telemetry */
	bool peer_paths : 1;  /* the packets of the peer take several paths */
	bool hello_reply : 1; /* a reply to the peer's HELLO is owed */
	bool hello_heard : 1; /* the peer has replied to a HELLO of this connection */
	bool hello_again : 1; /* a HELLO is owed, beside those that are tried */
	bool hello_extra : 1; /* the next reply does not go on with the search for source ports */
	bool grants : 1;      /* this end gives grants to the peer */
	bool probing : 1;     /* for `probe` bytes; hello_tries and hello_ns are the probe's */
	bool handed_on : 1;   /* the peer's newest HELLO or reply was handed on: still to be told */
	bool young : 1;	      /* packets of a connection before may still come */
	bool peer_dated : 1;  /* peer_began is known */
	uint8_t n_handed_on : 5; /* packets without HELLO, modulo 32 */
	uint8_t hello_tries;
	uint8_t sport_tries; /* HELLOs sent to find better source ports */
	uint16_t segment;    /* most payload of a packet: the path MTU, or more after a PROBE */
	uint16_t probe,
		probe_reply;   /* bytes to be probed; bytes of the reply that is owed to the peer */
	uint32_t began;	       /* time of RTR, in units of 2^16 ns */
	uint64_t hello_ns;     /* of the next try; 0: none */
	uint32_t hello_rtt_ns; /* 0: not known */
	uint32_t hello_ts;     /* to be echoed in the reply that is owed */
	uint32_t window;       /* in PSNs: the smaller one of both ends */
	uint32_t peer_began;   /* ts_ns of the peer's HELLO */
	struct dp_requester req;
	struct dp_responder resp;
	struct dp_sender *sender;    /* NULL: nothing was sent yet */
	struct dp_flow *flow;	     /* the sender's; NULL: nothing was sent since the last reset */
	const struct dp_cc_algo *cc; /* of the flow, also of one that is still to begin */
	struct dp_echo *echo;	     /* NULL: this end wants no telemetry */
	struct dp_credit *credit;    /* NULL: the peer gives no grants */
	struct dp_incoming *incoming; /* NULL: the peer has told no demand */
};

extern const struct dp_qp_ops dp_rc_ops;

static inline struct dp_rc *dp_rc_of(struct dp_qp *qp)
{
	return container_of(qp, struct dp_rc, qp);
}

static inline const struct dp_rc *dp_rc_of_const(const struct dp_qp *qp)
{
	return (const struct dp_rc *)qp;
}

/* Extended mode: nothing is probed or counted as lost before something else happens. */
static inline void dp_loss_timers_off(struct dp_rc *rc)
{
	if (rc->sender)
		rc->sender->tlp_ns = rc->sender->reorder_ns = 0;
}

/* Number of pages of a window. */
static inline uint32_t dp_pages(uint32_t window)
{
	return window > DP_PAGE_PSNS ? window / DP_PAGE_PSNS : 1;
}

/* When the packet left the network, if that is known and can be right; else now. */
static inline uint64_t dp_arrived(const struct dp_parsed *p, uint64_t now)
{
	bool known = p->arrived_ns && p->arrived_ns <= now;

	return known && now - p->arrived_ns <= DP_ARRIVAL_AGE_NS ? p->arrived_ns : now;
}

/* Offset in its message of the payload of PSN `psn`. */
static inline uint32_t dp_offset_of(const struct dp_rc *rc, const struct dp_swqe *wqe, uint32_t psn)
{
	return wqe->base + (uint32_t)dp_psn_diff(psn, wqe->first_psn) * rc->req.segment;
}

static inline uint32_t dp_paths(const struct dp_rc *rc)
{
	return rc->extended && rc->qp.engine->cfg.paths ? rc->qp.engine->cfg.paths : 1;
}

/* The largest segment that this end accepts, with the room for telemetry: what the port carries,
 * or the path MTU if the program chose a smaller one than it had to. */
static inline uint32_t dp_segment_limit(const struct dp_rc *rc)
{
	const struct dp_engine_config *cfg = &rc->qp.engine->cfg;
	uint32_t most = cfg->segment_max, mtu = rc->qp.attr.path_mtu;

	if (most < mtu)
		return mtu;
	if (mtu == cfg->path_mtu_max)
		return most;
	mtu += cfg->telemetry ? dp_room_len(DP_HOPS_MAX) : 0;
	return most < mtu ? most : mtu;
}

/* The first invariant of a connection that does not hold, in words, or NULL. */
const char *dp_rc_check(const struct dp_qp *);

#endif
