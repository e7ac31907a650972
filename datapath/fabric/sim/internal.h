/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The declarations that the files of the simulator share; sim.h lists the files. */
#ifndef DP_FABRIC_SIM_INTERNAL_H
#define DP_FABRIC_SIM_INTERNAL_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/routes.h"
#include "fabric/sim/sim.h"
#include "wire/random.h"

enum {
	SIM_HEADERS_MAX = 768,	  /* headers of a packet, from the BTH on */
	SIM_SLAB_FIRST = 1 << 17, /* bytes of packets; each slab is twice the one before, up to */
	SIM_SLAB_LAST = 1 << 21,  /* a huge page */
	SIM_CACHE_LINE = 64,
	/* Ethernet, IPv4 and UDP headers, and the ICRC, which packets without payload do not
	 * have. */
	SIM_OUTER_BYTES = 14 + 20 + 8 + 4,
	SIM_SEND_QUEUE = 64, /* requests in a send queue, when many flows share a QP */
};

#define SIM_NONE UINT32_MAX
/* Most PSNs that a QP may have posted: well under half of the PSN space. */
#define SIM_PSNS_MAX (1u << 22)

/* ---- the objects that act at a time of their own ------------------------------- */

struct sim_turn {
	uint64_t at_ns;
	uint32_t id;
};

struct sim_queue {
	uint64_t *node;	     /* at_ns << id_bits | id; UINT64_MAX: the object does not act */
	uint64_t horizon_ns; /* the latest time that a node can hold */
	uint32_t leaves, id_bits, waiting;
};

int sim_queue_init(struct sim_queue *, uint32_t ids);
void sim_queue_free(struct sim_queue *);
/* Object `id` acts at at_ns, or at the horizon if that is earlier.  This replaces the time set
 * before.  DP_NEVER: the object does not act.  Of objects with the same time the lowest id acts
 * first. */
void sim_queue_set(struct sim_queue *, uint32_t id, uint64_t at_ns);

/* The object that acts after `first`, which acts next, if nothing gets an earlier time. */
uint32_t sim_queue_second(const struct sim_queue *, uint32_t first);

/* The object that acts next.  There is always one (the watch). */
static inline struct sim_turn sim_queue_first(const struct sim_queue *q)
{
	return (struct sim_turn){ q->node[1] >> q->id_bits,
				  (uint32_t)q->node[1] & (q->leaves - 1) };
}

/* ---- packets -------------------------------------------------------------------- */

struct sim_packet {
	struct dp_frame frame; /* first member: a frame is its packet; frame.to is a host */
	uint64_t number;       /* the last member that links and switches look at: one cache line */
	uint32_t src, channel;
	struct dp_packet packet; /* late_ns: what the links' program has added so far */
	uint8_t bytes[SIM_HEADERS_MAX];
	struct dp_telemetry hop[]; /* DP_HOPS_MAX, if the engines have telemetry */
};

struct sim_pool {
	struct sim_packet *free; /* by frame.next */
	void **slab;
	uint32_t slabs;
	uint64_t used;
	size_t size;
	bool telemetry;
};

struct sim_packet *sim_packet_get(struct sim_pool *);
void sim_packet_put(struct sim_pool *, struct sim_packet *);
/* Copies a packet with its content. */
struct sim_packet *sim_packet_copy(struct sim_pool *, const struct sim_packet *);
void sim_pool_free(struct sim_pool *);

/* ---- the network ------------------------------------------------------------------ */

/* How late a program wakes; each program has a random stream of its own. */
struct sim_lateness {
	uint64_t draws;
	uint32_t share; /* of UINT32_MAX */
};

/* PFC: the content of a pause frame on its way. */
struct sim_pause {
	uint64_t at_ns;
	uint32_t class;
	bool paused;
};

struct sim_link {
	struct dp_link *link;
	struct dp_sim *sim;
	uint32_t from, to;
	uint16_t ingress;    /* port of the switch at its end */
	uint64_t reverse_ns; /* time of a small frame over the idle link of the other direction */
	struct sim_pause *pause; /* a FIFO */
	uint32_t pauses, pause_room;
	bool emulated; /* a program emulates the link, and wakes late */
	uint32_t next_emulated;
	uint64_t deadline_ns; /* as its program knows it, from the link's last use */
};

/* The program that emulates links: it sleeps, too. */
struct sim_emulator {
	uint32_t first; /* the first of its links, or SIM_NONE */
	uint64_t awake_ns;
	struct sim_lateness late;
};

struct sim_switch {
	struct dp_sim *sim;
	struct dp_buffer *buffer; /* NULL: each queue has its own limit */
	uint32_t n_ports;
	uint32_t *into; /* by port: the link that ends there */
};

/* The sleep of a host's program (wakeup.c). */
struct sim_sleep {
	struct sim_packet *unread; /* oldest first, by frame.next */
	struct sim_packet *newest;
	uint64_t arrived_ns; /* arrival of the oldest unread packet */
	uint64_t awake_ns;   /* the program does not sleep before this time */
	uint64_t stalled_ns; /* the program stands still until then (dp_sim_stall()) */
	struct sim_lateness late;
};

struct sim_host {
	struct dp_engine *engine; /* NULL: the host has no QP yet */
	struct dp_pd *pd;
	struct dp_mr *mr;
	struct dp_cq *cq;
	struct sim_packet *spare; /* a buffer that the engine did not use */
	uint32_t index, nic;	  /* nic: number of its link into the network */
	uint32_t cq_wanted;	  /* most completions that its QPs can have at once */
	struct sim_sleep sleep;
};

/* ---- traffic ---------------------------------------------------------------------- */

struct sim_message {
	uint64_t posted_ns;
	uint32_t flow, bytes;
	bool arrived; /* SEND: the receive has completed */
};

/* A QP of src, and the QP of dst that it is connected to. */
struct sim_channel {
	uint32_t src, dst, qp;
	uint8_t dscp;
	uint32_t depth_max, depth_sum; /* largest and sum over its flows */
	uint32_t bytes_max;	       /* largest message, bytes */
	bool receives, reads, failed;
	struct dp_qp *requester, *responder;
	const struct dp_cc_algo *algo;
	uint32_t head, tail; /* first and last flow that has not posted all: rows, or SIM_NONE */
	uint32_t posted, completed, received; /* numbers of messages, modulo 2^32 */
	uint32_t receives_posted, receives_done;
	uint32_t psns; /* PSNs posted and not completed */
	uint32_t ring_mask;
	struct sim_message *ring;
	uint64_t placed_bytes; /* bytes of completed messages */
	uint32_t hash[2];      /* of the packets of either end; */
	uint16_t sport[2];     /* with this source port */
	struct dp_sim_trace *trace;
	uint32_t traced;
};

struct sim_flow {
	uint64_t left; /* bytes to post */
	uint32_t channel, next, outstanding;
	bool held, queued, ended; /* queued: it has its place among the flows of its QP */
};

/* Lists of rows: those that wait for a flow, and those whose wait is over; SIM_NONE ends them. */
struct sim_waiting {
	uint32_t first; /* of the flows that wait for this one */
	uint32_t next;	/* that waits for the same flow */
	uint32_t freed; /* in the list of dp_sim.freed */
};

/* The steps that begin and take a flow. */
struct sim_flow_steps {
	uint32_t send, take;
};

struct sim_step {
	uint32_t waits;
	uint32_t next; /* in the list that it is in */
};

/* A host's worker: the steps whose work it does, the first one until until_ns. */
struct sim_worker {
	uint32_t head, tail;
	uint64_t until_ns;
};

struct dp_sim {
	struct dp_sim_config cfg;
	uint64_t now, digest, packet_events, turns;
	uint64_t arrived_at; /* the turn at which the current time began */
	char failure[320];
	int broken; /* -errno */
	struct sim_queue queue;
	struct sim_pool pool;
	struct dp_store *store; /* memory for the windows of all engines */
	uint8_t *memory;	/* all memory regions cover it; never touched */

	uint32_t n_hosts, n_switches, n_links;
	uint32_t first_worker; /* id */
	struct sim_host *host;
	struct sim_link *link;
	struct sim_emulator emulator;
	struct sim_switch *switches;
	uint32_t *leaf; /* by host: the node at the other end of its cable */
	uint32_t *down; /* by host: the link that leads to it */
	struct dp_routes routes;
	uint64_t injected, duplicated, delivered, corrupted, dropped[DP_DROPS];
	uint64_t unread; /* unread packets in hosts whose programs sleep */

	const struct dp_flow *table;
	uint64_t n_flows, started, ended, failed, messages, bytes, qps;
	struct sim_flow *flow;
	struct dp_flow_result *result;
	struct sim_channel *channel;
	uint32_t n_channels;
	uint64_t *stop;		     /* rows that have a stop_ns, ordered by it */
	struct sim_waiting *waiting; /* by row; NULL: no flow waits for another */
	uint32_t freed;		     /* rows whose wait is over, or SIM_NONE */
	uint64_t n_stops, stopped;
	uint64_t held;			 /* flows that wait for an order */
	const struct dp_sim_step *steps; /* NULL: there are none */
	const uint32_t *after;
	const uint64_t *first_after;
	uint32_t n_steps, steps_ended;
	uint32_t ready_head, ready_tail; /* steps that may begin */
	struct sim_flow_steps *flow_steps;
	struct sim_step *step;
	uint64_t *step_done;
	struct sim_worker *worker;

	uint64_t latency[DP_LATENCY_BUCKETS], latency_min, latency_max, latency_sum;

	uint64_t sample_ns, n_samples, room;
	uint32_t sampled_flows, sampled_links;
	uint64_t *sampled_flow;
	uint32_t *sampled_link;
	uint64_t *sample_at;
	struct dp_sim_qp_sample *qp_sample;
	struct dp_sim_link_sample *link_sample;

	uint64_t moved; /* frames that had moved at the last look */
};

/* Ids of the clocks in the queue, behind links and hosts. */
enum sim_clock { SIM_STARTS, SIM_STOPS, SIM_SAMPLES, SIM_WATCH, SIM_CLOCKS };

static inline uint32_t sim_clock_id(const struct dp_sim *s, enum sim_clock clock)
{
	return s->n_links + s->n_hosts + (uint32_t)clock;
}

/* Ids of the pause frames of links.  They exist only if switches have buffers. */
static inline uint32_t sim_pause_id(const struct dp_sim *s, uint32_t link)
{
	return s->n_links + s->n_hosts + SIM_CLOCKS + link;
}

/* Ids of the workers of hosts: the last ids. */
static inline uint32_t sim_worker_id(const struct dp_sim *s, uint32_t host)
{
	return s->first_worker + host;
}

static inline uint64_t sim_link_seed(const struct dp_sim *s, uint32_t link)
{
	return dp_mix64(s->cfg.seed ^ dp_mix64(0x6c696e6b00000000ull + link));
}

/* Adds an event to the digest: FNV-1a over words. */
static inline void sim_note(struct dp_sim *s, uint64_t a, uint64_t b)
{
	uint64_t h = s->digest;

	h = (h ^ s->now) * 0x100000001b3ull;
	h = (h ^ a) * 0x100000001b3ull;
	h = (h ^ b) * 0x100000001b3ull;
	s->digest = h ^ h >> 29;
}

/* ---- sim.c ------------------------------------------------------------------------ */
/* Ends the run and tells why.  Only the first failure counts. */
__attribute__((format(printf, 3, 4))) void sim_fail(struct dp_sim *, int error, const char *, ...);

/* ---- graph.c ---------------------------------------------------------------------- */
int sim_graph_create(struct dp_sim *, const struct dp_sim_graph *);
void sim_graph_free(struct dp_sim *);
/* Called when a link's deadline has come. */
void sim_link_act(struct dp_sim *, uint32_t link);
/* Brings the link's queue and counters up to now, except those of an emulated link with PFC, which
 * would send its pause frames too early: the run stays as it is. */
void sim_look_at_link(const struct dp_sim *, uint32_t link);
/* Time that a small frame takes from host to host over idle links. */
uint64_t sim_delay_ns(const struct dp_sim *, uint32_t from, uint32_t to);
/* back: the settings of the other direction, in which pause frames and acknowledgements travel. */
void sim_set_reverse(struct dp_sim *, uint32_t link, const struct dp_link_config *back);
/* Called when pause frames have arrived at the beginning of a link. */
void sim_pause_act(struct dp_sim *, uint32_t link);
void sim_pause_link(struct dp_sim *, uint32_t link, uint32_t class_mask, bool paused);
/* Puts a host's packet onto its NIC. */
void sim_inject(struct dp_sim *, struct sim_host *, struct sim_packet *);

/* ---- host.c ----------------------------------------------------------------------- */
int sim_host_open(struct dp_sim *, struct sim_host *);
void sim_host_free(struct dp_sim *, struct sim_host *);
/* Takes a packet that has arrived.  It is read when the program runs. */
void sim_host_rx(struct dp_sim *, struct sim_host *, struct sim_packet *);
void sim_host_read(struct dp_sim *, struct sim_host *, struct sim_packet *);
/* Runs the program: it takes completions and sends packets while the NIC has room. */
void sim_host_run(struct dp_sim *, struct sim_host *);
/* Called when the engine's deadline has come. */
void sim_host_act(struct dp_sim *, struct sim_host *);
int sim_connect(struct dp_sim *, struct sim_channel *);

/* ---- wakeup.c --------------------------------------------------------------------- */
bool sim_wakeup_valid(const struct dp_sim_wakeup *);

static inline bool sim_sleeps(const struct dp_sim *s)
{
	return s->cfg.wakeup.n_packet;
}

/* Marks the links that a program emulates.  To be called when all links exist. */
void sim_emulate_links(struct dp_sim *);
/* The time at which an emulated link hands over the frame that is due. */
uint64_t sim_link_turn(const struct dp_sim *, uint64_t deadline_ns);
/* Tells that the program of an emulated link has run. */
void sim_link_woke(struct dp_sim *, uint32_t link);

static inline void sim_requeue_link(struct dp_sim *s, uint32_t link)
{
	struct sim_link *l = &s->link[link];
	uint64_t at = dp_link_deadline(l->link);

	if (l->emulated) {
		l->deadline_ns = at;
		at = sim_link_turn(s, at);
	}
	sim_queue_set(&s->queue, link, at);
}

/* Keeps a packet until the program runs. */
void sim_keep_unread(struct dp_sim *, struct sim_host *, struct sim_packet *);
/* The program reads the packets that have arrived. */
void sim_read_unread(struct dp_sim *, struct sim_host *);
/* The time at which the program runs next.  deadline_ns is that of its engine, 0: packets wait.
 * nic_ns is when the NIC can take them. */
uint64_t sim_next_turn(struct dp_sim *, struct sim_host *, uint64_t deadline_ns, uint64_t nic_ns);
void sim_stay_awake(struct sim_host *, uint64_t until_ns);
/* Wakes the program, which reads the packets that have arrived. */
void sim_wake(struct dp_sim *, struct sim_host *);

/* ---- table.c ---------------------------------------------------------------------- */
void sim_traffic_free(struct dp_sim *);

/* ---- traffic.c -------------------------------------------------------------------- */
void sim_start_flows(struct dp_sim *);
void sim_start_flow(struct dp_sim *, uint32_t row);
void sim_stop_flows(struct dp_sim *);
void sim_completed(struct dp_sim *, const struct dp_wc *);
int sim_post_receive(struct dp_sim *, struct sim_channel *);

/* ---- waiting.c -------------------------------------------------------------------- */
/* Reads from the table which flows wait for others; 0 or -ENOMEM. */
int sim_waiting_open(struct dp_sim *);
bool sim_waits(const struct dp_sim *, const struct dp_flow *);
/* Lets the flows go on that wait for this one. */
void sim_waiting_ended(struct dp_sim *, uint32_t row);
/* The next flow whose wait is over; SIM_NONE: there is none. */
uint32_t sim_waiting_take(struct dp_sim *);

/* ---- steps.c ---------------------------------------------------------------------- */
void sim_steps_free(struct dp_sim *);
/* A step that waits for nothing any more. */
void sim_step_free(struct dp_sim *, uint32_t step);
/* Begins the steps that wait for nothing any more. */
void sim_run_steps(struct dp_sim *);
/* Called when the first step of a worker has been worked at for long enough. */
void sim_worker_act(struct dp_sim *, uint32_t host);
/* Whether a step begins the flow. */
bool sim_step_begins(const struct dp_sim *, uint64_t flow);
/* Tells the steps of a flow that it has ended, and that it has arrived. */
void sim_step_sent(struct dp_sim *, uint32_t flow, bool failed);
void sim_step_arrived(struct dp_sim *, uint32_t flow);

/* ---- sample.c --------------------------------------------------------------------- */
void sim_take_sample(struct dp_sim *);
void sim_sample_free(struct dp_sim *);
void sim_trace(struct dp_sim *, uint32_t channel, const struct dp_sim_trace *);
void sim_trace_packet(struct dp_sim *, enum dp_sim_trace_kind, uint32_t node,
		      const struct sim_packet *, uint32_t detail);

#endif
