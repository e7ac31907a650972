/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Datagrams to a multicast group, on any verbs device.
 *
 *   multicast receive DEVICE GROUP COUNT   says "ready", then each datagram on a line
 *   multicast send DEVICE GROUP COUNT      sends them; its own QP is in the group
 *   multicast both DEVICE GROUP COUNT      the same, and another QP of the process receives
 *   multicast rules DEVICE GROUP           what the calls refuse
 *
 * GROUP is an IP address.  The GID index is 1, as in the other cases.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	GID_INDEX = 1,
	QKEY = 0x1abcdef,
	GRH = 40,
	SLOT = 256,
	SLOTS = 64,
	MULTICAST_QPN = 0xffffff
};

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[SLOTS * SLOT];
};

static void open_device(const char *name)
{
	struct ibv_device **all = ibv_get_device_list(NULL);

	MUST(all);
	for (int i = 0; all[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(all[i]), name))
			context = ibv_open_device(all[i]);
	MUST(context);
	MUST((pd = ibv_alloc_pd(context)));
}

static void post_receive(struct end *end, unsigned slot)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + slot * SLOT, SLOT, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(!ibv_post_recv(end->qp, &wr, &bad));
}

static struct end *make_end(void)
{
	struct end *end = calloc(1, sizeof(*end));
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = SLOTS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	MUST(end && (end->cq = ibv_create_cq(context, 2 * SLOTS, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = end->cq;
	MUST((end->qp = ibv_create_qp(pd, &init)));
	MUST((end->mr = ibv_reg_mr(pd, end->memory, sizeof(end->memory), IBV_ACCESS_LOCAL_WRITE)));
	MUST(!ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	for (unsigned slot = 0; slot < SLOTS; slot++)
		post_receive(end, slot);
	return end;
}

static struct ibv_wc next(struct end *end)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(end->cq, 1, &wc)))
		;
	MUST(n == 1 && wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void receive(struct end *end, int count)
{
	while (count--) {
		struct ibv_wc wc = next(end);
		const char *at = end->memory + wc.wr_id * SLOT;

		MUST(wc.opcode == IBV_WC_RECV && wc.wc_flags & IBV_WC_GRH);
		printf("%.*s\n", (int)wc.byte_len - GRH, at + GRH);
		post_receive(end, (unsigned)wc.wr_id);
	}
}

static void send_all(struct end *end, const union ibv_gid *group, int count)
{
	struct ibv_ah_attr to = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = *group, .sgid_index = GID_INDEX, .hop_limit = 1 },
	};
	struct ibv_sge sge = { (uintptr_t)end->memory, 0, end->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	MUST((wr.wr.ud.ah = ibv_create_ah(pd, &to)));
	wr.wr.ud.remote_qpn = MULTICAST_QPN;
	wr.wr.ud.remote_qkey = QKEY;
	for (int i = 0; i < count; i++) {
		sge.length = (uint32_t)snprintf(end->memory, SLOT, "datagram %d", i);
		MUST(!ibv_post_send(end->qp, &wr, &bad));
		MUST(next(end).opcode == IBV_WC_SEND);
	}
	MUST(!ibv_destroy_ah(wr.wr.ud.ah));
}

/* Codes are positive, whatever the device's driver says. */
static int code_of(int result)
{
	return abs(result == -1 ? errno : result);
}

static void rules(struct end *end, const union ibv_gid *group)
{
	union ibv_gid host;

	MUST(!ibv_query_gid(context, 1, GID_INDEX, &host));
	printf("a host: %s\n", strerror(code_of(ibv_attach_mcast(end->qp, &host, 0))));
	printf("not attached: %s\n", strerror(code_of(ibv_detach_mcast(end->qp, group, 0))));
	MUST(!(errno = code_of(ibv_attach_mcast(end->qp, group, 0))));
	printf("again: %s\n", strerror(code_of(ibv_attach_mcast(end->qp, group, 0))));
	printf("destroy: %s\n", strerror(code_of(ibv_destroy_qp(end->qp))));
	MUST(!ibv_detach_mcast(end->qp, group, 0));
	printf("destroy: %s\n", strerror(code_of(ibv_destroy_qp(end->qp))));
}

static union ibv_gid group_of(const char *text)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	if (inet_pton(AF_INET, text, gid.raw + 12) != 1)
		MUST(inet_pton(AF_INET6, text, gid.raw) == 1);
	return gid;
}

int main(int argc, char **argv)
{
	union ibv_gid group;
	struct end *end, *other;
	int count;

	MUST(argc >= 4);
	count = argc > 4 ? atoi(argv[4]) : 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_device(argv[2]);
	group = group_of(argv[3]);
	end = make_end();
	if (!strcmp(argv[1], "rules")) {
		rules(end, &group);
		return 0;
	}
	MUST(!ibv_attach_mcast(end->qp, &group, 0));
	if (!strcmp(argv[1], "receive")) {
		puts("ready");
		receive(end, count);
	} else if (!strcmp(argv[1], "send")) {
		send_all(end, &group, count);
	} else {
		other = make_end();
		MUST(!ibv_attach_mcast(other->qp, &group, 0));
		send_all(end, &group, count);
		receive(other, count);
	}
	MUST(!ibv_poll_cq(end->cq, 1, &(struct ibv_wc){ 0 })); /* no copy of its own */
	return 0;
}
