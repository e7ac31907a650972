/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The layout that the emulator's XDP program and the emulator share. */
#ifndef DP_XDP_FABRIC_H
#define DP_XDP_FABRIC_H

#include <linux/types.h>

/* Lies in front of a frame. */
struct dp_fabric_meta {
	__u64 arrived_ns; /* CLOCK_MONOTONIC */
};

struct dp_fabric_counters {
	__u64 unstamped; /* the driver had no room for the time */
};

#endif
