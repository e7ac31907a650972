/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two engines over a bad channel, in virtual time: random requests of random
 * sizes both ways, and every promise of the transport checked as it goes.
 *
 *  - messages arrive exactly once, in order, intact, and nothing beside them
 *    in memory changes;
 *  - atomics execute exactly once, in order;
 *  - the last byte of a message appears only when all of it is there;
 *  - completions come in the order of the requests, and all of them come;
 *  - both ends fall silent when the work is done, within the time limit.
 *
 * Equal parameters give equal runs, packet for packet.
 */
#ifndef DP_TESTS_SOAK_H
#define DP_TESTS_SOAK_H

#include <stdint.h>

struct X_soak {
	uint64_t seed;
	uint64_t latency_ns, limit_ns;
	uint64_t jitter_ns; /* longest extra delay of packets that are delayed */
	uint64_t rate_bps;  /* of the channel, 0: unlimited */
	uint32_t extended;  /* bit 0: A offers it, bit 1: B does */
	uint32_t ipv6;
	uint32_t path_mtu;
	uint32_t segment_max[2]; /* of A, of B; 0: the path MTU */
	uint32_t limit_bytes;	 /* longer packets never arrive; 0: no limit */
	uint32_t telemetry;	 /* 1: both want it, and the channel fills it in */
	uint32_t bundle;	 /* 1: short messages of either side may share packets */
	uint32_t paths;		 /* UDP source ports of either side's packets */
	uint64_t path_skew_ns;	 /* each path takes so much longer than the one before */
	uint32_t dead_paths;	 /* so many of them lose everything */
	uint32_t trim_ppm;
	uint32_t window_psns; /* 0: the engine's default */
	uint32_t messages[2]; /* from A, from B */
	uint32_t max_len;     /* bytes */
	uint32_t depth;	      /* requests posted at once */
	uint32_t recv_depth;
	uint32_t ops; /* bit per enum dp_wr_opcode */
	uint32_t loss_ppm, duplicate_ppm, delay_ppm, corrupt_ppm, mark_ppm;
	uint32_t slow_recv_ppm; /* share of receives that are posted late */
	uint32_t timeout, retry_cnt, rnr_retry, rd_atomic;
	uint32_t dest_rd_atomic; /* that a peer can answer again; 0: rd_atomic */
	uint32_t psn[2];
	uint32_t aims, burst; /* of the adversary (adversary.h) */
	uint64_t blackout_ns;
	uint32_t aimd;	   /* 1: congestion control; else a constant window */
	uint32_t may_fail; /* 1: RETRY_EXC and RNR_RETRY_EXC are allowed ends */
	/* results */
	uint32_t agreed; /* dp_qp_extended() of A and B, bits 0 and 1 */
	uint32_t failed; /* bit per side whose QP failed, with may_fail */
	uint64_t end_ns;
	uint64_t trace;	     /* hash of all packets and their times */
	uint32_t segment[2]; /* that A, B used at last */
	uint64_t packets, lost, retransmits, timeouts, rnr_naks, out_of_order;
	uint64_t spurious, trimmed;
	char failure[256]; /* "" or what went wrong */
};

/* 0, or -1 with `failure` set. */
int X_soak_run(struct X_soak *);

#endif
