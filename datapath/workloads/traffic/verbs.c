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
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "generator.h"

enum {
	BATCH = 32,
	MIN_RNR_TIMER = 12, /* 0.64 ms */
	RNR_FOREVER = 7,
	PSN_MASK = 0xffffff,
	CACHE_LINE = 64,
	PAGE = 4096,
};

/* wr_id: the connection, and whether it is the receiving end's. */
#define RECEIVED (1ULL << 32)

struct half {
	struct ibv_qp *qp;
	uint32_t peer_rkey;
	uint64_t peer_addr;
	uint64_t offset; /* of this end's slots in the memory */
};

struct verbs {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
	struct half *half; /* by connection; a host is never both ends of one */
	struct cm *cm;
	char *memory;
	uint64_t out_bytes, in_bytes; /* shared memory: first what is sent */
	uint32_t unacked_events;
};

/* Whether the receiver posts receives for it. */
static bool receives(const struct run *run, const struct conn *conn)
{
	return conn->opcode == OP_SEND || (conn->opcode == OP_WRITE && run->opt.verify);
}

/* How many it keeps posted: it may be a while behind the sender. */
static uint32_t n_receives(const struct run *run, const struct conn *conn)
{
	if (!conn_in(run, conn) || !receives(run, conn))
		return 0;
	return run->opt.verify ? conn->limit : 2 * conn->limit;
}

/* ---- device ---------------------------------------------------------------- */

static struct ibv_context *open_device(const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *context = NULL;

	for (int i = 0; list && i < n; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	}
	if (!context)
		complain(ENODEV, "device %s: %s", name,
			 n ? "cannot be opened, or not among this host's verbs devices" :
			     "this host has no verbs device");
	if (list)
		ibv_free_device_list(list);
	return context;
}

static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

static int choose_gid(struct run *run, struct verbs *v)
{
	v->gid_index = run->opt.gid_index;
	if (v->gid_index >= 0) {
		if (ibv_query_gid(v->context, 1, v->gid_index, &v->gid))
			return complain(EINVAL, "device %s has no GID %d", run->opt.device,
					v->gid_index);
		return 0;
	}
	for (int i = 0; i < v->port.gid_tbl_len; i++) {
		if (!ibv_query_gid(v->context, 1, i, &v->gid) && is_ipv4(&v->gid)) {
			v->gid_index = i;
			return 0;
		}
	}
	v->gid_index = 0;
	if (ibv_query_gid(v->context, 1, 0, &v->gid))
		return complain(ENODEV, "device %s has no GID", run->opt.device);
	return 0;
}

static int query_device(struct run *run, struct verbs *v)
{
	if (ibv_query_device(v->context, &v->attr) || ibv_query_port(v->context, 1, &v->port))
		return complain(errno, "device %s: %s", run->opt.device, strerror(errno));
	if (v->port.state != IBV_PORT_ACTIVE)
		return complain(ENETDOWN, "device %s: its port is not active", run->opt.device);
	return choose_gid(run, v);
}

/*
 * iWARP has no RNR and completes a SEND before it has arrived: nothing keeps a
 * sender from overrunning the receives, which would end the connection.
 */
static int check_operations(const struct run *run, const struct verbs *v)
{
	if (v->context->device->transport_type != IBV_TRANSPORT_IWARP)
		return 0;
	for (uint32_t i = 0; i < run->n_conns; i++) {
		if (run->conn[i].opcode == OP_SEND)
			return complain(EOPNOTSUPP,
					"SEND over iWARP could overrun the receiver; use WRITE or "
					"READ");
		if (run->conn[i].opcode == OP_WRITE && run->opt.verify)
			return complain(EOPNOTSUPP,
					"iWARP has no WRITE that the receiver sees, so --verify "
					"is for READ there");
	}
	return 0;
}

/* ---- memory ---------------------------------------------------------------- */

static uint64_t slots(const struct run *run, const struct conn *conn)
{
	if (!run->opt.verify)
		return 1;
	return conn_out(run, conn) ? conn->limit : 2 * (uint64_t)conn->limit;
}

static uint64_t round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

/* Where each end's slots lie, and how much that is together. */
static uint64_t lay_out(const struct run *run, struct verbs *v)
{
	uint64_t each, total = 0;

	for (uint32_t i = 0; i < run->n_conns; i++) {
		const struct conn *conn = &run->conn[i];
		uint64_t *region = conn_out(run, conn) ? &v->out_bytes : &v->in_bytes;

		if (!conn_mine(run, conn))
			continue;
		each = round_up(conn->max_message, CACHE_LINE) * slots(run, conn);
		if (run->opt.verify) {
			v->half[i].offset = total;
			total += each;
		} else if (each > *region) {
			*region = each;
		}
	}
	if (run->opt.verify)
		return total;
	for (uint32_t i = 0; i < run->n_conns; i++)
		v->half[i].offset = conn_out(run, &run->conn[i]) ? 0 : v->out_bytes;
	return v->out_bytes + v->in_bytes;
}

static char *slot_of(const struct run *run, const struct verbs *v, uint32_t conn, uint64_t number)
{
	const struct conn *c = &run->conn[conn];
	uint64_t each = round_up(c->max_message, CACHE_LINE);

	return v->memory + v->half[conn].offset + number % slots(run, c) * each;
}

static int register_memory(struct run *run, struct verbs *v)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	uint64_t bytes = lay_out(run, v);

	if (run->opt.verify && bytes > VERIFY_BYTES_MAX)
		return complain(ENOMEM,
				"--verify would take %llu MiB for slots; use smaller messages, "
				"less depth or fewer QPs",
				(unsigned long long)(bytes >> 20));
	bytes = round_up(bytes + 1, PAGE);
	v->memory = aligned_alloc(PAGE, bytes);
	if (!v->memory)
		return complain(ENOMEM, "no memory for %llu bytes", (unsigned long long)bytes);
	memset(v->memory, 0x5a, bytes);
	v->mr = ibv_reg_mr(v->pd, v->memory, bytes, access);
	if (!v->mr)
		return complain(errno, "registering %llu bytes: %s", (unsigned long long)bytes,
				strerror(errno));
	return 0;
}

/* What READs fetch, when it is to be compared: always message 0. */
static void fill_for_reads(struct run *run, struct verbs *v)
{
	for (uint32_t i = 0; i < run->n_conns; i++) {
		const struct conn *conn = &run->conn[i];

		if (run->opt.verify && conn_in(run, conn) && conn->opcode == OP_READ)
			pattern_fill(slot_of(run, v, i, 0), i, 0, 0, conn->max_message);
	}
}

/* ---- queues ---------------------------------------------------------------- */

static int make_cq(struct run *run, struct verbs *v)
{
	uint64_t entries = 1;

	for (uint32_t i = 0; i < run->n_conns; i++) {
		const struct conn *conn = &run->conn[i];

		entries += (conn_out(run, conn) ? conn->limit : 0) + n_receives(run, conn);
	}
	if (entries > (uint64_t)v->attr.max_cqe)
		return complain(E2BIG,
				"%llu messages could complete at once, the CQ of device %s holds "
				"%d; use less depth or fewer QPs",
				(unsigned long long)entries, run->opt.device, v->attr.max_cqe);
	v->channel = ibv_create_comp_channel(v->context);
	if (!v->channel)
		return complain(errno, "completion channel: %s", strerror(errno));
	v->cq = ibv_create_cq(v->context, (int)entries, NULL, v->channel, 0);
	if (!v->cq)
		return complain(errno, "CQ of %llu entries: %s", (unsigned long long)entries,
				strerror(errno));
	return 0;
}

static int qp_attributes(struct run *run, uint32_t i, struct ibv_qp_init_attr *attr)
{
	struct verbs *v = run->state;
	const struct conn *conn = &run->conn[i];
	uint32_t takes = n_receives(run, conn);

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

static int make_qp(struct run *run, struct verbs *v, uint32_t i)
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

static int post_receive(struct run *run, struct verbs *v, uint32_t i, uint64_t number)
{
	struct ibv_sge sge = { .addr = (uintptr_t)slot_of(run, v, i, number),
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
		uint32_t n = n_receives(run, &run->conn[i]);

		for (uint32_t k = 0; k < n && !err; k++)
			err = post_receive(run, v, i, k);
	}
	return err;
}

static uint32_t psn_of(uint32_t conn, uint32_t end)
{
	return ((2 * conn + end + 1) * 2654435761u) & PSN_MASK;
}

static int verbs_open(struct run *run, struct record *records, uint32_t *n)
{
	struct verbs *v = calloc(1, sizeof(*v));
	int err = 0;

	run->state = v;
	if (v)
		v->half = calloc(run->n_conns + 1, sizeof(*v->half));
	if (!v || !v->half)
		return complain(ENOMEM, "no memory");
	if (run->opt.cm)
		err = cm_open(run, &v->cm, &v->context);
	else
		v->context = open_device(run->opt.device);
	if (err || !v->context)
		return err ? err : -ENODEV;
	err = query_device(run, v);
	if (!err)
		err = check_operations(run, v);
	if (err)
		return err;
	v->pd = ibv_alloc_pd(v->context);
	if (!v->pd)
		return complain(errno, "PD: %s", strerror(errno));
	err = register_memory(run, v);
	if (!err)
		err = make_cq(run, v);
	if (!err)
		fill_for_reads(run, v);
	*n = 0;
	for (uint32_t i = 0; i < run->n_conns && !err; i++) {
		uint32_t end = conn_in(run, &run->conn[i]);
		struct record *record = &records[*n];

		if (!conn_mine(run, &run->conn[i]))
			continue;
		if (!run->opt.cm)
			err = make_qp(run, v, i);
		*record = (struct record){ .conn = i,
					   .end = end,
					   .qpn = v->half[i].qp ? v->half[i].qp->qp_num : 0,
					   .psn = psn_of(i, end),
					   .rkey = v->mr->rkey,
					   .mtu = v->port.active_mtu,
					   .addr = (uintptr_t)slot_of(run, v, i, 0),
					   .lid = v->port.lid };
		memcpy(record->gid, &v->gid, sizeof(record->gid));
		(*n)++;
	}
	return err;
}

/* ---- connecting ------------------------------------------------------------ */

static int to_rtr(struct verbs *v, uint32_t i, const struct record *peer)
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
			     .grh = { .hop_limit = 64, .sgid_index = v->gid_index } },
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
		.retry_cnt = run->opt.retries,
		.rnr_retry = RNR_FOREVER,
		.sq_psn = psn_of(i, conn_in(run, &run->conn[i])),
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

static int verbs_connect(struct run *run, const struct record *all)
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
			err = to_rtr(v, i, peer);
		if (!err && !run->opt.cm)
			err = to_rts(run, v, i);
	}
	if (!err)
		err = post_receives(run, v);
	return err ? err : watch_completions(run, v);
}

/* ---- messages -------------------------------------------------------------- */

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
	uint64_t each = round_up(conn->max_message, CACHE_LINE);

	if (!run->opt.verify || conn->opcode == OP_READ)
		return v->half[i].peer_addr;
	return v->half[i].peer_addr + number % (2 * (uint64_t)conn->limit) * each;
}

static int verbs_post(struct run *run, struct conn *conn, const struct message *message)
{
	struct verbs *v = run->state;
	uint32_t i = conn - run->conn;
	char *from = slot_of(run, v, i, message->number);
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
		err = compare(slot_of(run, v, i, number), i, number, bytes);
	}
	return err ? err : post_receive(run, v, i, number + n_receives(run, conn));
}

static int sent(struct run *run, struct verbs *v, uint32_t i)
{
	struct conn *conn = &run->conn[i];
	const struct message *message = &conn->ring[conn->tail & conn->mask];
	int err = 0;

	if (!conn_outstanding(conn))
		return complain(EPROTO, "connection %u: a completion of nothing", i);
	if (run->opt.verify && conn->opcode == OP_READ)
		err = compare(slot_of(run, v, i, message->number), i, 0, message->bytes);
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
	.poll = verbs_poll,
	.arm = verbs_arm,
	.counters = verbs_counters,
	.close = verbs_close,
};
