/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The engine: packets and time in, packets and completions out.
 *
 * It knows no socket, clock, thread or file.  A port calls dp_engine_rx(), dp_engine_tx(),
 * dp_engine_deadline() and dp_engine_tick(); the verbs front calls the rest.  One engine is used by
 * one thread at a time: the caller holds whatever lock that takes.  Objects belong to the engine
 * that made them; destroying one that is in use fails with -EBUSY.
 *
 * Functions return 0 (or what they say) or -errno.  `now` is nanoseconds on any monotonic clock.
 */
#ifndef DP_ENGINE_ENGINE_H
#define DP_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/cc.h"
#include "engine/counters.h"
#include "wire/packet.h"

struct dp_engine;
struct dp_store;
struct dp_pd;
struct dp_mr;
struct dp_cq;
struct dp_ah;
struct dp_srq;
struct dp_qp;

enum {
	DP_WINDOW_MIN = 64,
	DP_WINDOW_MAX = 1 << 17, /* over twice 10 Gbit/s times 40 ms in packets of 1500 bytes */
};

/* ---- memory for windows --------------------------------------------------- */

/* A QP holds the records of its window in pages of 256 PSNs, and only while packets are in flight.
 * An engine with a store of its own sets aside one page for each direction when a QP is made.  It
 * takes more pages from the system as windows grow, and keeps some of them.  The engines of a
 * simulation run in one thread and share a store, so that an idle QP holds no page.  window_psns:
 * the window of all engines that use the store, 0: 131072. */
int dp_store_create(uint32_t window_psns, struct dp_store **out);
/* All engines that use the store must have been destroyed before. */
void dp_store_destroy(struct dp_store *);

/* ---- engine ---------------------------------------------------------- */

struct dp_engine_config {
	struct dp_addr addr;   /* our address: QPs accept packets to it only */
	uint32_t path_mtu_max; /* 256..4096: what the port can carry */
	uint32_t segment_max;  /* extended mode: most payload, 4 * n up to 8960; 0: the path MTU */
	uint16_t udp_sport;    /* 0: 0xC000 + hash of the QPN; else always this */
	uint8_t tos;	       /* DSCP << 2; the engine adds ECT(0) when ECN is on */
	uint8_t rank_of_dscp[64]; /* 0..7: QPs of a lower rank send first */
	uint8_t ecn;		  /* 1: mark packets ECN-capable */
	uint8_t extended;	  /* 1: offer extended mode to peers */
	uint8_t no_payload;	  /* 1: move lengths only (simulator) */
	uint8_t bundle;		  /* 1: short messages may share a packet; needs payload */
	uint8_t telemetry;	  /* 1: offer room for telemetry in requests */
	uint8_t paths;		/* extended mode: UDP source ports that packets take, 1..64; 0: 1 */
	uint32_t window_psns;	/* extended mode, power of two, 64..131072; 0: 131072 */
	uint64_t line_rate_bps; /* told to CC; 0: not known */
	uint64_t min_rto_ns;	/* 0: 4 ms */
	uint64_t cnp_ns;	/* at least, between two CNPs of a QP; 0: it sends none */
	uint64_t seed;		/* for keys, QPNs, PSNs: equal seeds, equal runs */
	uint32_t qpn_prefix;	/* the top 8 bits of every QPN made (process steering) */
	struct dp_store *store; /* memory for windows; NULL: the engine's own */
	const struct dp_cc_algo *cc; /* default of new QPs; NULL: a constant window of 1 MiB */
};

int dp_engine_create(const struct dp_engine_config *, struct dp_engine **out);
void dp_engine_destroy(struct dp_engine *);

/* Hands one packet to the engine.  Returns 0, or -EPROTO and the like when the packet was dropped
 * (and counted).  arrived_ns tells the time in the network from that in this host.  The engine
 * ignores what cannot be right: in the future, more than a second ago, or before the packet that
 * this one answers was sent. */
int dp_engine_rx(struct dp_engine *, const struct dp_packet *, uint64_t now_ns);
/* Takes up to max packets: the caller sets data and cap of each, the engine the rest.  Returns how
 * many were filled. */
int dp_engine_tx(struct dp_engine *, struct dp_packet *out, int max, uint64_t now_ns);
/* Next instant at which tick() or tx() has something to do: 0 when tx() has a
 * packet now, DP_NEVER when only a packet or a verb can make it do anything. */
uint64_t dp_engine_deadline(const struct dp_engine *);
void dp_engine_tick(struct dp_engine *, uint64_t now_ns);
/* Only tells the time: before posts that dp_qp_completes_posts(), which take no `now`. */
void dp_engine_clock(struct dp_engine *, uint64_t now_ns);
/* Tells that every packet that had arrived by heard_ns has gone through rx().  Time-outs count the
 * silence of a peer up to heard_ns only.  If this is never called, time-outs count up to now. */
void dp_engine_heard(struct dp_engine *, uint64_t heard_ns);
/* For tests and fuzzers: the first invariant of the engine's state that does not hold, in
 * words, or NULL.  Takes time in proportion to everything that the engine holds. */
const char *dp_engine_check(const struct dp_engine *);

enum dp_event_type {
	DP_EVENT_CQ = 1,     /* an armed CQ got a completion */
	DP_EVENT_QP_FAILED,  /* QP went to error; a completion tells why */
	DP_EVENT_QP_ACCESS,  /* a peer's request broke an access right: QP in error */
	DP_EVENT_QP_REQUEST, /* a peer's request was not valid: QP in error */
	DP_EVENT_COMM_EST,   /* first packet arrived on a QP in RTR */
	DP_EVENT_CQ_OVERRUN, /* completions lost: CQ too small */
	DP_EVENT_SQ_DRAINED, /* a QP in SQD has finished every message that it had begun */
	DP_EVENT_LAST_WQE,   /* a QP in error will take no more of its shared receive queue */
	DP_EVENT_SRQ_LIMIT,  /* a shared receive queue has fewer receives than its limit */
};

struct dp_event {
	enum dp_event_type type;
	struct dp_qp *qp; /* one of the three is set: the object that the event is about */
	struct dp_cq *cq;
	struct dp_srq *srq;
};

/* Takes the oldest event; false when there is none. */
bool dp_engine_event(struct dp_engine *, struct dp_event *out);

/* ---- protection domains and memory ------------------------------------ */

enum dp_access {
	DP_ACCESS_LOCAL_WRITE = 1,
	DP_ACCESS_REMOTE_WRITE = 2,
	DP_ACCESS_REMOTE_READ = 4,
	DP_ACCESS_REMOTE_ATOMIC = 8,
	DP_ACCESS_MW_BIND = 16,	   /* of a region: windows may be bound to it */
	DP_ACCESS_ZERO_BASED = 32, /* of a window: its first byte has address 0 */
	DP_ACCESS_FLUSH_GLOBAL = 256,
	/* A SEND with invalidate may invalidate the key (IBTA vol. 1, 10.6.7.2), as for
	 * fast-registered memory.  Regions of ibv_reg_mr() do not have this right. */
	DP_ACCESS_INVALIDATE = 1 << 30,
};

int dp_pd_create(struct dp_engine *, struct dp_pd **out);
int dp_pd_destroy(struct dp_pd *);

/* Registers [addr, addr+len).  Work requests and the peer address it from iova on. lkey and rkey
 * are the same number, part of it random. */
int dp_mr_create(struct dp_pd *, void *addr, uint64_t len, uint64_t iova, uint32_t access,
		 struct dp_mr **out);
/* -EBUSY: memory windows are bound to the region. */
int dp_mr_destroy(struct dp_mr *);
uint32_t dp_mr_key(const struct dp_mr *);

struct dp_range {
	void *addr;
	uint64_t len, iova;
};

/* Changes what is given (not NULL); the key stays.  -EINVAL as dp_mr_create(), -EBUSY: memory
 * windows are bound to the region.  On an error nothing is changed. */
int dp_mr_change(struct dp_mr *, struct dp_pd *, const struct dp_range *, const uint32_t *access);

/* Memory windows.  Values of enum ibv_mw_type. */
enum dp_mw_type { DP_MW_TYPE_1 = 1, DP_MW_TYPE_2 = 2 };

/* A request DP_WR_BIND_MW chooses the low 8 bits of a window's key.  dp_mr_destroy() destroys a
 * window, too. */
int dp_mw_create(struct dp_pd *, enum dp_mw_type, struct dp_mr **out);

/* The part of a region that a window opens to the peer.  A bind of no bytes closes a window of type
 * 1.  DP_WR_LOCAL_INV, a SEND with invalidate from the peer, and the end of the QP close a window
 * of type 2. */
struct dp_bind {
	struct dp_mr *window, *region;
	uint64_t addr, len;
	uint32_t access; /* enum dp_access */
	uint32_t key;
};

/* ---- address handles ---------------------------------------------------- */

/* An address handle says where a datagram goes: the peer's address, and the port's route to it.
 * The route stays in use until the handle is destroyed.  tos: DSCP << 2; 0: that of the QP.  -EINVAL:
 * that of trimmed packets. */
int dp_ah_create(struct dp_pd *, const struct dp_addr *to, uint32_t path_id, uint8_t tos,
		 struct dp_ah **out);
/* -EBUSY: requests that are posted and not yet sent use the handle. */
int dp_ah_destroy(struct dp_ah *);

/* ---- completion queues ------------------------------------------------- */

/* Values are those of enum ibv_wc_status / ibv_wc_opcode / ibv_wc_flags, so
 * the front passes them on as they are. */
enum dp_wc_status {
	DP_WC_SUCCESS = 0,
	DP_WC_LOC_LEN_ERR = 1,
	DP_WC_LOC_QP_OP_ERR = 2,
	DP_WC_LOC_PROT_ERR = 4,
	DP_WC_WR_FLUSH_ERR = 5,
	DP_WC_BAD_RESP_ERR = 7,
	DP_WC_LOC_ACCESS_ERR = 8,
	DP_WC_REM_INV_REQ_ERR = 9,
	DP_WC_REM_ACCESS_ERR = 10,
	DP_WC_REM_OP_ERR = 11,
	DP_WC_RETRY_EXC_ERR = 12,
	DP_WC_RNR_RETRY_EXC_ERR = 13,
};

enum dp_wc_opcode {
	DP_WC_SEND = 0,
	DP_WC_RDMA_WRITE = 1,
	DP_WC_RDMA_READ = 2,
	DP_WC_COMP_SWAP = 3,
	DP_WC_FETCH_ADD = 4,
	DP_WC_BIND_MW = 5,
	DP_WC_LOCAL_INV = 6,
	DP_WC_FLUSH = 8,
	DP_WC_ATOMIC_WRITE = 9,
	DP_WC_RECV = 128,
	DP_WC_RECV_RDMA_WITH_IMM = 129,
};

enum dp_wc_flags {
	DP_WC_GRH = 1, /* the receive buffer begins with 40 bytes of header (wire/grh.h) */
	DP_WC_WITH_IMM = 2,
	DP_WC_WITH_INV = 8,
};

struct dp_wc {
	uint64_t wr_id;
	uint32_t status; /* enum dp_wc_status */
	uint32_t opcode; /* enum dp_wc_opcode */
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t packets, resent; /* of RC: that the request took; of these, sent again */
	union {
		uint32_t imm;		   /* in network order */
		uint32_t invalidated_rkey; /* with DP_WC_WITH_INV */
	};
	uint32_t qpn;
	uint32_t src_qpn;
	uint32_t flags; /* enum dp_wc_flags */
	/* `now` of the engine call in which the request completed.  A verb that takes no `now` uses
	 * that of the last call that did: see dp_engine_clock(). */
	uint64_t completed_ns;
};

int dp_cq_create(struct dp_engine *, uint32_t entries, void *user, struct dp_cq **out);
int dp_cq_destroy(struct dp_cq *);
int dp_cq_resize(struct dp_cq *, uint32_t entries);
int dp_cq_poll(struct dp_cq *, int max, struct dp_wc *out); /* the oldest first; how many */
/* The next completion (or the next solicited or failed one) raises one DP_EVENT_CQ. */
void dp_cq_arm(struct dp_cq *, bool solicited_only);
/* That event waits for `count` such completions, for `period_us` since the first, or for a full CQ,
 * whichever is first.  0: without this bound; both 0: it does not wait. */
void dp_cq_moderate(struct dp_cq *, uint16_t count, uint16_t period_us);
void *dp_cq_user(const struct dp_cq *);
uint32_t dp_cq_entries(const struct dp_cq *);

/* ---- shared receive queues ----------------------------------------------- */

struct dp_srq_attr {
	uint32_t max_wr, max_sge; /* at least those asked for */
	uint32_t limit;		  /* 0: no event */
};

/* Values of enum ibv_srq_attr_mask. */
enum dp_srq_attr_mask { DP_SRQ_MAX_WR = 1, DP_SRQ_LIMIT = 2 };

int dp_srq_create(struct dp_pd *, const struct dp_srq_attr *, void *user, struct dp_srq **out);
int dp_srq_destroy(struct dp_srq *);
/* -EINVAL: the limit is more than the queue holds, or it holds more than the new size. */
int dp_srq_modify(struct dp_srq *, const struct dp_srq_attr *, uint32_t mask);
void dp_srq_query(const struct dp_srq *, struct dp_srq_attr *out);
void *dp_srq_user(const struct dp_srq *);

/* ---- queue pairs -------------------------------------------------------- */

enum dp_qp_type { DP_QPT_RC, DP_QPT_UD };

struct dp_qp_config {
	uint32_t type; /* enum dp_qp_type */
	uint32_t qpn;  /* DP_QPN_GSI, which one QP may have; 0: the next free number */
	struct dp_pd *pd;
	struct dp_cq *send_cq, *recv_cq;
	struct dp_srq *srq;		     /* NULL: a receive queue of its own */
	uint32_t max_send_wr, max_recv_wr;   /* rounded up to a power of two */
	uint32_t max_send_sge, max_recv_sge; /* at most DP_SGE_MAX */
	uint32_t max_inline;		     /* bytes, at most DP_INLINE_MAX */
	/* Zeroed, dp_qp_queue_bytes() long, until dp_qp_destroy(); NULL: the engine allocates it. */
	void *sq_memory, *rq_memory;
	bool sq_sig_all;
	void *user;
};

enum {
	DP_QPN_SPACE = 1 << 16, /* low bits of a QPN */
	DP_QPS_MAX = DP_QPN_SPACE - 2,
	DP_QPN_GSI = 1, /* takes management datagrams; it has no prefix */
	DP_KEYS_MAX = (1 << 16) - 1,
	DP_SGE_MAX = 32,
	DP_INLINE_MAX = 1024,
	DP_WR_MAX = 16384,
	DP_RD_ATOMIC_MAX = 16,
	DP_MSG_MAX = 1 << 30, /* bytes */
};

/* Values of enum ibv_qp_state. */
enum dp_qp_state {
	DP_QPS_RESET = 0,
	DP_QPS_INIT = 1,
	DP_QPS_RTR = 2,
	DP_QPS_RTS = 3,
	DP_QPS_SQD = 4,
	DP_QPS_SQE = 5, /* UD: a send failed; receives go on */
	DP_QPS_ERR = 6,
};

/* Values of enum ibv_qp_attr_mask (those that RC and UD use). */
enum dp_qp_attr_mask {
	DP_QP_STATE = 1 << 0,
	DP_QP_CUR_STATE = 1 << 1,
	DP_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
	DP_QP_ACCESS_FLAGS = 1 << 3,
	DP_QP_PKEY_INDEX = 1 << 4,
	DP_QP_PORT = 1 << 5,
	DP_QP_QKEY = 1 << 6,
	DP_QP_AV = 1 << 7,
	DP_QP_PATH_MTU = 1 << 8,
	DP_QP_TIMEOUT = 1 << 9,
	DP_QP_RETRY_CNT = 1 << 10,
	DP_QP_RNR_RETRY = 1 << 11,
	DP_QP_RQ_PSN = 1 << 12,
	DP_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	DP_QP_MIN_RNR_TIMER = 1 << 15,
	DP_QP_SQ_PSN = 1 << 16,
	DP_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	DP_QP_DEST_QPN = 1 << 20,
};

struct dp_qp_attr {
	uint8_t state;	      /* enum dp_qp_state */
	uint8_t cur_state;    /* DP_QP_CUR_STATE: the state in which the caller believes the QP */
	uint16_t path_mtu;    /* bytes */
	uint16_t access;      /* enum dp_access: what the peer may do */
	uint8_t tos;	      /* DSCP << 2 of packets to the peer; 0: that of the engine */
	uint32_t qkey;	      /* UD: the Q_Key that a datagram must carry */
	struct dp_addr raddr; /* DP_QP_AV: the peer, and the port's route to it */
	uint32_t path_id;
	uint32_t dest_qpn, rq_psn, sq_psn;
	uint8_t timeout;	      /* 4.096 us * 2^n, 0: none */
	uint8_t retry_cnt, rnr_retry; /* 0..7; rnr_retry 7: for ever */
	uint8_t min_rnr_timer, max_rd_atomic, max_dest_rd_atomic;
	uint8_t sqd_notify;  /* DP_QP_EN_SQD_ASYNC_NOTIFY: raise DP_EVENT_SQ_DRAINED */
	uint8_t sq_draining; /* query: in SQD, with a message under way */
};

/* A datagram QP gets the packets of a multicast group from now on; a group is named by its IP
 * address.  -EINVAL: another type of QP or another address, -EEXIST: it does already. */
int dp_multicast_attach(struct dp_qp *, const struct dp_addr *group);
/* -EINVAL: it is not in the group.  A QP that is destroyed leaves all of its groups. */
int dp_multicast_detach(struct dp_qp *, const struct dp_addr *group);

/* -EINVAL: the configuration is not valid. */
int dp_qp_queue_bytes(const struct dp_qp_config *, size_t *sq, size_t *rq);
int dp_qp_create(struct dp_engine *, const struct dp_qp_config *, struct dp_qp **out);
int dp_qp_destroy(struct dp_qp *);
/* Before a QP ends: its last acknowledgement leaves with the next dp_engine_tx(), again if need be. */
void dp_qp_settle(struct dp_qp *);
/* Applies the attributes named in mask (enum dp_qp_attr_mask).  -EINVAL for an
 * illegal transition, a missing or an unknown attribute: nothing is changed. */
int dp_qp_modify(struct dp_qp *, const struct dp_qp_attr *, uint32_t mask, uint64_t now_ns);
/* The state after a HELLO that took rtt_ns and a PROBE, over a path that carries packets of any
 * size.  For simulations whose connections exist from the start. */
void dp_qp_agree(struct dp_qp *, const struct dp_qp *peer, uint64_t rtt_ns, uint64_t now_ns);
void dp_qp_query(const struct dp_qp *, struct dp_qp_attr *out);
uint32_t dp_qp_qpn(const struct dp_qp *);
void *dp_qp_user(const struct dp_qp *);
/* Sets the algorithm of one QP, also while the QP sends.  The algorithm begins with a new record
 * that holds what the transport knows of the path.  NULL: constant window.  On an error nothing is
 * changed.  -EOPNOTSUPP: QPs of this type have no congestion control. */
int dp_qp_set_cc(struct dp_qp *, const struct dp_cc_algo *, uint64_t now_ns);
/* The flow record, for time series, valid until the next call of it with this engine.  NULL: the QP
 * is not connected yet, or has no record. */
const struct dp_cc_flow *dp_qp_flow(const struct dp_qp *);

/* Values of enum ibv_wr_opcode. */
enum dp_wr_opcode {
	DP_WR_RDMA_WRITE = 0,
	DP_WR_RDMA_WRITE_WITH_IMM = 1,
	DP_WR_SEND = 2,
	DP_WR_SEND_WITH_IMM = 3,
	DP_WR_RDMA_READ = 4,
	DP_WR_ATOMIC_CMP_AND_SWP = 5,
	DP_WR_ATOMIC_FETCH_AND_ADD = 6,
	DP_WR_LOCAL_INV = 7,
	DP_WR_BIND_MW = 8,
	DP_WR_SEND_WITH_INV = 9,
	DP_WR_FLUSH = 14,
	DP_WR_ATOMIC_WRITE = 15,
};

/* Values of enum ibv_send_flags. */
enum dp_send_flags {
	DP_SEND_FENCE = 1,
	DP_SEND_SIGNALED = 2,
	DP_SEND_SOLICITED = 4,
	DP_SEND_INLINE = 8,
};

/* Layout of struct ibv_sge. */
struct dp_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct dp_send_wr {
	uint64_t wr_id;
	uint32_t opcode; /* enum dp_wr_opcode */
	uint32_t flags;	 /* enum dp_send_flags */
	uint32_t num_sge;
	const struct dp_sge *sge;
	union {
		uint32_t imm;		  /* in network order */
		uint32_t invalidate_rkey; /* DP_WR_SEND_WITH_INV, DP_WR_LOCAL_INV */
	};
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t compare_add, swap;
	uint8_t placement, selectivity; /* DP_WR_FLUSH: enum dp_feth */
	uint32_t flush_len;
	/* UD.  If the highest bit of the Q_Key is set, the QP's own Q_Key is sent. */
	struct dp_ah *ah;
	uint32_t remote_qpn, remote_qkey;
	struct dp_bind bind; /* DP_WR_BIND_MW */
};

struct dp_recv_wr {
	uint64_t wr_id;
	uint32_t num_sge;
	const struct dp_sge *sge;
};

/* -ENOMEM: queue full; -EINVAL: bad request or QP state.  Inline data is copied before the call
 * returns.  A QP in error takes the request and flushes it.  In SQE only the send queue does so. */
int dp_qp_post_send(struct dp_qp *, const struct dp_send_wr *);
/* All of them or, on an error, none. */
int dp_qp_post_sends(struct dp_qp *, const struct dp_send_wr *, uint32_t n);
/* Whether posting one of these requests, or (n = 0) any request or receive, may complete it in the same
 * call: all of a QP in error, and binds and invalidations. */
bool dp_qp_completes_posts(const struct dp_qp *, const struct dp_send_wr *, uint32_t n);
/* -EINVAL also for a QP with a shared receive queue. */
int dp_qp_post_recv(struct dp_qp *, const struct dp_recv_wr *);
int dp_srq_post_recv(struct dp_srq *, const struct dp_recv_wr *);

/* ---- counters ------------------------------------------------------------ */

void dp_engine_stats(const struct dp_engine *, struct dp_engine_stats *out);
void dp_qp_stats(const struct dp_qp *, struct dp_qp_stats *out);
uint32_t dp_qp_unsent(const struct dp_qp *);  /* requests that were posted and are not sent yet */
int dp_qp_extended(const struct dp_qp *);     /* 1 once both ends have agreed on it */
uint32_t dp_qp_segment(const struct dp_qp *); /* payload bytes of a full packet sent now */

#endif
