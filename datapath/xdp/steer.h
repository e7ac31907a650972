/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The layout that the steering program and the port share.
 */
#ifndef DP_XDP_STEER_H
#define DP_XDP_STEER_H

enum {
	DP_STEER_UDP_PORT = 4791, /* RoCEv2, annex A17.3.2 */
};

/* Constant for the life of a program: set before it is loaded. */
struct dp_steer_config {
	/* the port's address, IPv4 as ::ffff:a.b.c.d, network byte order */
	unsigned int addr[4];
	unsigned long long seal; /* random */
};

/* Lies in front of a frame that the program gives to a socket, if the driver has room for
 * it; if not, other bytes lie there, which the seal tells apart. */
struct dp_steer_meta {
	unsigned long long arrived_ns; /* CLOCK_MONOTONIC */
	unsigned long long seal;       /* arrived_ns ^ steer_config.seal */
};

/* Written by the program, read by the port. */
struct dp_steer_counters {
	/* RoCEv2 packets to our address on a queue that has no socket: the
	 * kernel got them, we did not */
	unsigned long long other_queue;
};

#endif
