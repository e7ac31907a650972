/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libdpcoll: collectives over any verbs device, by plans.
 *
 * A communicator joins the processes (ranks) of a job.  Its thread moves data and reduces; calls
 * only hand work over and wait.  The collectives of a communicator run one after the other, in the
 * order in which they were started, which is the same on all ranks.  A process may have several
 * communicators.
 *
 * Functions return 0 or -errno; dpcoll_error() has the words.  When a peer is gone or silent, each
 * collective of the communicator ends with -ECONNABORTED, on every rank that is left, within
 * silence_ms and what the transport takes to tell.  The communicator is of no more use then.
 */
#ifndef DPCOLL_H
#define DPCOLL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct dpcoll;
struct dpcoll_plan;
struct dpcoll_work;

enum dpcoll_type {
	DPCOLL_INT8,
	DPCOLL_INT32,
	DPCOLL_INT64,
	DPCOLL_FLOAT16,
	DPCOLL_BFLOAT16,
	DPCOLL_FLOAT32,
	DPCOLL_FLOAT64,
	DPCOLL_UINT8,
	DPCOLL_TYPES,
};

enum dpcoll_op {
	DPCOLL_SUM,
	DPCOLL_PRODUCT,
	DPCOLL_MIN,
	DPCOLL_MAX,
	DPCOLL_OPS,
};

/* Zero means the default where one is named. */
struct dpcoll_config {
	uint32_t rank, ranks;
	/* Names of verbs devices, between commas: channel c takes the one c modulo their number.
	 * Ranks of a host share memory on all channels; if "shm" is among the names, on those
	 * channels alone whose turn it is.  "shm" by itself: there is no other host. */
	const char *device;
	const char *store_address; /* IPv4 address of rank 0, at which it listens */
	uint16_t store_port;
	const char *token;    /* shared by the job's processes: strangers do not know it */
	int32_t gid_index;    /* below 0: the first one of IPv4 and RoCE v2, or of IPv4 */
	uint32_t ack_timeout; /* of QPs, as in ibv_qp_attr: 14 */
	uint32_t retry_count; /* 7 */
	uint32_t meet_ms;     /* how long ranks wait for each other at first: 30000 */
	uint32_t silence_ms;  /* a peer that is silent for so long is gone: 2500 */
	uint32_t spin_us;     /* how long the thread polls before it sleeps: 0 */
	uint32_t node;	      /* 0: ranks of one network namespace share memory; else: those of one
				 machine that give the same number */
	int32_t store_fd;     /* of rank 0: a socket that listens at the address and port, which
				 stays the caller's; 0: it makes one */
	uint32_t flags;	      /* of enum dpcoll_flag */
};

/* iWARP devices have both, whatever the flags say. */
enum dpcoll_flag {
	DPCOLL_BY_CM = 1,	 /* RDMA-CM connects the QPs, and not what ranks tell each other */
	DPCOLL_NO_IMMEDIATE = 2, /* a WRITE and a SEND take the place of a WRITE with immediate */
};

#define DPCOLL_NODE_ALONE UINT32_MAX /* as node: shares memory with nobody */

/*
 * Joins a job, of which all ranks call this.  plans: which ranks will talk to each other follows
 * from them.  The plans that are used later need no more connections and no larger transfers.
 * On an error *out may be set all the same: for dpcoll_error(), and to be closed.
 */
int dpcoll_open(const struct dpcoll_config *, const void *const *plans, const size_t *plan_bytes,
		uint32_t n_plans, struct dpcoll **out);
/* Collectives that other threads still wait for end with -ECONNABORTED; those that nobody waits for
 * are let go of. */
void dpcoll_close(struct dpcoll *);
/* Before dpcoll_close(): it waits so long for the other ranks, in place of meet_ms. */
void dpcoll_hurry(struct dpcoll *, uint32_t ms);

/* Ends the collectives under way, here and on all other ranks, with -ECONNABORTED and these words
 * as the error.  The communicator is of no more use then. */
void dpcoll_abort(struct dpcoll *, const char *why);

/* The error in one line: rank, collective, step, QP and what the transport saw. */
const char *dpcoll_error(struct dpcoll *);

/* Takes a plan, which the Python side has proved, for use.  It lives until dpcoll_forget(), or as
 * long as the communicator, which is as good as before if the plan does not suit it. */
int dpcoll_plan(struct dpcoll *, const void *plan, size_t bytes, struct dpcoll_plan **out);
/* Lets go of a plan all of whose collectives have been waited for. */
void dpcoll_forget(struct dpcoll *, struct dpcoll_plan *);

/*
 * Starts a collective.  data: the plan's DATA, of which this rank's part is set; input: of an
 * all-to-all, memory that does not overlap data, else NULL.  Both stay as they are until
 * dpcoll_wait() has returned.  All ranks start the same collectives, with the same plans, types and
 * operations.  tag: a number that is to be the same on all ranks, too.  A rank that gets data of
 * another collective than its own fails.
 */
int dpcoll_start(struct dpcoll *, struct dpcoll_plan *, void *data, const void *input,
		 enum dpcoll_type, enum dpcoll_op, uint32_t tag, struct dpcoll_work **out);
/* Waits for the end of a collective, and lets go of it.  -ETIMEDOUT: it has not ended, and goes
 * on; call it again.  timeout_ms below 0: no limit. */
int dpcoll_wait(struct dpcoll_work *, int timeout_ms);

/* Writes the last events of the communicator to a file descriptor, oldest first. */
void dpcoll_record(struct dpcoll *, int fd);

/* Writes what this rank's steps of a plan took, over all collectives so far, which have all been
 * waited for: a line for each step, in the order of the plan.  A send counts until the peer's
 * transport has it, any other step from when it could have begun.  Before them a line says how
 * long the communicator's collectives took, and how long this process stood still meanwhile. */
void dpcoll_steps(const struct dpcoll *, const struct dpcoll_plan *, int fd);

/* Bytes of an item; 0: there is no such type. */
size_t dpcoll_type_bytes(enum dpcoll_type);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
