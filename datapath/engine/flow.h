/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Congestion control of one QP: the calls into the algorithm, and what its window and rate allow.
 * Nothing here knows of QPs.
 */
#ifndef DP_ENGINE_FLOW_H
#define DP_ENGINE_FLOW_H

#include "engine/engine.h"
#include "engine/oneway.h"
#include "engine/rtt.h"
#include "engine/thinning.h"
#include "wire/telemetry.h"

#define DP_RTO_INITIAL_NS 20000000ull
#define DP_RTO_MAX_NS 60000000000ull
/* Without an algorithm: the bandwidth-delay product of 40 Gbit/s and 200 us. */
#define DP_CONSTANT_WINDOW_BYTES 1048576.0

struct dp_sender_stats {
#define X(name) uint64_t name;
	DP_QP_SENDER_COUNTERS(X)
	DP_QP_PEAKS(X)
#undef X
};

/* The sender's window and pacing of one QP. */
struct dp_flow {
	const struct dp_engine_config *cfg;
	struct dp_sender_stats *stats; /* the QP's; pacing is counted here */
	const struct dp_cc_algo *algo; /* NULL: constant window */
	struct dp_cc_flow *record;     /* the algorithm's; NULL without one */
	double constant_cwnd_bytes;    /* window without an algorithm */
	struct dp_cc_flow *before; /* copy of the record before a row of time-outs; NULL: none */
	uint32_t mss_bytes, window_psns;
	uint8_t paths;
	bool needs_grants;	/* the receiver gives grants */
	bool paced;		/* a packet waits for next_tx_ns */
	bool waited;		/* the next packet has waited for next_tx_ns */
	uint32_t unasked_bytes; /* sent since a packet last asked for an acknowledgement */
	uint32_t burst;		/* packets sent in a row while next_tx_ns was not in the future */
	uint64_t inflight_bytes;
	uint64_t delivered_bytes, delivered_ns, first_sent_ns;
	uint64_t lost_since_ack;
	struct dp_rtt rtt;
	struct dp_oneway oneway;
	struct dp_thinning thinning;
	uint64_t next_tx_ns;	 /* pacing: when the next packet is due */
	uint64_t late_ns;	 /* pacing: how late the QP woke; it may catch up on this time */
	uint64_t app_limited_at; /* rate samples up to this delivered_bytes are app-limited */
	uint64_t round_bytes;	 /* delivered_bytes at which the present round trip began */
	/* standard mode: one packet is timed at a time */
	uint64_t timed_ns;
	uint32_t timed_psn;
};

/* The wire carries the low bits of each hop's clock and byte counter; here they have their full
 * values, from the last records. */
struct dp_hops {
	uint64_t at_ns; /* when those came */
	uint64_t ts_ns[DP_HOPS_MAX];
	int64_t tx_bytes[DP_HOPS_MAX]; /* below 0: of a hop of another path, which has sent less */
};

/* In-band telemetry: the newest records received, to be echoed to the peer, and what the peer
 * echoed. */
struct dp_echo {
	uint8_t record[DP_HOPS_MAX * DP_HOP_LEN];
	uint32_t n;
	bool fresh;
	struct dp_hops echoed;
};

/* How long the receiver may hold an acknowledgement because this end asked for few. */
static inline uint64_t dp_flow_thinned_ns(const struct dp_flow *f)
{
	return f->thinning.level ? dp_ack_delay_ns(f->thinning.level) : 0;
}

/* The algorithm's window. */
static inline double dp_flow_cwnd_bytes(const struct dp_flow *f)
{
	return f->record ? f->record->cwnd_bytes : f->constant_cwnd_bytes;
}

/* The algorithm's window is about packets on their way.  Others come on top of it: those that the
 * receiver has and does not acknowledge yet, because this end asked for few acknowledgements, and
 * those that lie in a late host, or whose acknowledgements do.  At most as many of these as are on
 * their way: a host that stands still must not be sent ever more. */
static inline double dp_flow_window_bytes(const struct dp_flow *f)
{
	const struct dp_rtt *r = &f->rtt;
	uint64_t late_ns = r->late_ns < r->srtt_ns ? r->late_ns : r->srtt_ns;
	uint64_t on_top_ns = dp_flow_thinned_ns(f) + late_ns;
	double cwnd_bytes = dp_flow_cwnd_bytes(f);

	if (on_top_ns && r->srtt_ns)
		cwnd_bytes += cwnd_bytes * (double)on_top_ns / (double)r->srtt_ns;
	return cwnd_bytes;
}

/* The path that the algorithm wants the next packet to take; -1: the paths take turns. */
static inline double dp_flow_next_path(const struct dp_flow *f)
{
	return f->record ? f->record->next_path : -1;
}

/* Whether the algorithm is called for each path of an acknowledgement. */
static inline bool dp_flow_by_path(const struct dp_flow *f)
{
	return f->algo && f->algo->by_path;
}

/* Bytes that may be in flight without a grant. */
static inline double dp_flow_unscheduled_bytes(const struct dp_flow *f)
{
	return f->record ? f->record->unscheduled_bytes : 0;
}

/* When on_wake is called; 0: not. */
static inline uint64_t dp_flow_wake_ns(const struct dp_flow *f)
{
	return f->algo && f->algo->on_wake && f->record->wake_ns > 0 ?
		       (uint64_t)f->record->wake_ns :
		       0;
}

/* Whether the algorithm fits this engine.  NULL, a constant window, does. */
bool dp_flow_takes(const struct dp_cc_algo *);
/* Prepares a zeroed flow of that algorithm: 0, -EINVAL or -ENOMEM. */
int dp_flow_init(struct dp_flow *, const struct dp_engine_config *, const struct dp_cc_algo *,
		 struct dp_sender_stats *);
void dp_flow_free(struct dp_flow *);
/* Starts the algorithm, with segments of mss_bytes and a window of window_psns over `paths`
 * paths. */
void dp_flow_connect(struct dp_flow *, uint32_t mss_bytes, uint32_t window_psns, uint8_t paths,
		     uint64_t now);
/* Changes the algorithm.  The new one starts at once.  0 or -ENOMEM. */
int dp_flow_replace(struct dp_flow *, const struct dp_cc_algo *, uint64_t now);
/* The algorithm's record, with the members of the transport up to date.  Without an algorithm it is
 * made in `constant`. */
const struct dp_cc_flow *dp_flow_record(const struct dp_flow *, struct dp_cc_flow *constant);
/* The RTO, ns.  handshake_ns: RTT of the first packets, used until there is an RTT sample; 0:
 * unknown. */
uint64_t dp_flow_rto(const struct dp_flow *, uint64_t handshake_ns);
/* Bytes that the algorithm means to have in flight: its window, or less where its rate fills less
 * in an RTT. */
double dp_flow_flight_bytes(const struct dp_flow *);
/* Whether window and pacing allow `bytes` more now.  If pacing does not, `paced` is set and the
 * QP's timer will wake it. */
bool dp_flow_allows(struct dp_flow *, uint32_t bytes, uint64_t now);
/* Clears `paced` when next_tx_ns has come. */
void dp_flow_turn(struct dp_flow *, uint64_t now);
/* Before a packet is recorded: the time in which nothing was in flight is part of no delivery rate
 * (draft-cheng-iccrg-delivery-rate-estimation, section 3.2). */
void dp_flow_begin_sample(struct dp_flow *, uint64_t now);
void dp_flow_sent(struct dp_flow *, uint32_t bytes, uint64_t now);
void dp_flow_ack(struct dp_flow *, struct dp_cc_ack *, uint64_t now);
/* As dp_flow_ack(), for a part of an acknowledgement: it ends no round trip. */
void dp_flow_ack_path(struct dp_flow *, struct dp_cc_ack *, uint64_t now);
/* Calls on_wake if its time has come. */
void dp_flow_tick(struct dp_flow *, uint64_t now);
/* Writes n records of telemetry with their full values. */
void dp_flow_hops(struct dp_hops *, struct dp_cc_hop *out, const uint8_t *records, uint32_t n,
		  uint64_t now);
void dp_flow_loss(struct dp_flow *, struct dp_cc_loss *, uint64_t now);
/* A CNP has come. */
void dp_flow_notified(struct dp_flow *, uint64_t now);
/* A time-out.  The first one of a row keeps a copy of the algorithm's record. */
void dp_flow_timeout(struct dp_flow *, bool first, uint64_t now);
/* The last row of time-outs was spurious: restores the record from before it. */
void dp_flow_undo_timeout(struct dp_flow *);
/* The last row of time-outs was right: drops the copy. */
void dp_flow_keep_timeout(struct dp_flow *);
/* Empties the flow: nothing is in flight, and no packet waits for its time. */
void dp_flow_stop(struct dp_flow *);

#endif
