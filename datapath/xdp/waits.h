/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The layout that waits.bpf.c and the program that loads it share. */
#ifndef DP_XDP_WAITS_H
#define DP_XDP_WAITS_H

/* Of all threads that have ended, together; nanoseconds. */
struct dp_waits {
	unsigned long long ran_ns;
	unsigned long long waited_ns; /* ready to run, without a CPU */
};

#endif
