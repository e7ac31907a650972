/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The connection manager of InfiniBand (IBTA vol. 1, chapter 12): MADs and time in, MADs and
 * events out.
 *
 * Two ends agree on a reliable connection by REQ, REP and RTU, and end it by DREQ and DREP;
 * a datagram program asks by SIDR_REQ which QP answers for a service.  It knows no socket,
 * clock, thread or QP.  The caller brings MADs to dp_cm_rx() and takes those to be sent from
 * dp_cm_tx(), calls dp_cm_tick() when dp_cm_deadline() comes, and holds whatever lock keeps
 * two threads apart.
 *
 *   cm.c       the instance: communication ids, timers, messages that wait to be sent
 *   connect.c  what a program does with a connection, and the end of one
 *   request.c  requests that come in
 *   receive.c  all other messages that come in
 *   send.c     messages that go out
 *
 * States of a connection:
 *
 *   active    REQ_SENT -> REPLIED -> ESTABLISHED -> DREQ_SENT -> TIMEWAIT -> CLOSED
 *   passive   REQUESTED -> REP_SENT -> ESTABLISHED -> ...
 *             REQUESTED -> REJECTED
 *   datagram  SIDR_SENT -> CLOSED;  SIDR_REQUESTED -> SIDR_ANSWERED
 *
 * A request for a service that is not there waits for 134 ms before it is refused: programs agree
 * by one connection to make another, and then the client may be quicker than its server.
 *
 * REJECTED and SIDR_ANSWERED stay for a time, to answer a request again when the first answer
 * was lost.  A connection in DREQ_SENT, TIMEWAIT and these two lives on when its user has gone.
 *
 * Repeats.  REQ, REP, DREQ and SIDR_REQ are sent again until they are answered, after 134 ms at
 * first, then twice as long each time up to 1.07 s, 15 times (DREQ: from 34 ms on, 7 times,
 * because a peer that has gone does not answer).  A peer may name a longer time in
 * which it answers; it is not waited for, since a repeat that comes too early costs the peer
 * nothing but an MRA.  An MRA prolongs the wait by what it says; we send one when a repeat shows
 * that the peer waits for our program.  It says 1.07 s at first and then twice as long each time,
 * up to 69 s: after a long one, the loss of the message that follows would cost that time.
 */
#ifndef DP_CM_CM_H
#define DP_CM_CM_H

#include <stdbool.h>

#include "wire/mad.h"

struct dp_cm;
struct dp_cm_service;
struct dp_cm_conn;

enum {
	DP_CM_CONNS_MAX = 1 << 16,
	DP_CM_BACKLOG_MAX = 1024, /* requests of a service that wait for the program */
	DP_CM_PRIVATE_MAX = 224,
};

/* X(name, NAME): counters of a kind of message end in `name`; DP_CM_<NAME> is its attribute. */
#define DP_CM_MESSAGES(X)                                                                          \
	X(req, REQ)                                                                                \
	X(mra, MRA)                                                                                \
	X(rej, REJ)                                                                                \
	X(rep, REP)                                                                                \
	X(rtu, RTU)                                                                                \
	X(dreq, DREQ)                                                                              \
	X(drep, DREP)                                                                              \
	X(sidr_req, SIDR_REQ)                                                                      \
	X(sidr_rep, SIDR_REP)

/* X(name): all uint64_t.  Beside these there are tx_<message> and rx_<message> of each kind of
 * message, those sent and received again included. */
#define DP_CM_COUNTERS(X)                                                                          \
	X(rx_mads)                                                                                 \
	X(tx_mads)                                                                                 \
	X(retransmits)	   /* messages sent again, unasked */                                      \
	X(timeouts)	   /* messages that had no answer, repeats included */                     \
	X(duplicates)	   /* messages received again */                                           \
	X(drop_malformed)  /* not of the connection manager, or fields that contradict */          \
	X(drop_unknown_id) /* for a connection that is not there, or of another peer */            \
	X(drop_state)	   /* in a state that has no use for it */                                 \
	X(drop_backlog) /* requests beyond the backlog of a service, or all there is room for */   \
	X(rejects)	/* requests refused by ourselves */                                        \
	X(tx_no_room)	/* messages that found no room among those that wait to be sent */         \
	X(tx_unsent)	/* messages that the caller could not send */

struct dp_cm_stats {
#define X(name) uint64_t name;
	DP_CM_COUNTERS(X)
#undef X
#define X(name, attribute) uint64_t tx_##name, rx_##name;
	DP_CM_MESSAGES(X)
#undef X
};

struct dp_cm_config {
	struct dp_addr addr; /* ours */
	uint64_t guid;
	uint32_t id_prefix;   /* of all communication ids made here */
	uint32_t path_mtu;    /* longest that we take: value of enum ibv_mtu */
	uint32_t ack_timeout; /* of QPs, as in dp_qp_attr.timeout */
	uint64_t seed;	      /* for ids and PSNs */
};

int dp_cm_create(const struct dp_cm_config *, struct dp_cm **out);
void dp_cm_destroy(struct dp_cm *);
void dp_cm_stats(const struct dp_cm *, struct dp_cm_stats *out);
/* Connections, those that only live on included. */
uint32_t dp_cm_conns(const struct dp_cm *);
/* Connections that a program which ends should wait for: without a user, and the peer has not
 * answered our DREQ; or the peer's DREQ was answered a moment ago, and may come again. */
uint32_t dp_cm_farewells(const struct dp_cm *, uint64_t now_ns);
/* For tests: the first invariant that does not hold, in words, or NULL. */
const char *dp_cm_check(const struct dp_cm *);

/* ---- what ends tell each other ------------------------------------------------------ */

/* Of the end that sends it; what a REP has no field for is 0 there. */
struct dp_cm_param {
	uint32_t qpn;
	uint32_t qkey;		     /* datagrams */
	uint32_t psn;		     /* with which the *other* end's QP begins to send */
	uint8_t responder_resources; /* READs and atomics that it answers at a time... */
	uint8_t initiator_depth;     /* ...and that it asks for */
	uint8_t retry_count, rnr_retry;
	uint8_t flow_control, srq;
	uint8_t path_mtu; /* value of enum ibv_mtu */
	uint8_t ack_timeout;
	uint8_t traffic_class;
};

enum dp_cm_event_type {
	DP_CM_REQUESTED = 1, /* for a service: conn is new, and the service's user decides */
	DP_CM_REPLIED,	     /* active: the peer has accepted */
	DP_CM_ESTABLISHED,   /* passive: the peer is ready */
	DP_CM_REJECTED,	     /* status: enum dp_cm_reason */
	DP_CM_UNREACHABLE,   /* no answer */
	DP_CM_DISCONNECTED,  /* once, whoever began */
	DP_CM_TIMEWAIT_OVER,
	DP_CM_RESOLVED, /* datagram: status: enum dp_sidr_status; param has QPN and Q_Key */
};

struct dp_cm_event {
	enum dp_cm_event_type type;
	struct dp_cm_service *service; /* DP_CM_REQUESTED */
	struct dp_cm_conn *conn;
	uint32_t status;
	struct dp_cm_param param; /* REQUESTED, REPLIED, RESOLVED */
	uint16_t private_len;
	uint8_t private_data[DP_CM_PRIVATE_MAX];
};

/* ---- packets and time ------------------------------------------------------------------ */

struct dp_cm_mad {
	struct dp_addr to;
	uint8_t data[DP_MAD_LEN];
};

/* One MAD that came from `from`.  True: *out is an event. */
bool dp_cm_rx(struct dp_cm *, const uint8_t *mad, size_t len, const struct dp_addr *from,
	      uint64_t now_ns, struct dp_cm_event *out);
/* One thing that is due.  True: call again; *out is an event unless its type is 0. */
bool dp_cm_tick(struct dp_cm *, uint64_t now_ns, struct dp_cm_event *out);
uint64_t dp_cm_deadline(const struct dp_cm *);
/* The oldest MAD that waits to be sent. */
bool dp_cm_tx(struct dp_cm *, struct dp_cm_mad *out);
/* The MAD could not be sent.  It counts as lost, like one on the wire. */
void dp_cm_unsent(struct dp_cm *, const struct dp_cm_mad *);

/* ---- services ------------------------------------------------------------------------------ */

/* -EADDRINUSE: there is one. */
int dp_cm_listen(struct dp_cm *, uint64_t service_id, uint32_t backlog, void *user,
		 struct dp_cm_service **out);
/* Its connections that wait for the program are rejected with it, unless they were given
 * users of their own. */
void dp_cm_unlisten(struct dp_cm_service *, uint64_t now_ns);
void *dp_cm_service_user(const struct dp_cm_service *);

/* ---- connections ------------------------------------------------------------------------------ */

struct dp_cm_request {
	struct dp_addr to;
	uint64_t service_id;
	bool datagram; /* SIDR_REQ: of param, nothing is sent */
	struct dp_cm_param param;
	const void *private_data;
	uint32_t private_len;
};

/* All: -EINVAL: too much private data; -ENOTCONN: the connection's state has no use for it. */

/* -ENOMEM; -ENOBUFS: too many connections. */
int dp_cm_connect(struct dp_cm *, const struct dp_cm_request *, void *user, uint64_t now_ns,
		  struct dp_cm_conn **out);
/* REP to a request, or SIDR_REP. */
int dp_cm_accept(struct dp_cm_conn *, const struct dp_cm_param *, const void *private_data,
		 uint32_t private_len, uint64_t now_ns);
int dp_cm_reject(struct dp_cm_conn *, enum dp_cm_reason, const void *private_data,
		 uint32_t private_len, uint64_t now_ns);
/* Active: RTU.  Passive: as if one had come, since a packet of the peer's QP has. */
int dp_cm_ready(struct dp_cm_conn *, uint64_t now_ns);
int dp_cm_disconnect(struct dp_cm_conn *, uint64_t now_ns);
/* The user has no further interest: what is open is rejected or disconnected. */
void dp_cm_release(struct dp_cm_conn *, uint64_t now_ns);

void *dp_cm_conn_user(const struct dp_cm_conn *);
/* The program has looked at the request, which counts in the backlog no longer. */
void dp_cm_conn_seen(struct dp_cm_conn *);
void dp_cm_conn_set_user(struct dp_cm_conn *, void *user);

struct dp_cm_info {
	struct dp_addr peer;
	struct dp_cm_param local, remote;
	uint8_t path_mtu, ack_timeout, traffic_class; /* of the connection */
	bool active;
};

void dp_cm_conn_info(const struct dp_cm_conn *, struct dp_cm_info *out);

#endif
