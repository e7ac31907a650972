// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Connections: which ones plans need, what carries each, and QPs. */
#include <arpa/inet.h>
#include <stdio.h>

#include "collectives/live/coll.h"

enum {
	PSN_MASK = 0xffffff,
	MIN_RNR_TIMER = 12, /* 0.64 ms */
};

struct coll_conn *coll_conn_of(struct dpcoll *comm, uint32_t peer, uint32_t channel)
{
	for (uint32_t i = 0; i < comm->n_conns; i++)
		if (comm->conn[i].peer == peer && comm->conn[i].channel == channel)
			return &comm->conn[i];
	return NULL;
}

static int add(struct dpcoll *comm, uint32_t peer, uint32_t channel)
{
	struct coll_conn *grown;
	uint32_t watched = 0;

	if (coll_conn_of(comm, peer, channel))
		return 0;
	while (watched < comm->n_conns && comm->conn[watched].peer != peer)
		watched++;
	grown = realloc(comm->conn, (comm->n_conns + 1) * sizeof(*grown));
	if (!grown)
		return coll_fail(comm, ENOMEM, "no memory");
	comm->conn = grown;
	grown[comm->n_conns] =
		(struct coll_conn){ .peer = peer, .channel = channel, .watched = watched };
	comm->n_conns++;
	return 0;
}

int coll_find_connections(struct dpcoll *comm, const void *const *plans, const size_t *bytes,
			  uint32_t n)
{
	int err = 0;

	for (uint32_t k = 0; k < n; k++) {
		const struct dp_plan_head *head = coll_plan_head(comm, plans[k], bytes[k]);
		const struct dp_plan_step *step;

		if (!head)
			return -EINVAL;
		if (head->slot_bytes > comm->slot_bytes)
			comm->slot_bytes = head->slot_bytes;
		step = coll_plan_steps(head);
		for (uint64_t i = 0; i < head->steps && !err; i++)
			if (step[i].rank == comm->cfg.rank && step[i].peer != step[i].rank)
				err = add(comm, step[i].peer, step[i].channel);
	}
	return err;
}

void coll_conn_name(const struct coll_conn *conn, const char *towards, char *out, size_t bytes)
{
	if (conn->neighbour)
		snprintf(out, bytes, "memory shared with process %u", conn->neighbour->pid);
	else
		snprintf(out, bytes, "QP 0x%x %s QP 0x%x", conn->qp->qp_num, towards,
			 conn->theirs.qpn);
}

/* The names of devices are links, which channels take in turn. */
static int choose_link(struct dpcoll *comm, struct coll_conn *conn)
{
	uint32_t link = conn->channel % comm->links;
	bool named = comm->shared_at < comm->links;

	conn->neighbour = coll_shared_with(comm, conn->peer);
	if (conn->neighbour && (!named || link == comm->shared_at))
		return 0;
	if (!comm->n_devices)
		return coll_fail(comm, ENODEV,
				 "rank %u shares no memory with rank %u, and no device is named",
				 comm->cfg.rank, conn->peer);
	if (conn->neighbour)
		conn->device = link - (link > comm->shared_at);
	else
		conn->device = conn->channel % comm->n_devices;
	conn->neighbour = NULL;
	return 0;
}

struct ibv_qp_init_attr coll_qp_attributes(const struct coll_device *device)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.send_cq = device->cq,
		.recv_cq = device->cq,
		.cap = { .max_send_wr = device->no_immediate ? 2 * COLL_SENDS : COLL_SENDS,
			 .max_recv_wr = COLL_RECEIVES,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
}

static int make_qp(struct dpcoll *comm, struct coll_conn *conn)
{
	struct coll_device *device = &comm->device[conn->device];
	struct ibv_qp_init_attr init = coll_qp_attributes(device);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	int err;

	conn->qp = ibv_create_qp(device->pd, &init);
	if (!conn->qp)
		return coll_fail(comm, errno, "creating a QP for rank %u: %s", conn->peer,
				 strerror(errno));
	err = ibv_modify_qp(conn->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err)
		return coll_fail(comm, err, "QP to INIT: %s", strerror(err));
	conn->own.qpn = conn->qp->qp_num;
	conn->own.psn = (uint32_t)(dp_now_ns() * 2654435761u >> 16) & PSN_MASK;
	return 0;
}

/* What the peer has to know of the device. */
static void introduce(struct coll_conn *conn, const struct coll_device *device)
{
	conn->own.rkey = device->mr->rkey;
	conn->own.mtu = device->port.active_mtu;
	conn->own.lid = device->port.lid;
	conn->own.no_immediate = device->no_immediate;
	memcpy(conn->own.gid, &device->gid, sizeof(conn->own.gid));
	if (!device->by_cm)
		return;
	conn->own.cm_address = device->address.s_addr;
	conn->own.cm_port = ntohs(rdma_get_src_port(device->listener));
	memcpy(conn->own.cm_secret, device->secret, sizeof(device->secret));
}

static int make_end(struct dpcoll *comm, struct coll_conn *conn)
{
	int err = choose_link(comm, conn);

	conn->own = (struct coll_record){
		.peer = conn->peer,
		.channel = conn->channel,
		.used = true,
		.slots = (uintptr_t)conn->slots,
		.mailbox = (uintptr_t)conn->memory->mailbox,
		.alive = (uintptr_t)&conn->memory->alive,
	};
	if (err || conn->neighbour)
		return err;
	introduce(conn, &comm->device[conn->device]);
	return comm->device[conn->device].by_cm ? 0 : make_qp(comm, conn);
}

static int to_rts(struct dpcoll *comm, struct coll_conn *conn)
{
	const struct coll_record *peer = &conn->theirs;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = peer->mtu < conn->own.mtu ? peer->mtu : conn->own.mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = { .is_global = 1,
			     .dlid = peer->lid,
			     .port_num = 1,
			     .grh = { .hop_limit = 64,
				      .sgid_index =
					      (uint8_t)comm->device[conn->device].gid_index } },
	};
	int err;

	memcpy(&attr.ah_attr.grh.dgid, peer->gid, sizeof(peer->gid));
	err = ibv_modify_qp(conn->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
	if (err)
		return coll_fail(comm, err, "QP to RTR, to rank %u: %s", conn->peer, strerror(err));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)comm->cfg.ack_timeout,
		.retry_cnt = (uint8_t)comm->cfg.retry_count,
		.rnr_retry = 7,
		.sq_psn = conn->own.psn,
		.max_rd_atomic = 1,
	};
	err = ibv_modify_qp(conn->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return err ? coll_fail(comm, err, "QP to RTS, to rank %u: %s", conn->peer, strerror(err)) :
		     0;
}

static int find_peer_end(struct dpcoll *comm, struct coll_conn *conn, const struct coll_record *all,
			 uint32_t each)
{
	const struct coll_record *theirs = &all[(size_t)conn->peer * each];

	for (uint32_t i = 0; i < each; i++)
		if (theirs[i].used && theirs[i].peer == comm->cfg.rank &&
		    theirs[i].channel == conn->channel) {
			conn->theirs = theirs[i];
			return 0;
		}
	return coll_fail(comm, EPROTO,
			 "rank %u knows of no connection to rank %u on channel %u: "
			 "all ranks need the same plans",
			 conn->peer, comm->cfg.rank, conn->channel);
}

static int unlike(struct dpcoll *comm, uint32_t rank, const struct coll_identity *theirs)
{
	const struct coll_identity own = { .links = comm->links, .shared_at = comm->shared_at };

	if (theirs->slot_bytes != comm->slot_bytes)
		return coll_fail(comm, EPROTO,
				 "rank %u has transfers of %u bytes, rank %u "
				 "of %u: all ranks need the same plans",
				 rank, theirs->slot_bytes, comm->cfg.rank, comm->slot_bytes);
	if (theirs->links != own.links || theirs->shared_at != own.shared_at)
		return coll_fail(comm, EPROTO,
				 "rank %u names %u devices, rank %u %u, or shm at another place: "
				 "channel n takes the same one on all ranks",
				 rank, theirs->links, comm->cfg.rank, own.links);
	return 0;
}

/* Ranks exchange their numbers of connections.  Returns the highest: records are of one size. */
static int meet(struct dpcoll *comm, struct coll_identity *all, uint32_t *most)
{
	struct coll_identity own = { .conns = comm->n_conns,
				     .slot_bytes = comm->slot_bytes,
				     .links = comm->links,
				     .shared_at = comm->shared_at };
	int err = coll_shared_identity(comm, &own);

	if (!err)
		err = coll_store_exchange(comm, &own, all, sizeof(own));
	*most = 1;
	for (uint32_t r = 0; !err && r < comm->cfg.ranks; r++) {
		if (all[r].conns > *most)
			*most = all[r].conns;
		err = unlike(comm, r, &all[r]);
	}
	return err;
}

/* Both ends of a connection share memory or neither does: all ranks can, or none does. */
static int share(struct dpcoll *comm, const struct coll_identity *all)
{
	uint32_t can = coll_shared_reach(comm, all);
	uint32_t *others = calloc(comm->cfg.ranks, sizeof(*others));
	int err = others ? coll_store_exchange(comm, &can, others, sizeof(can)) :
			   coll_fail(comm, ENOMEM, "no memory");

	for (uint32_t r = 0; !err && r < comm->cfg.ranks; r++)
		can &= others[r];
	free(others);
	if (!err && !can) {
		coll_note(comm, "no shared memory", NULL, 0);
		coll_shared_leave(comm);
	}
	return err;
}

static int join(struct dpcoll *comm, struct coll_conn *conn, const struct coll_record *all,
		uint32_t each, const struct coll_identity *peer)
{
	int err = find_peer_end(comm, conn, all, each);

	conn->credits = COLL_SLOTS;
	if (err || conn->neighbour)
		return err ? err : coll_shared_connect(comm, conn, peer);
	if (conn->own.no_immediate != conn->theirs.no_immediate ||
	    !conn->own.cm_port != !conn->theirs.cm_port)
		return coll_fail(comm, EPROTO,
				 "ranks %u and %u: the devices of channel %u cannot be joined: one "
				 "is iWARP, or other flags were given",
				 comm->cfg.rank, conn->peer, conn->channel);
	if (comm->device[conn->device].by_cm)
		return 0;
	err = to_rts(comm, conn);
	return err ? err : coll_post_receives(comm, conn);
}

static int exchange_ends(struct dpcoll *comm, const struct coll_identity *ranks, uint32_t each)
{
	struct coll_record *own = calloc(each, sizeof(*own));
	struct coll_record *all = calloc((size_t)each * comm->cfg.ranks, sizeof(*all));
	int err = own && all ? 0 : coll_fail(comm, ENOMEM, "no memory");

	for (uint32_t i = 0; i < comm->n_conns && !err; i++) {
		err = make_end(comm, &comm->conn[i]);
		own[i] = comm->conn[i].own;
	}
	if (!err)
		err = coll_store_exchange(comm, own, all, each * (uint32_t)sizeof(*own));
	for (uint32_t i = 0; i < comm->n_conns && !err; i++)
		err = join(comm, &comm->conn[i], all, each, &ranks[comm->conn[i].peer]);
	if (!err)
		err = coll_cm_connect(comm);
	/* Nobody sends before all can receive. */
	if (!err)
		err = coll_store_exchange(comm, &each, all, sizeof(each));
	free(own);
	free(all);
	return err;
}

int coll_connect(struct dpcoll *comm)
{
	struct coll_identity *all = calloc(comm->cfg.ranks, sizeof(*all));
	int err = all ? 0 : coll_fail(comm, ENOMEM, "no memory");
	uint32_t each;

	if (!err)
		err = meet(comm, all, &each);
	if (!err)
		err = share(comm, all);
	if (!err)
		err = exchange_ends(comm, all, each);
	free(all);
	return err;
}

void coll_disconnect(struct dpcoll *comm)
{
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		if (comm->conn[i].id)
			coll_cm_disconnect(&comm->conn[i]);
		else if (comm->conn[i].qp)
			ibv_destroy_qp(comm->conn[i].qp);
	}
	coll_shared_leave(comm);
	free(comm->conn);
}
