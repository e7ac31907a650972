// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Threads that write to themselves through verbs devices, each with QPs and a CQ of its own:
 *
 *   devices THREADS SECONDS     thread i uses device i modulo the number of devices
 *
 * Prints the 64-byte WRITEs of all threads in a second.  devices.py runs it.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what);                         \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum { DEPTH = 64, SIZE = 64, THREADS_MAX = 64 };

struct worker {
	pthread_t thread;
	struct ibv_context *context;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	long done;
	char from[SIZE], to[SIZE];
};

static atomic_bool stop;

static struct ibv_qp *make_qp(struct worker *w, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = w->cq,
		.recv_cq = w->cq,
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	return ibv_create_qp(pd, &init);
}

static void connect_to(struct ibv_qp *qp, const struct ibv_qp *peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = *gid, .hop_limit = 1 } },
	};

	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void begin(struct worker *w)
{
	struct ibv_pd *pd;
	struct ibv_qp *peer;
	union ibv_gid gid;

	MUST((pd = ibv_alloc_pd(w->context)));
	MUST((w->cq = ibv_create_cq(w->context, 2 * DEPTH, NULL, NULL, 0)));
	MUST((w->mr = ibv_reg_mr(pd, w, sizeof(*w),
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	MUST((w->qp = make_qp(w, pd)) && (peer = make_qp(w, pd)));
	MUST(!ibv_query_gid(w->context, 1, 0, &gid));
	connect_to(w->qp, peer, &gid);
	connect_to(peer, w->qp, &gid);
}

static void post(struct worker *w)
{
	struct ibv_sge sge = { (uintptr_t)w->from, SIZE, w->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)w->to, .rkey = w->mr->rkey },
	}, *bad;

	MUST(!ibv_post_send(w->qp, &wr, &bad));
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ibv_wc wc[DEPTH];
	int n;

	for (int i = 0; i < DEPTH; i++)
		post(w);
	while (!stop) {
		MUST((n = ibv_poll_cq(w->cq, DEPTH, wc)) >= 0);
		for (int i = 0; i < n; i++) {
			MUST(wc[i].status == IBV_WC_SUCCESS);
			post(w);
		}
		w->done += n;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int devices = 0, threads = argc == 3 ? atoi(argv[1]) : 0;
	struct ibv_device **list = ibv_get_device_list(&devices);
	struct ibv_context *opened[THREADS_MAX];
	struct worker *workers;
	long done = 0;

	MUST(threads > 0 && threads <= THREADS_MAX && devices > 0 && devices <= THREADS_MAX);
	MUST((workers = calloc((size_t)threads, sizeof(*workers))));
	for (int i = 0; i < devices; i++)
		MUST((opened[i] = ibv_open_device(list[i])));
	for (int i = 0; i < threads; i++) {
		workers[i].context = opened[i % devices];
		begin(&workers[i]);
	}
	for (int i = 0; i < threads; i++)
		MUST(!pthread_create(&workers[i].thread, NULL, work, &workers[i]));
	sleep((unsigned)atoi(argv[2]));
	stop = true;
	for (int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		done += workers[i].done;
	}
	printf("%ld\n", done / atoi(argv[2]));
	return 0;
}
