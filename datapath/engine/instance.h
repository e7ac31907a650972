/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One engine: what belongs to no QP alone.  Events, the transmit list, timers, the
 * table of QPs.
 *
 * The files of this folder:
 *
 *   engine.c  life cycle, demultiplexing, the transmit scheduler, events
 *   qp.c      QPs of all types: states, attributes, completions, flushing
 *   post.c    work requests into the queues
 *   cq.c      completion queues
 *   receives.c  the receives of a QP, shared receive queues
 *   memory.c  PDs, MRs, keys, gather and scatter
 *   place.c   how payload gets into a program's memory
 *   window.c  memory windows
 *   local.c   requests that send nothing
 *   ah.c      address handles
 *   multicast.c  groups of datagram QPs
 *   build.h   packets to be sent
 *   flow.c    congestion control: calls, window, pacing, RTT
 *   granting.c  the receiver's side of it: records, calls, grants
 *   rtt.c     what is known of the RTT; oneway.c: its parts forward and back
 *   thinning.c  how often a sender wants to be acknowledged
 *   wheel.c   the timer wheel
 *   pool.c    pools of fixed-size blocks
 *   check.c   the invariants of all state, for tests and fuzzers
 *   counters.h  the counters of engine and QPs
 *   rc/       reliable connections
 *   ud/       unreliable datagrams
 */
#ifndef DP_ENGINE_INSTANCE_H
#define DP_ENGINE_INSTANCE_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"
#include "engine/wheel.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

enum {
	DP_QP_QUANTUM = 16, /* packets that a QP may send before the next one of its rank */
	DP_SEGMENT_MIN = 256,
	DP_RANKS = 8,
	DP_QP_PAGE = 256,	/* QPs in a page of the table `qps` */
	DP_UNHEARD_MAX = 10000, /* most ticks of the wheel between two looks at an overdue QP */
};

enum dp_event_source { DP_SOURCE_QP, DP_SOURCE_CQ, DP_SOURCE_SRQ };

struct dp_event_node {
	struct dp_event_node *next;
	uint32_t pending; /* bit per enum dp_event_type; 0: not in the list */
	uint8_t source;	  /* enum dp_event_source: the kind of object that raised them */
};

/* Values of dp_caution(): of a QP that knows that its path loses packets, of one that knows
 * nothing, and the highest. */
enum { DP_CAUTION_LOSS = 1, DP_CAUTION_FIRST = 2, DP_CAUTION_MOST = 6 };

struct dp_engine {
	struct dp_engine_config cfg;
	uint64_t rng;
	struct dp_store *store; /* memory for windows: the configuration's store, or `own` */
	struct dp_engine_stats stats;
	struct dp_qp_list {
		struct dp_qp *head, *tail;
	} ready[DP_RANKS];   /* the transmit list, by rank */
	uint32_t ready_mask; /* ranks that have a QP in it */
	struct dp_event_node *event_head, *event_tail;
	struct dp_mr **mrs;
	uint32_t mr_cap, mr_next;
	bool wheel_started;
	uint64_t now_ns;   /* time of the last call that passed `now` */
	uint64_t heard_ns; /* see dp_engine_heard(); DP_NEVER: it was never called */
	uint32_t unheard;  /* looks since then at overdue QPs that wait for packets to be read */
	struct dp_wheel wheel;
	uint32_t qpn_next, n_qps, n_pds, n_cqs, n_srqs;
	uint32_t n_bound; /* memory windows that are bound */
	struct dp_members {
		uint32_t n, room;
		struct dp_member *at; /* in no order */
	} members;		      /* of multicast groups */
	struct dp_store *own;
	struct dp_connects { /* how many QPs began to connect */
		uint64_t since_ns;
		uint32_t n, n_before; /* since then; in the second before that */
	} connects;
	uint8_t caution;		 /* of QPs that have learnt nothing by themselves */
	struct dp_probed_path *probed;	 /* by peer; NULL: no QP has sent a PROBE */
	struct dp_granting *granting;	 /* NULL: no QP gives grants */
	struct dp_cc_flow constant_flow; /* see dp_qp_flow() */
	struct dp_qp *
		*qps[DP_QPN_SPACE / DP_QP_PAGE]; /* index: bits 8-15, then bits 0-7 of the QPN */
};

/* The QP with these low 16 bits of its QPN, or NULL. */
static inline struct dp_qp *dp_find_qp(const struct dp_engine *e, uint32_t qpn)
{
	struct dp_qp **page = e->qps[qpn / DP_QP_PAGE % (DP_QPN_SPACE / DP_QP_PAGE)];

	return page ? page[qpn % DP_QP_PAGE] : NULL;
}

uint64_t dp_random(struct dp_engine *);
void dp_raise(struct dp_engine *, struct dp_event_node *, enum dp_event_type);
void dp_unraise(struct dp_engine *, struct dp_event_node *);
/* The QP may have something to send: put it in the transmit list. */
void dp_qp_wake(struct dp_qp *);
void dp_qp_unwake(struct dp_qp *);
/* Arms the QP's timer for the earliest of its deadlines. */
void dp_qp_rearm(struct dp_qp *, uint64_t now);

#endif
