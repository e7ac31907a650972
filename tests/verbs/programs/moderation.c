/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ibv_modify_cq() on dp0: an event waits for several completions, or for a time.  Says which line
 * found something else, and ends with 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(what)                                                                               \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: not %s\n", __LINE__, #what);                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum { COUNT = 8, LONG_US = 60000, QUIET_MS = 50 };

static char memory[64];
static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_mr *mr;
static struct ibv_qp *from, *to;

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 64,
			 .max_recv_wr = 64,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	EXPECT(qp);
	EXPECT(!ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	EXPECT(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	EXPECT(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static void send_one(struct ibv_ah *ah)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory,
			       .length = sizeof(memory),
			       .lkey = mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;

	send.wr.ud.ah = ah;
	send.wr.ud.remote_qpn = to->qp_num;
	send.wr.ud.remote_qkey = 1;
	EXPECT(!ibv_post_recv(to, &receive, &bad_receive));
	EXPECT(!ibv_post_send(from, &send, &bad_send));
}

static int event_within(int ms)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *unused;

	if (poll(&fd, 1, ms) != 1)
		return 0;
	EXPECT(!ibv_get_cq_event(channel, &cq, &unused));
	ibv_ack_cq_events(cq, 1);
	return 1;
}

static int moderate(struct ibv_cq *cq, uint16_t count, uint16_t period_us)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = { count, period_us } };

	return ibv_modify_cq(cq, &attr);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_modify_cq_attr unknown = { .attr_mask = 2 };
	struct ibv_ah_attr route = { .is_global = 1, .port_num = 1 };
	struct ibv_device_attr_ex attr;
	struct ibv_cq *cq, *quiet;
	struct ibv_pd *pd;
	struct ibv_ah *ah;
	int i;

	EXPECT(list && list[0] && (context = ibv_open_device(list[0])));
	EXPECT(!ibv_query_device_ex(context, NULL, &attr));
	EXPECT(attr.cq_mod_caps.max_cq_count == 65535 && attr.cq_mod_caps.max_cq_period == 65535);
	EXPECT((channel = ibv_create_comp_channel(context)) && (pd = ibv_alloc_pd(context)));
	EXPECT((cq = ibv_create_cq(context, 256, NULL, channel, 0)));
	EXPECT((quiet = ibv_create_cq(context, 256, NULL, NULL, 0)));
	EXPECT((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	EXPECT(!ibv_query_gid(context, 1, 0, &route.grh.dgid));
	EXPECT((ah = ibv_create_ah(pd, &route)));
	from = make_qp(pd, quiet);
	to = make_qp(pd, cq);

	EXPECT(ibv_modify_cq(cq, &unknown) == EINVAL);
	EXPECT(!moderate(cq, COUNT, 0));
	EXPECT(!ibv_req_notify_cq(cq, 0));
	for (i = 1; i < COUNT; i++)
		send_one(ah);
	EXPECT(!event_within(QUIET_MS));
	send_one(ah);
	EXPECT(event_within(-1));

	EXPECT(!moderate(cq, COUNT, LONG_US));
	EXPECT(!ibv_req_notify_cq(cq, 0));
	send_one(ah);
	EXPECT(event_within(-1));

	EXPECT(!moderate(cq, 0, 0));
	EXPECT(!ibv_req_notify_cq(cq, 0));
	send_one(ah);
	EXPECT(event_within(-1));
	ibv_free_device_list(list);
	return 0;
}
