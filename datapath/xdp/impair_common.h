/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the impairment program and the code that configures it (xdp/impair.py)
 * agree on.  Plain C with fixed layouts: no implicit padding anywhere, and
 * impair.py's struct formats name the same fields in the same order.
 */
#ifndef DP_XDP_IMPAIR_COMMON_H
#define DP_XDP_IMPAIR_COMMON_H

#include <linux/bpf.h>
#include <linux/types.h>

#include "link/ge_time.h"

enum {
	DP_IMPAIR_FORWARD = 0,
	DP_IMPAIR_BACKWARD = 1,
	DP_IMPAIR_DIRECTIONS = 2,
	DP_IMPAIR_NO_DIRECTION = 2, /* a port that only forwards */
	DP_IMPAIR_FAULTS = 16,	    /* per direction */
	DP_IMPAIR_PORTS = 256,
	DP_IMPAIR_ROCE_PORT = 4791,
};

/* A probability p is round(p * 2^32): a 32-bit draw below it is a hit. */
#define DP_IMPAIR_CERTAIN (1ull << 32)

/* A device of the middle, by ifindex. */
struct dp_impair_port {
	__u32 out_ifindex; /* where unknown addresses go; 0: nowhere */
	__u16 group;	   /* which forwarding table */
	__u16 direction;   /* what to do to packets received here */
};

/* Forwarding table: link address within a group -> ifindex. */
struct dp_impair_address {
	__u8 mac[6];
	__u16 group;
};

enum dp_impair_loss_model {
	DP_IMPAIR_BERNOULLI = 0,       /* lost with loss_good */
	DP_IMPAIR_GILBERT_ELLIOTT = 1, /* two states, see struct dp_impair_config */
	DP_IMPAIR_GE_TIME = 2,	       /* the same, states that last for a time */
};

enum dp_impair_action {
	DP_IMPAIR_DROP = 1,
	DP_IMPAIR_MARK = 2,
	DP_IMPAIR_CORRUPT = 3,
};

enum dp_impair_match {
	DP_IMPAIR_MATCH_QPN = 1 << 0,
	DP_IMPAIR_MATCH_PSN = 1 << 1,
};

/* Hits the matching packets number nth .. nth + count - 1, counted from 1. */
struct dp_impair_fault {
	__u32 action; /* 0: no fault */
	__u32 match;
	__u32 qpn;
	__u32 psn;
	__u64 nth;
	__u64 count;
};

struct dp_impair_config {
	__u64 loss_model;
	__u64 loss_good; /* loss in the good state; the rate, if Bernoulli */
	__u64 loss_bad;
	__u64 to_bad;  /* p of Gilbert-Elliott */
	__u64 to_good; /* r */
	struct dp_ge_time ge_time;
	__u64 mark;
	__u64 corrupt;
	__u64 n_faults;
	struct dp_impair_fault faults[DP_IMPAIR_FAULTS];
};

/* Random streams, one for each purpose, so that adding a mark rate does not
 * change which packets are lost. */
enum dp_impair_stream {
	DP_IMPAIR_RNG_LOSS,
	DP_IMPAIR_RNG_MARK,
	DP_IMPAIR_RNG_CORRUPT,
	DP_IMPAIR_RNGS,
};

/*
 * Written by the program only, under the lock: packets of one direction may
 * arrive on several CPUs.  A given sequence of packets always meets the same
 * fate.
 */
struct dp_impair_state {
	struct bpf_spin_lock lock;
	__u32 pad;
	__u64 rng[DP_IMPAIR_RNGS]; /* splitmix64 */
	__u64 bad;		   /* Gilbert-Elliott: in the bad state */
	struct dp_ge_time_state ge_state;
	__u64 seen[DP_IMPAIR_FAULTS];
	__u64 hits[DP_IMPAIR_FAULTS];
	__u64 passed;	   /* IP packets, whole or spoilt, handed on */
	__u64 dropped;	   /* IP packets dropped on purpose */
	__u64 marked;	   /* passed with CE set here */
	__u64 corrupted;   /* passed with a bit flipped here */
	__u64 exempt;	   /* ARP, neighbour discovery, other protocols: never touched */
	__u64 unsegmented; /* several wire packets in one: an offload was left on */
};

#endif
