// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Messages as work requests of RC QPs; libibverbs only, so that any device runs it.
 *
 * All QPs of the process share one CQ.  Without --verify all messages leave from
 * one piece of memory and arrive in another, so memory does not grow with the
 * number of QPs.  With --verify each connection has slots of its own: as many as
 * messages can be outstanding at the sender, and twice that at the receiver, which
 * has posted `limit` receives: message n overwrites the slot of n - 2 * limit, and
 * can only be sent when the receive of n - 2 * limit has been compared and posted
 * anew.  So that the receiver sees each message, WRITEs carry an immediate then.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

enum {
	BATCH = 32,
};

static enum ibv_wr_opcode opcode_of(const struct run *run, const struct conn *conn)
{
	if (conn->opcode == OP_WRITE && run->opt.verify)
		return IBV_WR_RDMA_WRITE_WITH_IMM;
	return (enum ibv_wr_opcode)conn->opcode;
}

static uint64_t remote_address(const struct run *run, const struct verbs *v, uint32_t i,
			       uint64_t number)
{
	const struct conn *conn = &run->conn[i];
	uint64_t each = verbs_slot_bytes(conn);

	if (!run->opt.verify || conn->opcode == OP_READ)
		return v->half[i].peer_addr;
	return v->half[i].peer_addr + number % (2 * (uint64_t)conn->limit) * each;
}

static int verbs_post(struct run *run, struct conn *conn, const struct message *message)
{
	struct verbs *v = run->state;
	uint32_t i = conn - run->conn;
	char *from = verbs_slot(run, v, i, message->number);
	struct ibv_sge sge = { (uintptr_t)from, message->bytes, v->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = i,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode_of(run, conn),
		.imm_data = htonl(message->bytes),
		.wr.rdma = { .remote_addr = remote_address(run, v, i, message->number),
			     .rkey = v->half[i].peer_rkey },
	};
	int err;

	if (run->opt.verify && conn->opcode != OP_READ)
		pattern_fill(from, i, message->number, 0, message->bytes);
	err = ibv_post_send(v->half[i].qp, &wr, &bad);
	return err ? complain(err, "posting a message: %s", strerror(err)) : 0;
}

/* dpdv_set_cc() of verbs/dpdv.h, which only our devices have. */
static int verbs_set_cc(struct run *run, struct conn *conn, const char *object)
{
	struct verbs *v = run->state;
	int (*set_cc)(struct ibv_qp *, const char *);
	int err;

	*(void **)&set_cc = dlsym(RTLD_DEFAULT, "dpdv_set_cc");
	if (!set_cc)
		return complain(EOPNOTSUPP,
				"--cc: device %s lets nobody choose the algorithm of a QP",
				run->opt.device);
	err = set_cc(v->half[conn - run->conn].qp, object);
	return err ? complain(err, "algorithm %s: %s", object, strerror(err)) : 0;
}

static int compare(const void *at, uint32_t conn, uint64_t number, uint32_t bytes)
{
	int64_t wrong = pattern_compare(at, conn, number, 0, bytes);

	if (wrong < 0)
		return 0;
	return complain(EBADMSG, "connection %u, message %llu: byte %lld is not what was sent",
			conn, (unsigned long long)number, (long long)wrong);
}

static int received(struct run *run, struct verbs *v, uint32_t i, const struct ibv_wc *wc)
{
	struct conn *conn = &run->conn[i];
	uint64_t number = conn->arrived++;
	uint32_t bytes = conn->opcode == OP_SEND ? wc->byte_len : ntohl(wc->imm_data);
	int err = 0;

	if (run->opt.verify) {
		if (bytes > conn->max_message)
			return complain(EBADMSG, "connection %u: %u bytes arrived", i, bytes);
		err = compare(verbs_slot(run, v, i, number), i, number, bytes);
	}
	return err ? err : verbs_post_receive(run, v, i, number + verbs_receives(run, conn));
}

static int sent(struct run *run, struct verbs *v, uint32_t i)
{
	struct conn *conn = &run->conn[i];
	const struct message *message = &conn->ring[conn->tail & conn->mask];
	int err = 0;

	if (!conn_outstanding(conn))
		return complain(EPROTO, "connection %u: a completion of nothing", i);
	if (run->opt.verify && conn->opcode == OP_READ)
		err = compare(verbs_slot(run, v, i, message->number), i, 0, message->bytes);
	return err ? err : pump_completed(run, conn);
}

static int take(struct run *run, struct verbs *v, const struct ibv_wc *wc)
{
	uint32_t i = (uint32_t)wc->wr_id;
	struct conn *conn = &run->conn[i];

	if (wc->status != IBV_WC_SUCCESS) {
		if (pump_failed(run, conn, wc->status))
			complain(EIO, "QP %u from host %u to host %u failed: %s", conn->qp,
				 conn->src, conn->dst, ibv_wc_status_str(wc->status));
		return 0;
	}
	return wc->wr_id & RECEIVED ? received(run, v, i, wc) : sent(run, v, i);
}

static int verbs_poll(struct run *run)
{
	struct verbs *v = run->state;
	struct ibv_wc wc[BATCH];
	int n = ibv_poll_cq(v->cq, BATCH, wc);

	if (n < 0)
		return complain(EIO, "polling the CQ failed");
	for (int i = 0; i < n; i++) {
		int err = take(run, v, &wc[i]);

		if (err)
			return err;
	}
	return n;
}

/* Events of the channel are taken first, so that only new ones wake. */
static int verbs_arm(struct run *run)
{
	struct verbs *v = run->state;
	struct ibv_cq *cq;
	void *context;
	int err;

	while (!ibv_get_cq_event(v->channel, &cq, &context))
		v->unacked_events++;
	err = ibv_req_notify_cq(v->cq, 0);
	if (err)
		return complain(err, "arming the CQ: %s", strerror(err));
	return verbs_poll(run);
}

static void verbs_counters(struct run *run, uint64_t *packets, uint64_t *retransmitted)
{
	(void)run;
	*packets = *retransmitted = 0; /* verbs do not say; the device's statistics may */
}

static void verbs_close(struct run *run)
{
	struct verbs *v = run->state;

	if (!v)
		return;
	for (uint32_t i = 0; v->half && i < run->n_conns && !run->opt.cm; i++) {
		if (v->half[i].qp)
			ibv_destroy_qp(v->half[i].qp);
	}
	if (v->cm)
		cm_destroy_qps(v->cm);
	if (v->cq) {
		ibv_ack_cq_events(v->cq, v->unacked_events);
		ibv_destroy_cq(v->cq);
	}
	if (v->channel)
		ibv_destroy_comp_channel(v->channel);
	if (v->mr)
		ibv_dereg_mr(v->mr);
	if (v->pd)
		ibv_dealloc_pd(v->pd);
	if (v->cm)
		cm_close(v->cm);
	else if (v->context)
		ibv_close_device(v->context);
	free(v->memory);
	free(v->half);
	free(v);
}

const struct transport verbs_transport = {
	.name = "verbs",
	.open = verbs_open,
	.connect = verbs_connect,
	.post = verbs_post,
	.set_cc = verbs_set_cc,
	.poll = verbs_poll,
	.arm = verbs_arm,
	.counters = verbs_counters,
	.close = verbs_close,
};
