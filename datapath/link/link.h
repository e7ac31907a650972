/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One direction of a link: a policer, a queue, a transmitter, and a wire.
 *
 * It knows no clock and moves no bytes: the simulator drives it with virtual
 * time, the fabric emulator with the machine's clock.  What crosses it is a
 * dp_frame, which its user embeds in whatever carries the bytes.
 *
 *   offer:    the frame is lost, or meets the policer, then the queue: dropped,
 *             marked, trimmed or queued
 *   transmit: classes take turns, rate decides how long a frame takes; with an AQM a
 *             frame may be dropped or marked when its turn comes
 *   wire:     delay and jitter; corruption, duplication, reordering
 *   take:     the frame's last bit has reached the far end
 *
 * A frame belongs to the link from dp_link_offer() until dp_link_take() returns
 * it or the drop callback gets it.  All randomness comes from one generator for
 * each kind of spoiling, seeded from the configuration: equal frames at equal
 * times meet equal fates, and a mark rate does not change which frames are lost.
 * Times are nanoseconds on a clock that does not go backwards.
 */
#ifndef DP_LINK_H
#define DP_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "link/impairments.h"
#include "wire/packet.h"
#include "wire/telemetry.h"

enum {
	DP_LINK_CLASSES = 8,   /* queues of a link; 0 is served first among the strict ones */
	DP_LINK_HEADROOM = 24, /* bytes on an Ethernet wire beside the frame: FCS, preamble, gap */
	DP_LINK_ETHERNET = 14, /* bytes of a frame before its IP packet */
	DP_LINK_OPPORTUNITY = 1500 + 14 + DP_LINK_HEADROOM,
	DP_LINK_WEIGHT_MAX = 4096,
	DP_POLICER_BURST_MAX = 1 << 30,
	DP_AQM_FLOWS_MAX = 65536,
	DP_AQM_QUANTUM_MIN = 256,
	DP_AQM_QUANTUM_MAX = 1 << 20,
};

enum dp_frame_flags {
	DP_FRAME_CORRUPT = 1 << 0, /* a bit was flipped on the wire: its user flips one */
	DP_FRAME_TRIMMED = 1 << 1, /* payload cut off: bytes is now header_bytes */
	DP_FRAME_COPY = 1 << 2,	   /* a duplicate that the link had cloned */
};

struct dp_frame {
	struct dp_frame *next;	  /* used by the link while the frame is in it */
	struct dp_frame *child;	  /* used by the link */
	uint64_t at_ns;		  /* set by the link: time of arrival, or of the drop by an AQM */
	struct dp_telemetry *hop; /* room for DP_HOPS_MAX records, or NULL */
	uint32_t bytes;		  /* on the wire, DP_LINK_HEADROOM included */
	uint32_t flow_hash;	  /* of the addresses and ports: ECMP, FQ-CoDel, dp_link_hashes() */
	uint32_t order;		  /* used by the link: orders frames that arrive at the same time */
	uint32_t to;		  /* used by the link's user */
	uint16_t header_bytes;	  /* length after trimming; 0: the frame cannot be trimmed */
	uint16_t ingress;	  /* switch port it came in by (PFC, shared buffer) */
	uint8_t class;		  /* 0..DP_LINK_CLASSES-1 */
	uint8_t ecn;		  /* enum dp_ecn */
	uint8_t flags;		  /* enum dp_frame_flags */
	uint8_t n_hops;
};

enum dp_drop {
	DP_DROP_LOSS,	  /* lost as configured */
	DP_DROP_QUEUE,	  /* the queue was full */
	DP_DROP_BUFFER,	  /* the switch's shared buffer was full */
	DP_DROP_POLICER,  /* above the policer's rate */
	DP_DROP_AQM,	  /* by the AQM, to keep the queue short */
	DP_DROP_SHAPED,	  /* the queue of its shaped class was full */
	DP_DROP_SHUTDOWN, /* the link was destroyed */
	DP_DROPS,
};

/* The calls of the link to its user. clone copies a frame that is duplicated.  It may be NULL if no
 * frame is duplicated, and may return NULL: then this frame is not duplicated. */
struct dp_link_ops {
	void (*drop)(void *user, struct dp_frame *, enum dp_drop why);
	struct dp_frame *(*clone)(void *user, const struct dp_frame *);
};

enum dp_jitter_kind { DP_JITTER_NONE, DP_JITTER_NORMAL, DP_JITTER_PARETO, DP_JITTER_TRACE };

/* Added to the delay of each frame; the sum is never negative.  The order of frames is kept unless
 * `reorders` is set. */
struct dp_jitter {
	uint32_t kind; /* enum dp_jitter_kind */
	bool reorders;
	double scale_ns;      /* NORMAL: standard deviation; PARETO: mean of the addition */
	double shape;	      /* PARETO: tail index, above 1 (type II, which begins at 0) */
	const double *sample; /* TRACE: ns, taken in turn; the caller keeps it */
	uint32_t n_samples;
};

/* Two-state loss (Elliott, 1963): frames are lost with the probability of the state.
 * After each frame the state changes with probability p (to bad) or r (to good); or,
 * if good_ns and bad_ns are given in their place, after exponentially distributed times
 * with these means, whatever the traffic.  Neither: Bernoulli with rate `good`. */
struct dp_loss {
	double p, r, good, bad;
	uint64_t good_ns, bad_ns;
};

/* A token bucket, full at the beginning.  A frame that finds fewer tokens than it has bytes is
 * dropped and takes no tokens (the single-rate marker of RFC 2697 without its excess bucket; all
 * frames that are not green are dropped). */
struct dp_policer {
	uint64_t rate_bps;    /* 0: none */
	uint64_t burst_bytes; /* size of the bucket, at most DP_POLICER_BURST_MAX */
};

enum dp_ecn_kind { DP_MARK_NONE, DP_MARK_STEP, DP_MARK_RED };

/* Marking by the length of the class's queue when a frame arrives (DCTCP, SIGCOMM 2010, section
 * 3.1; DCQCN, SIGCOMM 2015, figure 5).  Only ECN-capable frames are marked. */
struct dp_marking {
	uint32_t kind;	     /* enum dp_ecn_kind */
	uint64_t kmin_bytes; /* STEP: the threshold */
	uint64_t kmax_bytes; /* RED: above this every frame is marked */
	double pmax;	     /* RED: probability just below kmax */
};

/* Delivery opportunities, as in mahimahi's traces.  The times ms[i] never decrease, repeat with
 * period ms[n-1], and count from the first frame.  Each opportunity carries DP_LINK_OPPORTUNITY
 * bytes: an IP packet of 1500 bytes on the wire.  Unused opportunities are lost, and a large frame
 * takes several.  The caller keeps the array, until after the next configuration. */
struct dp_rate_trace {
	const uint32_t *ms;
	uint32_t n;
};

enum dp_aqm_kind {
	DP_AQM_NONE,
	DP_AQM_CODEL,	 /* RFC 8289 */
	DP_AQM_FQ_CODEL, /* RFC 8290 */
	DP_AQM_PIE,	 /* RFC 8033 */
};

/* Active queue management: keeps the queue short by dropping before it is full.  For a
 * link with one class, without marking, trimming and shared buffer. */
struct dp_aqm {
	uint32_t kind;
	bool ecn; /* mark ECN-capable frames instead of dropping them; PIE: up to mark_max */
	uint64_t target_ns;	/* of the time in the queue; PIE: QDELAY_REF */
	uint64_t interval_ns;	/* CoDel: INTERVAL; PIE: T_UPDATE */
	uint32_t flows;		/* FQ-CoDel: queues, at most DP_AQM_FLOWS_MAX */
	uint32_t quantum_bytes; /* FQ-CoDel: credit of a queue for each round */
	double alpha, beta;	/* PIE: gains, 1/s; alpha at least 0.001 */
	uint64_t max_burst_ns;	/* PIE: MAX_BURST, in which nothing is dropped */
	double mark_max;	/* PIE: drop probability above which ECN does not help */
};

/* A shaped class sends a frame of n bytes at most every n / rate_bps seconds: a token bucket that
 * holds one frame.  So credits that wait in it limit the data that they call for in the other
 * direction (ExpressPass, SIGCOMM 2017, section 3.1).  Not beside an AQM. */
struct dp_class_config {
	uint32_t weight;      /* 0: strict priority over all higher numbers and all weighted ones */
	uint64_t limit_bytes; /* limit of this class; 0: only the link's limit */
	uint64_t rate_bps;    /* shaped to this rate; 0: not shaped */
	/* Share by which the time from one frame of a shaped class to the next varies, at random.
	 * Without it the drops of a full queue keep step with one of the flows. */
	double jitter;
};

/* X(type, name): the settings that are one number.  The emulator takes a key of each name, and
 * struct dp_link_config and the class Link (fabric/links.py) have a member. */
#define DP_LINK_NUMBERS(X)                                                                         \
	X(uint64_t, rate_bps) /* 0: a frame takes no time */                                       \
	X(uint64_t, delay_ns)                                                                      \
	X(uint64_t, limit_bytes) /* bytes that may wait in all classes together; 0: no limit */    \
	X(double, reorder)	 /* share of frames held back */                                   \
	X(uint64_t, reorder_ns)	 /* by how long */                                                 \
	X(double, duplicate)	 /* share of frames that arrive twice */                           \
	X(double, corrupt)	 /* share of frames with one bit flipped */                        \
	X(bool, trim)		 /* see below */                                                   \
	X(bool, telemetry)	 /* write a record when the transmission of a frame starts */

/* The impairments that have a row in impairments.py and a file in impair/. */
enum dp_impairment {
#define DP_IMPAIRMENT_NUMBER(name, ...) DP_IMPAIRMENT_##name,
	DP_IMPAIRMENTS(DP_IMPAIRMENT_NUMBER)
#undef DP_IMPAIRMENT_NUMBER
		DP_N_IMPAIRMENTS,
};

/* trim: a frame that the queue would drop is cut down to its headers.  The headers go on in class 0
 * and do not count towards its limit; trimmed frames that wait have a second limit of the same
 * size. */
struct dp_link_config {
#define DP_LINK_MEMBER(type, name) type name;
	DP_LINK_NUMBERS(DP_LINK_MEMBER)
#undef DP_LINK_MEMBER
	double impairment[DP_N_IMPAIRMENTS]; /* by enum dp_impairment; 0: off */
	struct dp_rate_trace trace;	     /* n > 0: in place of rate_bps */
	struct dp_jitter jitter;
	struct dp_loss loss;
	struct dp_policer policer;
	struct dp_marking marking;
	struct dp_aqm aqm;
	uint32_t n_classes; /* 1..DP_LINK_CLASSES; 0 means 1 */
	struct dp_class_config class[DP_LINK_CLASSES];
	uint64_t seed;
};

#define DP_LINK_COUNTERS(X)                                                                        \
	X(offered)                                                                                 \
	X(offered_bytes)                                                                           \
	X(delivered)                                                                               \
	X(delivered_bytes)                                                                         \
	X(lost)	       /* lost as configured */                                                    \
	X(overflowed)  /* queue or shared buffer full */                                           \
	X(policed)     /* dropped by the policer */                                                \
	X(aqm_dropped) /* dropped by the AQM */                                                    \
	X(shaped)      /* the queue of a shaped class full */                                      \
	X(marked)                                                                                  \
	X(trimmed)                                                                                 \
	X(corrupted)                                                                               \
	X(duplicated)                                                                              \
	X(reordered)                                                                               \
	X(paused_ns) /* sum over classes, with pauses that still go on */                          \
	X(queue_max_bytes)

struct dp_link_stats {
#define X(name) uint64_t name;
	DP_LINK_COUNTERS(X)
#undef X
};

struct dp_link;
struct dp_buffer; /* link/switch.h */

/* Whether a link with these settings reads the flow_hash of frames. */
bool dp_link_hashes(const struct dp_link_config *);
int dp_link_create(const struct dp_link_config *, const struct dp_link_ops *, void *user,
		   struct dp_link **out);
/* Destroys the link; frames in it are dropped. */
void dp_link_destroy(struct dp_link *);
/* Changes the settings while the link runs.  Queued frames stay, and frames on the wire keep their
 * times of arrival; a shorter delay makes no frame overtake.  A different seed restarts the random
 * streams.  -EBUSY: frames wait, and the number of classes, the AQM or its number of flows would
 * change. */
int dp_link_configure(struct dp_link *, const struct dp_link_config *, uint64_t now_ns);
/* Makes the link's queue part of a shared buffer.  To be called before the first frame.  0,
 * -ENOMEM, or -EINVAL: the link has an AQM. */
int dp_link_share(struct dp_link *, struct dp_buffer *, uint32_t port);

void dp_link_offer(struct dp_link *, struct dp_frame *, uint64_t now_ns);
/* Takes the next frame that has arrived by now, in order of arrival; NULL: none.  Call it at each
 * deadline, until it returns NULL. */
struct dp_frame *dp_link_take(struct dp_link *, uint64_t now_ns);
/* The frame on the wire that arrives next, perhaps after now; NULL: none.  It can be overtaken only
 * if it arrives more than the link's delay after now, or if there is jitter. */
const struct dp_frame *dp_link_coming(struct dp_link *, uint64_t now_ns);
/* Takes that frame, which dp_link_coming() has just returned, before it arrives. */
struct dp_frame *dp_link_take_coming(struct dp_link *);
/* Loads into the CPU's caches what take() is going to need. */
void dp_link_prefetch(const struct dp_link *);
/* When take() has to be called next: a frame arrives, or the transmitter turns
 * to the next one.  DP_NEVER when the link is empty or paused. */
uint64_t dp_link_deadline(const struct dp_link *);
/* PFC: pauses or resumes the classes of the mask.  A frame under way is finished. */
void dp_link_pause(struct dp_link *, uint32_t class_mask, bool paused, uint64_t now_ns);

/* Brings queue and counters up to now, by catching up on the transmitter's turns; offer()
 * and take() do so as well. */
void dp_link_advance(struct dp_link *, uint64_t now_ns);
/* Bytes that wait, without the frame in transmission, as of the last call. */
uint64_t dp_link_queue_bytes(const struct dp_link *);
/* When the transmitter turns to the next waiting frame, as of the last call.  0: no frame waits.
 * DP_NEVER: the waiting frames are paused.  For a NIC that asks for a packet only when it can send
 * one. */
uint64_t dp_link_turn_ns(const struct dp_link *);
/* The counters, as of the last call but for paused_ns, which is that of now. */
void dp_link_stats(const struct dp_link *, uint64_t now_ns, struct dp_link_stats *out);

#endif
