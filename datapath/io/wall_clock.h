/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel stamps packets of sockets with CLOCK_REALTIME; the engine's clock is CLOCK_MONOTONIC.
 * The offset between the two changes slowly while the wall clock is slewed, and at once when it is
 * set.
 *
 * The offset is measured again for a stamp that is more than a millisecond away from the last
 * measurement.  If the offset has jumped, stamps from before the jump was noticed are not
 * converted, because they may be from either side of it.
 */
#ifndef DP_IO_WALL_CLOCK_H
#define DP_IO_WALL_CLOCK_H

#include <stdint.h>
#include <time.h>

struct dp_wall_clock {
	uint64_t (*read)(clockid_t); /* ns */
	int64_t offset_ns;	     /* CLOCK_REALTIME less CLOCK_MONOTONIC, measured at */
	uint64_t real_ns, mono_ns;   /* 0: never */
	uint64_t valid_from_ns;	     /* stamps before this time may be from before a jump */
};

/* The clocks of this machine. */
void dp_wall_clock_init(struct dp_wall_clock *);
/* Converts a stamp of CLOCK_REALTIME to CLOCK_MONOTONIC; 0: not possible. */
uint64_t dp_wall_to_monotonic(struct dp_wall_clock *, uint64_t stamp_ns);

#endif
