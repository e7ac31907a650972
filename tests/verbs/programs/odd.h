/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For odd.c: how it compares answers, and the objects of its calls.
 */
#ifndef ODD_H
#define ODD_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#include "differences.h"

static void differ(int line, const char *call, int got, const char *wanted)
{
	printf("line %d: %s: %s (%d) in place of %s\n", line, call, strerrorname_np(got) ?: "?",
	       got, wanted);
	differences++;
}

/* A call that returns 0 or an errno. */
#define IS(call, wanted)                                                                           \
	do {                                                                                       \
		int got_ = (call);                                                                 \
		if (got_ != (wanted))                                                              \
			differ(__LINE__, #call, got_, #wanted);                                    \
	} while (0)

/* A call that returns NULL or -1, and sets errno. */
#define FAILS(call, wanted)                                                                        \
	do {                                                                                       \
		errno = 0;                                                                         \
		if ((long)(call) > 0)                                                              \
			differ(__LINE__, #call, 0, #wanted);                                       \
		else if (errno != (wanted))                                                        \
			differ(__LINE__, #call, errno, #wanted);                                   \
	} while (0)

enum { PAGE = 4096, WRS = 4, THREADS = 4, EACH = 500, DP_VENDOR_ID = 0x026470 };

static struct ibv_context *context;
static struct ibv_device_attr attr;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char *memory;
static int gid_index;

static struct ibv_qp_init_attr init_of(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = WRS, .max_recv_wr = WRS, 1, 1 },
		.qp_type = type,
	};
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = init_of(type);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	MUST(qp);
	return qp;
}

static struct ibv_ah_attr address(void)
{
	struct ibv_ah_attr ah = { .is_global = 1,
				  .port_num = 1,
				  .grh = { .sgid_index = (uint8_t)gid_index, .hop_limit = 1 } };

	MUST(!ibv_query_gid(context, 1, gid_index, &ah.grh.dgid));
	return ah;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	int ud = qp->qp_type == IBV_QPT_UD;

	MUST(!ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
}

enum {
	TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	TO_RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC
};

static struct ibv_qp_attr rtr_of(const struct ibv_qp *peer)
{
	return (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = peer->qp_num,
				     .max_dest_rd_atomic = 1,
				     .min_rnr_timer = 12,
				     .ah_attr = address() };
}

static void to_rts(struct ibv_qp *qp, const struct ibv_qp *peer)
{
	struct ibv_qp_attr a = rtr_of(peer);

	MUST(!ibv_modify_qp(qp, &a, TO_RTR));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .timeout = 14,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	MUST(!ibv_modify_qp(qp, &a, TO_RTS));
}

#endif
