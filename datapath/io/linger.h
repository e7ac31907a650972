/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When the thread that serves a device lingers: it looks at the port for some microseconds more before
 * it sleeps.  It is the device's, or one that waits for an event (device_wait.c).
 *
 * To wake a thread costs 5 to 20 us on the CPU that it slept on, and on a virtual machine the sender
 * pays, too, since it has to interrupt another CPU.  If the next packet comes sooner than that,
 * looking for it is cheaper for both.  So the thread lingers while nearly all packets come within
 * DP_LINGER_NS (as a hypervisor does by halt polling): the time of a reply by a thread that had to be
 * woken.  One packet that comes later halves the trust in the next one, so a thread without traffic
 * has lingered once.
 *
 * Somebody else may want the CPU.  The thread finds out by its clock: between two looks the kernel
 * had given the CPU away.  Then it does not linger for 10 ms, and each time for twice as long, up to
 * a second.  Without such a gap for a second, it begins anew.  A thread with real-time priority does not
 * linger (dp_device_may_linger()): the kernel would not take its CPU for others, such as the emulator of
 * a run's path, and dp-cpu-keeper would take it for a thread that never sleeps.
 *
 * A thread whose packets all come soon sleeps once in 10 ms nevertheless, so that it sees what else its
 * sleep watches.
 */
#ifndef DP_IO_LINGER_H
#define DP_IO_LINGER_H

#include <stdbool.h>
#include <stdint.h>

enum { DP_LINGER_NS = 60000 };

struct dp_linger {
	uint64_t drained_ns;   /* when all packets had been served; 0: since then some came */
	uint32_t soon;	       /* packets that came within DP_LINGER_NS, less those that did not */
	uint64_t slept_ns;     /* when the thread last went to sleep */
	uint64_t disturbed_ns; /* when the CPU was last given away */
	uint64_t pause_ns;     /* how long the thread does not linger after that */
};

/* The port is empty, and nothing is left to send. */
void dp_linger_drained(struct dp_linger *, uint64_t now);
/* A packet came; it had arrived at arrived_ns. */
void dp_linger_arrived(struct dp_linger *, uint64_t arrived_ns);
void dp_linger_slept(struct dp_linger *, uint64_t now);
/* Whether it pays to linger now. */
bool dp_linger_wanted(const struct dp_linger *, uint64_t now);
/* Two looks that are so far from each other: somebody else wanted the CPU between them. */
bool dp_linger_disturbed(uint64_t last_ns, uint64_t now);
/* That happened. */
void dp_linger_pause(struct dp_linger *, uint64_t now);

#endif
