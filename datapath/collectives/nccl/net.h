/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libnccl-net-dp: a network plug-in for NCCL and RCCL, over any verbs device.
 *
 *   plugin.c    the calls in the form of each version of the interface
 *   device.c    verbs devices, their properties, registered memory
 *   meet.c      listen, connect and accept: peers exchange what their QPs need, over TCP
 *   peer.c      QP, CQ and the TCP connection of a communicator; its end
 *   transfer.c  isend, irecv, test
 *
 * A communicator has one RC QP, and data goes one way.  irecv() sends an offer: where the buffers
 * of the group are.  isend() takes the buffer with its tag from the oldest offer, and WRITEs the
 * data into it, with an immediate that names offer and buffer.  So there are no copies, and a send
 * waits (without a request) for its receive.  The length of the WRITE is the size that the
 * receiver's test() tells.
 *
 * The TCP connection stays open.  The kernel closes that of a process that ends, so its peer
 * learns of it within a few calls of test().  A communicator that is closed in order says over TCP
 * how many messages it has completed: a peer whose last acknowledgement was lost knows from it
 * that its data came.
 *
 * Nothing here blocks, and there is no thread: the caller's calls make all progress.  A
 * communicator is used by one thread at a time, as NCCL does; memory may be registered by another.
 * Different communicators are independent of each other.
 */
#ifndef DP_NCCL_NET_H
#define DP_NCCL_NET_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/nccl/abi.h"
#include "posix/clock.h"

enum {
	NET_GROUP = 8, /* receives of a group */
	NET_OFFERS = NCCL_REQUESTS,
	NET_SENDS = NET_OFFERS * NET_GROUP,
	NET_SECRET_BYTES = 16,
	NET_MAX_BYTES = 1 << 30, /* of a transfer */
	NET_NAME_BYTES = 64,
};

/* ---- device.c ----------------------------------------------------------------------------- */

struct net_device {
	char name[NET_NAME_BYTES];
	char *pci_path; /* NULL: none */
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_port_attr port;
	struct ibv_device_attr attr;
	union ibv_gid gid;
	int gid_index;
	struct in_addr address; /* where listeners listen */
	int speed_mbps;
};

/* Opens the devices with the first call; each has its net_close_devices(). */
enum nccl_result net_open_devices(nccl_logger);
void net_close_devices(void);
int net_device_count(void);
struct net_device *net_device(int index); /* NULL: there is none */
enum nccl_result net_register(struct net_device *, void *data, size_t bytes, int pointer,
			      void **memory);
__attribute__((format(printf, 2, 3))) enum nccl_result net_fail(enum nccl_result,
								const char *format, ...);

/* ---- peer.c ------------------------------------------------------------------------------- */

/* Sent to the other end before data flows. */
struct net_hello {
	uint32_t magic;
	uint32_t qpn, psn;
	uint32_t mtu;
	uint8_t gid[16];
	uint32_t lid;
	uint8_t secret[NET_SECRET_BYTES]; /* from the handle */
	uint32_t traffic_class; /* of both ends, by the one that connects; one more, 0: undefined */
};

/* Sent by an end that is closed in order. */
struct net_farewell {
	uint32_t magic;
	uint32_t reserved;
	uint64_t completed; /* messages */
};

/* One buffer of an offer. */
struct net_buffer {
	uint64_t address, bytes;
	uint32_t rkey, tag;
};

struct net_offer {
	uint32_t sequence, n;
	struct net_buffer buffer[NET_GROUP];
};

struct net_request {
	struct net_comm *comm;
	bool used;
	uint32_t n, left; /* buffers; those that are not done */
	uint32_t bytes[NET_GROUP];
	bool came[NET_GROUP];
	uint32_t room[NET_GROUP];
	uint64_t number; /* sends, or offers, that went before it */
};

struct net_comm {
	struct net_device *device;
	bool sends;
	int fd; /* TCP to the peer */
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct net_hello own, theirs;
	enum nccl_result failed;
	char why[160];
	uint64_t looked_ns; /* when the TCP connection was looked at */
	struct net_farewell farewell;
	size_t farewell_bytes; /* received */

	struct net_offer *offer; /* NET_OFFERS, registered */
	struct ibv_mr *mr;
	bool busy[NET_OFFERS];			   /* the receiver's offer is on its way */
	struct net_request *under_way[NET_OFFERS]; /* receives with buffers that wait */
	struct net_offer ready[NET_OFFERS];	   /* the sender's copies */
	uint64_t offered;			   /* offers sent, or received */
	uint64_t head;		     /* of the sender: the oldest offer with a free buffer */
	uint32_t taken;		     /* buffers of it, as bits */
	uint64_t posted, completed;  /* messages */
	struct net_request *request; /* NET_SENDS of a sender, NET_OFFERS of a receiver */
	uint32_t requests;
};

/* *out has a QP that can receive; the caller owns fd until net_comm_connect(). */
enum nccl_result net_comm_make(struct net_device *, bool sends, struct net_comm **out);
/* With `theirs` set: the QP can send.  traffic_class: NCCL_UNDEFINED for none. */
enum nccl_result net_comm_connect(struct net_comm *, int traffic_class);
void net_comm_free(struct net_comm *);
/* Tells the peer how far this end has come, and frees. */
void net_comm_close(struct net_comm *);
/* Looks whether the peer has gone; sets `failed`. */
void net_comm_look(struct net_comm *);
__attribute__((format(printf, 3, 4))) enum nccl_result
net_comm_fail(struct net_comm *, enum nccl_result, const char *format, ...);

/* ---- meet.c ------------------------------------------------------------------------------- */

enum nccl_result net_listen(int device, void *handle, void **listener);
enum nccl_result net_connect(int device, int traffic_class, void *handle, void **comm);
enum nccl_result net_accept(void *listener, void **comm);
enum nccl_result net_close_listen(void *listener);

/* ---- transfer.c --------------------------------------------------------------------------- */

/* The sender's receives for offers. */
enum nccl_result net_post_offers(struct net_comm *);
enum nccl_result net_isend(struct net_comm *, void *data, size_t bytes, int tag, void *memory,
			   void **request);
enum nccl_result net_irecv(struct net_comm *, int n, void *const *data, const size_t *bytes,
			   const int *tags, void *const *memory, void **request);
enum nccl_result net_test(struct net_request *, int *done, int *bytes);
/* Takes what the CQ has. */
void net_progress(struct net_comm *);

#endif
