/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When the emulator of live runs sleeps.  The simulator models the emulator with the same number. */
#ifndef DP_FABRIC_AWAKE_H
#define DP_FABRIC_AWAKE_H

enum {
	/* The emulator polls through a wait that is not longer: it is not worth a system call. */
	DP_EMULATOR_SPIN_NS = 4000,
};

#endif
