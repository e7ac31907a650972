/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A device: one port, one engine, one lock, and a thread for the times when
 * the program is not looking.
 *
 * Run to completion.  A thread that polls a CQ or posts a request also moves the
 * packets, on its own core, with no hand-over to another thread.  But RC must
 * answer the peer while the program computes, sleeps, or spins on memory, so
 * the device is always in one of two modes:
 *
 *   DP_MODE_PROGRAM  The program polls.  The thread sleeps and wakes once in a
 *                    lease to see whether the program has called since, and
 *                    looked at the port: a poll of an empty CQ does, and so
 *                    does a post when the last look is 100 us ago.
 *   DP_MODE_THREAD   The thread sleeps on the port and the engine's deadline,
 *                    and serves both.  The program may still poll.
 *
 * In both, a thread of the program that waits for an event (dp_device_wait()) is the one that sleeps on
 * port and deadline, and serves both: a packet wakes the thread that wants it, and not first the
 * device's.  When it goes back with an event, the mode is PROGRAM: it is expected to make calls, or
 * to wait again.  The device's thread looks once in a lease whether that holds.
 *
 *   PROGRAM -> THREAD  a lease passed without a look; the program armed a CQ
 *                      and will wait for its event
 *   THREAD -> PROGRAM  the program was quicker than the thread several times
 *                      in a row, or posted many requests without a poll, or
 *                      polled all the time while the thread took its packets;
 *                      and no CQ is armed
 *
 * How many times is several?  A program that spins on memory and polls a CQ
 * only now and then (ib_write_lat) leaves packets waiting.  The thread looks for
 * that: it finds packets that have waited, and the program has used its CPU
 * meanwhile and made no call.  Each time the number grows, so such a program soon
 * keeps the thread, and the thread may be urgent (urgent.h), until a second has
 * passed without packets left waiting.  For as long, a lease is 50 us if what waited
 * was one message: where the program polls enough to have the packets, it may spin
 * again at any time.
 *
 * While the program makes no calls and packets come within microseconds of each other, the thread, or
 * the one that waits for an event, looks at the port for a while before it sleeps (linger.h).
 *
 * Batches.  A request is sent in the call that posts it.  Only a program that
 * has called again within microseconds many times is hot (heat.h) and gets a delay: its
 * requests after the first one since the last poll, and the acknowledgement of
 * the packets that the last poll delivered, wait for its next call.  The thread's
 * lease is then 50 us, which bounds the wait if that call does not come.  The lease
 * doubles, up to 3.2 ms, for a program that has kept its leases for long, since
 * each look of the thread costs the program a context switch: a program that stops
 * calling has its peer wait for a fifteenth of the time for which it called before.
 * A lease of the full length is renewed by the program itself (lease.h).
 *
 * A program that has a loop of its own may do without the thread (dp_device_attend()).
 *
 * After fork() the child has no thread and must not touch the sockets: there
 * every call fails with -EIO (dp_device_lock()), and the parent goes on.  The child
 * keeps no descriptor of the port: it ends with the parent's device.
 */
#ifndef DP_IO_DEVICE_H
#define DP_IO_DEVICE_H

#include "engine/engine.h"
#include "io/lateness.h"
#include "io/port.h"

struct dp_device;

/* How late the device's thread ran after it had slept, and for how long it was then awake.  A wait that
 * it polled through counts as a sleep. */
struct dp_sleeps {
	struct dp_lateness packet; /* after a packet had arrived */
	struct dp_lateness timer;  /* after the time at which it wanted to wake */
	uint64_t wakes, awake_ns;
};

struct dp_device_options {
	const char *name;      /* name of the thread */
	bool no_thread;	       /* the program's loop calls dp_device_attend() */
	bool standard;	       /* never offer extended mode */
	bool ecn;	       /* packets are ECN-capable */
	bool alone;	       /* no two messages share a packet */
	bool telemetry;	       /* offer room for telemetry in requests */
	uint32_t paths;	       /* UDP source ports that packets of extended mode use; 0: 1 */
	uint32_t path_mtu_max; /* bytes; 0: the largest that the port carries */
	uint32_t segment;      /* payload of an extended packet, bytes; 0: the best for the port */
	uint32_t window_psns;  /* 0: the engine's default */
	uint64_t min_rto_ns;   /* 0: the engine's default */
	uint64_t cnp_ns;       /* least time between two CNPs of a QP; 0: it sends none */
	/* Called under the lock for each event of the engine. */
	void (*on_event)(const struct dp_event *);
	/* Called by the thread, without the lock, when control_fd is readable; NULL: never. */
	void (*on_control)(struct dp_device *, void *control);
	void *control;
	int control_fd;
};

/* Returns 0, or -errno with one line for the user in `error`. */
int dp_device_open(const char *spec, const struct dp_device_options *, struct dp_device **out,
		   char *error, size_t error_len);
/* All objects of the engine must have been destroyed before. */
void dp_device_close(struct dp_device *);

struct dp_engine *dp_device_engine(struct dp_device *);
const struct dp_port_info *dp_device_port(const struct dp_device *);
/* Largest path MTU that the port and the options allow, bytes. */
uint32_t dp_device_path_mtu(const struct dp_device *);
/* Call with the lock held. */
void dp_device_port_stats(struct dp_device *, struct dp_port_stats *out);
void dp_device_engine_stats(struct dp_device *, struct dp_engine_stats *out); /* takes the lock */
/* Call with the lock held. */
const struct dp_sleeps *dp_device_sleeps(const struct dp_device *);
/* Like dp_port_resolve(), but waits up to timeout_ms; -EHOSTUNREACH: that was not enough.  With
 * timeout_ms 0, -EAGAIN while the next hop is asked.  Call dp_device_resolve() without the lock,
 * and dp_device_release() with it. */
int dp_device_resolve(struct dp_device *, const struct dp_addr *peer, int timeout_ms,
		      uint32_t *path_id);
void dp_device_release(struct dp_device *, uint32_t path_id);
/* As dp_port_refresh().  Call without the lock. */
int dp_device_refresh(struct dp_device *, uint32_t path_id);
/* As dp_port_join() and dp_port_leave().  Call both with the lock. */
int dp_device_join(struct dp_device *, const struct dp_addr *group);
void dp_device_leave(struct dp_device *, const struct dp_addr *group);

/* As dp_port_serve().  Call with the lock held. */
int dp_device_serve(struct dp_device *, uint64_t service_id);
void dp_device_unserve(struct dp_device *, uint64_t service_id);

/* Engine calls go between these two.  0; -EIO in a child after fork(), with
 * nothing locked.  Unlocking hands the engine's events to on_event(). */
int dp_device_lock(struct dp_device *);
void dp_device_unlock(struct dp_device *);

/* The same, but -ETIMEDOUT after timeout_ms.  For exit handlers, which may run inside code that a
 * signal has interrupted. */
int dp_device_lock_within(struct dp_device *, int timeout_ms);

/* Call under the lock after requests were posted: sends as much as window and pacing allow. */
void dp_device_posted(struct dp_device *);
/* Call under the lock before a QP is destroyed: sends what the QP still owes, such as the
 * acknowledgement of the last message. */
void dp_device_flush(struct dp_device *);
/* Call under the lock after a CQ was armed: the program is going to wait. */
void dp_device_armed(struct dp_device *);
/* Like dp_cq_poll(), moving packets when the CQ is empty.  Takes the lock. */
int dp_device_poll_cq(struct dp_device *, struct dp_cq *, int max, struct dp_wc *out);

/* Serves the device until ready(arg), which is called under the lock, or fd is readable.  Takes the
 * lock.  0: ready; -EINTR: a handler of a signal ran that was installed without SA_RESTART; other
 * errors: wait without serving, the device's thread or another thread does that.  Cancellation of the
 * thread ends the wait. */
int dp_device_wait(struct dp_device *, int fd, bool (*ready)(void *), void *arg);

/* For a device without a thread: moves what has come and what is due.  Returns when to call
 * again at the latest, unless dp_device_fd() is readable or something was posted before. */
uint64_t dp_device_attend(struct dp_device *);
int dp_device_fd(const struct dp_device *);

/* CLOCK_MONOTONIC, ns: the `now` of the device's engine. */
uint64_t dp_device_now_ns(void);

/* Call under the lock before requests, or (n = 0) receives, are posted: those that complete in the same
 * call then have its time.  No clock is read for others. */
static inline void dp_device_posting(struct dp_device *dev, const struct dp_qp *qp,
				     const struct dp_send_wr *wrs, uint32_t n)
{
	if (__builtin_expect(dp_qp_completes_posts(qp, wrs, n), 0))
		dp_engine_clock(dp_device_engine(dev), dp_device_now_ns());
}

#endif
