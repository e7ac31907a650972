/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the files of the connection manager. */
#ifndef DP_CM_IMPL_H
#define DP_CM_IMPL_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm.h"
#include "wire/headers.h"

/* Times are 4.096 us * 2^n, as in the messages. */
enum {
	CM_RESPONSE_TIMEOUT = 15, /* 134 ms: in which we promise an answer, and repeat */
	CM_REPEAT_MAX = 18,	  /* 1.07 s: the longest time between repeats */
	CM_RETRIES = 15,	  /* the most that a REQ can name */
	CM_PARTING_TIMEOUT = 13,  /* 34 ms: the same for a DREQ, */
	CM_PARTING_RETRIES = 7,	  /* since a peer that has gone does not answer */
	CM_PARTING = 15,	  /* 134 ms: a program stays to answer a DREQ again */
	CM_GRACE = 15,		  /* 134 ms: a request waits for its service */
	CM_UNSERVED_MAX = 64,	  /* requests that do */
	CM_SERVICE_FIRST = 18,	  /* 1.07 s: in which our program answers, says the first MRA, */
	CM_SERVICE_MAX = 24,	  /* 69 s: and each next one twice as long, up to this */
	CM_LINGER = 21,		  /* 8.6 s: a peer may send a request again that was answered */
	CM_TIMEWAIT_MAX = 19,	  /* 2.1 s, whatever a peer says of its path */
	CM_HOP_LIMIT = 64,
	CM_TX_MAX = 4096, /* MADs that wait to be sent; one more is lost */
	CM_BUCKETS = 1024,
};

static inline uint64_t cm_time_ns(uint32_t n)
{
	return UINT64_C(4096) << (n & 31);
}

enum conn_state {
	CONN_CLOSED,
	CONN_REQ_SENT,
	CONN_REPLIED,
	CONN_REQUESTED,
	CONN_REP_SENT,
	CONN_ESTABLISHED,
	CONN_DREQ_SENT,
	CONN_TIMEWAIT,
	CONN_REJECTED,
	CONN_SIDR_SENT,
	CONN_SIDR_REQUESTED,
	CONN_SIDR_ANSWERED,
	CONN_UNSERVED, /* a request for a service that may be about to come */
};

struct dp_cm_conn {
	struct dp_cm *cm;
	void *user;
	bool held;   /* by a user, or waiting for one as a new request */
	bool active; /* made by dp_cm_connect() */
	bool datagram;
	bool leaving; /* its DREQ came when its RTU had not: the user is told of both */
	enum conn_state state;
	uint32_t id;	    /* ours; 0 is none */
	uint32_t remote_id; /* of the peer, or its request id */
	bool known;	    /* the peer's id and QPN are */
	struct dp_addr peer;
	uint64_t tid;
	uint64_t service_id;
	struct dp_cm_param local, remote;
	uint8_t path_mtu, ack_timeout, traffic_class;
	struct dp_cm_service *service;	      /* while it counts in its backlog */
	struct dp_cm_conn *next_id, *next_qp; /* in their buckets, once `known` */
	uint64_t due_ns;		      /* DP_NEVER: nothing */
	uint32_t heap_at;		      /* in the heap of timers, if due */
	uint32_t tries;
	uint32_t mras;		 /* that were sent */
	uint64_t parted_ns;	 /* when a DREQ was answered; 0: never */
	uint8_t mad[DP_MAD_LEN]; /* the last message, to be sent again */
};

struct dp_cm_service {
	struct dp_cm *cm;
	struct dp_cm_service *next;
	void *user;
	uint64_t service_id;
	uint32_t backlog, waiting;
};

struct slot {
	struct dp_cm_conn *conn;
	uint8_t generation; /* in the id, so that one given up is not soon another's */
};

struct dp_cm {
	struct dp_cm_config cfg;
	struct dp_cm_stats stats;
	uint64_t rng;
	struct slot *slots; /* by the low 16 bits of an id */
	uint32_t n_slots, next_slot, n_conns, n_unserved;
	struct dp_cm_conn *by_id[CM_BUCKETS]; /* peer and remote_id */
	struct dp_cm_conn *by_qp[CM_BUCKETS]; /* peer and remote.qpn */
	struct dp_cm_conn **heap;	      /* of those that are due, the first one first */
	uint32_t n_heap, heap_cap;
	struct dp_cm_service *services;
	struct dp_cm_mad *tx; /* a ring */
	uint32_t tx_head, tx_count, tx_cap;
};

/* cm.c */
uint64_t cm_random(struct dp_cm *);
int cm_conn_create(struct dp_cm *, struct dp_cm_conn **out);
void cm_conn_free(struct dp_cm_conn *);
struct dp_cm_conn *cm_find(struct dp_cm *, uint32_t id);
/* By the peer's id; requests of datagrams have ids of their own. */
struct dp_cm_conn *cm_find_remote(struct dp_cm *, const struct dp_addr *peer, uint32_t remote_id,
				  bool datagram);
/* One that is established. */
struct dp_cm_conn *cm_find_qp(struct dp_cm *, const struct dp_addr *peer, uint32_t qpn);
/* Once remote.qpn is there. */
void cm_set_remote(struct dp_cm_conn *, uint32_t remote_id);
struct dp_cm_service *cm_find_service(struct dp_cm *, uint64_t service_id);
void cm_due(struct dp_cm_conn *, uint64_t due_ns);
void cm_queue(struct dp_cm *, const struct dp_addr *to, const uint8_t *mad);
/* Counts a message by its kind. */
void cm_count(struct dp_cm *, const uint8_t *mad, bool received, int by);
/* It waits for its program no longer. */
void cm_leave_backlog(struct dp_cm_conn *);

/* A message that came in. */
struct cm_message {
	const uint8_t *mad;
	const struct dp_addr *from;
	uint64_t tid;
	uint64_t now;
	bool late; /* it has waited for its service */
};

static inline uint32_t cm_get(const struct cm_message *m, uint32_t field)
{
	return (uint32_t)dp_cm_get(m->mad, field);
}

static inline uint8_t cm_get8(const struct cm_message *m, uint32_t field)
{
	return (uint8_t)dp_cm_get(m->mad, field);
}

/* True: somebody wants the event. */
static inline bool cm_raise(struct dp_cm_event *out, struct dp_cm_conn *c,
			    enum dp_cm_event_type type)
{
	out->type = type;
	out->conn = c;
	return c->held;
}

/* receive.c */
void cm_copy_private(struct dp_cm_event *, const struct cm_message *);

/* request.c: as dp_cm_rx() */
bool cm_rx_req(struct dp_cm *, const struct cm_message *, struct dp_cm_event *out);
bool cm_rx_sidr_req(struct dp_cm *, const struct cm_message *, struct dp_cm_event *out);
/* A request that waited for its service. */
bool cm_serve_late(struct dp_cm_conn *, uint64_t now, struct dp_cm_event *out);

/* connect.c */
/* Ends; whoever nobody holds is gone afterwards. */
void cm_close(struct dp_cm_conn *);
void cm_enter_timewait(struct dp_cm_conn *, uint64_t now);
void cm_send_dreq(struct dp_cm_conn *, uint64_t now);

/* send.c: messages of a connection, kept to be sent again... */
int cm_make_req(struct dp_cm_conn *, const void *private_data, uint32_t len);
int cm_make_rep(struct dp_cm_conn *, const void *private_data, uint32_t len);
int cm_make_rej(struct dp_cm_conn *, enum dp_cm_message about, enum dp_cm_reason,
		const void *private_data, uint32_t len);
int cm_make_sidr_req(struct dp_cm_conn *, const void *private_data, uint32_t len);
int cm_make_sidr_rep(struct dp_cm_conn *, enum dp_sidr_status, const void *private_data,
		     uint32_t len);
void cm_make_dreq(struct dp_cm_conn *);
void cm_make_rtu(struct dp_cm_conn *);
void cm_send(struct dp_cm_conn *);
/* ...and after a time, until there is an answer. */
void cm_send_until_answered(struct dp_cm_conn *, uint64_t now);
void cm_arm_repeat(struct dp_cm_conn *, uint64_t now);
/* ...sent once. */
void cm_send_mra(struct dp_cm_conn *, enum dp_cm_message about);
void cm_send_drep(struct dp_cm *, const struct dp_addr *to, uint64_t tid, uint32_t local_id,
		  uint32_t remote_id);
void cm_refuse_req(struct dp_cm *, const uint8_t *req, const struct dp_addr *to, enum dp_cm_reason);
void cm_refuse_rep(struct dp_cm *, const uint8_t *rep, const struct dp_addr *to);
void cm_refuse_sidr(struct dp_cm *, const uint8_t *req, const struct dp_addr *to);

#endif
