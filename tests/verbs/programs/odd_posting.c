/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Odd requests: batches that cannot be posted as a whole, flags that are not there, receives of any
 * length; the events of requests that fail; threads that share an extended CQ, or are cancelled while
 * they wait for an event.  As odd.c.
 *
 *   odd_posting DEVICE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "odd.h"

enum { LENGTH = 8, IP_CSUM = 1 << 4, UNKNOWN = 1 << 20 };

static const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static struct ibv_qp *make_extended(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = WRS, .max_recv_wr = WRS, 1, 1, LENGTH },
		.qp_type = IBV_QPT_RC,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);

	MUST(qp);
	return qp;
}

static void join(struct ibv_qp *a, struct ibv_qp *b)
{
	struct ibv_qp_attr attr_of = { .qp_access_flags = (unsigned)rights };

	to_init(a);
	to_init(b);
	to_rts(a, b);
	to_rts(b, a);
	MUST(!ibv_modify_qp(b, &attr_of, IBV_QP_ACCESS_FLAGS));
}

static struct ibv_wc next_completion(void)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	MUST(n == 1);
	return wc;
}

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t id, unsigned flags,
		uint64_t to, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)memory, LENGTH, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED | flags },
			   *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = to;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = to;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

static int receive(struct ibv_qp *qp, uint64_t id, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static void add_write(struct ibv_qp_ex *ex, uint64_t id, unsigned flags)
{
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED | flags;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, LENGTH);
}

/* A batch that has no room, or one bad request, posts nothing: what completes next is a WRITE that was
 * posted behind it. */
static void batches(void)
{
	struct ibv_qp *qp = make_extended(), *peer = make_qp(IBV_QPT_RC);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	int i;

	join(qp, peer);
	IS(post(qp, IBV_WR_SEND, 1, 0, 0, 0), 0); /* wait for receives */
	IS(post(qp, IBV_WR_SEND, 2, 0, 0, 0), 0);
	ibv_wr_start(ex);
	for (i = 0; i < WRS - 1; i++)
		add_write(ex, 9, 0);
	IS(ibv_wr_complete(ex), ENOMEM);
	ibv_wr_start(ex);
	add_write(ex, 9, 0);
	ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_inline_data(ex, memory, LENGTH);
	IS(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	add_write(ex, 9, IP_CSUM);
	IS(ibv_wr_complete(ex), EOPNOTSUPP);
	IS(post(qp, IBV_WR_RDMA_WRITE, 3, 0, (uintptr_t)memory, mr->rkey), 0);
	IS(receive(peer, 4, LENGTH), 0);
	IS(receive(peer, 4, LENGTH), 0);
	for (i = 1; i <= 3;) {
		struct ibv_wc wc = next_completion();

		IS((int)wc.status, IBV_WC_SUCCESS);
		if (wc.qp_num == qp->qp_num)
			IS((int)wc.wr_id, i++);
	}
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
	while (ibv_poll_cq(cq, 1, &(struct ibv_wc){ 0 }) > 0)
		;
}

static void flags_and_lengths(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC), *peer = make_qp(IBV_QPT_RC);

	join(qp, peer);
	IS(post(qp, IBV_WR_SEND, 1, IP_CSUM, 0, 0), EOPNOTSUPP);
	IS(post(qp, IBV_WR_SEND, 1, UNKNOWN, 0, 0), EOPNOTSUPP);
	IS(receive(peer, 2, INT32_MAX), 0); /* longer than any message, and than the region */
	IS(post(qp, IBV_WR_SEND, 1, 0, 0, 0), 0);
	IS((int)next_completion().status, IBV_WC_SUCCESS);
	IS((int)next_completion().status, IBV_WC_SUCCESS);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
}

/* Memory that cannot be read, whole or in part. */
static void memory_without_rights(void)
{
	char *none =
		mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(none != MAP_FAILED && !mprotect(none + PAGE, PAGE, PROT_NONE));
	FAILS(ibv_reg_mr(pd, none, 3 * PAGE, rights), EFAULT);
	FAILS(ibv_reg_mr(pd, none + PAGE, PAGE, IBV_ACCESS_REMOTE_READ), EFAULT);
	MUST(!mprotect(none + PAGE, PAGE, PROT_READ));
	FAILS(ibv_reg_mr(pd, none, 3 * PAGE, rights), EFAULT);
	MUST(!munmap(none, 3 * PAGE));
}

static void one_event(enum ibv_event_type type, const struct ibv_qp *qp)
{
	struct ibv_async_event event;

	MUST(!ibv_get_async_event(context, &event));
	IS((int)event.event_type, (int)type);
	IS(event.element.qp == qp, 1);
	ibv_ack_async_event(&event);
	FAILS(ibv_get_async_event(context, &event), EAGAIN);
}

static void refused(enum ibv_wr_opcode opcode, uint64_t to, uint32_t rkey,
		    enum ibv_wc_status status, enum ibv_event_type type)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC), *peer = make_qp(IBV_QPT_RC);

	join(qp, peer);
	IS(post(qp, opcode, 1, 0, to, rkey), 0);
	IS((int)next_completion().status, (int)status);
	one_event(type, peer);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
}

/* A completion tells of a failure, or an event: not both. */
static void events(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC), *peer = make_qp(IBV_QPT_RC);
	struct ibv_async_event event;

	MUST(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	while (!ibv_get_async_event(context, &event)) /* of the connections before */
		ibv_ack_async_event(&event);
	refused(IBV_WR_RDMA_WRITE, (uintptr_t)memory, mr->rkey ^ 0x100, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR);
	refused(IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)memory + 1, mr->rkey,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	join(qp, peer);
	IS(receive(peer, 2, LENGTH - 1), 0);
	IS(post(qp, IBV_WR_SEND, 1, 0, 0, 0), 0);
	IS((int)next_completion().status, IBV_WC_LOC_LEN_ERR);
	IS((int)next_completion().status, IBV_WC_REM_INV_REQ_ERR);
	FAILS(ibv_get_async_event(context, &event), EAGAIN);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
}

static atomic_int taken;

static void *takes_one(void *shared)
{
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_cq_ex *ex = shared;

	IS(ibv_start_poll(ex, &none), 0);
	taken = (int)ex->wr_id;
	ibv_end_poll(ex);
	return NULL;
}

/* A QP in error has flushed two receives, 1 and 2. */
static struct ibv_qp *flush_two(struct ibv_cq_ex *ex)
{
	struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init = init_of(IBV_QPT_RC);
	struct ibv_qp *qp;

	init.recv_cq = ibv_cq_ex_to_cq(ex);
	MUST((qp = ibv_create_qp(pd, &init)));
	MUST(!ibv_modify_qp(qp, &failed, IBV_QP_STATE));
	IS(receive(qp, 1, LENGTH), 0);
	IS(receive(qp, 2, LENGTH), 0);
	return qp;
}

/* From ibv_start_poll() to ibv_end_poll() a CQ belongs to one thread; one whose program has promised
 * to use a single thread takes no lock. */
static void polls(bool one_thread)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr none = { 0 }, unknown = { 1 };
	struct ibv_cq_ex *ex;
	struct ibv_qp *qp;
	pthread_t thread;

	if (one_thread) {
		init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
		init.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	}
	MUST((ex = ibv_create_cq_ex(context, &init)));
	qp = flush_two(ex);
	IS(ibv_start_poll(ex, &unknown), EINVAL);
	IS(ibv_start_poll(ex, &none), 0);
	if (one_thread) {
		IS(ibv_start_poll(ex, &none), 0);
		IS((int)ex->wr_id, 2);
	} else {
		taken = 0;
		MUST(!pthread_create(&thread, NULL, takes_one, ex));
		usleep(50000); /* without a lock, time for the other thread to take its place */
		IS((int)ex->wr_id, 1);
		IS(taken, 0);
		ibv_end_poll(ex);
		MUST(!pthread_join(thread, NULL));
		IS(taken, 2);
	}
	IS(ibv_start_poll(ex, &none), ENOENT);
	IS(ibv_start_poll(ex, &none), ENOENT); /* one that finds nothing needs no end */
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

static void completes_one(void *qp)
{
	IS(receive(qp, 1, LENGTH), 0); /* in error: it is flushed */
}

static void *waits(void *qp)
{
	struct ibv_comp_channel *channel = ((struct ibv_qp *)qp)->recv_cq->channel;
	struct ibv_cq *of;
	void *user;

	pthread_cleanup_push(completes_one, qp);
	ibv_get_cq_event(channel, &of, &user);
	pthread_cleanup_pop(0);
	return NULL;
}

/* What a thread completes after it was cancelled is told to others. */
static void cancelled(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init = init_of(IBV_QPT_RC);
	struct pollfd readable = { .events = POLLIN };
	struct ibv_cq *of;
	struct ibv_qp *qp;
	pthread_t thread;
	void *user;

	MUST(channel && (init.recv_cq = ibv_create_cq(context, 1, NULL, channel, 0)));
	MUST((qp = ibv_create_qp(pd, &init)) && !ibv_modify_qp(qp, &failed, IBV_QP_STATE));
	IS(ibv_req_notify_cq(init.recv_cq, 0), 0);
	MUST(!pthread_create(&thread, NULL, waits, qp));
	usleep(50000); /* it sleeps */
	MUST(!pthread_cancel(thread) && !pthread_join(thread, NULL));
	readable.fd = channel->fd;
	MUST(poll(&readable, 1, 0) == 1);
	IS(ibv_get_cq_event(channel, &of, &user), 0);
	ibv_ack_cq_events(of, 1);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_cq(of), 0);
	IS(ibv_destroy_comp_channel(channel), 0);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **d;

	for (d = list; argc > 1 && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), argv[1]))
			MUST((context = ibv_open_device(*d)));
	MUST(context);
	ibv_free_device_list(list);
	MUST(!ibv_query_device(context, &attr));
	MUST((memory = aligned_alloc(PAGE, PAGE)));
	MUST((pd = ibv_alloc_pd(context)));
	MUST((cq = ibv_create_cq(context, 100, NULL, NULL, 0)));
	MUST((mr = ibv_reg_mr(pd, memory, PAGE, rights)));
	batches();
	flags_and_lengths();
	memory_without_rights();
	events();
	polls(false);
	polls(true);
	cancelled();
	return differences != 0;
}
