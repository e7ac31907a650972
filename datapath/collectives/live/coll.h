/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The declarations that the files of libdpcoll share.
 *
 *   dpcoll.c    the library's calls
 *   plan.c      a plan's steps of this rank
 *   store.c     ranks meet, over TCP
 *   device.c    verbs devices, memory that peers write to
 *   connect.c   connections, and their QPs
 *   cm.c        QPs that RDMA-CM connects
 *   post.c      what is posted to QPs
 *   shm.c       connections by shared memory, inside a host
 *   progress.c  the thread: completions, messages, signs of life
 *   sleep.c     its sleep in between
 *   run.c       steps of the collective that runs
 *   reduce.c    sums and the like
 *   fail.c      errors, how others are told, the flight recorder
 *   bench.c     dp-collective, a program over the library
 *
 * A connection joins two ranks on a channel.  It is one RC QP on one of the devices or, between
 * ranks of a host, shared memory.  DATA goes by WRITE with immediate into one of the SLOTS of the
 * receiver, which copies or reduces it from there; then the slot is free, which CREDITs tell,
 * SLOTS / 2 at a time.  So a sender may be ahead of a receiver that has not begun the collective, by
 * SLOTS transfers.  In shared memory a copy stands for the WRITE, and a message for the immediate.
 * iWARP has no immediates: a SEND of eight bytes, the note, follows the WRITE on the same QP.  A note,
 * and a message of shared memory, also says how many bytes of DATA there are.
 *
 * Locks: `lock` guards the lists of work, each work's end, who waits for it, and the errors.  All
 * else belongs to the thread, once it runs.
 */
#ifndef DP_COLLECTIVES_COLL_H
#define DP_COLLECTIVES_COLL_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/live/dpcoll.h"
#include "collectives/live/plan.h"
#include "posix/clock.h"

enum {
	COLL_SLOTS = 8, /* COLL_SLOTS - COLL_CREDIT_EVERY + 1 is SLOTS of order.py */
	COLL_CREDIT_EVERY = COLL_SLOTS / 2,
	COLL_RECEIVES = 4 * COLL_SLOTS, /* of a QP: data, credits, one farewell */
	COLL_SENDS = 4 * COLL_SLOTS,
	COLL_DEVICES = 8,
	COLL_ERROR_BYTES = 512,
	COLL_ADDRESS_BYTES = 64,
	COLL_NAME_BYTES = 64,
	COLL_TOKEN_BYTES = 64,
	COLL_SECRET_BYTES = 16,
	COLL_EVENTS = 1024, /* of the flight recorder, a power of two */
	COLL_BATCH = 16,
};

/* The first byte of an immediate; the other three are a number. */
enum coll_message {
	COLL_DATA = 1, /* the collective and the step at the sender, see coll_data_number() */
	COLL_CREDIT,   /* slots freed so far */
	COLL_FAREWELL, /* the peer's communicator has failed, its error is in the mailbox */
	COLL_ALIVE,    /* no immediate: the counter of signs of life */
	COLL_GREETING, /* the first one of both ends, by RDMA-CM */
};

/* The first byte of a wr_id; the low 32 bits are a connection, and of a receive the 16 above them
 * say into which of its notes. */
enum coll_request {
	COLL_SENT = 1,
	COLL_TOLD, /* a credit, a sign of life, or a farewell */
	COLL_RECEIVED,
	COLL_BEFORE, /* a WRITE whose SEND follows: it has a completion only if it fails */
};

/* A rank's end of a connection, for its peer. */
struct coll_record {
	uint32_t peer, channel; /* whose end this is not, and of what */
	uint32_t qpn, psn;
	uint32_t rkey;
	uint32_t mtu;
	uint64_t slots;	  /* addresses, */
	uint64_t mailbox; /* of the error of a farewell */
	uint64_t alive;	  /* of a counter of signs of life */
	uint8_t gid[16];
	uint32_t lid;
	uint32_t used;
	uint32_t cm_address; /* IPv4, network byte order, and where it listens for RDMA-CM */
	uint16_t cm_port;
	uint16_t no_immediate; /* equal at both ends */
	uint8_t cm_secret[COLL_SECRET_BYTES];
};

/* A rank's own description, for all others, before there are connections. */
struct coll_identity {
	uint32_t conns, slot_bytes;  /* equal on all ranks, */
	uint32_t links, shared_at;   /* and so are these */
	uint64_t boot;		     /* of the machine; 0: not known */
	uint64_t processes, network; /* its PID and its network namespace */
	uint64_t nonce;		     /* the one in its memory, */
	uint64_t base, bytes;	     /* which has this address there */
	uint32_t pid, memory_fd, bell_fd;
	uint32_t node;
};

/* The memory that the peer of a connection writes to. */
struct coll_peer_memory {
	char mailbox[COLL_ERROR_BYTES];
	uint64_t alive;
	uint64_t messages;		 /* of shared memory so far, */
	uint64_t message[COLL_RECEIVES]; /* of which these are the last ones */
	uint64_t note[COLL_RECEIVES];	 /* of a QP without immediates: what came, */
	uint64_t own_note[COLL_SENDS];	 /* and what this rank sends from here */
};

/* The begin of a rank's memory. */
struct coll_shared {
	uint64_t nonce;
	uint32_t asleep; /* whoever writes a message rings the bell */
	uint32_t reserved[13];
};

/* A rank that shares this host's memory. */
struct coll_neighbour {
	uint32_t rank, pid;
	char *memory; /* its memory, in this process */
	size_t bytes;
	int bell; /* its pipe */
	bool gone;
};

struct coll_device {
	char name[COLL_NAME_BYTES];
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
	struct ibv_mr *mr; /* of the memory that peers write to */
	uint32_t unacked_events;
	bool by_cm, no_immediate;
	struct rdma_cm_id *listener;
	struct in_addr address;
	uint8_t secret[COLL_SECRET_BYTES]; /* callers have to know it */
};

/* DATA in a slot. */
struct coll_arrival {
	uint32_t number, bytes;
	uint64_t at_ns;
};

struct coll_conn {
	uint32_t peer, channel;
	uint32_t device; /* of the QP */
	struct ibv_qp *qp;
	struct rdma_cm_id *id; /* NULL: not by RDMA-CM */
	bool established, greeted;
	uint64_t greet_ns, greet_every_ns; /* of the end that calls */
	struct coll_neighbour *neighbour;  /* NULL: there is a QP */
	struct coll_record own, theirs;
	char *slots;
	struct coll_peer_memory *memory; /* the peer writes to it */
	char *far_slots;		 /* of shared memory: the peer's, */
	struct coll_peer_memory *far;	 /* and what it has of this rank */
	uint64_t messages_sent, messages_taken;
	uint64_t notes_sent;
	uint64_t posted, credits;     /* DATA sent; as much may have been */
	uint64_t arrived, taken;      /* DATA */
	uint64_t told;		      /* of `taken`, in credits */
	uint32_t outstanding;	      /* requests in the send queue */
	uint64_t seen_alive, seen_ns; /* the counter, and when the peer was heard of last */
	uint32_t watched;	      /* the peer's first connection: signs of life go there */
	bool leaving;		      /* a farewell is sent */
	/* of the collective that runs: places in its lane */
	uint32_t next_send, next_sent, next_take;
	struct coll_arrival arrival[COLL_SLOTS];
	uint64_t taken_ns; /* the last one */
};

/*
 * What a step took, over all collectives of its plan.  A send counts from its post until the peer's
 * transport has it all; any other step from when it could have begun (its bytes were there, and
 * what it waits for was done) until its bytes are in their place.
 */
struct coll_time {
	uint64_t from_ns; /* of the collective that runs */
	uint64_t count, sum_ns, longest_ns;
};

/* A step of this rank. */
struct coll_step {
	struct dp_plan_step row;
	uint32_t conn; /* DP_PLAN_NONE: a local step */
	uint32_t waits;
	uint32_t sender_step; /* RECEIVE, REDUCE */
	uint32_t first_after; /* after[first_after] ... wait for it, up to that of the next step */
	struct coll_time time;
};

/* Of a connection: its steps, in order. */
struct coll_lane {
	uint32_t *send, *take;
	uint32_t sends, takes;
};

struct dpcoll_plan {
	struct dpcoll_plan *next;
	struct dp_plan_head head;
	struct coll_step *step; /* n + 1 */
	uint32_t *after;
	uint32_t n;
	struct coll_lane *lane; /* by connection */
	uint32_t lanes;
	char *scratch;
	struct ibv_mr *scratch_mr[COLL_DEVICES];
};

struct dpcoll_work {
	struct dpcoll_work *next;
	struct dpcoll_work *beside, **at; /* in dpcoll's works */
	struct dpcoll *comm;
	struct dpcoll_plan *plan;
	char *buffer[DP_PLAN_BUFFERS];
	struct ibv_mr *mr[DP_PLAN_BUFFERS][COLL_DEVICES];
	enum dpcoll_type type;
	enum dpcoll_op op;
	uint32_t tag;
	uint64_t number; /* of the communicator's collectives */
	int status;
	bool ended;
};

struct coll_event {
	uint64_t at_ns;
	const char *what;
	uint32_t conn;
	uint64_t number;
};

struct dpcoll {
	struct dpcoll_config cfg;
	char address[COLL_ADDRESS_BYTES], token[COLL_TOKEN_BYTES];
	struct coll_device device[COLL_DEVICES];
	uint32_t n_devices;
	struct rdma_event_channel *cm;
	struct ibv_context **cm_contexts;
	uint32_t links, shared_at; /* names given, and which of them is shared memory */
	char *memory;		   /* coll_shared, slots, and what peers tell */
	size_t memory_bytes;
	int memory_fd, bell[2];
	struct coll_shared *shared; /* in memory */
	struct coll_neighbour *neighbour;
	uint32_t n_neighbours;
	struct pollfd *wait; /* what the thread sleeps on */
	uint64_t *alive;     /* in memory: our counter, which goes to peers */
	char *farewell;	     /* in memory: our error, which goes to peers */
	uint32_t slot_bytes;
	struct coll_conn *conn;
	uint32_t n_conns;
	struct dpcoll_plan *plans;

	pthread_t thread;
	bool running;
	int wake_fd, store_fd;
	int *store_peer;	  /* of rank 0: sockets of the others; store_fd listens */
	uint64_t now_ns, idle_ns; /* idle_ns: until then the thread polls */
	uint64_t beat_ns;	  /* when signs of life go out next */
	uint64_t begun_ns;	  /* the collective that runs */
	uint64_t busy_ns;	  /* of collectives so far, */
	uint64_t still_ns;	  /* in which this process stood still for so long */

	struct dpcoll_work *work; /* the one that runs, */
	uint8_t digest;		  /* which differs where a rank runs another one */
	uint32_t *waits;	  /* of its steps */
	uint32_t left;		  /* steps */
	uint32_t *todo;		  /* local steps that may run */
	uint32_t n_todo, waits_room;
	bool *stirred;		  /* connections to look at */
	struct coll_conn *parted; /* the first on which a farewell has come */

	pthread_mutex_t lock;
	pthread_cond_t ended;
	struct dpcoll_work *first, *last; /* not begun */
	uint64_t started;
	bool leaving; /* dpcoll_close() has been called: others may have left */
	bool closing;
	int failed; /* -errno */
	char error[COLL_ERROR_BYTES];
	char refusal[COLL_ERROR_BYTES]; /* of the last call that was refused */
	struct dpcoll_work *works;	/* that nobody has let go of */
	uint32_t waiters;		/* threads in dpcoll_wait() */

	struct coll_event event[COLL_EVENTS];
	uint64_t events;
};

/* Whether a peer's signs of life go over this connection to it. */
static inline bool coll_is_watched(const struct dpcoll *comm, const struct coll_conn *conn)
{
	return conn == &comm->conn[conn->watched];
}

static inline uint32_t coll_imm(enum coll_message kind, uint64_t number)
{
	return (uint32_t)kind << 24 | ((uint32_t)number & 0xffffff);
}

/* The number of DATA: by it a receiver finds out that ranks run different collectives. */
static inline uint32_t coll_data_number(const struct dpcoll *comm, uint32_t senders_step)
{
	return (uint32_t)comm->digest << 16 | (senders_step & 0xffff);
}

/* A note, or a message of shared memory: an immediate, and the bytes of DATA. */
static inline uint64_t coll_with_length(uint32_t immediate, uint32_t bytes)
{
	return (uint64_t)bytes << 32 | immediate;
}

#define COLL_DIGEST_OF_NOTHING 14695981039346656037u

/* FNV-1a, after the digest of what comes before. */
static inline uint64_t coll_digest(uint64_t digest, const void *data, size_t bytes)
{
	for (const uint8_t *at = data; bytes--; at++)
		digest = (digest ^ *at) * 1099511628211u;
	return digest;
}

/* plan.c */
/* The whole plan, checked as far as C relies on it; NULL: it is refused. */
const struct dp_plan_head *coll_plan_head(struct dpcoll *, const void *plan, size_t bytes);
const struct dp_plan_step *coll_plan_steps(const struct dp_plan_head *);
int coll_plan_make(struct dpcoll *, const struct dp_plan_head *, struct dpcoll_plan **out);
void coll_plan_free(struct dpcoll_plan *);

/* store.c */
/* All ranks hand in a record, and get those of all: `all` has room for ranks * bytes. */
int coll_store_open(struct dpcoll *);
int coll_store_exchange(struct dpcoll *, const void *own, void *all, uint32_t bytes);
/* Returns when all ranks have called it. */
int coll_store_meet(struct dpcoll *);
void coll_store_close(struct dpcoll *);

/* device.c */
int coll_devices_open(struct dpcoll *);
void coll_devices_close(struct dpcoll *);
/* Memory of all connections, and the CQs. */
int coll_devices_prepare(struct dpcoll *);
/* Registers memory that this rank sends from with all devices; 0 or -errno. */
int coll_register(struct dpcoll *, void *, size_t bytes, struct ibv_mr *mr[COLL_DEVICES]);
void coll_deregister(struct ibv_mr *mr[COLL_DEVICES]);

/* connect.c */
/* The connections that plans need. */
int coll_find_connections(struct dpcoll *, const void *const *plans, const size_t *bytes,
			  uint32_t n);
struct coll_conn *coll_conn_of(struct dpcoll *, uint32_t peer, uint32_t channel);
int coll_connect(struct dpcoll *);
struct ibv_qp_init_attr coll_qp_attributes(const struct coll_device *);
void coll_disconnect(struct dpcoll *);
/* The two ends in words, such as "QP 0x12 to QP 0x34"; `towards` is the word in the middle. */
void coll_conn_name(const struct coll_conn *, const char *towards, char *out, size_t bytes);

/* cm.c */
/* The context that RDMA-CM has of a device, whose QPs it will connect. */
int coll_cm_open(struct dpcoll *, struct coll_device *);
/* Listens at the address of a device. */
int coll_cm_listen(struct dpcoll *, struct coll_device *);
/* Connects all QPs of such devices.  Of two ranks the one with the lower number calls. */
int coll_cm_connect(struct dpcoll *);
void coll_cm_disconnect(struct coll_conn *);
void coll_cm_close(struct dpcoll *);

/* post.c */
/* All receives of a new QP. */
int coll_post_receives(struct dpcoll *, struct coll_conn *);
int coll_post_receive(struct dpcoll *, struct coll_conn *, uint32_t note);
int coll_post_step(struct dpcoll *, struct coll_conn *, const struct coll_step *);
int coll_post_message(struct dpcoll *, struct coll_conn *, enum coll_message, uint64_t number);
/* What a received completion says, as coll_with_length(). */
uint64_t coll_said(const struct coll_conn *, const struct ibv_wc *);

/* shm.c */
int coll_shared_identity(struct dpcoll *, struct coll_identity *own);
/* Opens the memory and the bells of all ranks of this host that there are connections to; false:
 * of some it cannot. */
bool coll_shared_reach(struct dpcoll *, const struct coll_identity *all);
void coll_shared_leave(struct dpcoll *);
/* NULL: they share no memory. */
struct coll_neighbour *coll_shared_with(struct dpcoll *, uint32_t peer);
int coll_shared_connect(struct dpcoll *, struct coll_conn *, const struct coll_identity *peer);
void coll_shared_message(struct coll_conn *, uint64_t message);
/* 1: there was a message. */
int coll_shared_receive(struct dpcoll *, struct coll_conn *, uint64_t *message);
/* Whether this rank may sleep: from now on peers ring its bell. */
bool coll_shared_doze(struct dpcoll *);
void coll_shared_wake(struct dpcoll *);

/* sleep.c */
/* Sleeps until something happens, but for signs of life; 0 or -errno. */
int coll_sleep(struct dpcoll *);

/* progress.c */
int coll_thread_start(struct dpcoll *);
void coll_thread_stop(struct dpcoll *);
void coll_wake(struct dpcoll *);
/* Moves what has arrived; how much it was, or -errno. */
int coll_poll(struct dpcoll *);

/* run.c */
int coll_run_begin(struct dpcoll *, struct dpcoll_work *);
/* Posts, takes and runs what can be, for some milliseconds.  1: there is more. */
int coll_run_on(struct dpcoll *);
/* The oldest DATA of a connection has been delivered. */
void coll_run_sent(struct dpcoll *, struct coll_conn *);
/* A step in words. */
void coll_step_name(const struct dpcoll *, const struct coll_conn *, bool sends, char *out,
		    size_t bytes);
void coll_run_end(struct dpcoll *, int status);
int coll_tell(struct dpcoll *, struct coll_conn *, enum coll_message, uint64_t number);

/* reduce.c */
void coll_combine(enum dpcoll_type, enum dpcoll_op, void *to, const void *from, size_t bytes);

/* fail.c */
/* Sets the error, if there is none yet; returns its errno below 0. */
__attribute__((format(printf, 3, 4))) int coll_fail(struct dpcoll *, int error, const char *, ...);
/* The words of a call that changes nothing, without harm to the communicator; returns the same. */
__attribute__((format(printf, 3, 4))) int coll_refuse(struct dpcoll *, int error, const char *,
						      ...);
/* For other threads than the communicator's, and for it: dpcoll_abort() may have been called. */
bool coll_has_failed(struct dpcoll *);
/* Tells the peers why the communicator has failed. */
void coll_bid_farewell(struct dpcoll *);
/* Ends all work with the communicator's error. */
void coll_end_all(struct dpcoll *);
void coll_note(struct dpcoll *, const char *what, const struct coll_conn *, uint64_t number);

#endif
