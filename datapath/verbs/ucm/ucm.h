/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RDMA-CM over our devices.  librdmacm asks the kernel by writing commands to
 * /dev/infiniband/rdma_cm (rdma/rdma_user_cm.h), a descriptor that is readable while events
 * wait.  We answer in the kernel's place: the system's librdmacm runs unchanged above us.
 * docs/adr/0007-rdma-cm.md has the reasons.
 *
 *   hook.c    librdmacm's own open(), write(), close() and fstat() lead here
 *   file.c    an open descriptor: its events, and which command is whose
 *   id.c      ids (struct rdma_cm_id): made, ended, moved, asked
 *   bind.c    addresses: binding, listening, resolving
 *   conn.c    connections: what a program does with one
 *   mcast.c   multicast groups
 *   events.c  what the connection manager tells, as events of ids
 *   qp.c      the attributes of a connection's QP
 *   kernel.c  the kernel's RDMA-CM, for real devices beside ours
 *   agent.c   the connection manager of a device, and its QP 1
 *   thread.c  the thread that serves the agents
 *
 * One lock, ucm_lock, covers all of this.  It is taken before the lock of a device.
 */
#ifndef DP_VERBS_UCM_UCM_H
#define DP_VERBS_UCM_UCM_H

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/stat.h>

#include "cm/cm.h"
#include "io/addr.h"
#include "verbs/front.h"

#define UCM_NODE "/dev/infiniband/rdma_cm"

#pragma GCC visibility push(hidden)

/* From here on, librdmacm's calls lead here, if it has been loaded.  Any number of times. */
void ucm_take_over(void);

/* ---- what librdmacm calls, with the meaning of the system calls ------------------------ */

int ucm_open(int flags);
ssize_t ucm_write(int fd, const void *, size_t);
void ucm_close(int fd); /* before the descriptor is closed */
bool ucm_owns(int fd);

/* ---- shared, under the lock --------------------------------------------------------------- */

extern pthread_mutex_t ucm_lock;

struct ucm_agent;
struct ucm_id;

/* Values of enum rdma_cm_event_type, whose header does not go together with the kernel's. */
enum ucm_event_type {
	UCM_EVENT_ADDR_RESOLVED = 0,
	UCM_EVENT_ADDR_ERROR = 1,
	UCM_EVENT_ROUTE_RESOLVED = 2,
	UCM_EVENT_ROUTE_ERROR = 3,
	UCM_EVENT_CONNECT_REQUEST = 4,
	UCM_EVENT_CONNECT_RESPONSE = 5,
	UCM_EVENT_UNREACHABLE = 7,
	UCM_EVENT_REJECTED = 8,
	UCM_EVENT_ESTABLISHED = 9,
	UCM_EVENT_DISCONNECTED = 10,
	UCM_EVENT_MULTICAST_JOIN = 12,
	UCM_EVENT_TIMEWAIT_EXIT = 15,
};

struct ucm_event {
	struct ucm_event *next;
	struct ucm_id *id;	 /* whose it is, and which counts it when it is handed out */
	struct ucm_id *arrived;	 /* a connection request: the new id; else NULL */
	struct ucm_group *group; /* the group that was joined, which counts it then; else NULL */
	struct rdma_ucm_event_resp resp;
};

struct ucm_file {
	int fd;		 /* the program's: readable while events wait */
	int event_fd;	 /* the same, for events of ours; it is fd unless there is: */
	int kernel_fd;	 /* the kernel's; -1: none */
	pid_t pid;	 /* that opened it */
	uint64_t serial; /* from 1: descriptors are used again */
	struct ucm_event *first, **last;
	struct ucm_id *ids;
};

enum ucm_state {
	UCM_IDLE,
	UCM_BOUND,
	UCM_RESOLVING, /* an address or a route */
	UCM_ADDR_RESOLVED,
	UCM_ROUTE_RESOLVED,
	UCM_LISTENING,
	UCM_CONNECTING, /* also: a request that waits for the program */
	UCM_CONNECTED,
	UCM_DISCONNECTED,
};

/* A service on a device; an id that is bound to no address has one on each. */
struct ucm_service {
	struct ucm_service *next;
	struct ucm_agent *agent;
	struct ucm_id *id;
	uint64_t service_id;
	struct dp_cm_service *service; /* while it listens */
};

/* A multicast group that an id has joined. */
struct ucm_group {
	struct ucm_group *next;
	uint32_t handle;
	uint64_t uid; /* librdmacm's */
	uint32_t events_reported;
};

struct ucm_id {
	uint32_t handle;
	uint64_t uid; /* librdmacm's; 0: a request that was not accepted yet */
	uint16_t port_space;
	uint8_t qp_type;
	enum ucm_state state;
	struct ucm_file *file;
	struct ucm_id *next, **at; /* of the file */
	bool has_kernel;	   /* a twin in the kernel */
	bool foreign;		   /* it is the kernel's alone */
	uint32_t kernel_id;
	uint32_t events_reported;
	struct dp_addr src, dst; /* all zero: any */
	uint16_t src_port, dst_port;
	sa_family_t family;
	uint32_t scope; /* of an IPv6 link-local address */
	struct ucm_agent *agent;
	struct ucm_service *services;
	struct ucm_group *groups;
	struct dp_cm_conn *conn;
	uint32_t qkey;
	uint8_t tos;
	uint8_t ack_timeout; /* 0: the default */
	/* UCM_RESOLVING */
	struct ucm_id *next_resolving;
	uint64_t resolve_until_ns;
	enum ucm_state resolved; /* the state that follows */
};

enum {
	UCM_HANDLES_MAX = 1 << 16, /* as many as librdmacm can hold */
	UCM_ACK_TIMEOUT = 16,	   /* 268 ms: of QPs, unless the program says otherwise */
	UCM_RNR_TIMER = 12,	   /* 0.64 ms */
	UCM_QKEY = 0x01234567,	   /* RDMA_UDP_QKEY */
	UCM_HOP_LIMIT = 64,
};

/* file.c */
int ucm_push(struct ucm_id *, struct ucm_event *);
/* An event without data. */
int ucm_raise(struct ucm_id *, enum ucm_event_type, int status);
/* Forgets the events of an id.  Requests among them go to `drop`. */
void ucm_purge(struct ucm_id *, void (*drop)(struct ucm_id *));
/* Forgets the event of a group. */
void ucm_purge_group(struct ucm_id *, const struct ucm_group *);
void ucm_move_events(struct ucm_id *, struct ucm_file *to);
struct ucm_file *ucm_file_of(int fd);
/* Ends all ids of this process. */
void ucm_end_all(void);

/* id.c */
int ucm_id_create(struct ucm_file *, struct ucm_id **out);
void ucm_id_destroy(struct ucm_id *);
struct ucm_id *ucm_id_find(const struct ucm_file *, uint32_t handle);
void ucm_id_move(struct ucm_id *, struct ucm_file *to);

/* What a command's handler gets: the command behind its header, and room for the response. */
struct ucm_command {
	struct ucm_file *file;
	const struct rdma_ucm_cmd_hdr *header;
	const void *in;
	void *out;
};

/* Each returns 0 or -errno. */
int ucm_create_id(const struct ucm_command *);
int ucm_destroy_id(const struct ucm_command *);
int ucm_migrate_id(const struct ucm_command *);
int ucm_query_route(const struct ucm_command *);
int ucm_set_option(const struct ucm_command *);
int ucm_bind_ip(const struct ucm_command *);
int ucm_resolve_ip(const struct ucm_command *);
int ucm_resolve_route(const struct ucm_command *);
int ucm_listen(const struct ucm_command *);
int ucm_connect(const struct ucm_command *);
int ucm_accept(const struct ucm_command *);
int ucm_reject(const struct ucm_command *);
int ucm_disconnect(const struct ucm_command *);
int ucm_notify(const struct ucm_command *);
int ucm_init_qp_attr(const struct ucm_command *);
int ucm_join_ip(const struct ucm_command *);
int ucm_leave_group(const struct ucm_command *);

/* kernel.c */
int ucm_kernel_open(struct ucm_file *);
/* The command, to the id's twin.  id_at: where it names the id. */
int ucm_kernel_forward(const struct ucm_id *, const struct rdma_ucm_cmd_hdr *, const void *in,
		       size_t id_at);
void ucm_kernel_create(struct ucm_id *);
/* Events that the kernel has handed out for it; 0 without a twin. */
uint32_t ucm_kernel_destroy(struct ucm_id *);
uint32_t ucm_kernel_migrate(struct ucm_id *, const struct ucm_file *to);
/* -EAGAIN: there is none. */
int ucm_kernel_event(struct ucm_file *, struct rdma_ucm_event_resp *out);

/* bind.c */
void ucm_stop_listening(struct ucm_id *);
void ucm_stop_resolving(struct ucm_id *);
/* Goes on resolving; returns when it wants to be called again. */
uint64_t ucm_serve_resolving(uint64_t now_ns);

/* conn.c */
void ucm_fill_address(struct ib_uverbs_ah_attr *, const struct ucm_id *, const struct dp_addr *to);

/* mcast.c */
void ucm_leave_all(struct ucm_id *);

/* events.c */
void ucm_deliver(struct ucm_agent *, const struct dp_cm_event *);

/* ---- agents ---------------------------------------------------------------------------------- */

struct ucm_peer;

struct ucm_agent {
	struct ucm_agent *next;
	struct front_device *device;
	struct ibv_context *context;
	struct dp_device *dev;
	struct dp_addr addr;
	uint64_t guid;	  /* network order */
	uint8_t path_mtu; /* enum ibv_mtu */
	struct dp_cm *cm;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffers;
	struct ucm_peer *peers; /* address handles, the one used last in front */
	uint32_t n_peers;
};

/* The agent of a device, which is opened if it is not.  -errno. */
int ucm_agent_open(struct front_device *, struct ucm_agent **out);
struct ucm_agent *ucm_agents(void);
/* After fork(): what the parent has is not the child's. */
void ucm_forget_agents(void);
/* Brings messages in and out, and does what is due; returns when there is more. */
uint64_t ucm_agent_serve(struct ucm_agent *, uint64_t now_ns);
/* Sends what waits. */
void ucm_agent_flush(struct ucm_agent *);
/* A way to the peer: -EAGAIN: not yet known. */
int ucm_agent_reach(struct ucm_agent *, const struct dp_addr *peer);

/* A service id on a device's address, for one id of one process.  -EADDRINUSE. */
int ucm_agent_claim(struct ucm_agent *, uint64_t service_id);
void ucm_agent_unclaim(struct ucm_agent *, uint64_t service_id);

/* Starts the thread, if there is none. */
int ucm_thread_start(void);
/* Watches a descriptor that becomes readable when an agent has work. */
int ucm_thread_watch(int fd);
/* Something was done that may come due sooner than the thread knows. */
void ucm_thread_wake(void);

#pragma GCC visibility pop

#endif
