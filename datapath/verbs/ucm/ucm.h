/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RDMA-CM over our devices.  librdmacm talks to the kernel by commands that it writes to
 * /dev/infiniband/rdma_cm (rdma/rdma_user_cm.h); the descriptor is readable while events wait.
 * Here we answer in the kernel's place, so the system's librdmacm runs unchanged.
 * docs/adr/0007-rdma-cm.md has the reasons.
 *
 *   hook.c    leads librdmacm's own open(), write(), close() and fstat() here
 *   file.c    open descriptors: their events, and the table of commands
 *   id.c      ids (struct rdma_cm_id): create, destroy, move, query
 *   bind.c    addresses: bind, listen, resolve
 *   conn.c    connections: the commands of programs
 *   mcast.c   multicast groups
 *   events.c  turns events of the connection manager into events of ids
 *   qp.c      the attributes of a connection's QP
 *   kernel.c  the kernel's RDMA-CM, for real devices beside ours
 *   agent.c   the connection manager of a device, and its QP 1
 *   thread.c  the thread that serves the agents
 *
 * One lock, ucm_lock, covers all of it.  It is taken before the lock of a device.
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

/*
 * Redirects librdmacm's system calls to the functions below, if librdmacm is loaded.  May be called
 * any number of times.
 */
void ucm_take_over(void);

/* ---- what librdmacm calls in place of the system calls, with their meaning ---------------- */

int ucm_open(int flags);
ssize_t ucm_write(int fd, const void *, size_t);
int ucm_close(int fd); /* a channel, and its descriptor; as close() */
bool ucm_owns(int fd);

/* ---- shared; call with ucm_lock held ------------------------------------------------------- */

extern pthread_mutex_t ucm_lock;

struct ucm_agent;
struct ucm_id;

/* Values of enum rdma_cm_event_type.  Its header cannot be included beside the kernel's. */
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
	UCM_EVENT_USER = 18, /* that the program or librdmacm wrote by itself */
	UCM_EVENT_INTERNAL = 19,
};

struct ucm_event {
	struct ucm_event *next;
	struct ucm_id *id;	 /* owner, which counts the event when it is handed out */
	struct ucm_id *arrived;	 /* the new id of a connection request; otherwise NULL */
	struct ucm_group *group; /* the group joined, which counts the event too; or NULL */
	struct rdma_ucm_event_resp resp;
};

struct ucm_file {
	int fd;		 /* the program's descriptor: readable while events wait */
	int event_fd;	 /* readable while our events wait; the same as fd without a kernel_fd */
	int kernel_fd;	 /* the kernel's descriptor; -1: none */
	pid_t pid;	 /* process that opened it */
	uint64_t serial; /* counts from 1, because descriptor numbers are used again */
	struct ucm_event *first, **last;
	struct ucm_id *ids;
};

enum ucm_state {
	UCM_IDLE,
	UCM_BOUND,
	UCM_RESOLVING, /* resolves an address or a route */
	UCM_ADDR_RESOLVED,
	UCM_ROUTE_RESOLVED,
	UCM_LISTENING,
	UCM_CONNECTING, /* or has a request that waits for the program */
	UCM_CONNECTED,
	UCM_DISCONNECTED,
};

/* A service on a device.  An id that is bound to no address has one on each device. */
struct ucm_service {
	struct ucm_service *next;
	struct ucm_agent *agent;
	struct ucm_id *id;
	uint64_t service_id;
	struct dp_cm_service *service; /* NULL unless the id listens */
};

/* A multicast group that an id has joined. */
struct ucm_group {
	struct ucm_group *next;
	uint32_t handle;
	uint64_t uid; /* librdmacm's number */
	uint32_t events_reported;
};

struct ucm_id {
	uint32_t handle;
	uint64_t uid; /* librdmacm's number; 0: a request that the program has not accepted yet */
	uint16_t port_space;
	uint8_t qp_type;
	enum ucm_state state;
	struct ucm_file *file;
	struct ucm_id *next, **at; /* list of the file's ids */
	bool has_kernel;	   /* has a twin in the kernel */
	bool foreign;		   /* belongs to the kernel alone */
	uint32_t kernel_id;
	uint32_t events_reported;
	struct dp_addr src, dst; /* all zero: any */
	uint16_t src_port, dst_port;
	sa_family_t family;
	uint32_t scope; /* scope of an IPv6 link-local address */
	struct ucm_agent *agent;
	struct ucm_service *services;
	struct ucm_group *groups;
	struct dp_cm_conn *conn;
	uint32_t qkey;
	uint8_t tos;
	uint8_t ack_timeout; /* of its QP, if set; 0: none */
	bool ack_timeout_set;
	/* In state UCM_RESOLVING: */
	struct ucm_id *next_resolving;
	uint64_t resolve_until_ns;
	enum ucm_state resolved; /* state after the resolution */
};

enum {
	UCM_HANDLES_MAX = 1 << 16, /* as many as librdmacm can hold */
	UCM_ACK_TIMEOUT = 16,	   /* 268 ms: for QPs, unless the program sets another */
	UCM_RNR_TIMER = 0,	   /* 655 ms, which the kernel gives such QPs */
	UCM_RNR_TIMER_EVER = 12,   /* 0.64 ms: for peers that ask again for ever */
	UCM_RNR_EVER = 7,	   /* as number of retries */
	UCM_QKEY = 0x01234567,	   /* RDMA_UDP_QKEY */
	UCM_HOP_LIMIT = 64,
};

/* file.c */
int ucm_push(struct ucm_id *, struct ucm_event *);
/* Adds an event without data. */
int ucm_raise(struct ucm_id *, enum ucm_event_type, int status);
/* Removes the events of an id.  The new ids of connection requests among them go to `drop`. */
void ucm_purge(struct ucm_id *, void (*drop)(struct ucm_id *));
/* Removes the event of a group. */
void ucm_purge_group(struct ucm_id *, const struct ucm_group *);
void ucm_move_events(struct ucm_id *, struct ucm_file *to);
struct ucm_file *ucm_file_of(int fd);
/* Destroys all ids of this process. */
void ucm_end_all(void);

/* id.c */
int ucm_id_create(struct ucm_file *, struct ucm_id **out);
void ucm_id_destroy(struct ucm_id *);
struct ucm_id *ucm_id_find(const struct ucm_file *, uint32_t handle);
void ucm_id_move(struct ucm_id *, struct ucm_file *to);

/* Arguments of a command's handler: the command behind its header, and room for the response. */
struct ucm_command {
	struct ucm_file *file;
	const struct rdma_ucm_cmd_hdr *header;
	const void *in;
	void *out;
};

/* Of Linux 6.16, and not in older headers. */
enum { UCM_CMD_WRITE_EVENT = 24 };

struct ucm_write_event {
	uint32_t id, reserved;
	uint32_t event; /* enum ucm_event_type */
	uint32_t status;
	uint64_t arg; /* and room for the parameters of other events */
};

/* Each handles a command, and returns 0 or -errno. */
int ucm_create_id(const struct ucm_command *);
int ucm_destroy_id(const struct ucm_command *);
int ucm_migrate_id(const struct ucm_command *);
int ucm_query_route(const struct ucm_command *);
int ucm_set_option(const struct ucm_command *);
int ucm_write_event(const struct ucm_command *);
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
/* Sends the command to the id's twin.  id_at: offset of the id in the command. */
int ucm_kernel_forward(const struct ucm_id *, const struct rdma_ucm_cmd_hdr *, const void *in,
		       size_t id_at);
void ucm_kernel_create(struct ucm_id *);
/* Returns how many events the kernel has handed out for the id; 0 without a twin. */
uint32_t ucm_kernel_destroy(struct ucm_id *);
uint32_t ucm_kernel_migrate(struct ucm_id *, const struct ucm_file *to);
/* Returns -EAGAIN if there is no event. */
int ucm_kernel_event(struct ucm_file *, struct rdma_ucm_event_resp *out);

/* bind.c */
void ucm_stop_listening(struct ucm_id *);
void ucm_stop_resolving(struct ucm_id *);
/* Call in a child after fork(): the ids are the parent's. */
void ucm_forget_resolving(void);
/* Continues all resolutions.  Returns when it has to be called again. */
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
	uint64_t guid;	  /* in network order */
	uint8_t path_mtu; /* enum ibv_mtu */
	struct dp_cm *cm;
	struct dp_cm_stats told; /* its counters after the last call; under the device's lock */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffers;
	struct ucm_peer *peers; /* cached address handles, the most recently used first */
	uint32_t n_peers;
};

/* Returns the agent of a device, and opens the device if needed.  Returns 0 or -errno. */
int ucm_agent_open(struct front_device *, struct ucm_agent **out);
struct ucm_agent *ucm_agents(void);
/* Call in a child after fork(): forgets agents without closing what the parent has. */
void ucm_forget_agents(void);
/* Takes in and sends messages, and does what is due.  Returns when it has to be called again. */
uint64_t ucm_agent_serve(struct ucm_agent *, uint64_t now_ns);
/* Sends the messages that wait. */
void ucm_agent_flush(struct ucm_agent *);
/* Finds a route to the peer.  Returns -EAGAIN as long as it is not known. */
int ucm_agent_reach(struct ucm_agent *, const struct dp_addr *peer);

/*
 * Reserves a service id on the device's address for this process.  Returns -EADDRINUSE if another
 * id or process has it.
 */
int ucm_agent_claim(struct ucm_agent *, uint64_t service_id);
void ucm_agent_unclaim(struct ucm_agent *, uint64_t service_id);

/* Starts the thread, unless it runs. */
int ucm_thread_start(void);
/* Makes the thread wake when the descriptor, an agent's, becomes readable. */
int ucm_thread_watch(int fd);
/* Wakes the thread: a deadline may have come earlier. */
void ucm_thread_wake(void);
/* Call it when librdmacm has used a closed channel.  Does not return while another thread is in exit(). */
void ucm_thread_stop_late(void);

#pragma GCC visibility pop

#endif
