/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel stamps packets of sockets with CLOCK_REALTIME; the engine's clock is
 * CLOCK_MONOTONIC.  The two differ by an offset that changes slowly while the wall clock
 * is slewed, and at once when it is set.
 *
 * The offset is measured anew for a stamp more than a millisecond away from the last
 * measurement.  If it has jumped since, stamps from before the jump was noticed are not
 * converted, because they may be from either side of the jump.
 */
#ifndef DP_IO_WALL_CLOCK_H
#define DP_IO_WALL_CLOCK_H

#include <stdint.h>
#include <time.h>

struct dp_wall_clock {
	uint64_t (*read)(clockid_t); /* ns */
	int64_t offset_ns;	     /* CLOCK_REALTIME less CLOCK_MONOTONIC, measured at */
	uint64_t real_ns, mono_ns;   /* 0: never */
	uint64_t valid_from_ns;	     /* stamps before it are of the time before a jump */
};

/* The clocks of this machine. */
void dp_wall_clock_init(struct dp_wall_clock *);
/* A stamp of CLOCK_REALTIME as time of CLOCK_MONOTONIC; 0: it cannot be told. */
uint64_t dp_wall_to_monotonic(struct dp_wall_clock *, uint64_t stamp_ns);

#endif
