/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Grants on a connection (wire/credit.h): what the peer lets this end send, and what this end lets
 * the peer send.
 *
 * A sender that needs grants tells its demand when it may not send, repeats the DEMAND while no
 * more is granted, and goes on without grants when several DEMANDs find no answer.  So a peer that
 * has died, or has given up its algorithm, holds up nobody.
 */
#ifndef DP_ENGINE_RC_CREDIT_H
#define DP_ENGINE_RC_CREDIT_H

#include "engine/granting.h"
#include "engine/rc/rc.h"

/* The sender's side of one QP.  Bytes are totals, as in wire/credit.h. */
struct dp_credit {
	uint64_t sent, granted;
	uint64_t told;	    /* how much the last DEMAND wanted */
	uint64_t told_ns;   /* when `told` was first told; 0: it was answered, or repeated */
	uint64_t rtt_ns;    /* lowest time from a DEMAND to its GRANT; 0: not known */
	uint64_t ask_ns;    /* when the DEMAND is repeated; 0: no packet waits for a grant */
	uint8_t asked;	    /* DEMANDs since a grant let something through */
	uint8_t unanswered; /* DEMANDs in a row that found no answer */
	uint8_t dscp;	    /* of packets that are sent by grants; DP_GRANT_OWN_DSCP: the QP's */
	bool due;	    /* a DEMAND is to be sent */
	bool silent;	    /* the peer does not answer: nothing waits for it */
	/* of CREDITs: the newest one's number, how many came, and when the peer is told next */
	uint32_t number, heard;
	uint64_t report_ns;
};

/* The QP takes up its algorithm's receiver's side, if that has one. */
void dp_grants_open(struct dp_rc *);
/* The QP gives grants no longer. */
void dp_grants_close(struct dp_rc *);
/* The peer gives grants: from now on this end needs them. */
void dp_credit_open(struct dp_rc *);
void dp_credit_close(struct dp_rc *);
/* Nothing is in flight or to be sent any more. */
void dp_credit_stop(struct dp_rc *);
/* Whether grants allow a packet with `bytes` of payload. */
bool dp_credit_allows(struct dp_rc *, uint32_t bytes, uint64_t now);
/* A packet with `bytes` of payload leaves: gives it the DSCP of the grant that it leaves by. */
void dp_credit_sent(struct dp_rc *, uint32_t bytes, struct dp_packet *);
/* Granted and not sent yet. */
double dp_credit_left(const struct dp_rc *);
/* Handles a DEMAND, a GRANT or a CREDIT. */
void dp_credit_rx(struct dp_rc *, const struct dp_parsed *, uint64_t now);
/* A request has been handled that brought so many new bytes. */
void dp_grants_data(struct dp_rc *, const struct dp_parsed *, uint64_t bytes, bool marked,
		    uint64_t now);
/* Builds a GRANT or a CREDIT, or a DEMAND, that is due.  1: done; 0: none is. */
int dp_grants_tx(struct dp_rc *, struct dp_packet *);
int dp_credit_tx(struct dp_rc *, struct dp_packet *, uint64_t now);
void dp_credit_tick(struct dp_rc *, uint64_t now);
const char *dp_credit_check(const struct dp_rc *);

#endif
