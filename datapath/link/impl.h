/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The declarations that the files of the link model share.
 *
 *   link.c        life cycle, offer, take, deadline, pause
 *   police.c      the policer
 *   queue.c       admission, marking, trimming, the turns of the classes
 *   aqm.c         the queue of a link with an AQM; FQ-CoDel's choice among flows
 *   codel.c       CoDel
 *   pie.c         PIE
 *   rate.c        how long a frame takes: a constant rate or a trace
 *   impair.c      impairments that are one number: a file of impair/ and a row of impairments.py
 *   shape.c       shaped classes
 *   spoil.c       loss, and faults on the wire
 *   switch.c      the shared buffer, PFC, ECMP
 *
 * Theory of operation.  The transmitter is idle or busy until `busy`.  Its turns
 * have no deadlines of their own: each call first catches up on the turns that
 * fell due since the last call, in their order and with their times.  This is
 * exact, because the link cannot have changed in between.  The frames whose transmission has begun
 * are on the wire, with the time of their arrival: in a list, or, if they may be
 * overtaken, in a pairing heap (Fredman et al., 1986).  So one deadline, the next
 * arrival, is enough, unless others look at the queue (PFC) or a later frame may
 * arrive earlier (`eager`).
 *
 * An AQM decides when a frame's turn comes, or at intervals.  The link catches up on
 * these decisions in the same way, since they do not depend on later frames.  The frame
 * that is transmitted next is not known in advance.  So a link with an empty wire has a
 * deadline at the earliest time at which a frame could arrive.
 *
 * Times within the transmitter have 64 bits of fraction, and the time of a byte is
 * rounded down: after any number of frames the error is less than a nanosecond.
 */
#ifndef DP_LINK_IMPL_H
#define DP_LINK_IMPL_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "link/ge_time.h"
#include "link/impair/impair.h"
#include "link/link.h"
#include "link/switch.h"
#include "wire/random.h"

typedef unsigned __int128 dp_u128;

enum { DP_LINK_ALIGN = 64 }; /* a cache line */

/* One random stream for each purpose. */
enum dp_link_stream {
	DP_RNG_LOSS,
	DP_RNG_MARK,
	DP_RNG_CORRUPT,
	DP_RNG_JITTER,
	DP_RNG_REORDER,
	DP_RNG_DUPLICATE,
	DP_RNG_GE_TIME,
	DP_RNG_AQM,
	DP_RNG_SHAPE,
	DP_RNGS,
};

/* The probability p is round(p * 2^32); a 32-bit draw below it is a hit. */
struct dp_link_odds {
	uint64_t to_bad, to_good, good, bad;
	uint64_t corrupt, reorder, duplicate;
};

struct dp_link_queue {
	struct dp_frame *head, **tail;
	uint64_t bytes;
	uint64_t limit_bytes; /* UINT64_MAX: none */
	uint64_t trimmed;     /* bytes of trimmed frames, part of `bytes` */
	uint64_t start; /* tag of the next frame (start-time fair queueing), of weighted classes */
	uint64_t tag_per_byte; /* tag units per byte; 0: strict priority */
	uint64_t paused_since_ns;
	uint64_t rate_bps; /* of a shaped class */
	double jitter;
	uint64_t open_ns; /* shaped class: its next frame leaves no earlier */
};

/* CoDel's state of a queue (RFC 8289, section 5). */
struct dp_codel {
	uint64_t
		first_above_ns; /* when CoDel may begin to drop; 0: the delay is below the target */
	uint64_t drop_next_ns;
	uint32_t count, last_count;
	bool dropping;
};

/* One of FQ-CoDel's queues, or the only one. */
struct dp_aqm_queue {
	struct dp_frame *head, *tail;
	uint64_t bytes;
	uint32_t frames;
	bool listed;
	struct dp_aqm_queue *next; /* next queue of the same list */
	int64_t credit;
	struct dp_codel codel;
};

struct dp_aqm_list {
	struct dp_aqm_queue *head, *tail;
};

/* Members are named as in RFC 8033. */
struct dp_pie {
	double drop_prob, accu_prob;
	uint64_t qdelay_ns, qdelay_old_ns;
	uint64_t burst_allowance_ns;
	uint64_t update_ns; /* when the next update is due; the first frame sets it */
	bool begun;
};

struct dp_aqm_state {
	struct dp_aqm config;
	uint32_t frames;    /* frames that wait */
	uint32_t frame_max; /* bytes of the largest frame so far */
	uint32_t n_queues;
	struct dp_aqm_list fresh, old; /* FQ-CoDel: the lists of new and of old queues */
	struct dp_pie pie;
	struct dp_aqm_queue queue[];
};

/* Token bucket.  Credit is counted in bit times 10^-9. */
struct dp_link_policer {
	uint64_t rate_bps; /* 0: none */
	uint64_t burst_bytes, full, credit, at_ns;
};

/* The position of a link in its trace. */
struct dp_link_trace {
	const uint32_t *ms;
	uint32_t n, i;	   /* i: the current opportunity */
	uint64_t cycle_ns; /* when the current pass over the trace began */
	uint32_t left;	   /* bytes of the current opportunity that are not used yet */
	bool begun;
};

/*
 * The members stand in the order in which a frame on a plain link needs them: the first two cache
 * lines and that of the frame's class, then counters and the state for a full queue.  In a
 * simulation with thousands of links, cache misses take most of a frame's time.
 */
struct dp_link {
	/* the transmitter */
	_Alignas(DP_LINK_ALIGN) uint64_t busy_ns;
	uint64_t busy_frac;	     /* end of the transmission; fraction in units of 2^-64 ns */
	uint64_t byte_ns, byte_frac; /* time of one byte */
	uint64_t delay_ns;
	uint32_t ready;	 /* mask of the classes in which frames wait */
	uint32_t paused; /* mask of the paused classes */
	uint32_t strict; /* mask of the classes with strict priority */
	uint8_t n_classes;
	uint8_t shaped; /* mask of the shaped classes */
	uint8_t closed; /* mask of those in which frames wait for open_ns; they are not in ready */
	bool guarded;	/* has loss, a policer or an AQM */
	bool managed;	/* has an AQM */
	bool spoils, eager, telemetry, trims, traced;

	/* the wire */
	_Alignas(DP_LINK_ALIGN) struct dp_frame *wire;
	struct dp_frame **wire_tail;
	uint64_t wire_last_ns; /* arrival of the last frame in the list */
	struct dp_frame *held; /* the heap */
	uint64_t bytes;	       /* bytes in the queue */
	uint64_t tx_bytes;
	struct dp_buffer *buffer;
	uint32_t order, port;

	/* the queue */
	_Alignas(DP_LINK_ALIGN) struct dp_link_queue queue[DP_LINK_CLASSES];
	struct dp_link_stats stats;
	uint64_t limit_bytes; /* UINT64_MAX: none */
	struct dp_marking marking;
	double mark_slope;	/* 2^32 times probability, per byte */
	uint64_t trimmed;	/* bytes of trimmed frames that wait */
	uint64_t virtual_start; /* tag of the weighted frame transmitted last */

	struct dp_link_trace trace;
	struct dp_link_odds odds;
	bool bad; /* Gilbert-Elliott by frames: the state is bad */
	struct dp_ge_time ge_time;
	struct dp_ge_time_state ge_state;
	struct dp_link_policer policer;
	struct dp_aqm_state *aqm;
	uint64_t rate_mbps; /* the rate as telemetry reports it */
	uint64_t reorder_ns;
	struct dp_impaired impaired[DP_N_IMPAIRMENTS];
	uint32_t losing, delaying; /* masks of the impairments that lose frames, or change times */
	struct dp_jitter jitter;
	uint32_t jitter_next; /* index of the next sample of the trace */
	double normal_spare;
	bool has_normal_spare;
	uint64_t seed;
	uint64_t rng[DP_RNGS];

	struct dp_link_ops ops;
	void *user;
};

/* ---- spoil.c --------------------------------------------------------- */

static inline bool dp_link_happens(uint64_t *rng, uint64_t probability)
{
	return probability && dp_random32(rng) < probability;
}

void dp_link_seed(struct dp_link *, uint64_t seed);
int dp_link_spoil_configure(struct dp_link *, const struct dp_link_config *);
/* Whether a frame is lost before it reaches the policer. */
bool dp_link_loses(struct dp_link *, const struct dp_frame *, uint64_t now);
/* Puts a frame that would arrive at at_ns on a wire with faults. */
void dp_link_spoil(struct dp_link *, struct dp_frame *, uint64_t at_ns);
struct dp_frame *dp_link_held_pop(struct dp_link *);

/* ---- impair.c -------------------------------------------------------- */

void dp_link_impair_seed(struct dp_link *, uint64_t seed);
/* -EINVAL: a value is out of its row's range. */
int dp_link_impair_configure(struct dp_link *, const struct dp_link_config *);
bool dp_link_impair_loses(struct dp_link *, const struct dp_frame *, uint64_t now);
uint64_t dp_link_impair_arrives(struct dp_link *, struct dp_frame *, uint64_t at);

/* ---- rate.c ---------------------------------------------------------- */

int dp_link_rate_configure(struct dp_link *, const struct dp_link_config *);
void dp_link_trace_transmit(struct dp_link *, uint32_t bytes);

/* The first whole nanosecond at which the transmitter is idle. */
static inline uint64_t dp_link_idle_ns(const struct dp_link *l)
{
	return l->busy_ns + (l->busy_frac != 0);
}

static inline bool dp_link_busy(const struct dp_link *l, uint64_t now)
{
	return l->busy_ns >= now && (l->busy_ns > now || l->busy_frac);
}

/* Makes an idle transmitter begin no earlier than now. */
static inline void dp_link_not_before(struct dp_link *l, uint64_t now)
{
	if (l->busy_ns < now) {
		l->busy_ns = now;
		l->busy_frac = 0;
	}
}

static inline void dp_link_serialize(struct dp_link *l, uint32_t bytes)
{
	dp_u128 t = (dp_u128)l->byte_frac * bytes + l->busy_frac;

	l->busy_ns += l->byte_ns * bytes + (uint64_t)(t >> 64);
	l->busy_frac = (uint64_t)t;
}

/* ---- police.c -------------------------------------------------------- */

int dp_link_police_configure(struct dp_link *, const struct dp_policer *);
/* Adds the tokens that have come until now, at the current rate. */
void dp_link_refill(struct dp_link *, uint64_t now);
/* Takes a frame's tokens; false: there are too few, and none is taken. */
bool dp_link_conforms(struct dp_link *, const struct dp_frame *, uint64_t now);

/* ---- shape.c --------------------------------------------------------- */

void dp_link_shape_configure(struct dp_link *, unsigned class, uint64_t rate_bps, double jitter);
/* A frame of a shaped class is about to be transmitted: the class closes. */
void dp_link_shape_close(struct dp_link *, unsigned class, const struct dp_frame *);
/* When the next closed class opens; DP_NEVER: none is closed. */
uint64_t dp_link_shape_next(const struct dp_link *);
/* Opens the classes whose time comes next. */
void dp_link_shape_open(struct dp_link *, uint64_t at);

/* ---- queue.c --------------------------------------------------------- */

int dp_link_queue_configure(struct dp_link *, const struct dp_link_config *);
/* Whether a frame may wait in the queue; it may be marked or trimmed.  False: it was dropped. */
bool dp_link_admit(struct dp_link *, struct dp_frame *, uint64_t now);
void dp_link_drop(struct dp_link *, struct dp_frame *, enum dp_drop why);
bool dp_link_within(uint64_t waiting, const struct dp_frame *, uint64_t limit);
/* Marks the frame if it is ECN-capable.  Whether it is marked now. */
bool dp_link_set_ce(struct dp_link *, struct dp_frame *);
/* The class whose turn it is, of those in the mask, which is not empty. */
unsigned dp_link_turn(const struct dp_link *, uint32_t mask);
/* Sets the tag of a weighted class whose frames begin to wait for their turn: the first one came, the
 * class is no longer paused, or it has opened. */
void dp_link_tag(struct dp_link *, struct dp_link_queue *);
/* Counts the bytes of a frame of a weighted class that is transmitted now. */
void dp_link_count(struct dp_link *, struct dp_link_queue *, uint32_t bytes);

static inline uint32_t dp_link_eligible(const struct dp_link *l)
{
	return l->ready & ~l->paused;
}

static inline unsigned dp_link_next_class(const struct dp_link *l, uint32_t mask)
{
	return mask & (mask - 1) ? dp_link_turn(l, mask) : (unsigned)__builtin_ctz(mask);
}

/* ---- aqm.c ------------------------------------------------------------- */

/* Whether a change to this AQM would have to move frames that wait. */
bool dp_aqm_differs(const struct dp_link *, const struct dp_aqm *);
/* 0, -ENOMEM, or -EINVAL: the AQM is not valid, alone or beside the other settings. */
int dp_aqm_configure(struct dp_link *, const struct dp_link_config *);
/* Takes in a frame.  The link must have caught up on its turns.  False: the frame was dropped. */
bool dp_aqm_enqueue(struct dp_link *, struct dp_frame *, uint64_t now);
/* Takes the frame whose turn it is; NULL: all frames were dropped. */
struct dp_frame *dp_aqm_dequeue(struct dp_link *, uint64_t now);
/* FQ-CoDel: drops waiting frames until the limit holds. */
void dp_aqm_confine(struct dp_link *, uint64_t now);
struct dp_frame *dp_aqm_pop(struct dp_link *, struct dp_aqm_queue *);
void dp_aqm_drop(struct dp_link *, struct dp_frame *, enum dp_drop why, uint64_t now);
/* Takes any frame that waits; NULL: none waits. */
struct dp_frame *dp_aqm_flush(struct dp_link *);

/* ---- codel.c ----------------------------------------------------------- */

struct dp_frame *dp_codel_dequeue(struct dp_link *, struct dp_aqm_queue *, uint64_t now);
/* Called when the transmitter finds the queue empty. */
void dp_codel_rest(struct dp_codel *);

/* ---- pie.c ------------------------------------------------------------- */

void dp_pie_begin(struct dp_pie *, const struct dp_aqm *);
/* Whether a frame that arrives now must be dropped.  With ECN the frame may be marked instead. */
bool dp_pie_drops(struct dp_link *, struct dp_frame *, uint64_t now);
/* Tells that a frame has left the queue after this time in it. */
void dp_pie_sojourn(struct dp_link *, uint64_t sojourn_ns);
/* Makes the updates that were due before time_ns. */
void dp_pie_update_before(struct dp_link *, uint64_t time_ns);

/* ---- switch.c --------------------------------------------------------------- */

int dp_buffer_join(struct dp_buffer *, struct dp_link *);
void dp_buffer_leave(struct dp_buffer *, struct dp_link *);
/* Takes room in the buffer for a frame that has to wait in link l. */
bool dp_buffer_take(struct dp_buffer *, struct dp_link *l, const struct dp_frame *, uint64_t now);
void dp_buffer_give(struct dp_buffer *, const struct dp_frame *, uint64_t now);

#endif
