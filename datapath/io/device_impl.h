/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The declarations that the files of the device share.
 *
 *   device.c         the lock, and the calls of the program
 *   device_move.c    packets between port and engine
 *   device_thread.c  the thread
 *   device_wait.c    a thread of the program that waits, in its place
 *   device_open.c    opening, closing, fork()
 */
#ifndef DP_IO_DEVICE_IMPL_H
#define DP_IO_DEVICE_IMPL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "io/device.h"
#include "io/heat.h"
#include "io/lease.h"
#include "io/linger.h"
#include "io/lock.h"

enum {
	DP_LEASE_NS = 1000000,	 /* PROGRAM mode: how often the thread looks at the program */
	DP_LEASE_HOT_NS = 50000, /* the same while sends wait for a call, at first */
	DP_LEASE_TRUST = 16, /* the lease doubles after this many leases that the program kept... */
	DP_LEASE_TRUST_MAX = 6, /* ...and at most this many times */
	DP_LEASE_FULL_NS = DP_LEASE_HOT_NS << DP_LEASE_TRUST_MAX,
	DP_UNHEARD_NS = 100000, /* PROGRAM mode: after so long a post looks at the port */
	DP_DELAYED_MAX = 32,	/* most requests that wait for the next call */
	DP_AHEAD_MIN = 4,	/* THREAD -> PROGRAM: bursts that the program took first */
	DP_AHEAD_MAX = 4096,
	DP_ROW_MIN = 64, /* THREAD -> PROGRAM: posts in a row, without a poll */
	DP_ROW_MAX = 4096,
	DP_SPINS_NS = 1000000000, /* without a miss for this long, the least will do again */
	DP_HABIT_LEASES = 2,   /* an armed CQ waits this long for the thread that waited before */
	DP_SHORT_NS = 5000,    /* no thread lingers for less */
	DP_FEW = 2,	       /* packets of a message and its acknowledgement */
	DP_LEFT_NS = 100000,   /* THREAD mode: packets that wait for this long were left lying */
	DP_RAN_NS = 20000,     /* a program that ran for this long and made no call does not poll */
	DP_QUEUED_MAX = 4096,  /* packets that may wait in a port: AF_XDP's receive ring */
	DP_ROUNDS_PROGRAM = 4, /* bursts moved in one call */
	DP_ROUNDS_THREAD = 16,
	DP_POLLED_ENOUGH = 4, /* THREAD -> PROGRAM: bursts, on balance, that the thread took from a
				* program that polled */
	DP_POLLED_CALLS = 4,  /* which made so many calls since the burst before */
	DP_UNPOLLED = 4,   /* a burst that found it not polling weighs as much as so many others */
	DP_IDLE_POLLS = 8, /* empty polls between two readings of the clock */
	DP_TX_FULL_NS = 20000,	/* no transmit buffer was free: try again after this time */
	DP_NAP_NS = 5000000,	/* longest sleep while there is traffic */
	DP_CALM_NS = 100000000, /* without traffic for this long, sleep until called */
	DP_RESOLVE_STEP_US = 2000,
};

enum dp_mode { DP_MODE_THREAD, DP_MODE_PROGRAM };

struct dp_device {
	struct dp_lock lock;
	struct dp_engine *engine;
	struct dp_port *port;
	void (*on_event)(const struct dp_event *);
	void (*on_control)(struct dp_device *, void *control);
	void *control;
	int control_fd; /* -1: none */
	_Atomic(enum dp_mode) mode;
	atomic_uint calls;    /* calls of the program; they tell the thread that it polls */
	atomic_bool delaying; /* the thread looks after delayed sends */
	atomic_bool looked;   /* at the port, since the thread's last look at the program */
	bool no_thread;	      /* dp_device_attend() is called instead */
	bool armed;	      /* the program is going to wait for an event */
	bool waiter;	      /* a thread of the program waits, and serves the device */
	bool crowd;	      /* several threads have waited at a time: none of them serves */
	bool resting;	      /* the thread does not look at the program once in a lease */
	uint8_t habit;	      /* leases for which the next waiter is expected; 0: none is */
	bool tx_full;	      /* the port had no buffer */
	bool missed_few;      /* that the program left lying: one message */
	bool spins;	      /* since the thread's last look the program ran, and made no call */
	bool dead;	      /* in a child after fork() */
	uint32_t ahead;	      /* bursts that the program took before the thread could */
	uint32_t ahead_needed;
	uint32_t row; /* posts in a row, in THREAD mode, without a poll */
	uint32_t row_needed;
	uint32_t polled;     /* bursts that found the program polling, on balance */
	unsigned calls_then; /* calls when the last of them came */
	struct dp_heat heat; /* how quickly the program calls */
	uint32_t hot_leases; /* leases that the program kept while sends were delayed */
	uint32_t idle_polls;
	uint32_t delayed;   /* requests posted and not sent, since the last poll */
	int tx_want;	    /* transmit buffers to ask for */
	uint64_t mark_ns;   /* since when something is delayed, or could have been */
	uint64_t busy_ns;   /* when a packet last moved */
	uint64_t clock_ns;  /* the last look at the clock */
	uint64_t heard_ns;  /* all packets that arrived before this time have reached the engine */
	uint64_t looked_ns; /* clock_ns when the count of `taken` began */
	uint32_t taken;	    /* packets taken from the port since then */
	uint64_t wake_ns;   /* when the thread will wake by itself */
	uint64_t first_ns;  /* when the first packet of the last burst arrived; 0: not known */
	uint64_t missed_ns; /* when the thread last found packets that the program left lying */
	atomic_int caller;  /* the thread that called last */
	int looked_at;	    /* of PROGRAM mode's last look: the caller, and its CPU time by then */
	uint64_t ran_ns;
	struct dp_lease lease; /* the timer of a full one */
	uint64_t lease_ns;     /* what the thread last granted; only the thread uses it */
	uint64_t slept_ns;     /* when the thread last went to sleep, 0: it did not; and woke */
	uint64_t woke_ns;
	struct dp_sleeps sleeps;
	struct dp_linger linger;
	int kick_fd;	    /* eventfd that wakes the thread; -1: no thread */
	int waiter_kick_fd; /* the same for the waiter */
	atomic_bool stop;
	pthread_t thread;
	struct dp_port_info info;
	uint32_t path_mtu;
	char name[16];
	struct dp_device *next; /* list of all, for fork() */
};

/* All of these under the lock. */

static inline uint64_t dp_device_read_clock(struct dp_device *dev)
{
	uint64_t now = dp_device_now_ns();

	__atomic_store_n(&dev->clock_ns, now, __ATOMIC_RELAXED); /* the thread reads it unlocked */
	return now;
}

/* The program makes a call.  Only the thread reads the count without the lock. */
static inline void dp_device_count_call(struct dp_device *dev)
{
	unsigned calls = atomic_load_explicit(&dev->calls, memory_order_relaxed);

	atomic_store_explicit(&dev->calls, calls + 1, memory_order_relaxed);
}

/* Returns the packets received.  Sets *now only if there were any: an empty look reads no clock. */
int dp_device_rx_burst(struct dp_device *, uint64_t *now);
/* Sends one burst, if the engine has packets that are due. */
int dp_device_tx_burst(struct dp_device *, uint64_t now);
/* Sends a few bursts at most; returns the packets sent. */
int dp_device_tx_due(struct dp_device *, uint64_t now);
void dp_device_hand_over_events(struct dp_device *);
/* Wakes the waiter if there is one, else the thread. */
void dp_device_kick(struct dp_device *);
/* Each has an eventfd of its own: with one for both, the one that needs no kick might read it
 * first, and the other would sleep on. */
static inline int dp_device_kick_fd(const struct dp_device *dev)
{
	return dev->waiter ? dev->waiter_kick_fd : dev->kick_fd;
}
/* As dp_device_kick(), without the lock: the caller has set wake_ns to 0 under it, and chosen whom
 * to wake. */
void dp_device_signal(int kick_fd);
void dp_device_enter_thread_mode(struct dp_device *);

/* Before wake_ns is slept for.  serving: the sleep ends with the next packet. */
void dp_device_note_sleep(struct dp_device *, uint64_t wake_ns, bool serving);

/* Under the lock: what is watched for packets in the sleep until the time that dp_device_attend() has
 * just returned.  -1: nothing, since the port holds packets until then. */
static inline int dp_device_port_fd(const struct dp_device *dev)
{
	return dp_port_held_until(dev->port) ? -1 : dp_port_fd(dev->port);
}

/* Without the lock: as ppoll(), of which the first descriptor is the kick_fd of the calling thread.
 * exact: polls through a brief wait (posix/brief.h); sets the timer early for a longer one, and
 * polls for the rest. */
int dp_device_sleep(struct dp_device *, struct pollfd *, unsigned n, uint64_t wake_ns, bool exact);
/* Under the lock: whether lingering until wake_ns pays, and the calling thread is one from which the
 * kernel takes the CPU when others want it. */
bool dp_device_may_linger(const struct dp_device *, uint64_t wake_ns);
/* Without the lock, before a sleep until wake_ns: looks for packets until one comes, something is due,
 * the program makes a call, or it took too long.  False: somebody else wanted the CPU. */
bool dp_device_linger(struct dp_device *, unsigned calls, uint64_t wake_ns);

/* The thread. */
void *dp_device_run(void *device);

#endif
