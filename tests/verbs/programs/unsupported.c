/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls that dp0 does not have: each says EOPNOTSUPP, and nothing else happens.  Says which line
 * found something else, and ends with 1.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		if ((call) || errno != EOPNOTSUPP) {                                               \
			fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #call, errno);        \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define RETURNS(call, expected)                                                                    \
	do {                                                                                       \
		int returned = (call);                                                             \
		if (returned != (expected)) {                                                      \
			fprintf(stderr, "line %d: %s is %d\n", __LINE__, #call, returned);         \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &init);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_cq *cq = pd ? ibv_create_cq(context, 1, NULL, NULL, 0) : NULL;
	struct ibv_qp *qp = cq ? make_qp(pd, cq) : NULL;
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srq = qp ? ibv_create_srq(pd, &srq_init) : NULL;
	struct ibv_xrcd_init_attr xrcd = { .fd = -1 };
	struct ibv_wq_init_attr wq = {
		.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq
	};
	struct ibv_rwq_ind_table_init_attr table = {};
	struct ibv_counters_init_attr counters = {};
	struct ibv_flow_attr flow = { .size = sizeof(flow), .port = 1 };
	struct ibv_flow_action_esp_attr esp = {};
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1 };
	struct ibv_qp_open_attr shared = { .comp_mask = IBV_QP_OPEN_ATTR_NUM };
	struct ibv_sge sge = {};
	struct ibv_ops_wr ops = {}, *bad;
	struct ibv_ah_attr ah = {};
	struct ibv_ece ece = {};
	uint8_t mac[6];
	uint32_t number;

	if (!srq) {
		fprintf(stderr, "cannot set up: errno %d\n", errno);
		return 1;
	}
	REFUSED(ibv_alloc_null_mr(pd));
	REFUSED(ibv_open_xrcd(context, &xrcd));
	REFUSED(ibv_open_qp(context, &shared));
	REFUSED(ibv_create_wq(context, &wq));
	REFUSED(ibv_create_rwq_ind_table(context, &table));
	REFUSED(ibv_create_counters(context, &counters));
	REFUSED(ibv_create_flow(qp, &flow));
	REFUSED(ibv_create_flow_action_esp(context, &esp));
	RETURNS(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EOPNOTSUPP);
	RETURNS(ibv_modify_qp_rate_limit(qp, &rate), EOPNOTSUPP);
	RETURNS(ibv_get_srq_num(srq, &number), EOPNOTSUPP);
	RETURNS(ibv_post_srq_ops(srq, &ops, &bad), EOPNOTSUPP);
	RETURNS(ibv_resolve_eth_l2_from_gid(context, &ah, mac, NULL), EOPNOTSUPP);
	RETURNS(ibv_set_ece(qp, &ece), EOPNOTSUPP);
	RETURNS(ibv_query_ece(qp, &ece), EOPNOTSUPP);
	RETURNS(ibv_destroy_srq(srq), 0);
	RETURNS(ibv_destroy_qp(qp), 0);
	RETURNS(ibv_destroy_cq(cq), 0);
	RETURNS(ibv_dealloc_pd(pd), 0);
	RETURNS(ibv_close_device(context), 0);
	ibv_free_device_list(list);
	return 0;
}
