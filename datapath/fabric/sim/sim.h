/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The simulator: real engines and the link model of link/link.h in virtual time.
 *
 *   sim.c      life cycle, the event loop, the invariants of a run
 *   queue.c    which object acts next
 *   packet.c   packets in flight
 *   graph.c    links, routes, and a frame's way through them
 *   host.c     an engine and its NIC
 *   wakeup.c   when programs run, of hosts and of emulated links
 *   table.c    the traffic table, and the QPs that it needs
 *   traffic.c  flows: posting and completions
 *   waiting.c  flows that wait for the end of others
 *   steps.c    work of hosts that waits for other work and for flows
 *   sample.c   series, and the last events of each QP
 *
 * One thread runs one simulation.  Nodes are numbered: hosts from 0, switches
 * behind them.  Equal configurations and equal calls give equal runs, down to
 * dp_sim_totals.digest, on any machine.
 */
#ifndef DP_FABRIC_SIM_H
#define DP_FABRIC_SIM_H

#include "engine/engine.h"
#include "link/link.h"
#include "link/switch.h"
#include "fabric/flows.h"

struct dp_sim;

/* One direction of a cable; links 2i and 2i + 1 are the two of cable i. */
struct dp_sim_link {
	uint32_t from, to; /* nodes; a host has one cable */
	uint32_t config;   /* index into dp_sim_graph.config */
};

struct dp_sim_graph {
	uint32_t hosts, switches, links, configs, buffers;
	const struct dp_sim_link *link;
	const struct dp_link_config *config;   /* the seeds in it are ignored */
	const struct dp_buffer_config *buffer; /* n_ports in it is ignored */
	const uint32_t *switch_buffer;	       /* by switch: index into buffer, or UINT32_MAX */
};

/* A point of a distribution function, which is linear between two points. */
struct dp_sim_quantile {
	uint32_t share; /* of UINT32_MAX; from 0 to UINT32_MAX, never falling */
	uint32_t ns;	/* never falling */
};

/* How late programs run after a sleep, drawn once for each sleep.  The caller keeps the points. */
struct dp_sim_wakeup {
	const struct dp_sim_quantile *packet; /* hosts: delay after a packet has arrived */
	const struct dp_sim_quantile *timer;  /* hosts: delay after the time to wake has come */
	/* The program that emulates the links between switches: delay of a frame. */
	const struct dp_sim_quantile *emulator;
	uint32_t n_packet, n_timer; /* both 0: hosts are never late */
	uint32_t n_emulator;	    /* 0: links are exact */
	uint64_t spin_ns;	    /* a host polls for so long after a completion */
	uint64_t awake_ns;	    /* a host is awake for so long after it woke */
};

struct dp_sim_config {
	uint64_t seed;
	/* For all engines.  The simulator sets addr, seed, cc, no_payload and store itself. */
	struct dp_engine_config engine;
	uint32_t path_mtu;
	uint32_t preset_extended; /* 1: QPs begin in extended mode; 0: they negotiate in band */
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer; /* as in struct dp_qp_attr */
	/* classes of packets with payload, of those without, and of CREDIT packets */
	uint8_t data_class, control_class, credit_class;
	bool by_dscp; /* all packets but CREDITs: class_of_dscp[] in place of data and control */
	uint8_t class_of_dscp[64];
	/* CREDITs have a class of their own: credit_class.  Then all switches choose among equal
	 * paths alike, and CREDITs by the data that they call for:
	 * between leaves and spines they take the same path backwards (ExpressPass, section 3.2). */
	bool symmetric;
	uint32_t trace_events; /* events kept for each QP, a power of two; 0: none */
	uint64_t stall_ns;     /* how often to look for a deadlock (watch() of sim.c) */
	uint32_t workers;      /* 1: there will be steps */
	struct dp_sim_wakeup wakeup;
};

int dp_sim_create(const struct dp_sim_graph *, const struct dp_sim_config *, struct dp_sim **out);
void dp_sim_destroy(struct dp_sim *);

/* Sets the traffic.  To be called once, before the first run; the caller keeps the table.  -EINVAL:
 * a row is not valid (check() of flows.py tells which). */
int dp_sim_flows(struct dp_sim *, const struct dp_flow *, uint64_t n);
/* Sets the algorithm of the QP that a flow uses, also during a run; NULL: a constant window.  The
 * caller keeps the algorithm loaded. */
int dp_sim_set_cc(struct dp_sim *, uint64_t flow, const struct dp_cc_algo *);
/* Holds, begins or ends a flow now: enum dp_flow_what, all but DP_FLOW_CC. */
int dp_sim_order(struct dp_sim *, uint64_t flow, uint32_t what);
/* Sets a link's configuration from now on. */
int dp_sim_set_link(struct dp_sim *, uint32_t link, const struct dp_link_config *);
/* Whether switches send along a link, from now on.  A switch that has no other path still does. */
int dp_sim_set_route(struct dp_sim *, uint32_t link, bool used);
/* Pauses or resumes classes of a link. */
int dp_sim_pause(struct dp_sim *, uint32_t link, uint32_t class_mask, bool paused);
/* Makes a host's program stand still until a time: it reads, sends and completes nothing, and what
 * arrives waits.  0 or -EINVAL. */
int dp_sim_stall(struct dp_sim *, uint32_t host, uint64_t until_ns);

/* ---- steps ---------------------------------------------------------------------- */

#define DP_SIM_NONE UINT32_MAX

enum dp_sim_step_kind {
	DP_SIM_STEP_WORK, /* it works for work_ns */
	DP_SIM_STEP_SEND, /* it begins a flow, and is done when the flow has ended */
	DP_SIM_STEP_TAKE, /* it waits for the arrival of a flow of SENDs, and works then */
};

/* Work of a host.  A flow that a step begins is one message, and does not begin by itself. */
struct dp_sim_step {
	uint32_t host;	/* whose worker does the work, one step after the other */
	uint32_t kind;	/* enum dp_sim_step_kind */
	uint32_t flow;	/* row of the table */
	uint32_t waits; /* how many steps have to be done before it begins; a flow that has to
			 * arrive, and a step whose `next` it is, count as well */
	uint32_t next;	/* SEND: a step that waits for the beginning of this one; DP_SIM_NONE */
	uint32_t reserved;
	uint64_t work_ns;
};

/* Sets the steps.  To be called once, after dp_sim_flows(); the caller keeps the arrays.  Steps
 * after[first[i]] to after[first[i + 1] - 1] wait for step i.  -EINVAL: they make no sense. */
int dp_sim_steps(struct dp_sim *, const struct dp_sim_step *, uint32_t n, const uint32_t *after,
		 const uint64_t *first);
/* When each step was done, ns. */
const uint64_t *dp_sim_step_times(const struct dp_sim *);

enum dp_sim_end {
	DP_SIM_MORE,  /* `events` were handled: call again */
	DP_SIM_UNTIL, /* until_ns has come */
	DP_SIM_DONE,  /* every flow has ended, and every step is done */
};

/* Continues the run.  Returns enum dp_sim_end, or -EPROTO: an invariant does not hold, -EDEADLK: a
 * deadlock, -ELOOP: events without end in one nanosecond, -ENOMEM, -ERANGE: simulated time is over.
 * dp_sim_failure() has the details. */
int dp_sim_run(struct dp_sim *, uint64_t until_ns, uint64_t events);
const char *dp_sim_failure(const struct dp_sim *);

/* X(name): all uint64_t.  A packet event is one frame at one hop: its way into
 * and out of a link, an engine's transmission, an engine's reception. */
#define DP_SIM_TOTALS(X)                                                                           \
	X(now_ns)                                                                                  \
	X(packet_events)                                                                           \
	X(turns)      /* of the event loop */                                                      \
	X(injected)   /* packets that engines sent */                                              \
	X(duplicated) /* by links */                                                               \
	X(delivered)  /* to engines */                                                             \
	X(corrupted)  /* dropped by the receiving host */                                          \
	X(lost)	      /* spoiled on purpose */                                                     \
	X(overflowed) /* no room in a queue */                                                     \
	X(policed)    /* above a policer's rate */                                                 \
	X(aqm_dropped)                                                                             \
	X(shaped) /* the queue of a shaped class was full */                                       \
	X(in_flight)                                                                               \
	X(flows)                                                                                   \
	X(ended)  /* of them: finished, cut short or failed */                                     \
	X(failed) /* of them */                                                                    \
	X(messages)                                                                                \
	X(bytes)                                                                                   \
	X(qps)                                                                                     \
	X(digest) /* of all events so far */

struct dp_sim_totals {
#define X(name) uint64_t name;
	DP_SIM_TOTALS(X)
#undef X
};

void dp_sim_totals(const struct dp_sim *, struct dp_sim_totals *out);
/* The results, a row for each flow, as of now. */
const struct dp_flow_result *dp_sim_results(const struct dp_sim *);
/* The latencies: DP_LATENCY_BUCKETS counts; limits[3] gets min, max and sum (ns). */
const uint64_t *dp_sim_latencies(const struct dp_sim *, uint64_t *limits);
int dp_sim_link_stats(const struct dp_sim *, uint32_t link, struct dp_link_stats *out);
/* The counters of a flow's QP at its source (end 0) or destination (end 1).  -ENOENT: the flow has
 * not started. */
int dp_sim_qp_stats(const struct dp_sim *, uint64_t flow, uint32_t end, struct dp_qp_stats *out);
/* The counters summed over all QPs. */
void dp_sim_qp_totals(const struct dp_sim *, struct dp_qp_stats *out);

/* ---- series ------------------------------------------------------------------- */

/* X(name): all double, one value for each sample; the names are those of
 * datapath/series.py. */
#define DP_SIM_QP_SERIES(X)                                                                        \
	X(cwnd_bytes)                                                                              \
	X(pacing_rate_bps)                                                                         \
	X(rtt_ns) /* smoothed */                                                                   \
	X(min_rtt_ns)                                                                              \
	X(host_ns)                                                                                 \
	X(inflight_bytes)                                                                          \
	X(delivered_bytes)                                                                         \
	X(marked_packets) /* received with CE by the peer */                                       \
	X(retransmitted_packets)                                                                   \
	X(sent_packets)

#define DP_SIM_LINK_SERIES(X)                                                                      \
	X(queue_bytes)                                                                             \
	X(delivered_bytes)                                                                         \
	X(marked_packets)                                                                          \
	X(dropped_packets)

struct dp_sim_qp_sample {
#define X(name) double name;
	DP_SIM_QP_SERIES(X)
#undef X
};

struct dp_sim_link_sample {
#define X(name) double name;
	DP_SIM_LINK_SERIES(X)
#undef X
};

/* Samples the QPs of some flows and some links every interval_ns from now on.  To be called once,
 * before the first run. */
int dp_sim_sample(struct dp_sim *, uint64_t interval_ns, const uint64_t *flow, uint32_t flows,
		  const uint32_t *link, uint32_t links);
/* Returns the number of samples.  Sample i of flow j is at qp[i * flows + j], NaN before its QP is
 * connected; sample i of link j is at link[i * links + j]. */
uint64_t dp_sim_series(const struct dp_sim *, const uint64_t **at_ns,
		       const struct dp_sim_qp_sample **qp, const struct dp_sim_link_sample **link);

/* ---- trace -------------------------------------------------------------------- */

enum dp_sim_trace_kind {
	DP_SIM_POST = 1, /* a message: psn is its number */
	DP_SIM_TX,
	DP_SIM_RX,
	DP_SIM_DROP,	/* node: the link's number */
	DP_SIM_CORRUPT, /* dropped by the receiving host */
	DP_SIM_COMPLETE,
	DP_SIM_RECEIVE,
};

struct dp_sim_trace {
	uint64_t at_ns;
	uint32_t kind; /* enum dp_sim_trace_kind */
	uint32_t node;
	uint32_t opcode; /* of the BTH; of the request */
	uint32_t psn;
	uint32_t bytes;	 /* on the wire; of the message */
	uint32_t detail; /* DROP: enum dp_drop; RX: enum dp_ecn; COMPLETE: enum dp_wc_status */
};

/* Copies the last events of a flow's QP, oldest first.  Returns how many there were, up to max. */
uint32_t dp_sim_trace(const struct dp_sim *, uint64_t flow, struct dp_sim_trace *out, uint32_t max);

#endif
