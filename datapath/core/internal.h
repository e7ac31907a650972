/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the files of the engine share.
 *
 *   engine.c     life cycle, demultiplexing, the transmit scheduler, events
 *   check.c      the invariants of all state, for tests and fuzzers
 *   memory.c     PDs, MRs, keys, gather and scatter
 *   cq.c         completion queues
 *   qp.c         QPs: states and legal transitions, attributes, flushing
 *   post.c       work requests into the queues
 *   build.c      packets out of work requests
 *   requester.c  what a QP sends next, and its acknowledgement, both modes
 *   standard.c   requester of the standard mode: go-back-N
 *   extended.c   requester of the extended mode: scoreboard, RACK, TLP, RTO
 *   responder.c  requests executed in order, acknowledged, replayed
 *   reorder.c    extended mode: packets ahead of a gap
 *   flow.c       congestion control: calls, window, pacing, RTT
 *
 * A QP's requester numbers its packets from snd_una (oldest not acknowledged)
 * over snd_nxt (next to send) to snd_max (highest ever sent, plus one); its
 * responder expects epsn.  All PSNs are 24 bits; compare with dp_psn_diff().
 */
#ifndef DP_CORE_INTERNAL_H
#define DP_CORE_INTERNAL_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine.h"
#include "core/wheel.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/parse.h"
#include "wire/telemetry.h"

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

enum {
	DP_STD_WINDOW = 128,   /* PSNs a standard requester keeps unacknowledged */
	DP_STD_ACK_EVERY = 32, /* packets between two requests for an ACK */
	DP_EXT_ACK_EVERY = 16,
	DP_PATHS_ACK_EVERY = 4, /* from a peer whose packets take several paths */
	DP_READ_CHUNK = 32,	/* extended mode: PSNs asked for by one READ request */
	DP_READ_QUEUE = 1024,	/* READs and atomics a responder has yet to answer */
	DP_TAIL_HELD = 16,	/* bytes of a message's end kept until it is complete */
	DP_QP_QUANTUM = 16,	/* packets a QP may send before it is the next one's turn */
	DP_HELLO_TRIES = 12,
	DP_PROBE_TRIES = 5,
	DP_SEGMENT_MIN = 256,
	DP_MAX_QPS = 1 << 16,
	DP_QP_PAGE = 256, /* QPs of one page of the engine's table */
	DP_NIL = 0xffff,
};

#define DP_ACK_DELAY_NS 50000ull
/* How long the ACK of a received message waits for the program's reply, to leave
 * in it. */
#define DP_ACK_HOLD_NS 4000ull
#define DP_HELLO_FIRST_NS 500000ull
#define DP_HELLO_LONGEST_NS 250000000ull
#define DP_RTO_INITIAL_NS 20000000ull
#define DP_RTO_MAX_NS 1000000000ull
/* Without an algorithm: the bandwidth-delay product of 40 Gbit/s and 200 us. */
#define DP_CONSTANT_WINDOW_BYTES 1048576.0

static inline uint32_t dp_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* ---- pools of fixed-size blocks -------------------------------------------- */

struct dp_pool {
	void *free;
	size_t size;
	bool on_demand; /* else one block for each QP was put in when it was made */
};

int dp_pool_grow(struct dp_pool *);
void dp_pool_shrink(struct dp_pool *);
void dp_pool_drain(struct dp_pool *);

/* NULL only when a pool that grows on demand finds no memory. */
static inline void *dp_pool_get(struct dp_pool *p)
{
	void *b = p->free;

	if (b)
		memcpy(&p->free, b, sizeof(void *));
	else if (p->on_demand)
		b = malloc(p->size);
	return b;
}

static inline void dp_pool_put(struct dp_pool *p, void *b)
{
	memcpy(b, &p->free, sizeof(void *));
	p->free = b;
}

struct dp_store {
	struct dp_pool tx, rx, answers;
	uint32_t window_psns, engines;
};

/* ---- events ------------------------------------------------------------- */

struct dp_event_node {
	struct dp_event_node *next;
	uint32_t pending; /* bit per enum dp_event_type; 0: not in the list */
	bool is_cq;
};

/* ---- objects -------------------------------------------------------------- */

struct dp_pd {
	struct dp_engine *engine;
	uint32_t users;
};

struct dp_mr {
	struct dp_pd *pd;
	uint8_t *addr;
	uint64_t len, iova;
	uint32_t access, key;
	bool invalidated; /* by SEND with invalidate: no remote access any more */
};

struct dp_cq {
	struct dp_engine *engine;
	struct dp_event_node event;
	struct dp_wc *ring;
	uint32_t mask, entries, head, tail;
	uint32_t users;
	bool armed, armed_solicited, overrun;
	void *user;
};

/* A send request in its queue; SGEs or inline data follow. */
struct dp_swqe {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t compare_add, swap;
	uint32_t rkey, imm;
	uint32_t len; /* bytes of the message */
	uint32_t first_psn, n_psn;
	uint32_t base;	 /* bytes before those of first_psn: sent before a change of segment */
	uint32_t rq_seq; /* messages before it that consume a receive */
	uint8_t opcode;	 /* enum dp_wr_opcode */
	uint8_t flags;	 /* enum dp_send_flags */
	uint8_t num_sge;
	bool started; /* READ, atomic: counts in rd_outstanding */
	struct dp_sge sge[];
};

struct dp_rwqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t len; /* room */
	struct dp_sge sge[];
};

/* Extended mode: one PSN that was sent. */
enum dp_rec_state { DP_REC_NONE, DP_REC_FLIGHT, DP_REC_LOST, DP_REC_DONE };

struct dp_rec {
	uint64_t sent_ns;
	uint64_t delivered, delivered_ns; /* of the QP, when this was sent */
	uint64_t first_sent_ns;
	uint32_t wqe; /* free-running index into the send queue */
	uint16_t len;
	uint8_t state; /* enum dp_rec_state */
	bool response; /* done when its response arrives, not when acknowledged */
	bool resent;
	bool app_limited;
	bool marked; /* the peer got it with CE */
	uint8_t path;
	uint16_t prev, next; /* in the list of its state */
};

struct dp_rec_list {
	uint16_t head, tail;
};

/* RACK (RFC 8985) for each class of packets that come back in the order in
 * which they were sent: for each path, those that an acknowledgement ends; READs
 * and atomics, which their responses end; and those of the latter that were asked
 * for again, since the responder answers the rest only behind them. */
enum { DP_CLASSES_MAX = DP_PATHS_MAX + 2 };

struct dp_rack {
	struct dp_rec_list flight; /* by time of sending */
	uint64_t xmit_ns;	   /* latest sending time among the delivered */
	uint32_t psn;
	uint64_t rtt_ns;
};

/* What one acknowledgement delivered over one path. */
struct dp_path_bytes {
	uint32_t acked, marked;
};

struct dp_tx_block {
	void *pool_link;
	uint32_t paths;
	struct dp_rec_list lost;
	uint64_t xmit_ns;   /* latest sending time of a delivered packet of any path */
	uint64_t delivered; /* paths > 1: bit for each of `bytes` in use */
	struct dp_path_bytes bytes[DP_PATHS_MAX];
	struct dp_rack rack[DP_CLASSES_MAX]; /* by path; answered; answered again */
	struct dp_rec rec[];		     /* window_psns */
};

/* Extended mode: a packet that arrived ahead of a gap and still has to act. */
enum dp_held_kind { DP_HELD_NOTHING, DP_HELD_LAST, DP_HELD_READ, DP_HELD_ATOMIC };

struct dp_held {
	uint64_t va; /* WRITE: of the tail; READ, atomic: of the request */
	uint64_t swap_add, compare;
	uint32_t rkey, imm, rq_seq;
	uint32_t len;	 /* LAST: bytes of the message; READ: bytes asked for */
	uint32_t offset; /* LAST: of the tail in the message; READ: of the answer */
	uint32_t ts_ns;
	uint64_t arrived_ns;
	uint8_t opcode;
	uint8_t kind;
	bool solicited;
	uint8_t tail_len;
	uint8_t tail[DP_TAIL_HELD];
};

/* PSNs for the next acknowledgement; what does not fit is left out. */
struct dp_psn_list {
	uint32_t n, psn[DP_LIST_MAX];
};

struct dp_rx_block {
	void *pool_link;
	struct dp_psn_list trimmed, marked;
	uint32_t count;	   /* bits set */
	uint64_t bits[32]; /* by psn modulo window; window_psns <= 2048 */
	struct dp_held held[];
};

/* READs and atomics accepted, answers not yet sent: first in, first out. */
struct dp_answer {
	uint64_t va, value;
	uint32_t rkey, psn, n_psn, len;
	uint32_t done;	 /* PSNs of it already sent */
	uint32_t offset; /* extended: where its first byte lies in the message */
	uint32_t ts_ns;
	uint32_t segment; /* bytes of each PSN */
	uint64_t arrived_ns;
	bool atomic, extended;
};

struct dp_answers {
	void *pool_link;
	uint32_t head, tail;
	struct dp_answer ring[DP_READ_QUEUE];
};

/* A READ or atomic that was accepted, kept in case the requester asks again (the
 * responder resources of IBTA vol. 1, 9.7.7.2). */
struct dp_accepted {
	uint64_t at; /* first PSN, unwrapped: not modulo 2^24 */
	uint64_t n_psn;
	uint64_t va, len; /* READ */
	uint64_t value;	  /* atomic: its result */
	uint64_t start;	  /* extended READ: address of the message's first byte */
	uint32_t rkey, segment;
	bool atomic;
};

struct dp_requester {
	uint32_t snd_una, snd_nxt, snd_max;
	uint32_t segment;  /* bytes of each PSN of the requests numbered */
	uint32_t post_psn; /* first PSN of the next request posted */
	uint32_t post_rq_seq;
	uint32_t rd_outstanding;
	uint32_t since_ack_req;
	uint8_t retry_left, rnr_left;
	bool implied_nak; /* a READ was asked for again, no progress since */
	uint64_t rnr_until_ns;
	uint64_t timer_ns; /* standard: IB time-out; extended: RTO. 0: off */
	/* extended mode */
	struct dp_tx_block *block;
	uint32_t cum; /* PSNs below it are acknowledged, if not answered */
	uint8_t path; /* of the packet being sent */
	uint32_t backoff;
	uint64_t tlp_ns, reorder_ns;
	uint64_t progress_ns;
	bool tlp_sent;
	bool forced; /* the next copy leaves whatever the window: a probe, a time-out */
	uint32_t reo_mult, peer_duplicates, peer_marked;
};

struct dp_responder {
	uint32_t epsn, msn;
	uint32_t rq_seq; /* receives consumed so far */
	/* standard mode: the message under way */
	uint8_t message; /* 0 none, else DP_IS_SEND or DP_IS_WRITE >> 13 */
	bool nak_sent;
	uint64_t va;
	uint32_t rkey, left, offset;
	/* acknowledgement to send */
	bool ack_now;
	uint8_t syndrome; /* of the next acknowledgement */
	bool fatal;	  /* a fatal NAK was sent: repeat it */
	uint32_t nak_psn;
	uint32_t newest; /* standard mode: PSN of the newest SEND or WRITE, for ACKs */
	/* extended mode */
	uint32_t unacked;
	uint64_t ack_ns; /* delayed acknowledgement, 0: off */
	uint32_t ts_ns;
	uint64_t ts_at_ns;
	uint32_t marked, duplicates;
	uint32_t told_marked, told_duplicates; /* of those, by the last acknowledgement */
	uint32_t highest;		       /* PSN behind the highest received */
	struct dp_rx_block *block;
	struct dp_answers *answers;
	uint64_t expected;	      /* epsn, unwrapped: not modulo 2^24 */
	struct dp_accepted *accepted; /* the newest max_dest_rd_atomic, in a ring */
	uint32_t n_accepted;	      /* ever */
};

struct dp_flow_state {
	const struct dp_cc_algo *algo; /* NULL: constant window */
	struct dp_cc_flow *record;
	uint64_t inflight_bytes;
	uint64_t delivered_bytes, delivered_ns, first_sent_ns;
	uint64_t lost_since_ack;
	uint64_t srtt_ns, rttvar_ns, min_rtt_ns;
	uint64_t next_tx_ns; /* pacing */
	uint64_t late_ns;    /* credit for a wake-up after that */
	bool paced;	     /* something waits for next_tx_ns */
	uint64_t min_rtt_at_ns;
	uint64_t app_limited_at; /* delivered_bytes up to which samples are so */
	/* standard mode: one packet is timed at a time */
	uint32_t timed_psn;
	uint64_t timed_ns;
};

/* In-band telemetry: the newest records received, yet to be echoed; and of each
 * hop of the echoes, the clock and counter of which the wire has the low bits. */
struct dp_echo {
	uint8_t record[DP_HOPS_MAX * DP_HOP_LEN];
	uint32_t n;
	bool fresh;
	uint64_t at_ns; /* of the last echo received */
	uint64_t ts_ns[DP_HOPS_MAX], tx_bytes[DP_HOPS_MAX];
};

struct dp_qp {
	struct dp_engine *engine;
	struct dp_event_node event;
	struct dp_timer timer;
	struct dp_qp *ready_next;
	bool ready; /* in the transmit list */
	bool comm_est;
	bool sq_sig_all;
	/* extended mode: agreed with the peer; used by the requester */
	bool peer_extended, extended;
	bool telemetry;	  /* agreed: some requests have room for it */
	bool peer_paths;  /* the peer's packets take several paths */
	bool hello_done;  /* the peer's was seen */
	bool hello_reply; /* owed to the peer */
	bool probing;	  /* for `probe` bytes: hello_tries and hello_ns are the probe's */
	uint8_t hello_tries;
	uint16_t probe, probe_reply; /* bytes; those owed to the peer */
	uint64_t hello_ns;
	uint32_t window;  /* PSNs, both ends' smaller one */
	uint32_t segment; /* bytes that a packet may carry: path MTU, or what a probe has shown */
	uint32_t qpn, state;
	uint16_t sport;
	struct dp_qp_attr attr;
	struct dp_pd *pd;
	struct dp_cq *send_cq, *recv_cq;
	void *user;

	uint8_t *sq, *rq;
	uint32_t sq_stride, rq_stride, sq_mask, rq_mask;
	uint32_t sq_ci, sq_tx, sq_pi; /* completed, being sent, posted */
	uint32_t sq_drain;	      /* in SQD: the first request that had not begun */
	bool drain_notify;	      /* DP_EVENT_SQ_DRAINED is still to be raised */
	uint32_t rq_ci, rq_pi;
	uint32_t max_send_sge, max_recv_sge, max_inline;
	struct dp_requester req;
	struct dp_responder resp;
	struct dp_flow_state flow;
	struct dp_echo *echo; /* NULL: no telemetry wanted here */
	struct dp_qp_stats stats;
};

struct dp_engine {
	struct dp_engine_config cfg;
	uint64_t rng;
	struct dp_store *store; /* the configuration's or own */
	struct dp_engine_stats stats;
	struct dp_qp *ready_head, *ready_tail;
	struct dp_event_node *event_head, *event_tail;
	struct dp_mr **mrs;
	uint32_t mr_cap, mr_next;
	bool wheel_started;
	struct dp_wheel wheel;
	uint32_t qpn_next, n_qps, n_pds, n_cqs;
	struct dp_store own;
	struct dp_qp **qps[DP_MAX_QPS / DP_QP_PAGE]; /* by bits 8-15, 0-7 of the QPN */
};

/* The QP with these low 16 bits of its QPN, or NULL. */
static inline struct dp_qp *dp_find_qp(const struct dp_engine *e, uint32_t qpn)
{
	struct dp_qp **page = e->qps[qpn / DP_QP_PAGE % (DP_MAX_QPS / DP_QP_PAGE)];

	return page ? page[qpn % DP_QP_PAGE] : NULL;
}

/* ---- engine.c ---------------------------------------------------------- */
uint64_t dp_random(struct dp_engine *);
void dp_raise(struct dp_engine *, struct dp_event_node *, enum dp_event_type);
void dp_unraise(struct dp_engine *, struct dp_event_node *);
/* The QP may have something to send: put it in the transmit list. */
void dp_qp_wake(struct dp_qp *);
void dp_qp_unwake(struct dp_qp *);
/* A request in the window came in extended form: answer in that form.  The requester waits
 * for the peer's HELLO, which tells the window; asks for it again if it has given up. */
void dp_peer_is_extended(struct dp_qp *, uint64_t now);
/* Arms the QP's timer for the earliest of its deadlines. */
void dp_qp_rearm(struct dp_qp *, uint64_t now);

/* ---- memory.c ----------------------------------------------------------- */
/* Host address of [va, va+len), NULL when the key, the PD, the bounds or the
 * access do not allow it.  Zero bytes are always allowed. */
uint8_t *dp_mr_reach(struct dp_pd *, uint32_t key, uint64_t va, uint64_t len, uint32_t access);
/* -EFAULT: no such key in the PD, or not one that a peer may take away. */
int dp_mr_invalidate(struct dp_pd *, uint32_t key);
int dp_gather(struct dp_qp *, const struct dp_swqe *, uint32_t offset, uint8_t *to, uint32_t len);
/* Copies into an SGE list from offset on; -EFAULT: a key does not allow it.
 * Checks alone when `from` is NULL. */
int dp_scatter(struct dp_pd *, const struct dp_sge *, uint32_t num_sge, uint32_t offset,
	       const uint8_t *from, uint32_t len);
/* The same with the first len bytes of a packet's payload. */
int dp_scatter_payload(struct dp_pd *, const struct dp_sge *, uint32_t num_sge, uint32_t offset,
		       const struct dp_parsed *, uint32_t len);
/* Copies payload bytes [from, from+len) of a packet. */
void dp_copy_payload(uint8_t *to, const struct dp_parsed *, uint32_t from, uint32_t len);

/* ---- cq.c ----------------------------------------------------------------- */
void dp_cq_push(struct dp_cq *, const struct dp_wc *, bool solicited);

/* ---- qp.c ----------------------------------------------------------------- */
void dp_qp_to_error(struct dp_qp *, enum dp_event_type why);
/* Raises DP_EVENT_SQ_DRAINED if that is due. */
void dp_qp_drained(struct dp_qp *);
void dp_complete_send(struct dp_qp *, const struct dp_swqe *, enum dp_wc_status);
/* Fails request `index` of the send queue, flushes the rest: QP in error. */
void dp_fail_send(struct dp_qp *, uint32_t index, enum dp_wc_status);

static inline struct dp_swqe *dp_sq(const struct dp_qp *qp, uint32_t i)
{
	return (struct dp_swqe *)(qp->sq + (size_t)(i & qp->sq_mask) * qp->sq_stride);
}

static inline struct dp_rwqe *dp_rq(const struct dp_qp *qp, uint32_t i)
{
	return (struct dp_rwqe *)(qp->rq + (size_t)(i & qp->rq_mask) * qp->rq_stride);
}

static inline bool dp_is_answered(uint8_t wr_opcode)
{
	return wr_opcode == DP_WR_RDMA_READ || wr_opcode == DP_WR_ATOMIC_CMP_AND_SWP ||
	       wr_opcode == DP_WR_ATOMIC_FETCH_AND_ADD;
}

/* Where the payload of PSN `psn` begins in its message. */
static inline uint32_t dp_offset_of(const struct dp_qp *qp, const struct dp_swqe *wqe, uint32_t psn)
{
	return wqe->base + (uint32_t)dp_psn_diff(psn, wqe->first_psn) * qp->req.segment;
}

static inline uint32_t dp_paths(const struct dp_qp *qp)
{
	return qp->extended && qp->engine->cfg.paths ? qp->engine->cfg.paths : 1;
}

/* The largest segment that we take. */
static inline uint32_t dp_segment_limit(const struct dp_qp *qp)
{
	uint32_t own = qp->engine->cfg.segment_max;

	return own > qp->attr.path_mtu ? own : qp->attr.path_mtu;
}

static inline bool dp_is_atomic(uint8_t wr_opcode)
{
	return wr_opcode == DP_WR_ATOMIC_CMP_AND_SWP || wr_opcode == DP_WR_ATOMIC_FETCH_AND_ADD;
}

/* ---- build.c -------------------------------------------------------------- */
/* Starts a packet to the peer: BTH at data[0], len behind it. */
void dp_build_start(struct dp_qp *, struct dp_packet *, uint8_t opcode, unsigned pad,
		    unsigned solicited, unsigned ack_req, uint32_t psn);
void dp_build_end(struct dp_qp *, struct dp_packet *);
/* One packet of a request: payload PSN `psn` of it, or a READ of n_psn from
 * there.  -EFAULT: local memory out of reach. */
int dp_build_request(struct dp_qp *, const struct dp_swqe *, uint32_t psn, uint32_t n_psn,
		     bool ack_req, struct dp_packet *, uint64_t now);
int dp_build_answer(struct dp_qp *, struct dp_answer *, struct dp_packet *, uint64_t now);
void dp_build_ack(struct dp_qp *, struct dp_packet *, uint64_t now);
void dp_build_hello(struct dp_qp *, uint8_t opcode, struct dp_packet *);
void dp_build_probe(struct dp_qp *, uint8_t opcode, uint32_t len, struct dp_packet *);

uint32_t dp_features(const struct dp_qp *);

/* ---- post.c --------------------------------------------------------------- */
/* Gives what is left of a request its PSNs, behind those of the one before. */
void dp_number(struct dp_qp *, struct dp_swqe *);

/* ---- requester.c ---------------------------------------------------------- */
void dp_requester_start(struct dp_qp *, uint64_t now);
void dp_requester_reset(struct dp_qp *);
/* One packet, 1; nothing to send now, 0. */
int dp_requester_tx(struct dp_qp *, struct dp_packet *, uint64_t now);
void dp_requester_rx(struct dp_qp *, const struct dp_parsed *, uint64_t now);
void dp_requester_tick(struct dp_qp *, uint64_t now);
/* Puts the QP in the transmit list if it has a request to send. */
void dp_requester_wake(struct dp_qp *);
/* Bytes of the request that its PSN `psn` carries. */
uint32_t dp_payload_of(const struct dp_qp *, const struct dp_swqe *, uint32_t psn);
/* May the next unsent request start now?  Fence, READ limit. */
bool dp_may_start(const struct dp_qp *, const struct dp_swqe *);
/* Mode or segment have to change: nothing new is sent until all is acknowledged. */
bool dp_is_changing(const struct dp_qp *);
/* Completes what lies below snd_una. */
void dp_retire(struct dp_qp *);
/* The first request that may not be sent now: the send queue's end, or in SQD the first
 * that had not begun. */
uint32_t dp_send_limit(const struct dp_qp *);
/* Places the answer that arrived for PSN `psn` of a READ or atomic; -EINVAL:
 * it is not the right length; -EFAULT: local memory out of reach. */
int dp_place_response(struct dp_qp *, const struct dp_swqe *, const struct dp_parsed *,
		      uint32_t psn);
/* Local memory could not be read for request sq_tx: fails it once it is the
 * oldest.  Always 0. */
int dp_local_fault(struct dp_qp *);
uint64_t dp_ib_timeout_ns(const struct dp_qp *);
bool dp_rnr_wait(struct dp_qp *, uint8_t syndrome, uint64_t now);
enum dp_wc_status dp_nak_status(uint8_t syndrome);

/* ---- standard.c ------------------------------------------------------------ */
int dp_std_tx(struct dp_qp *, struct dp_packet *, uint64_t now);
void dp_std_ack(struct dp_qp *, const struct dp_parsed *, uint64_t now);
void dp_std_response(struct dp_qp *, const struct dp_parsed *, uint64_t now);
void dp_std_timeout(struct dp_qp *, uint64_t now);

/* ---- extended.c ------------------------------------------------------------ */
void dp_ext_start(struct dp_qp *, uint64_t now);
int dp_ext_tx(struct dp_qp *, struct dp_packet *, uint64_t now);
void dp_ext_ack(struct dp_qp *, const struct dp_parsed *, uint64_t now);
void dp_ext_response(struct dp_qp *, const struct dp_parsed *, uint64_t now);
/* An acknowledgement that came with a request of the peer. */
void dp_ext_carried_ack(struct dp_qp *, const struct dp_xdh *, uint64_t now);
void dp_ext_tick(struct dp_qp *, uint64_t now);
/* The answer for PSN `psn` came without its payload. */
void dp_ext_trimmed(struct dp_qp *, uint32_t psn, uint64_t now);

/* Syndromes of refusals. */
#define DP_NAK(code) (DP_AETH_NAK | (code))

static inline uint8_t dp_rnr_syndrome(const struct dp_qp *qp)
{
	return DP_AETH_RNR_NAK | qp->attr.min_rnr_timer;
}

/* ---- responder.c ------------------------------------------------------------ */
/* -ENOMEM: no room for the results of atomics. */
int dp_responder_start(struct dp_qp *);
void dp_responder_reset(struct dp_qp *);
void dp_responder_rx(struct dp_qp *, const struct dp_packet *, const struct dp_parsed *,
		     uint64_t now);
int dp_responder_tx(struct dp_qp *, struct dp_packet *, uint64_t now);
void dp_responder_tick(struct dp_qp *, uint64_t now);
/* Refuses PSN `psn`.  Invalid requests and access faults are fatal: the QP goes to
 * error, and the NAK is repeated to whatever still comes. */
void dp_responder_nak(struct dp_qp *, uint32_t psn, uint8_t syndrome);
/* Expects n_psn PSNs more than before. */
void dp_responder_advance(struct dp_responder *, uint32_t n_psn);
/* Run a READ or atomic that comes for the first time: 0, the syndrome of the NAK it
 * deserves, or -EAGAIN when it has to be asked again. */
int dp_execute_read(struct dp_qp *, const struct dp_held *, uint32_t psn, bool extended);
int dp_execute_atomic(struct dp_qp *, const struct dp_held *, uint32_t psn, bool extended);
/* Answer one again that was accepted before; anything else is dropped. */
void dp_replay(struct dp_qp *, const struct dp_held *, uint32_t psn, bool extended);
/* A READ was accepted of which [psn, psn + n_psn) of this request is a part. */
bool dp_was_accepted(const struct dp_qp *, const struct dp_held *, uint32_t psn, uint32_t n_psn);
uint32_t dp_read_psns(uint32_t len, uint32_t segment);
/* The last packet of a message is in place: completes a receive if it has one.
 * 0 or the syndrome of a NAK. */
int dp_finish_message(struct dp_qp *, const struct dp_held *);
/* The receive under way cannot take the message. */
void dp_fail_recv(struct dp_qp *, enum dp_wc_status);
/* What a packet asks for, kept for as long as it has to wait. */
void dp_held_from(const struct dp_parsed *, struct dp_held *, uint64_t now);
void dp_answers_release(struct dp_qp *);

/* ---- reorder.c --------------------------------------------------------------- */
void dp_reorder_rx(struct dp_qp *, const struct dp_packet *, const struct dp_parsed *,
		   uint64_t now);
/* Fills in the SACK bitmap; returns the number of words. */
unsigned dp_reorder_sack(const struct dp_qp *, uint32_t *base, uint8_t *words);
/* A request came without its payload. */
void dp_reorder_trimmed(struct dp_qp *, const struct dp_parsed *);
/* The lists of PSNs were told. */
void dp_reorder_told(struct dp_qp *);

/* ---- flow.c ------------------------------------------------------------------- */
int dp_flow_init(struct dp_qp *, const struct dp_cc_algo *);
void dp_flow_free(struct dp_qp *);
void dp_flow_connect(struct dp_qp *, uint64_t now);
void dp_flow_rtt(struct dp_qp *, uint64_t rtt_ns, uint64_t now);
uint64_t dp_flow_rto(const struct dp_qp *);
/* Window and pacing allow `bytes` more now?  If pacing does not, flow.paced is
 * set and the QP's timer will wake it. */
bool dp_flow_allows(struct dp_qp *, uint32_t bytes, uint64_t now);
/* If next_tx_ns has come for what waited for it: not paced any more. */
void dp_flow_turn(struct dp_qp *, uint64_t now);
void dp_flow_sent(struct dp_qp *, uint32_t bytes, uint64_t now);
void dp_flow_ack(struct dp_qp *, struct dp_cc_ack *, uint64_t now);
/* Telemetry that an acknowledgement echoed. */
void dp_flow_hops(struct dp_qp *, struct dp_cc_ack *, const uint8_t *records, uint32_t n,
		  uint64_t now);
void dp_flow_loss(struct dp_qp *, struct dp_cc_loss *, uint64_t now);
void dp_flow_timeout(struct dp_qp *, uint64_t now);

#endif
