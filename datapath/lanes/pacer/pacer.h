/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parts of dp-rxe-pacer, which runs a congestion-control algorithm for the kernel's soft-RoCE.
 *
 *   main.c    the program: options, signals, what it says
 *   hooks.c   the BPF program at the device, and its ring of events
 *   control.c events to the algorithm, window and rate of the algorithm to a rate
 */
#ifndef DP_LANES_PACER_H
#define DP_LANES_PACER_H

#include "engine/flow.h"
#include "xdp/pace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct control_flow {
	bool ready; /* flow is initialised */
	struct dp_flow flow;
	struct dp_sender_stats stats;
};

struct control_limits {
	uint64_t rate_bps, cwnd_bytes; /* of payload */
};

/* The algorithm for all connections of a device. */
struct control {
	struct dp_engine_config cfg;
	uint32_t mss_bytes;
	struct control_flow flows[DP_PACE_FLOWS];
	/* told at the end */
	uint64_t connections, acks, losses, timeouts, marked_acks, min_rtt_ns;
	double last_cwnd_bytes, last_rate_bps, last_srtt_ns;
};

/* algo: NULL takes the engine's constant window. */
void control_init(struct control *, const struct dp_cc_algo *algo, uint32_t mss_bytes);
/* Takes in an event and tells what its flow may do from now on; false: as it did. */
bool control_event(struct control *, const struct dp_pace_event *, struct control_limits *);
/* Of a connection of which there was no event yet, bit/s of payload; 0: there is no memory for it. */
uint64_t control_first_rate(struct control *);
/* The smoothed RTT of a flow; 0: none yet. */
uint64_t control_srtt_ns(const struct control *, uint32_t flow);
void control_free(struct control *);
/* Payload of a full packet over a device with this MTU, as rxe chooses it. */
uint32_t control_mss(uint32_t mtu);

struct hooks;

/* Attaches the BPF program to a device; NULL, with the reason in `why`. */
struct hooks *hooks_open(unsigned int ifindex, bool ecn, struct control *, char *why, size_t room);
/* Handles the events that have come, or waits for some, for a fifth of a second at most. */
void hooks_serve(struct hooks *);
void hooks_counters(const struct hooks *, struct dp_pace_counters *);
void hooks_close(struct hooks *);

#endif
