/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The layout that this XDP program and io/raw.c share. */
#ifndef DP_XDP_RAW_H
#define DP_XDP_RAW_H

#include <linux/types.h>

/* Lies in front of a frame. */
struct dp_raw_meta {
	__u64 arrived_ns; /* CLOCK_MONOTONIC */
};

struct dp_raw_counters {
	__u64 unstamped; /* the driver had no room for the time */
};

#endif
