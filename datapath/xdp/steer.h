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
	unsigned int dated;	 /* whether frames may be dated */
	unsigned int shared;	 /* whether each queue has a port of its own, or none */
};

/* A dated frame ends, behind its IP packet, with the time at which its last emulated link let it go:
 * the low half of CLOCK_MONOTONIC in ns, in the byte order of this machine.  A veth device has room
 * for it behind a packet of full MTU, where it could carry a VLAN tag. */
#define DP_DATE_LEN 4
/* An older date is not believed. */
#define DP_DATE_AGE_NS 1000000000u
/* A frame may come before its date; the port does not read it until then.  A date that is later than
 * this is not believed. */
#define DP_DATE_EARLY_NS 100000u

/* Lies in front of a frame that the program gives to a socket, if the driver has room for
 * it; if not, other bytes lie there, which the seal tells apart. */
struct dp_steer_meta {
	unsigned long long arrived_ns; /* CLOCK_MONOTONIC; the date, if that is still to come */
	unsigned long long seal;       /* arrived_ns ^ steer_config.seal */
	unsigned int late_ns;	       /* by how much sooner an emulated link had let it go */
};

/* Written by the program, read by the port. */
struct dp_steer_counters {
	/* RoCEv2 packets to our address that came to another queue than that of their port: the
	 * kernel gets them */
	unsigned long long other_queue;
};

#endif
