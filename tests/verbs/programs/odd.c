/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Odd calls: wrong states, numbers out of range, objects in use.  Says each answer that is not the
 * expected one, and ends with 1 if there was any.
 *
 *   odd DEVICE [GID INDEX]
 *
 * Expected is what the manual pages promise; where they are silent, what rxe of Linux 6.12 answers.
 * rxe differs in a few lines: it has other errnos for a QP type, an opcode and a GID that are not
 * there, takes any P_Key index and number of READs, and does not tell the bad request of a wrong
 * state.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odd.h"

static void queries(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	IS(ibv_query_port(context, 0, &port), EINVAL);
	IS(ibv_query_port(context, 2, &port), EINVAL);
	IS(ibv_query_gid(context, 1, -1, &gid), -1);
	IS(ibv_query_gid(context, 1, 1 << 20, &gid), -1);
	IS(ibv_query_gid(context, 9, 0, &gid), -1);
	IS(ibv_query_pkey(context, 1, 1 << 20, &pkey), -1);
	IS(ibv_query_pkey(context, 1, -1, &pkey), -1);
	IS(ibv_get_pkey_index(context, 1, htobe16(0x1234)), -1);
}

static void memory_regions(void)
{
	struct ibv_mr *empty;
	struct ibv_mw *mw;

	FAILS(ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	FAILS(ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	FAILS(ibv_reg_mr(pd, NULL, PAGE, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	FAILS(ibv_reg_mr(pd, NULL, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	FAILS(ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	MUST((empty = ibv_reg_mr(pd, memory + 8, 0, IBV_ACCESS_LOCAL_WRITE)));
	IS(ibv_dereg_mr(empty), 0);
	FAILS(ibv_reg_mr(pd, memory, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	FAILS(ibv_reg_mr(pd, memory + PAGE, 64 * PAGE, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	FAILS(ibv_alloc_mw(pd, 7), EINVAL);
	MUST((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	IS(ibv_dealloc_mw(mw), 0);
}

static void completion_queues(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *other, *event;
	void *of;
	struct ibv_wc wc;

	MUST(channel);
	FAILS(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	FAILS(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
	FAILS(ibv_create_cq(context, attr.max_cqe + 1, NULL, NULL, 0), EINVAL);
	FAILS(ibv_create_cq(context, 1, NULL, NULL, 1 << 20), EINVAL);
	FAILS(ibv_create_cq(context, 1, NULL, NULL, -1), EINVAL);
	MUST((other = ibv_create_cq(context, 8, NULL, channel, 0)));
	IS(ibv_poll_cq(other, 0, &wc), 0);
	IS(ibv_poll_cq(other, -1, &wc), 0);
	IS(ibv_poll_cq(other, 1, &wc), 0);
	IS(ibv_resize_cq(other, 0), EINVAL);
	IS(ibv_resize_cq(other, attr.max_cqe + 1), EINVAL);
	IS(ibv_destroy_comp_channel(channel), EBUSY);
	MUST(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	FAILS(ibv_get_cq_event(channel, &event, &of), EAGAIN);
	IS(ibv_destroy_cq(other), 0);
	IS(ibv_destroy_comp_channel(channel), 0);
	IS(ibv_req_notify_cq(cq, 0), 0); /* of a CQ without channel */
}

static void bad_sizes(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = init_of(type);

	init.cap.max_send_wr = (uint32_t)attr.max_qp_wr + 1;
	FAILS(ibv_create_qp(pd, &init), EINVAL);
	init = init_of(type);
	init.cap.max_recv_wr = UINT32_MAX;
	FAILS(ibv_create_qp(pd, &init), EINVAL);
	init = init_of(type);
	init.cap.max_send_sge = (uint32_t)attr.max_sge + 1;
	FAILS(ibv_create_qp(pd, &init), EINVAL);
	init = init_of(type);
	init.cap.max_recv_sge = UINT32_MAX;
	FAILS(ibv_create_qp(pd, &init), EINVAL);
	init = init_of(type);
	init.cap.max_inline_data = 1 << 30;
	FAILS(ibv_create_qp(pd, &init), EINVAL);
	init = init_of((enum ibv_qp_type)99);
	FAILS(ibv_create_qp(pd, &init), EOPNOTSUPP);
}

static void transitions(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC), *peer = make_qp(IBV_QPT_RC);
	struct ibv_qp_attr a = rtr_of(peer);

	IS(ibv_modify_qp(qp, &a, TO_RTR), EINVAL); /* RESET to RTR */
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 2;
	IS(ibv_modify_qp(qp, &a,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	   EINVAL);
	a.port_num = 1;
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), EINVAL);
	a.pkey_index = 50;
	IS(ibv_modify_qp(qp, &a,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	   EINVAL);
	to_init(qp);
	a = rtr_of(peer);
	IS(ibv_modify_qp(qp, &a, TO_RTR & ~IBV_QP_AV), EINVAL);
	IS(ibv_modify_qp(qp, &a, TO_RTR | IBV_QP_SQ_PSN), EINVAL);
	a.path_mtu = (enum ibv_mtu)9;
	IS(ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	a = rtr_of(peer);
	a.ah_attr.grh.sgid_index = 200;
	IS(ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	a = rtr_of(peer);
	a.max_dest_rd_atomic = 255;
	IS(ibv_modify_qp(qp, &a, TO_RTR), EINVAL);
	a = (struct ibv_qp_attr){ .qp_state = (enum ibv_qp_state)77 };
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE), EINVAL);
	a.qp_state = IBV_QPS_ERR;
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_RTS;
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE), EINVAL);
	a.qp_state = IBV_QPS_RESET;
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
}

static int send_to(struct ibv_qp *qp, enum ibv_wr_opcode opcode, int sges, uint64_t id)
{
	struct ibv_sge sge[64];
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = sge,
				  .num_sge = sges,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad = NULL;
	int i, err;

	for (i = 0; i < 64; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)memory, 8, mr->lkey };
	err = ibv_post_send(qp, &wr, &bad);
	if (err && bad != &wr)
		differ(__LINE__, "bad_wr", 0, "the request");
	return err;
}

static int receive(struct ibv_qp *qp, int sges)
{
	struct ibv_sge sge[64] = { { (uintptr_t)memory, 64, mr->lkey } };
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = sges }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static enum ibv_wc_status next_status(void)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	MUST(n == 1);
	return wc.status;
}

static void posting(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC), *peer = make_qp(IBV_QPT_RC);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	int i;

	IS(send_to(qp, IBV_WR_SEND, 1, 0), EINVAL); /* in RESET */
	IS(receive(qp, 1), EINVAL);
	to_init(qp);
	to_init(peer);
	IS(send_to(qp, IBV_WR_SEND, 1, 0), EINVAL); /* in INIT */
	IS(receive(qp, 1), 0);
	to_rts(qp, peer);
	to_rts(peer, qp);
	IS(send_to(qp, (enum ibv_wr_opcode)99, 1, 0), EOPNOTSUPP);
	IS(send_to(qp, IBV_WR_SEND, 64, 0), EINVAL);
	IS(receive(qp, 64), EINVAL);
	IS(receive(qp, 1), 0);
	IS(receive(qp, 1), 0);
	IS(receive(qp, 1), 0);
	for (i = 0; i < 1000 && !receive(qp, 1); i++)
		;
	IS(receive(qp, 1), ENOMEM);
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	for (i += 4; i > 0; i--)
		IS((int)next_status(), IBV_WC_WR_FLUSH_ERR);
	IS(send_to(qp, IBV_WR_SEND, 1, 5), 0); /* in ERR: flushed */
	IS((int)next_status(), IBV_WC_WR_FLUSH_ERR);
	IS(receive(qp, 1), 0);
	IS((int)next_status(), IBV_WC_WR_FLUSH_ERR);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
}

/* What a connection may change once its send queue is drained, and nowhere else. */
static void drained(void)
{
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			 IBV_QP_TIMEOUT | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
	struct ibv_qp *qp = make_qp(IBV_QPT_RC), *peer = make_qp(IBV_QPT_RC);
	struct ibv_qp_attr a = rtr_of(peer);
	struct ibv_qp_init_attr init;

	to_init(qp);
	to_init(peer);
	to_rts(qp, peer);
	to_rts(peer, qp);
	a.qp_state = IBV_QPS_SQD;
	a.port_num = 1;
	a.timeout = 15;
	a.max_rd_atomic = 2;
	a.max_dest_rd_atomic = 3;
	a.ah_attr.grh.traffic_class = 8;
	IS(ibv_modify_qp(qp, &a, mask), EINVAL); /* not yet in SQD */
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	IS(ibv_modify_qp(qp, &a, mask | IBV_QP_PATH_MTU), EINVAL);
	IS(ibv_modify_qp(qp, &a, mask), 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTS };
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	a.cur_qp_state = IBV_QPS_SQD;
	IS(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	IS(ibv_query_qp(qp, &a, mask, &init), 0);
	IS(a.timeout, 15);
	IS(a.max_rd_atomic, 2);
	IS(a.max_dest_rd_atomic, 3);
	IS(a.ah_attr.grh.traffic_class, 8);
	IS(receive(peer, 1), 0);
	IS(send_to(qp, IBV_WR_SEND, 1, 0), 0);
	IS((int)next_status(), IBV_WC_SUCCESS);
	IS((int)next_status(), IBV_WC_SUCCESS);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
}

static void in_use(void)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = init_of(IBV_QPT_RC);
	struct ibv_pd *own = ibv_alloc_pd(context), *main_pd = pd;
	struct ibv_ah_attr where = address();
	struct ibv_ah *ah;
	struct ibv_mr *region;
	struct ibv_mw *mw;
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	MUST(own && (region = ibv_reg_mr(own, memory, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	IS(ibv_dealloc_pd(own), EBUSY);
	IS(ibv_dereg_mr(region), 0);
	MUST((ah = ibv_create_ah(own, &where)));
	IS(ibv_dealloc_pd(own), EBUSY);
	IS(ibv_destroy_ah(ah), 0);
	MUST((mw = ibv_alloc_mw(own, IBV_MW_TYPE_2)));
	IS(ibv_dealloc_pd(own), EBUSY);
	IS(ibv_dealloc_mw(mw), 0);
	MUST((srq = ibv_create_srq(own, &srq_init)));
	IS(ibv_dealloc_pd(own), EBUSY);
	pd = own;
	init.srq = srq;
	MUST((qp = ibv_create_qp(own, &init)));
	IS(ibv_destroy_srq(srq), EBUSY);
	IS(ibv_destroy_cq(cq), EBUSY);
	to_init(qp);
	IS(receive(qp, 1), EINVAL); /* has a shared receive queue */
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_srq(srq), 0);
	IS(ibv_dealloc_pd(own), 0);
	pd = main_pd;
}

static void shared_receive_queues(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = (uint32_t)attr.max_srq_wr + 1,
						    .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = UINT32_MAX };
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
	struct ibv_srq *srq;
	int i;

	FAILS(ibv_create_srq(pd, &init), EINVAL);
	init.attr = (struct ibv_srq_attr){ .max_wr = 4, .max_sge = 1000 };
	FAILS(ibv_create_srq(pd, &init), EINVAL);
	init.attr = (struct ibv_srq_attr){ .max_wr = 0, .max_sge = 1 };
	FAILS(ibv_create_srq(pd, &init), EINVAL);
	init.attr = (struct ibv_srq_attr){ .max_wr = 4, .max_sge = 1 };
	MUST((srq = ibv_create_srq(pd, &init)));
	IS(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), EINVAL);
	limit.max_wr = (uint32_t)attr.max_srq_wr + 1;
	IS(ibv_modify_srq(srq, &limit, IBV_SRQ_MAX_WR), EINVAL);
	for (i = 0; i < 1000 && !ibv_post_srq_recv(srq, &wr, &bad); i++)
		;
	IS(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	IS(ibv_destroy_srq(srq), 0);
}

static void datagrams(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_UD), *rc = make_qp(IBV_QPT_RC);
	struct ibv_ah_attr where = address();
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 9 } };

	where.port_num = 2;
	FAILS(ibv_create_ah(pd, &where), EINVAL);
	where = address();
	where.is_global = 0;
	FAILS(ibv_create_ah(pd, &where), EINVAL);
	where = address();
	where.grh.sgid_index = 200;
	FAILS(ibv_create_ah(pd, &where), EINVAL);
	to_init(qp);
	IS(ibv_attach_mcast(rc, &group, 0), EINVAL);
	IS(ibv_detach_mcast(qp, &group, 0), EINVAL);
	IS(ibv_attach_mcast(qp, &where.grh.dgid, 0), EINVAL);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(rc), 0);
}

/* librdmacm passes these on where an id has no device.  With others libibverbs ends the program. */
static void null_pointers(void)
{
	struct ibv_qp_init_attr init = init_of(IBV_QPT_RC);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };

	FAILS(ibv_create_comp_channel(NULL), EINVAL);
	FAILS(ibv_create_qp(NULL, &init), EINVAL);
	FAILS(ibv_create_srq(NULL, &srq), EINVAL);
	FAILS(ibv_reg_mr(NULL, memory, PAGE, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	IS(ibv_destroy_qp(NULL), EINVAL);
	IS(ibv_destroy_srq(NULL), EINVAL);
}

/* A child that ends leaves its parent's objects alone. */
static void forks(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC), *peer = make_qp(IBV_QPT_RC);
	pid_t child;
	int status;

	to_init(qp);
	to_init(peer);
	to_rts(qp, peer);
	to_rts(peer, qp);
	IS(receive(peer, 1), 0);
	MUST((child = fork()) >= 0);
	if (!child)
		exit(0);
	MUST(waitpid(child, &status, 0) == child && !status);
	IS(send_to(qp, IBV_WR_SEND, 1, 1), 0);
	IS((int)next_status(), IBV_WC_SUCCESS);
	IS((int)next_status(), IBV_WC_SUCCESS);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
}

static struct ibv_qp *shared;
static atomic_int completed, seen[THREADS * EACH];

static void *posts_and_polls(void *first)
{
	uint64_t next = (uintptr_t)first, end = next + EACH;
	struct ibv_wc wc;
	int err;

	while (completed < THREADS * EACH) {
		if (next < end) {
			err = send_to(shared, IBV_WR_RDMA_WRITE, 0, next);
			MUST(!err || err == ENOMEM);
			next += !err;
		}
		if (ibv_poll_cq(cq, 1, &wc) == 1) {
			MUST(!wc.status && wc.wr_id < THREADS * EACH);
			seen[wc.wr_id]++;
			completed++;
		}
	}
	return NULL;
}

/* Several threads post to one QP and poll one CQ, while its size changes: each request has one
 * completion. */
static void threads(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC), *peer = make_qp(IBV_QPT_RC);
	struct ibv_qp_attr a = { .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	pthread_t thread[THREADS];
	uintptr_t i;

	to_init(qp);
	to_init(peer);
	to_rts(qp, peer);
	to_rts(peer, qp);
	MUST(!ibv_modify_qp(peer, &a, IBV_QP_ACCESS_FLAGS));
	shared = qp;
	for (i = 0; i < THREADS; i++)
		MUST(!pthread_create(&thread[i], NULL, posts_and_polls, (void *)(i * EACH)));
	for (i = 0; completed < THREADS * EACH; i++) {
		IS(ibv_resize_cq(cq, i % 2 ? 100 : 1000), 0);
		sched_yield();
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (i = 0; i < THREADS * EACH; i++)
		IS(seen[i], 1);
	IS(ibv_destroy_qp(qp), 0);
	IS(ibv_destroy_qp(peer), 0);
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **d;

	for (d = list; d && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), name))
			MUST((context = ibv_open_device(*d)));
	MUST(context);
	ibv_free_device_list(list); /* the context stays */
	MUST(!ibv_query_device(context, &attr));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0); /* a child has nothing to say again */
	MUST(argc > 1 && !ibv_fork_init());
	gid_index = argc > 2 ? atoi(argv[2]) : 0;
	open_device(argv[1]);
	memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED && !munmap(memory + PAGE, PAGE));
	MUST((pd = ibv_alloc_pd(context)));
	MUST((cq = ibv_create_cq(context, 100, NULL, NULL, 0)));
	MUST((mr = ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	queries();
	memory_regions();
	completion_queues();
	bad_sizes(IBV_QPT_RC);
	bad_sizes(IBV_QPT_UD);
	transitions();
	posting();
	drained();
	in_use();
	shared_receive_queues();
	datagrams();
	if (attr.vendor_id == DP_VENDOR_ID)
		null_pointers();
	forks();
	threads();
	IS(ibv_dealloc_pd(pd), EBUSY);
	IS(ibv_dereg_mr(mr), 0);
	IS(ibv_destroy_cq(cq), 0);
	IS(ibv_dealloc_pd(pd), 0);
	IS(ibv_close_device(context), 0);
	return differences != 0;
}
