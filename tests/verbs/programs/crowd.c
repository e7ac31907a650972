/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Asks more peers for connections than the connection manager keeps address handles for, while the
 * network takes no packet, so that a message to each of them waits.  Says "room" if there is room
 * for the route of one more handle.
 *
 *   crowd ADDRESS
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	HANDLES = 256, /* that the connection manager keeps */
	ROUTES = 1024, /* of a port */
	BUFFERS = 512, /* of a port, to send */
	QKEY = 1,
	WAIT_MS = 60000,
};

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static struct rdma_event_channel *channel;
static struct sockaddr_in self = { .sin_family = AF_INET };
static struct rdma_cm_id *ids[HANDLES];

/* In place of libc's: the port sends by it. */
int sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags)
{
	(void)fd, (void)messages, (void)n, (void)flags;
	errno = EAGAIN;
	return -1;
}

static struct sockaddr_in peer(unsigned number)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7471) };

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 0x10000 + number);
	return address;
}

static struct rdma_cm_id *resolve(unsigned number, int timeout_ms)
{
	struct sockaddr_in to = peer(number);
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, (void *)&self, (void *)&to, timeout_ms));
	return id;
}

static void expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	MUST(!rdma_get_cm_event(channel, &event) && event->event == type);
	MUST(!rdma_ack_cm_event(event));
}

static struct ibv_ah *make_handle(struct ibv_pd *pd, unsigned number)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct sockaddr_in to = peer(number);

	attr.grh.dgid.raw[10] = attr.grh.dgid.raw[11] = 0xff;
	memcpy(attr.grh.dgid.raw + 12, &to.sin_addr, sizeof(to.sin_addr));
	return ibv_create_ah(pd, &attr);
}

/* Datagrams, until the port has no buffer left. */
static void fill(struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { 2 * BUFFERS, 1, 1, 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = ibv_create_cq(pd->context, 2 * BUFFERS, NULL, NULL, 0);
	MUST(init.send_cq && (qp = ibv_create_qp(pd, &init)));
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	wr.wr.ud.ah = make_handle(pd, 0);
	wr.wr.ud.remote_qpn = 1;
	wr.wr.ud.remote_qkey = QKEY;
	MUST(wr.wr.ud.ah);
	for (int i = 0; i < 2 * BUFFERS; i++)
		MUST(!ibv_post_send(qp, &wr, &bad));
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = { .qp_num = 2 };
	struct ibv_pd *pd;

	MUST(argc == 2 && inet_pton(AF_INET, argv[1], &self.sin_addr) == 1);
	MUST((channel = rdma_create_event_channel()));
	for (unsigned i = 0; i < HANDLES; i++) {
		ids[i] = resolve(i, WAIT_MS);
		expect(RDMA_CM_EVENT_ADDR_RESOLVED);
		MUST(!rdma_resolve_route(ids[i], WAIT_MS));
		expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	}
	MUST((pd = ibv_alloc_pd(ids[0]->verbs)));
	fill(pd);
	for (unsigned i = 0; i < HANDLES; i++)
		MUST(!rdma_connect(ids[i], &param));
	for (unsigned i = HANDLES; i < ROUTES; i++)
		resolve(i, 1);
	MUST(make_handle(pd, ROUTES));
	puts("room");
	fflush(stdout);
	_exit(0); /* without farewells, which nobody gets */
}
