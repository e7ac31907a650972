/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the files of the link model share.
 *
 *   link.c        life cycle, offer, take, deadline, pause
 *   link_queue.c  admission, marking, trimming, the turns of the classes
 *   link_rate.c   how long a frame takes: a constant rate or a trace
 *   link_spoil.c  loss, and what happens on the wire
 *   switch.c      the shared buffer, PFC, ECMP
 *
 * Theory of operation.  The transmitter is idle or busy until `busy`.  Its turns
 * have no deadlines of their own: each call first makes up for the turns that
 * fell due since the last one, in their order and with their times, because
 * nothing can have changed in between.  The frames whose transmission has begun
 * are on the wire, with the time of their arrival: in a list, or, if they may be
 * overtaken, in a pairing heap (Fredman et al., 1986).  So one deadline, the next
 * arrival, is enough, unless others look at the queue (PFC) or a later frame may
 * arrive earlier (`eager`).
 *
 * Times within the transmitter have 64 bits of fraction, and what a byte takes
 * is rounded down: n frames end no more than a nanosecond after they would on a
 * clock without ticks, whatever n.
 */
#ifndef DP_CORE_LINK_IMPL_H
#define DP_CORE_LINK_IMPL_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine.h"
#include "core/link.h"
#include "core/switch.h"

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
	uint64_t limit_bytes;  /* UINT64_MAX: none */
	uint64_t trimmed;      /* bytes of trimmed frames among them */
	uint64_t start;	       /* weighted: tag of the next frame (start-time fair queueing) */
	uint64_t tag_per_byte; /* 0: strict */
	uint64_t paused_since_ns;
};

/* Where in its trace a link is. */
struct dp_link_trace {
	const uint32_t *ms;
	uint32_t n, i;	   /* the opportunity at hand */
	uint64_t cycle_ns; /* when the present pass over the trace began */
	uint32_t left;	   /* bytes of it not yet used */
	bool begun;
};

/*
 * In the order in which a frame on a plain link needs it: the first two cache lines
 * and that of its class, then the counters and what a full queue is judged by.  With
 * thousands of links in one simulation, memory is what a frame waits for.
 */
struct dp_link {
	/* the transmitter */
	_Alignas(DP_LINK_ALIGN) uint64_t busy_ns;
	uint64_t busy_frac;	     /* until when; fraction in 2^-64 ns */
	uint64_t byte_ns, byte_frac; /* what one byte takes */
	uint64_t delay_ns;
	uint32_t ready;	 /* mask of classes in which frames wait */
	uint32_t paused; /* mask */
	uint32_t strict; /* mask */
	uint32_t n_classes;
	bool lossy, spoils, eager, telemetry, trims, traced;

	/* the wire */
	_Alignas(DP_LINK_ALIGN) struct dp_frame *wire;
	struct dp_frame **wire_tail;
	uint64_t wire_last_ns; /* arrival of the last frame in the list */
	struct dp_frame *held; /* the heap */
	uint64_t bytes;	       /* in the queue */
	uint64_t tx_bytes;
	struct dp_buffer *buffer;
	uint32_t order, port;

	/* the queue */
	_Alignas(DP_LINK_ALIGN) struct dp_link_queue queue[DP_LINK_CLASSES];
	struct dp_link_stats stats;
	uint64_t limit_bytes; /* UINT64_MAX: none */
	struct dp_marking marking;
	double mark_slope;	/* of 2^32 per byte */
	uint64_t trimmed;	/* bytes of trimmed frames that wait */
	uint64_t virtual_start; /* tag of the weighted frame transmitted last */

	struct dp_link_trace trace;
	struct dp_link_odds odds;
	bool bad;	 /* Gilbert-Elliott: in the bad state */
	double rate_bps; /* as telemetry tells it */
	uint64_t reorder_ns;
	struct dp_jitter jitter;
	uint32_t jitter_next; /* of the trace */
	double normal_spare;
	bool has_normal_spare;
	uint64_t seed;
	uint64_t rng[DP_RNGS];

	struct dp_link_ops ops;
	void *user;
};

/* ---- link_spoil.c --------------------------------------------------------- */

/* splitmix64, as xdp/impair.bpf.c draws. */
static inline uint32_t dp_link_draw(uint64_t *rng)
{
	uint64_t z = *rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (uint32_t)((z ^ (z >> 31)) >> 32);
}

static inline bool dp_link_happens(uint64_t *rng, uint64_t probability)
{
	return probability && dp_link_draw(rng) < probability;
}

void dp_link_seed(struct dp_link *, uint64_t seed);
int dp_link_spoil_configure(struct dp_link *, const struct dp_link_config *);
bool dp_link_loses(struct dp_link *);
/* Puts a frame that would arrive at at_ns on a wire that spoils. */
void dp_link_spoil(struct dp_link *, struct dp_frame *, uint64_t at_ns);
struct dp_frame *dp_link_held_pop(struct dp_link *);

/* ---- link_rate.c ---------------------------------------------------------- */

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

/* An idle transmitter begins no earlier than now. */
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

/* ---- link_queue.c --------------------------------------------------------- */

int dp_link_queue_configure(struct dp_link *, const struct dp_link_config *);
/* Whether a frame that has to wait may; it may be marked or trimmed.  False: it has
 * been dropped. */
bool dp_link_admit(struct dp_link *, struct dp_frame *, uint64_t now);
void dp_link_drop(struct dp_link *, struct dp_frame *, enum dp_drop why);
/* Of the classes in the mask, which is not empty, the one whose turn it is. */
unsigned dp_link_turn(const struct dp_link *, uint32_t mask);
/* The frames of a weighted class begin to wait, or may go on. */
void dp_link_tag(struct dp_link *, struct dp_link_queue *);

static inline uint32_t dp_link_eligible(const struct dp_link *l)
{
	return l->ready & ~l->paused;
}

static inline unsigned dp_link_next_class(const struct dp_link *l, uint32_t mask)
{
	return mask & (mask - 1) ? dp_link_turn(l, mask) : (unsigned)__builtin_ctz(mask);
}

/* ---- switch.c --------------------------------------------------------------- */

int dp_buffer_join(struct dp_buffer *, struct dp_link *);
void dp_buffer_leave(struct dp_buffer *, struct dp_link *);
bool dp_buffer_has_pfc(const struct dp_buffer *);
/* Takes room for a frame that has to wait in l. */
bool dp_buffer_take(struct dp_buffer *, struct dp_link *l, const struct dp_frame *, uint64_t now);
void dp_buffer_give(struct dp_buffer *, const struct dp_frame *, uint64_t now);

#endif
