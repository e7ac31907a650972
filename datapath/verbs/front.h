/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The libibverbs front: what its files share.
 *
 *   symbols.txt, gensyms.py  the exported symbols; jumps for those that are only forwarded
 *   forward.c                calls into the real library
 *   export.c, newer.c, unsupported.c  symbols of our own: is the object ours or a real one?
 *   config.c, devices.c      DATAPATH_DEVICES, the device list, open and close
 *   place.c                  where a device is, without opening it
 *   context.c                an open device: operations, device and port attributes, GIDs
 *   objects.c                the objects of a context, and how they end
 *   domain.c                 PDs, parent domains
 *   memory.c, window.c       MRs; memory windows
 *   dmabuf.c, dm.c           MRs of DMA-BUFs; device memory
 *   ah.c, multicast.c        address handles; QPs in multicast groups
 *   qp.c, qp_attr.c          QPs; their attributes
 *   srq.c                    shared receive queues
 *   cq.c, cq_modify.c, wr.c, post.c  completions, the ibv_wr_* calls, ibv_post_*
 *   queue.c, channel.c       event descriptors; completion channels
 *   stats.c, series.c        counters as JSON, samples of QPs over time
 *   cc.c, direct.c           algorithms in use, and how a program changes them (dpdv.h)
 *   control.c                the same from outside, for dpctl cc set and of
 *   watch.c                  events of the port; serves control.c
 *   ucm/, rdmacm.c           RDMA-CM: answers librdmacm in the kernel's place
 *
 * Every object starts with the public struct of verbs.h, so that a cast leads from one to the
 * other; only struct front_qp ends with it.  Functions have the meaning and the return convention
 * of their verb: pointer and errno, or a positive errno.
 *
 * A context holds the objects that were made through it, and ends them when it is closed, as the
 * kernel does.
 */
#ifndef DP_VERBS_FRONT_H
#define DP_VERBS_FRONT_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#include "io/device.h"
#include "io/lock.h"
#include "verbs/config.h"
#include "verbs/forward.h"

#pragma GCC visibility push(hidden)

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

enum {
	/* "dp" as an OUI that nobody is given: its locally administered bit is set. */
	FRONT_VENDOR_ID = 0x026470,
	FRONT_PART_ID = 1,
	FRONT_PORT = 1, /* the only port */
	FRONT_SEND_FLAGS = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |
			   IBV_SEND_INLINE,
	FRONT_GIDS = 2,	     /* both are the port's address: see context.c */
	FRONT_GID_TABLE = 8, /* entries; those beyond FRONT_GIDS are empty */
	FRONT_CQE_MIN = 16,  /* room of a new CQ at least: see create_in_engine() */
	FRONT_CQE_MAX = 1 << 20,
	FRONT_OBJECTS_MAX = 1 << 16,
	FRONT_RESOLVE_MS = 3000,
	FRONT_DM_MAX = 1 << 20,	    /* bytes of device memory */
	FRONT_QUEUE_ALIGNMENT = 64, /* of memory that a parent domain allocates */
};

/* ---- event descriptors ------------------------------------------------------ */

struct front_event {
	void *object;	  /* struct front_cq, front_qp or front_srq; NULL: the port */
	int type;	  /* enum ibv_event_type; unused on a completion channel */
	uint32_t *popped; /* the object's count of events that were handed out */
};

/* A queue whose descriptor is readable while events wait. */
struct front_queue {
	int fd;
	pthread_mutex_t lock;
	struct front_event *ring;
	unsigned head, count, size;
	unsigned hidden; /* of the count: the descriptor does not count them */
};

int front_queue_init(struct front_queue *);
void front_queue_destroy(struct front_queue *);
void front_queue_push(struct front_queue *, const struct front_event *);
/* Waits for an event, unless the descriptor was made non-blocking.  Returns 0, or -1 with errno. */
int front_queue_pop(struct front_queue *, struct front_event *out);
bool front_queue_has(struct front_queue *);
/* From now on this thread serves the device to wait for an event of the queue; NULL: no more. */
void front_queue_serve(struct front_queue *);
/* Removes the events of an object that is being destroyed. */
void front_queue_purge(struct front_queue *, const void *object);

/* ---- devices and contexts ---------------------------------------------------- */

struct front_cc;
struct front_context;
struct front_control;
struct front_qp;
struct front_watch;
struct ucm_agent;

struct front_device {
	struct ibv_device ibv;
	struct dp_device_config config;
	struct dp_device *dev; /* NULL unless open */
	unsigned opens;	       /* number of contexts on dev */
	atomic_uint channels;  /* completion channels of the program */
	pid_t pid;	       /* process that opened it */
	struct front_cc *cc;   /* algorithm of QPs made from now on */
	/* Existing QPs that have a congestion control, in the order in which they were made. */
	struct front_qp *qps, **end;
	uint64_t qps_made;
	struct front_control *control; /* NULL: no socket, so dpctl cannot reach the device */
	struct front_watch *watch;
	pthread_mutex_t contexts_lock;
	struct front_context *contexts;
	struct front_stats *stats; /* also of earlier openings by this process */
	struct ucm_agent *agent;   /* its connection manager, NULL: none; under the device's lock */
	struct front_series *series; /* NULL: no samples are taken */
	atomic_size_t dm_lent;	     /* bytes of device memory in use */
	int index;
	struct front_device *next;
};

/* The first of our devices, in the order of DATAPATH_DEVICES; NULL: none. */
struct front_device *front_devices(void);
bool front_owns_device(const struct ibv_device *);
/* Fills in kind, netdev, ifindex, mac, addr and line_rate_bps.  Returns 0 or -errno. */
int front_find_place(const struct front_device *, struct dp_port_info *out);
__be64 front_guid_of(const struct dp_port_info *);
uint64_t front_rate_bps(const struct dp_port_info *);
__be64 front_device_guid(const struct front_device *); /* 0: there is no such place */
/* As ibv_get_device_index(): a number that the kernel gives to none of its devices. */
int front_device_index(const struct front_device *);
struct ibv_context *front_open_device(struct ibv_device *);
int front_close_device(struct ibv_context *);
/* Finds a QP by number, on that device (NULL: on any).  Returns 0, ENOENT or ENOTUNIQ. */
int front_find_qp(const char *device, uint32_t qpn, struct front_qp **out);

/* An object's place in a list of its context. */
struct front_object {
	struct front_object *next, **at;
};

struct front_context {
	struct front_device *device;
	struct dp_device *dev;
	pid_t pid; /* process that made it: a child after fork() leaves its parent's alone */
	struct front_queue async;
	uint32_t port_events_popped;
	struct front_context *next; /* of the device */
	/* existing objects, under verbs.context.mutex */
	struct front_object *pds, *mrs, *mws, *dms, *ahs, *channels, *cqs, *srqs, *qps;
	struct verbs_context verbs; /* last, because its struct ibv_context is last */
};

static inline struct front_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct front_context, verbs.context);
}

int front_context_create(struct front_device *, struct front_context **out);
void front_context_destroy(struct front_context *);

int front_poll_cq(struct ibv_cq *, int max, struct ibv_wc *);

/* A real context has operations of its own. */
static inline bool front_owns(const struct ibv_context *context)
{
	return context->ops.poll_cq == front_poll_cq;
}

/* Returns whether the descriptor is the cmd_fd of one of our contexts, or a duplicate of it. */
bool front_owns_fd(int fd);
int front_query_device(struct ibv_context *, struct ibv_device_attr *);
int front_query_device_ex(struct ibv_context *, const struct ibv_query_device_ex_input *,
			  struct ibv_device_attr_ex *, size_t len);
int front_query_port(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t len);
int front_query_gid_entry(struct ibv_context *, uint32_t port, uint32_t index,
			  struct ibv_gid_entry *);
int front_query_rt_values(struct ibv_context *, struct ibv_values_ex *);

/* ---- objects ------------------------------------------------------------------ */

struct front_pd {
	struct ibv_pd ibv;
	struct dp_pd *pd;
	struct front_object object;
	unsigned users; /* under the context's mutex; see domain.c */
	/* only in a parent domain: */
	struct front_pd *plain; /* its protection domain; NULL: this is no parent domain */
	void *(*alloc)(struct ibv_pd *, void *context, size_t, size_t alignment, uint64_t type);
	void (*free)(struct ibv_pd *, void *context, void *, uint64_t type);
	void *alloc_context;
};

static inline struct dp_pd *front_engine_pd(const struct ibv_pd *pd)
{
	return ((const struct front_pd *)pd)->pd;
}

struct front_ah {
	struct ibv_ah ibv;
	struct dp_ah *ah;
	uint32_t path_id; /* the port's route; the AH gives it back at its end */
	struct front_object object;
};

struct front_mr {
	struct ibv_mr ibv;
	struct dp_mr *mr;
	unsigned access; /* enum ibv_access_flags that the program asked for */
	void *mapping;	 /* the mapping of a DMA-BUF; NULL: none */
	size_t mapping_len;
	struct front_dm *dm; /* NULL: memory of the program */
	struct front_object object;
};

struct front_dm {
	struct ibv_dm ibv;
	uint8_t *memory;
	size_t len;
	pid_t pid;	   /* of the process that allocated it */
	atomic_uint users; /* the device memory itself, and its MRs */
	struct front_object object;
};

struct front_mw {
	struct ibv_mw ibv;
	struct dp_mr *mw;
	struct front_object object;
};

struct front_cq {
	struct ibv_cq_ex ex; /* starts as struct ibv_cq */
	struct dp_cq *cq;
	struct front_context *context;
	struct front_object object;
	uint32_t events_popped; /* events handed out: all have to be acknowledged */
	uint32_t async_popped;
	struct dp_wc wc;	/* the completion between start_poll and end_poll */
	struct dp_lock polling; /* held in between by the thread that polls... */
	bool one_thread;	/* ...unless the program has promised that there is one */
};

struct front_srq {
	struct ibv_srq ibv;
	struct dp_srq *srq;
	struct front_context *context;
	struct front_object object;
	uint32_t events_popped;
};

/* Requests between ibv_wr_start() and ibv_wr_complete(). */
struct front_batch {
	struct dp_lock lock; /* held from start to complete or abort */
	struct dp_send_wr *wrs;
	struct dp_sge *sges;  /* max_sge for each request */
	uint8_t *inline_data; /* max_inline for each request */
	uint32_t count, room, max_sge, max_inline;
	int err;
};

struct front_membership {
	struct dp_addr group;
	struct front_membership *next;
};

/* The fields of an address vector that a query needs beside the address. */
struct front_av {
	uint32_t flow_label;
	uint16_t dlid;
	uint8_t sgid_index, hop_limit, traffic_class, sl, src_path_bits, static_rate;
};

/* Small, as programs have many: nothing that struct ibv_qp or the engine knows. */
struct front_qp {
	struct dp_qp *qp;
	struct front_object object;
	struct ibv_qp_cap cap;
	uint32_t events_popped;
	void *queues; /* memory of the parent domain's allocator, for both queues; NULL: none */
	bool sq_sig_all, has_wr_ops; /* constant */
	/* under the device's lock: */
	bool has_path; /* av is set, and path_id a route of the port, which the QP gives back */
	struct front_av av;
	uint32_t path_id;
	uint32_t cc_changes; /* changes of algorithm since the QP was made */
	struct front_cc *cc;
	struct front_membership *groups;
	uint64_t number; /* counts the device's QPs, from 1 */
	struct front_qp *next, **at;
	/* Last: a QP without the ibv_wr_* calls has memory for struct ibv_qp, and no more. */
	struct ibv_qp_ex ex;
#if !DP_HAS_WR_FLUSH
	void (*wr_flush)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);
#endif
	struct front_batch batch;
};

static inline struct front_cq *to_cq(struct ibv_cq *cq)
{
	return (struct front_cq *)cq;
}

static inline struct front_qp *to_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct front_qp, ex.qp_base);
}

#define front_context_of(qp) to_context((qp)->ex.qp_base.context)

/* Sets errno and returns NULL. */
void *front_fail(int err);
/* Adds an object to a list of its context; removes it. */
void front_enter(struct ibv_context *, struct front_object **list, struct front_object *);
void front_leave(struct ibv_context *, struct front_object *);

/* Ends all objects of a context.  No other call on the context may be under way. */
void front_end_objects(struct front_context *);
/* An object ends in two steps.  Call the first one with the device locked. */
void front_end_qp(struct front_qp *);
void front_free_qp(struct front_qp *);
void front_give_back_path(struct front_qp *);
int front_end_ah(struct front_ah *); /* call with the device locked */
void front_free_cq(struct front_cq *);

struct ibv_pd *front_alloc_pd(struct ibv_context *);
int front_dealloc_pd(struct ibv_pd *);
struct ibv_pd *front_alloc_parent_domain(struct ibv_context *,
					 struct ibv_parent_domain_init_attr *);
struct ibv_td *front_alloc_td(struct ibv_context *, struct ibv_td_init_attr *);
int front_dealloc_td(struct ibv_td *);
/* Gets zeroed memory from the domain's allocator; *out is NULL if the domain has none. */
int front_domain_alloc(struct ibv_pd *, size_t bytes, void **out);
void front_domain_free(struct ibv_pd *, void *); /* NULL: does nothing */
struct ibv_mr *front_reg_mr(struct ibv_pd *, void *addr, size_t len, uint64_t iova,
			    unsigned access);
int front_dereg_mr(struct ibv_mr *);
int front_check_access(unsigned access);
/* Registers memory that is known to be mapped.  The MR is zeroed, except for what it owns. */
int front_mr_begin(struct front_mr *, struct ibv_pd *, const struct dp_range *, unsigned access);
void front_free_mr(struct front_mr *);
struct ibv_mr *front_reg_dmabuf_mr(struct ibv_pd *, uint64_t offset, size_t len, uint64_t iova,
				   int fd, unsigned access);
struct ibv_dm *front_alloc_dm(struct ibv_context *, struct ibv_alloc_dm_attr *);
int front_free_dm(struct ibv_dm *);
void front_dm_put(struct front_dm *);
struct ibv_mr *front_reg_dm_mr(struct ibv_pd *, struct ibv_dm *, uint64_t offset, size_t len,
			       unsigned access);
int front_rereg_mr(struct ibv_mr *, int flags, struct ibv_pd *, void *addr, size_t len,
		   unsigned access);

struct ibv_mw *front_alloc_mw(struct ibv_pd *, enum ibv_mw_type);
int front_dealloc_mw(struct ibv_mw *);
int front_bind_mw(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
/* Fills in a request to bind. */
void front_set_bind(struct dp_send_wr *, const struct ibv_mw *, uint32_t rkey,
		    const struct ibv_mw_bind_info *);

/*
 * Finds the address of the attributes, and a route of the port to it, which the caller gives back.
 */
int front_resolve(struct front_context *, const struct ibv_ah_attr *, struct dp_addr *,
		  uint32_t *path_id);
struct ibv_ah *front_create_ah(struct ibv_pd *, const struct ibv_ah_attr *);
int front_destroy_ah(struct ibv_ah *);
int front_init_ah_from_wc(struct ibv_context *, uint8_t port, const struct ibv_wc *,
			  const struct ibv_grh *, struct ibv_ah_attr *);
struct ibv_ah *front_create_ah_from_wc(struct ibv_pd *, const struct ibv_wc *,
				       const struct ibv_grh *, uint8_t port);

struct ibv_comp_channel *front_create_channel(struct ibv_context *);
int front_destroy_channel(struct ibv_comp_channel *);
int front_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **cq_context);
void front_ack_cq_events(struct ibv_cq *, unsigned n);
struct ibv_cq *front_create_cq(struct ibv_context *, int entries, void *cq_context,
			       struct ibv_comp_channel *, int vector);
struct ibv_cq_ex *front_create_cq_ex(struct ibv_context *, struct ibv_cq_init_attr_ex *);
int front_resize_cq(struct ibv_cq *, int entries);
int front_modify_cq(struct ibv_cq *, struct ibv_modify_cq_attr *);
int front_destroy_cq(struct ibv_cq *);
int front_req_notify_cq(struct ibv_cq *, int solicited_only);

struct ibv_srq *front_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
struct ibv_srq *front_create_srq_ex(struct ibv_context *, struct ibv_srq_init_attr_ex *);
int front_modify_srq(struct ibv_srq *, const struct ibv_srq_attr *, int mask);
int front_query_srq(struct ibv_srq *, struct ibv_srq_attr *);
int front_destroy_srq(struct ibv_srq *);
void front_free_srq(struct front_srq *);
int front_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);

struct ibv_qp *front_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
struct ibv_qp *front_create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
/* Makes the QP for management datagrams.  A device has one at a time. */
struct ibv_qp *front_create_gsi_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
int front_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int mask);
int front_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int mask, struct ibv_qp_init_attr *);
int front_destroy_qp(struct ibv_qp *);
int front_attach_mcast(struct ibv_qp *, const union ibv_gid *);
int front_detach_mcast(struct ibv_qp *, const union ibv_gid *);
void front_leave_groups(struct front_qp *); /* call with the device locked */
int front_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
int front_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
/* Translates a request; the result points into the original. */
struct dp_recv_wr front_recv_wr(const struct ibv_recv_wr *);
/* Sets the destination of a datagram. */
void front_set_receiver(struct dp_send_wr *, struct ibv_ah *, uint32_t qpn, uint32_t qkey);
void front_set_wr_ops(struct front_qp *);
void front_batch_destroy(struct front_qp *);

int front_get_async_event(struct ibv_context *, struct ibv_async_event *);
void front_ack_async_event(struct ibv_async_event *);

/* For exit handlers, which may run inside a call that a signal has interrupted. */
bool front_lock_within(pthread_mutex_t *, int timeout_ms);

/* Waits until the program has acknowledged `popped` events. */
void front_wait_acked(pthread_mutex_t *, pthread_cond_t *, const uint32_t *acked,
		      const uint32_t *popped);

/* Takes engine events of all devices.  The device is locked. */
void front_on_event(const struct dp_event *);

/* ---- congestion control ------------------------------------------------------------ */

/*
 * An algorithm, with a count of the QPs and devices that use it.  Here and below, NULL means a
 * constant window.
 */
struct front_cc {
	const struct dp_cc_algo *algo;
	void *library;
	unsigned users;
	dev_t file_dev; /* identity of the file when it was loaded */
	ino_t file_ino;
	struct timespec file_mtime;
	struct front_cc *next;
	char object[]; /* path */
};

/*
 * Loads a compiled algorithm, or finds it among those loaded.  Returns 0, or -errno with one line
 * for the user in `error`.  -EINVAL: the path is not absolute.  -ENOENT and other errors of the
 * file: it cannot be opened.  -EPERM: another user could have changed it.  -ENOEXEC: it holds no
 * algorithm.  -EPROTONOSUPPORT: it was compiled for another DP_CC_ABI.  -EBUSY: an older file of
 * this name is in use.
 */
int front_cc_load(const char *path, struct front_cc **out, char *error, size_t error_len);
struct front_cc *front_cc_hold(struct front_cc *);
/*
 * May be called with any lock held.  The next front_cc_sweep() unloads what nobody uses any more;
 * it must be called without locks.
 */
void front_cc_put(struct front_cc *);
void front_cc_sweep(void);
const char *front_cc_name(const struct front_cc *);
const char *front_cc_params(const struct front_cc *);
const char *front_cc_object(const struct front_cc *);

/* Call these with the device locked. */
bool front_has_cc(const struct front_qp *);
int front_cc_begin(struct front_qp *); /* gives a new QP the device's algorithm, if there is one */
int front_cc_set(struct front_qp *, struct front_cc *);
void front_qps_add(struct front_qp *);
void front_qps_remove(struct front_qp *);

/* ---- counters -------------------------------------------------------------------- */

struct front_stats *front_stats_create(const struct front_device *);
void front_stats_add_qp(struct front_stats *, struct front_qp *);
/* Keeps the last counters of a QP that is being destroyed.  Call with the device locked. */
void front_stats_remove_qp(struct front_stats *, struct front_qp *);
/* Writes "key": "value", quoted as JSON needs it. */
void front_put_string(FILE *, const char *key, const char *value);
/* Writes the counters of the device's connection manager as a JSON object: empty if no program has
 * used RDMA-CM.  Call with the device locked. */
void ucm_put_counters(FILE *, const struct front_device *);
/* Writes the file that DATAPATH_STATS asks for, if it is set. */
void front_stats_write(struct front_device *);
void front_stats_keep(struct front_stats *, struct dp_device *); /* before it is closed */

/* Starts the samples that DATAPATH_SERIES asks for.  Returns NULL if it asks for none, or if they
 * cannot be taken, which is reported on stderr. */
struct front_series *front_series_start(struct dp_device *, const char *device);
/* Call both with the device locked. */
void front_series_add_qp(struct front_series *, struct front_qp *);
void front_series_remove_qp(struct front_series *, const struct front_qp *);
/* Takes a last sample when the program ends. */
void front_series_flush(struct front_series *);
void front_series_stop(struct front_series *); /* while the device is still open */

#pragma GCC visibility pop

#endif
