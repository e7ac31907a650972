/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dp-traffic: runs the rows of a traffic table whose src is this host.
 *
 *   main.c      options, and the life of a run
 *   schedule.c  the table, its connections, the report
 *   door.c      who may connect: callers that show the run's token
 *   manage.c    the hosts find each other, exchange records, start and end together
 *               (meet.c, words.c)
 *   pump.c      posting of messages at their times, and their completions
 *   orders.c    what becomes of flows while the run goes on, as somebody decides then
 *   verbs.c     messages as work requests of RC QPs (verbs_open.c, verbs_connect.c,
 *               verbs_memory.c)
 *   cm.c        those QPs connected by RDMA-CM
 *   tcp.c       messages over TCP, with an acknowledgement for each
 *   pattern.c   payload that can be compared
 *
 * One process stands for one host, one thread does everything.  Functions
 * return 0 or -errno; the first who knows what went wrong says so by complain().
 */
#ifndef DP_TRAFFIC_GENERATOR_H
#define DP_TRAFFIC_GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/flows.h"
#include "posix/clock.h"

enum {
	/* enum dp_wr_opcode and enum ibv_wr_opcode agree. */
	OP_WRITE = 0,
	OP_SEND = 2,
	OP_READ = 4,
	STATUS_GENERAL = 21, /* IBV_WC_GENERAL_ERR: of a failure without a work completion */
	HOSTS_MAX = 1024,
	CC_MAX = 64,	/* algorithms of --cc */
	QUEUE_MAX = 64, /* messages of several flows that one QP takes at once */
	TOKEN_BYTES = 16,
	RNR_FOREVER = 7, /* rnr_retry: any number of times */
	GREETING_MAX = 128,
};

#define NEVER UINT64_MAX
#define NONE UINT32_MAX
#define VERIFY_BYTES_MAX (2ULL << 30)

struct options {
	const char *table, *report;
	const char *ready;    /* file that tells that all hosts are ready; NULL: none */
	const char *zero;     /* file that tells the schedule's zero; NULL: host 0 names it */
	const char *progress; /* file that has run.result, as it is at the moment; NULL: none */
	const char *orders;   /* FIFO of struct dp_flow_order; NULL: none */
	const char *device;
	const char *tcp_cc;
	const char *cc[CC_MAX]; /* that rows name by their number */
	uint32_t n_cc;
	char **management, **address; /* of all hosts */
	uint32_t n_management, n_address;
	uint32_t host;
	uint16_t port;
	uint8_t token[TOKEN_BYTES]; /* what the hosts of this run know; zeros without --token */
	int gid_index;		    /* -1: the first IPv4 one */
	bool tcp, cm, verify;
	uint64_t spin_ns;     /* NEVER: never sleep */
	uint64_t deadline_ns; /* after the schedule's zero */
	uint64_t setup_ns;
	uint32_t retry_count, ack_timeout, rnr_retry; /* of RC QPs, as ibv_qp_attr has them */
};

/* A message that was posted and has not completed; a QP completes in order. */
struct message {
	uint64_t posted_ns;
	uint64_t number; /* of the connection, from 0 */
	uint32_t bytes;
	uint32_t flow; /* index into run.mine */
};

/* A flow of this host. */
struct flow {
	const struct dp_flow *row;
	uint64_t posted_bytes;
	uint32_t outstanding;
	uint32_t conn; /* index into run.conn */
	/* Indices into run.mine, or NONE: the first flow that waits for this one, and the next one
	 * that waits for the same. */
	uint32_t waits_first, waits_next;
	bool freed; /* the flow that it waits for has ended */
	bool held;  /* it waits for an order */
	bool ended;
};

/* One QP, or TCP connection, from src to dst.  Every host has the same array. */
struct conn {
	uint32_t src, dst, qp;
	uint32_t dscp;
	uint32_t limit;	      /* messages outstanding */
	uint32_t max_message; /* bytes */
	uint32_t opcode;
	uint32_t first, n_flows; /* of run.order, at the host src */
	uint32_t current;	 /* the flow that posts, less first */
	uint32_t head, tail;	 /* of ring, free-running */
	uint32_t mask;
	struct message *ring;
	uint64_t posted;  /* messages */
	uint64_t arrived; /* messages that arrived whole, where that can be seen */
	uint32_t cc;	  /* the algorithm that it was given last; 0: none */
	bool cc_ordered;  /* by an order: flows do not change it */
	bool failed, waiting;
};

/* The facts that one end of a connection tells the other. */
struct record {
	uint32_t conn, end; /* end 0: src */
	uint32_t qpn, psn;
	uint32_t rkey, mtu;
	uint64_t addr;
	uint8_t gid[16];
	uint32_t lid, reserved;
};

struct event {
	uint64_t at_ns;
	uint32_t index; /* of a conn (start) or a flow (stop) */
	bool stop;
	bool freed; /* the flow that a flow of the conn waits for has ended */
};

struct run;

struct transport {
	const char *name;
	/* Make the local half of every connection of this host; fill its records. */
	int (*open)(struct run *, struct record *records, uint32_t *n);
	/* Join the halves; `all` is indexed by 2 * conn + end. */
	int (*connect)(struct run *, const struct record *all);
	/* Hand over the message that was just put into the ring. */
	int (*post)(struct run *, struct conn *, const struct message *);
	/* Give a connection of this host another algorithm, one of opt.cc. */
	int (*set_cc)(struct run *, struct conn *, const char *cc);
	/* Move; how much was found, or -errno. */
	int (*poll)(struct run *);
	/* Ask to be woken through run.epoll_fd; 1: there is something already. */
	int (*arm)(struct run *);
	void (*counters)(struct run *, uint64_t *packets, uint64_t *retransmitted);
	void (*close)(struct run *);
};

extern const struct transport verbs_transport, tcp_transport;

struct run {
	struct options opt;
	const struct transport *transport;
	void *state; /* the transport's */

	/* schedule.c */
	const struct dp_flow_table *table;
	const struct dp_flow *row;
	size_t table_bytes;
	struct conn *conn;
	uint32_t n_conns;
	struct flow *mine;
	struct dp_flow_result *result; /* of mine */
	uint32_t n_mine;
	uint32_t *order;   /* mine, by connection and then in the order of the table */
	uint64_t *latency; /* DP_LATENCY_BUCKETS */
	uint64_t latency_min_ns, latency_max_ns, latency_sum_ns;

	/* door.c */
	uint32_t strangers; /* connections that were dropped */

	/* manage.c */
	int *peer; /* host 0: sockets of the others by number; others: [0] is host 0's */
	uint32_t n_done;
	uint64_t zero_ns; /* CLOCK_MONOTONIC */
	int epoll_fd;
	bool all_done;
	int orders_fd; /* orders.c; -1: there are none */

	/* pump.c */
	struct event *heap;
	uint32_t n_events;
	uint32_t remaining; /* flows of mine that have not ended */
	uint64_t now_ns;    /* after zero */
};

/* main.c */
__attribute__((format(printf, 2, 3))) int complain(int error, const char *format, ...);

/* schedule.c */
int schedule_load(struct run *);
int schedule_report(struct run *);
void schedule_free(struct run *);
static inline bool conn_out(const struct run *run, const struct conn *conn)
{
	return conn->src == run->opt.host;
}
static inline bool conn_in(const struct run *run, const struct conn *conn)
{
	return conn->dst == run->opt.host;
}
static inline bool conn_mine(const struct run *run, const struct conn *conn)
{
	return conn_out(run, conn) || conn_in(run, conn);
}
static inline uint32_t conn_outstanding(const struct conn *conn)
{
	return conn->head - conn->tail;
}

/* door.c */
struct addrinfo;
struct door;
int resolve(const char *address, uint16_t port, struct addrinfo **);
int token_read(const char *path, uint8_t token[TOKEN_BYTES]);
bool token_fits(const struct run *, const uint8_t token[TOKEN_BYTES]);
/* At a listening, non-blocking socket, which stays the caller's; NULL: no memory. */
struct door *door_open(struct run *, int listener, uint32_t greeting_bytes, uint32_t expected);
/* The socket of the next who has said a whole greeting with the token; -ETIMEDOUT. */
int door_next(struct door *, uint64_t until_ns, void *greeting);
void door_close(struct door *);

/* manage.c */
int manage_open(struct run *);
/* Everybody's bytes, of host 0 first; *all is the caller's to free. */
int manage_gather(struct run *, const void *mine, size_t bytes, void **all, size_t *total);
/* Until everybody has come here. */
int manage_barrier(struct run *);
int manage_start(struct run *);
int manage_done(struct run *);
int manage_poll(struct run *); /* without waiting: -ECONNRESET when a host went away */
int manage_watch(struct run *);
void manage_close(struct run *);

/* pump.c */
int pump_run(struct run *);
int pump_verify(struct run *);
/* The oldest message of a connection has completed. */
int pump_completed(struct run *, struct conn *);
/* The connection is of no more use; true: flows that had not ended have failed by it. */
bool pump_failed(struct run *, struct conn *, uint32_t status);

int pump_order(struct run *, const struct dp_flow_order *);

/* orders.c */
int orders_open(struct run *);
int orders_poll(struct run *); /* takes those that have come */

/* cm.c */
struct ibv_context;
struct ibv_qp;
struct ibv_qp_init_attr;
struct ibv_pd;
struct cm;
int cm_open(struct run *, struct cm **, struct ibv_context **);
/* Makes and connects the QPs of all connections of this host. */
int cm_connect(struct run *, struct cm *, struct ibv_pd *,
	       int (*attributes)(struct run *, uint32_t conn, struct ibv_qp_init_attr *),
	       struct ibv_qp **qp);
void cm_destroy_qps(struct cm *);
void cm_close(struct cm *);

/* pattern.c */
void pattern_fill(void *to, uint32_t conn, uint64_t number, uint64_t offset, size_t bytes);
/* -1: equal, else where the first difference lies. */
int64_t pattern_compare(const void *at, uint32_t conn, uint64_t number, uint64_t offset,
			size_t bytes);

#endif
