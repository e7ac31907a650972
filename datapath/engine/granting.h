/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The receiver's side of congestion control: one record for the port, one for each flow that comes
 * in, and the calls of the algorithm, which grants bytes to the senders.
 *
 * The records of the flows lie in one array, those with something to send first.  So the algorithm
 * looks only at these.  A flow gets its record with its first DEMAND and keeps it as long as its QP
 * uses the algorithm.
 */
#ifndef DP_ENGINE_GRANTING_H
#define DP_ENGINE_GRANTING_H

#include "engine/flow.h"
#include "engine/qp.h"

/* A flow that comes in. */
struct dp_incoming {
	struct dp_qp *qp;
	uint32_t index; /* of its record */
	bool owed;	/* a GRANT is to be sent */
	uint8_t unsent; /* CREDITs to be sent */
	uint8_t late;	/* DEMANDs in a row that are behind the newest */
	uint8_t dscp;	/* of what it sends by the next GRANT, as there */
	uint64_t wanted, granted, arrived;
	uint64_t settled;		      /* of the last DEMAND */
	uint64_t credits;		      /* sent, and to be sent */
	uint64_t credits_told, credits_heard; /* by the last DEMAND */
	uint64_t heard_ns;
	/* the totals that end the round trip, granted or credited as it began; 0: none goes on */
	uint64_t round_bytes, round_credits;
	uint32_t rtt_ns, mss_bytes;
	struct dp_hops hops; /* of telemetry */
};

struct dp_granting {
	const struct dp_cc_algo *algo;
	struct dp_timer timer;
	uint32_t users; /* QPs that use it */
	size_t sender_bytes;
	struct dp_cc_port *port;
	uint32_t n, active, room;
	uint8_t *records;	 /* `room` of them, sender_bytes each */
	struct dp_incoming **at; /* whose records they are */
};

/* Whether the algorithm has a receiver's side. */
static inline bool dp_cc_grants(const struct dp_cc_algo *algo)
{
	return algo && algo->on_request;
}

/* Makes a QP a user of the algorithm's receiver's side.  False: the algorithm has none, the port
 * has that of another algorithm, or there is no memory. */
bool dp_granting_join(struct dp_engine *, const struct dp_cc_algo *);
/* The QP no longer uses it. */
void dp_granting_leave(struct dp_engine *, struct dp_incoming *);
/* A DEMAND has come.  `in` is NULL with the first one.  Returns the flow; NULL: no memory. */
struct dp_incoming *dp_granting_demand(struct dp_qp *, struct dp_incoming *,
				       const struct dp_demand *, uint64_t now);
/* A packet with data has come; bytes: those that had not arrived before. */
void dp_granting_data(struct dp_incoming *, const struct dp_cc_data *, uint64_t now);
/* Whether the timer is that of the port. */
bool dp_granting_owns(const struct dp_engine *, const struct dp_timer *);
/* The port's timer has fired. */
void dp_granting_tick(struct dp_engine *, uint64_t now);
/* The first invariant that does not hold, in words, or NULL. */
const char *dp_granting_check(const struct dp_engine *);

#endif
