// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * QPs: made with what the device can hold, joined to their peers, filled with receives.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "verbs.h"

enum {
	MIN_RNR_TIMER = 12, /* 0.64 ms */
	PSN_MASK = 0xffffff,
};

/* Whether the receiver posts receives for it. */
static bool receives(const struct run *run, const struct conn *conn)
{
	return conn->opcode == OP_SEND || (conn->opcode == OP_WRITE && run->opt.verify);
}

uint32_t verbs_receives(const struct run *run, const struct conn *conn)
{
	if (!conn_in(run, conn) || !receives(run, conn))
		return 0;
	return run->opt.verify ? conn->limit : 2 * conn->limit;
}

static int qp_attributes(struct run *run, uint32_t i, struct ibv_qp_init_attr *attr)
{
	struct verbs *v = run->state;
	const struct conn *conn = &run->conn[i];
	uint32_t takes = verbs_receives(run, conn);

	if (conn->limit > (uint32_t)v->attr.max_qp_wr || takes > (uint32_t)v->attr.max_qp_wr)
		return complain(E2BIG, "depth %u: device %s has at most %d work requests a queue",
				conn->limit, run->opt.device, v->attr.max_qp_wr);
	*attr = (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.send_cq = v->cq,
		.recv_cq = v->cq,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = conn_out(run, conn) ? conn->limit : 1,
			 .max_recv_wr = takes ? takes : 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	return 0;
}

int verbs_make_qp(struct run *run, struct verbs *v, uint32_t i)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	struct ibv_qp_init_attr init;
	int err = qp_attributes(run, i, &init);

	if (err)
		return err;
	v->half[i].qp = ibv_create_qp(v->pd, &init);
	if (!v->half[i].qp)
		return complain(errno, "creating QP %u: %s", i, strerror(errno));
	err = ibv_modify_qp(v->half[i].qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	return err ? complain(err, "QP to INIT: %s", strerror(err)) : 0;
}

int verbs_post_receive(struct run *run, struct verbs *v, uint32_t i, uint64_t number)
{
	struct ibv_sge sge = { .addr = (uintptr_t)verbs_slot(run, v, i, number),
			       .length = run->conn[i].max_message,
			       .lkey = v->mr->lkey };
	bool to_memory = run->conn[i].opcode == OP_SEND;
	struct ibv_recv_wr wr = { .wr_id = i | RECEIVED,
				  .sg_list = to_memory ? &sge : NULL,
				  .num_sge = to_memory };
	struct ibv_recv_wr *bad;
	int err = ibv_post_recv(v->half[i].qp, &wr, &bad);

	return err ? complain(err, "posting a receive: %s", strerror(err)) : 0;
}

static int post_receives(struct run *run, struct verbs *v)
{
	int err = 0;

	for (uint32_t i = 0; i < run->n_conns; i++) {
		uint32_t n = verbs_receives(run, &run->conn[i]);

		for (uint32_t k = 0; k < n && !err; k++)
			err = verbs_post_receive(run, v, i, k);
	}
	return err;
}

uint32_t verbs_psn(uint32_t conn, uint32_t end)
{
	return ((2 * conn + end + 1) * 2654435761u) & PSN_MASK;
}

static int to_rtr(const struct run *run, struct verbs *v, uint32_t i, const struct record *peer)
{
	int reads = v->attr.max_qp_rd_atom < 16 ? v->attr.max_qp_rd_atom : 16;
	uint32_t mtu = peer->mtu < v->port.active_mtu ? peer->mtu : v->port.active_mtu;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = reads,
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = { .is_global = 1,
			     .dlid = peer->lid,
			     .port_num = 1,
			     .grh = { .hop_limit = 64,
				      .sgid_index = v->gid_index,
				      .traffic_class = (uint8_t)(run->conn[i].dscp << 2) } },
	};
	int err;

	memcpy(&attr.ah_attr.grh.dgid, peer->gid, sizeof(peer->gid));
	err = ibv_modify_qp(v->half[i].qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
	return err ? complain(err, "QP to RTR: %s", strerror(err)) : 0;
}

static int to_rts(struct run *run, struct verbs *v, uint32_t i)
{
	int reads = v->attr.max_qp_init_rd_atom < 16 ? v->attr.max_qp_init_rd_atom : 16;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = run->opt.ack_timeout,
		.retry_cnt = run->opt.retry_count,
		.rnr_retry = run->opt.rnr_retry,
		.sq_psn = verbs_psn(i, conn_in(run, &run->conn[i])),
		.max_rd_atomic = reads,
	};
	int err = ibv_modify_qp(v->half[i].qp, &attr,
				IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);

	return err ? complain(err, "QP to RTS: %s", strerror(err)) : 0;
}

static int connect_by_cm(struct run *run, struct verbs *v)
{
	struct ibv_qp **qp = calloc(run->n_conns + 1, sizeof(*qp));
	int err = qp ? cm_connect(run, v->cm, v->pd, qp_attributes, qp) :
		       complain(ENOMEM, "no memory");

	for (uint32_t i = 0; i < run->n_conns && qp; i++)
		v->half[i].qp = qp[i];
	free(qp);
	return err;
}

static int watch_completions(struct run *run, struct verbs *v)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = NEVER };
	int flags = fcntl(v->channel->fd, F_GETFL);

	if (fcntl(v->channel->fd, F_SETFL, flags | O_NONBLOCK) ||
	    epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, v->channel->fd, &event))
		return complain(errno, "completion channel: %s", strerror(errno));
	return 0;
}

int verbs_connect(struct run *run, const struct record *all)
{
	struct verbs *v = run->state;
	int err = run->opt.cm ? connect_by_cm(run, v) : 0;

	for (uint32_t i = 0; i < run->n_conns && !err; i++) {
		const struct record *peer = &all[2 * i + conn_out(run, &run->conn[i])];

		if (!conn_mine(run, &run->conn[i]))
			continue;
		v->half[i].peer_rkey = peer->rkey;
		v->half[i].peer_addr = peer->addr;
		if (!run->opt.cm)
			err = to_rtr(run, v, i, peer);
		if (!err && !run->opt.cm)
			err = to_rts(run, v, i);
	}
	if (!err)
		err = post_receives(run, v);
	return err ? err : watch_completions(run, v);
}
