/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One device and many threads, for ThreadSanitizer:
 *
 *   threads ALGORITHM        until a number of messages has been sent
 *   threads ALGORITHM exit   exit() while all threads are at it
 *
 * Two threads send, one waits for events, one makes and destroys objects and
 * opens the device anew, one changes algorithms as a program does and one as
 * `dpctl cc` does, while the device's own thread, the one that takes samples and
 * the counters do their part.  ALGORITHM: path of a compiled algorithm.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "verbs/dpdv.h"

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #condition,  \
				errno);                                                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum { PAIRS = 3, MESSAGES = 500, BYTES = 5000, EXIT_AFTER_US = 500000 };

/* Two QPs of one context, connected to each other, on a CQ each. */
struct link {
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	uint8_t *memory;
};

static struct ibv_device *device;
static struct ibv_context *context;
static struct link links[PAIRS];
static const char *algorithm;
static atomic_bool over;

/* ---- the vocabulary --------------------------------------------------------------- */

static void connect_to(struct ibv_qp *qp, uint32_t dest_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest_qpn,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};

	EXPECT(!ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid));
	EXPECT(!ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	EXPECT(!ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	EXPECT(!ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void make_link(struct ibv_context *c, struct link *l)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	int i;

	l->memory = calloc(2, BYTES);
	l->channel = ibv_create_comp_channel(c);
	l->pd = ibv_alloc_pd(c);
	l->mr = ibv_reg_mr(l->pd, l->memory, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE);
	EXPECT(l->memory && l->channel && l->pd && l->mr);
	for (i = 0; i < 2; i++) {
		l->cq[i] = ibv_create_cq(c, 16, NULL, l->channel, 0);
		EXPECT(l->cq[i]);
		attr.send_cq = attr.recv_cq = l->cq[i];
		l->qp[i] = ibv_create_qp(l->pd, &attr);
		EXPECT(l->qp[i]);
	}
	connect_to(l->qp[0], l->qp[1]->qp_num);
	connect_to(l->qp[1], l->qp[0]->qp_num);
}

static void end_link(struct link *l)
{
	int i;

	for (i = 0; i < 2; i++)
		EXPECT(!ibv_destroy_qp(l->qp[i]) && !ibv_destroy_cq(l->cq[i]));
	EXPECT(!ibv_dereg_mr(l->mr) && !ibv_dealloc_pd(l->pd));
	EXPECT(!ibv_destroy_comp_channel(l->channel));
	free(l->memory);
}

static void post_recv(struct link *l)
{
	struct ibv_sge sge = { (uintptr_t)l->memory + BYTES, BYTES, l->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	EXPECT(!ibv_post_recv(l->qp[1], &wr, &bad));
}

static void post_send(struct link *l)
{
	struct ibv_sge sge = { (uintptr_t)l->memory, BYTES, l->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	EXPECT(!ibv_post_send(l->qp[0], &wr, &bad));
}

static void wait_for(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	if (wc.status != IBV_WC_SUCCESS)
		fprintf(stderr, "QP %u: %s\n", wc.qp_num, ibv_wc_status_str(wc.status));
	EXPECT(wc.status == IBV_WC_SUCCESS);
}

/* ---- the threads -------------------------------------------------------------------- */

static void *send_polling(void *arg)
{
	struct link *l = arg;
	int i;

	for (i = 0; i < MESSAGES; i++) {
		post_recv(l);
		post_send(l);
		wait_for(l->cq[0]);
		wait_for(l->cq[1]);
	}
	over = true;
	return NULL;
}

static void *send_waiting(void *arg)
{
	struct link *l = arg;
	struct ibv_cq *cq;
	void *user;

	while (!over) {
		EXPECT(!ibv_req_notify_cq(l->cq[1], 0));
		post_recv(l);
		post_send(l);
		EXPECT(!ibv_get_cq_event(l->channel, &cq, &user) && cq == l->cq[1]);
		ibv_ack_cq_events(cq, 1);
		wait_for(l->cq[0]);
		wait_for(l->cq[1]);
	}
	return NULL;
}

static void *make_and_end(void *arg)
{
	struct ibv_context *c;
	struct link l;
	int i;

	(void)arg;
	for (i = 0; !over; i++) {
		c = ibv_open_device(device);
		EXPECT(c);
		make_link(c, &l);
		post_recv(&l);
		post_send(&l);
		wait_for(l.cq[0]);
		if (i % 2)
			end_link(&l);
		EXPECT(!ibv_close_device(c));
		if (!(i % 2))
			free(l.memory);
	}
	return NULL;
}

static void *change_from_inside(void *arg)
{
	struct ibv_qp_init_attr init;
	struct ibv_port_attr port;
	struct ibv_qp_attr attr;
	struct dpdv_cc cc;
	int i;

	(void)arg;
	for (i = 0; !over; i++) {
		EXPECT(!dpdv_set_cc(links[i % PAIRS].qp[0], i % 2 ? NULL : algorithm));
		EXPECT(!dpdv_query_cc(links[i % PAIRS].qp[0], &cc, sizeof(cc)));
		EXPECT(dpdv_find_qp("dp0", links[0].qp[1]->qp_num) == links[0].qp[1]);
		EXPECT(!ibv_query_qp(links[0].qp[0], &attr, IBV_QP_STATE, &init));
		EXPECT(!ibv_query_port(context, 1, &port));
	}
	return NULL;
}

static int control_socket(void)
{
	struct sockaddr_un own = { .sun_family = AF_UNIX }, name = own;
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0), n;

	n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "datapath-verbs:%d:dp0:0",
		     (int)getpid());
	EXPECT(!bind(fd, (struct sockaddr *)&own, sizeof(own.sun_family)));
	EXPECT(!connect(fd, (struct sockaddr *)&name,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)));
	return fd;
}

static void *change_from_outside(void *arg)
{
	static char answer[1 << 16];
	int fd = control_socket(), i;
	char request[1024];
	ssize_t n;

	(void)arg;
	for (i = 0; !over; i++) {
		if (i % 3)
			strcpy(request, "list 0");
		else
			snprintf(request, sizeof(request), "set all %s", algorithm);
		EXPECT(send(fd, request, strlen(request), 0) > 0);
		n = recv(fd, answer, sizeof(answer) - 1, 0);
		EXPECT(n > 0);
		answer[n] = 0;
		EXPECT(!strstr(answer, "\"error\""));
	}
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	void *(*const work[])(void *) = { send_polling, send_polling,	    send_waiting,
					  make_and_end, change_from_inside, change_from_outside };
	enum { THREADS = sizeof(work) / sizeof(work[0]) };
	struct ibv_device **list = ibv_get_device_list(NULL);
	pthread_t threads[THREADS];
	int i;

	EXPECT(argc > 1 && list && list[0]);
	algorithm = argv[1];
	device = list[0];
	context = ibv_open_device(device);
	EXPECT(context);
	for (i = 0; i < PAIRS; i++)
		make_link(context, &links[i]);
	for (i = 0; i < THREADS; i++)
		EXPECT(!pthread_create(&threads[i], NULL, work[i], i < PAIRS ? &links[i] : NULL));
	if (argc > 2) {
		usleep(EXIT_AFTER_US);
		return 0;
	}
	for (i = 0; i < THREADS; i++)
		EXPECT(!pthread_join(threads[i], NULL));
	for (i = 0; i < PAIRS; i++)
		end_link(&links[i]);
	EXPECT(!ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}
