/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Runs of received datagrams, and what becomes of those that are for another port at the same
 * address (slot.h): they are handed on to it.
 */
#ifndef DP_IO_RUN_H
#define DP_IO_RUN_H

#include "io/port.h"
#include "io/slot.h"

enum { DP_RUN_MAX = 65536 }; /* bytes */

/* Datagrams of segment_len bytes each, the last maybe less. */
struct dp_run {
	struct dp_addr src, dst;
	uint16_t sport;
	uint8_t tos;
	bool for_us; /* whatever the QPN: handed on by another port, or of a group */
	uint32_t len, segment_len, done;
	uint64_t arrived_ns; /* 0: not known */
	uint8_t *data;
};

/* Hands the next datagram to `out`, after it has handed on those that are for other ports; false:
 * none is left for this one. */
bool dp_run_next(struct dp_run *, struct dp_slot *, struct dp_port_stats *, struct dp_packet *out);

/* Hands on the next datagrams if another port wants them; false: they are for this one. */
bool dp_run_hand_on(struct dp_run *, struct dp_slot *, struct dp_port_stats *);

/* Takes datagrams that another port has handed on; `data` has DP_RUN_MAX bytes.  False: there are
 * none. */
bool dp_run_receive(struct dp_run *, struct dp_slot *);

#endif
