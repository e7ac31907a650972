// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A communicator: its QP and CQ, its TCP connection to the peer, and its end. */
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "collectives/nccl/net.h"
#include "posix/forked.h"

enum {
	HELLO_MAGIC = 0x646e6363,    /* "dncc" */
	FAREWELL_MAGIC = 0x6463796f, /* another one */
	PSN_MASK = 0xffffff,
	QPN_MASK = 0xffffff,
	MIN_RNR_TIMER = 12, /* 0.64 ms; no receive is ever missing */
	ACK_TIMEOUT = 18,   /* 1.07 s, */
	RETRIES = 7,	    /* for peers whose host is busy; one that has ended is noticed by TCP */
	LOOK_NS = 2000000,
};

enum nccl_result net_comm_fail(struct net_comm *comm, enum nccl_result result, const char *format,
			       ...)
{
	va_list args;

	if (comm->failed)
		return comm->failed;
	va_start(args, format);
	vsnprintf(comm->why, sizeof(comm->why), format, args);
	va_end(args);
	comm->failed = result;
	return net_fail(result, "device %s, QP 0x%x to QP 0x%x, %s: %s", comm->device->name,
			comm->own.qpn, comm->theirs.qpn, comm->sends ? "sender" : "receiver",
			comm->why);
}

/* ---- beginning ---------------------------------------------------------------------------- */

static bool allocate(struct net_comm *comm)
{
	size_t bytes = NET_OFFERS * sizeof(*comm->offer);

	comm->requests = comm->sends ? NET_SENDS : NET_OFFERS;
	comm->request = calloc(comm->requests, sizeof(*comm->request));
	comm->offer = calloc(1, bytes);
	if (!comm->request || !comm->offer)
		return false;
	comm->mr = ibv_reg_mr(comm->device->pd, comm->offer, bytes, IBV_ACCESS_LOCAL_WRITE);
	comm->cq = ibv_create_cq(comm->device->verbs, NET_SENDS + NET_OFFERS, NULL, NULL, 0);
	return comm->mr && comm->cq;
}

static bool make_qp(struct net_comm *comm)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = comm->cq,
		.recv_cq = comm->cq,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = comm->sends ? NET_SENDS : NET_OFFERS,
			 .max_recv_wr = comm->sends ? NET_OFFERS : NET_SENDS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = comm->sends ? 0 : IBV_ACCESS_REMOTE_WRITE,
	};

	comm->qp = ibv_create_qp(comm->device->pd, &init);
	return comm->qp &&
	       !ibv_modify_qp(comm->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

enum nccl_result net_comm_make(struct net_device *dev, bool sends, struct net_comm **out)
{
	struct net_comm *comm = calloc(1, sizeof(*comm));
	enum nccl_result result;

	if (!comm)
		return NCCL_SYSTEM_ERROR;
	*comm = (struct net_comm){ .device = dev, .sends = sends, .fd = -1 };
	if (!allocate(comm) || !make_qp(comm) ||
	    getrandom(&comm->own.psn, sizeof(comm->own.psn), 0) != sizeof(comm->own.psn)) {
		result = net_fail(NCCL_SYSTEM_ERROR, "device %s: making a QP: %s", dev->name,
				  strerror(errno));
		net_comm_free(comm);
		return result;
	}
	comm->own.magic = HELLO_MAGIC;
	comm->own.qpn = comm->qp->qp_num;
	comm->own.psn &= PSN_MASK;
	comm->own.mtu = dev->port.active_mtu;
	comm->own.lid = dev->port.lid;
	memcpy(comm->own.gid, &dev->gid, sizeof(comm->own.gid));
	result = sends ? net_post_offers(comm) : NCCL_SUCCESS;
	if (result)
		net_comm_free(comm);
	else
		*out = comm;
	return result;
}

static int to_rtr(struct net_comm *comm, int traffic_class)
{
	const struct net_hello *peer = &comm->theirs;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = peer->mtu < comm->own.mtu ? peer->mtu : comm->own.mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = { .is_global = 1,
			     .dlid = (uint16_t)peer->lid,
			     .port_num = 1,
			     .grh = { .hop_limit = 64,
				      .sgid_index = (uint8_t)comm->device->gid_index } },
	};

	if (traffic_class != NCCL_UNDEFINED)
		attr.ah_attr.grh.traffic_class = (uint8_t)traffic_class;
	memcpy(&attr.ah_attr.grh.dgid, peer->gid, sizeof(peer->gid));
	return ibv_modify_qp(comm->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

enum nccl_result net_comm_connect(struct net_comm *comm, int traffic_class)
{
	const struct net_hello *peer = &comm->theirs;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = 7,
		.sq_psn = comm->own.psn,
		.max_rd_atomic = 1,
	};
	int err;

	if (peer->magic != HELLO_MAGIC || peer->qpn > QPN_MASK || peer->psn > PSN_MASK ||
	    peer->mtu < IBV_MTU_256 || peer->mtu > IBV_MTU_4096)
		return net_comm_fail(comm, NCCL_REMOTE_ERROR,
				     "what the peer says of its QP makes no sense");
	err = to_rtr(comm, traffic_class);
	if (!err)
		err = ibv_modify_qp(comm->qp, &attr,
				    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					    IBV_QP_MAX_QP_RD_ATOMIC);
	return err ? net_comm_fail(comm, NCCL_SYSTEM_ERROR, "connecting the QP: %s",
				   strerror(err)) :
		     NCCL_SUCCESS;
}

/* ---- end ---------------------------------------------------------------------------------- */

void net_comm_free(struct net_comm *comm)
{
	if (comm->qp)
		ibv_destroy_qp(comm->qp);
	if (comm->cq)
		ibv_destroy_cq(comm->cq);
	if (comm->mr)
		ibv_dereg_mr(comm->mr);
	if (comm->fd >= 0)
		dp_close_own_fd(comm->fd);
	free(comm->offer);
	free(comm->request);
	free(comm);
}

void net_comm_close(struct net_comm *comm)
{
	struct net_farewell farewell = { .magic = FAREWELL_MAGIC };

	net_progress(comm);
	farewell.completed = comm->completed;
	/* There is room, since nothing else was ever sent; a peer that has gone needs no farewell. */
	if (send(comm->fd, &farewell, sizeof(farewell), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		net_fail(NCCL_SUCCESS, "QP 0x%x: the peer was gone before this end was closed",
			 comm->own.qpn);
	net_comm_free(comm);
}

/* Sends that the receiver has completed before it was closed; acknowledgements may be lost. */
static void settle(struct net_comm *comm)
{
	for (uint32_t i = 0; comm->sends && i < comm->requests; i++)
		if (comm->request[i].used && comm->request[i].number < comm->farewell.completed)
			comm->request[i].left = 0;
}

/* Reads what has arrived over TCP; false: the connection stands.  A whole farewell ends it, also
 * where a child of the peer still has it open. */
static bool has_ended(struct net_comm *comm)
{
	while (comm->farewell_bytes < sizeof(comm->farewell)) {
		ssize_t got = recv(comm->fd, (char *)&comm->farewell + comm->farewell_bytes,
				   sizeof(comm->farewell) - comm->farewell_bytes, MSG_DONTWAIT);

		if (got < 0)
			return errno != EAGAIN && errno != EINTR;
		if (!got)
			return true;
		comm->farewell_bytes += (size_t)got;
	}
	return true;
}

void net_comm_look(struct net_comm *comm)
{
	uint64_t now = dp_now_ns();

	if (comm->failed || now - comm->looked_ns < LOOK_NS)
		return;
	comm->looked_ns = now;
	if (!has_ended(comm))
		return;
	/* All that the peer sent before it ended is in the CQ. */
	net_progress(comm);
	if (comm->failed)
		return;
	if (comm->farewell_bytes == sizeof(comm->farewell) &&
	    comm->farewell.magic == FAREWELL_MAGIC) {
		settle(comm);
		net_comm_fail(comm, NCCL_REMOTE_ERROR, "the peer has closed its end");
	} else {
		net_comm_fail(comm, NCCL_REMOTE_ERROR, "the peer's process has ended");
	}
}
