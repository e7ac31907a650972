/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Odd calls of librdmacm, and a receive that is posted late.  Says each answer that is not the
 * expected one, and ends with 1 if there was any.
 *
 *   odd_cm ADDRESS
 *
 * Expected is what the manual pages promise; where they are silent, what rxe of Linux 6.12 answers.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "differences.h"

/* A call that returns 0, or -1 and sets errno; `wanted` is 0 or the errno. */
#define IS(call, wanted)                                                                           \
	do {                                                                                       \
		errno = 0;                                                                         \
		int got_ = (call) ? errno : 0;                                                     \
		if (got_ != (wanted)) {                                                            \
			printf("line %d: %s: %d in place of %s\n", __LINE__, #call, got_,          \
			       #wanted);                                                           \
			differences++;                                                             \
		}                                                                                  \
	} while (0)

enum { LATE_US = 300000, BYTES = 64, UNDECIDED = 3, EVENT_MS = 30000 };

static const char *const service = "7471";
static struct sockaddr_in here, nobody;

static void unconnected(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id, *other;
	uint8_t tos = 4;

	MUST(channel && !fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	IS(rdma_get_cm_event(channel, &event), EAGAIN);
	IS(rdma_create_id(channel, &id, NULL, (enum rdma_port_space)0x777), EINVAL);
	IS(rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB), EOPNOTSUPP);
	MUST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	IS(rdma_reject(id, NULL, 0), EINVAL);
	IS(rdma_disconnect(id), EINVAL);
	IS(rdma_establish(id), EINVAL);
	IS(rdma_set_option(id, RDMA_OPTION_ID, 99, &tos, sizeof(tos)), ENOSYS);
	IS(rdma_set_option(id, 99, 0, &tos, sizeof(tos)), ENOSYS);
	IS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 9), EINVAL);
	IS(rdma_bind_addr(id, (struct sockaddr *)&nobody), EADDRNOTAVAIL);
	IS(rdma_bind_addr(id, (struct sockaddr *)&here), 0);
	IS(rdma_bind_addr(id, (struct sockaddr *)&here), EINVAL);
	MUST(!rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
	IS(rdma_listen(id, 1), 0);
	IS(rdma_bind_addr(other, (struct sockaddr *)&here), EADDRINUSE);
	IS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000), EINVAL);
	IS(rdma_destroy_id(other), 0);
	IS(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

/* An id that is neither bound nor resolved has no context, PD, QP or SRQ. */
static void without_a_device(void)
{
	struct ibv_qp_init_attr qp = { .cap = { 1, 1, 1, 1 } };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	char bytes[8];

	MUST(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	IS(rdma_create_qp(id, NULL, &qp), EINVAL);
	IS(rdma_create_srq(id, NULL, &srq), EINVAL);
	IS(!rdma_reg_msgs(id, bytes, sizeof(bytes)), EINVAL);
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	IS(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char bytes[BYTES];
};

static const struct ibv_qp_init_attr qp_init = { .cap = { 4, 4, 1, 1 }, .sq_sig_all = 1 };

static struct rdma_addrinfo *look_up(int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	char name[INET_ADDRSTRLEN];

	MUST(inet_ntop(AF_INET, &here.sin_addr, name, sizeof(name)));
	MUST(!rdma_getaddrinfo(name, service, &hints, &found));
	return found;
}

static void *serves(void *listener)
{
	struct rdma_conn_param param = { .rnr_retry_count = 1 };
	static struct end end;
	struct ibv_wc wc;

	MUST(!rdma_get_request(listener, &end.id));
	MUST((end.mr = rdma_reg_msgs(end.id, end.bytes, BYTES)));
	MUST(!rdma_accept(end.id, &param));
	usleep(LATE_US);
	MUST(!rdma_post_recv(end.id, NULL, end.bytes, BYTES, end.mr));
	MUST(rdma_get_recv_comp(end.id, &wc) == 1);
	IS(wc.status, 0);
	MUST(!rdma_dereg_mr(end.mr));
	rdma_disconnect(end.id);
	rdma_destroy_ep(end.id);
	return NULL;
}

/* A program that is held up for a third of a second keeps a connection with a single retry. */
static void late_receive(void)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 1 };
	struct rdma_addrinfo *at = look_up(RAI_PASSIVE), *to = look_up(0);
	struct ibv_qp_init_attr init = qp_init;
	struct rdma_cm_id *listener;
	static struct end end;
	struct ibv_wc wc;
	pthread_t thread;

	MUST(!rdma_create_ep(&listener, at, NULL, &init));
	MUST(!rdma_listen(listener, 1));
	MUST(!pthread_create(&thread, NULL, serves, listener));
	init = qp_init;
	MUST(!rdma_create_ep(&end.id, to, NULL, &init));
	MUST((end.mr = rdma_reg_msgs(end.id, end.bytes, BYTES)));
	MUST(!rdma_connect(end.id, &param));
	MUST(!rdma_post_send(end.id, NULL, end.bytes, BYTES, end.mr, 0));
	MUST(rdma_get_send_comp(end.id, &wc) == 1);
	if (wc.status) {
		printf("the send: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	rdma_disconnect(end.id);
	pthread_join(thread, NULL);
	MUST(!rdma_dereg_mr(end.mr));
	rdma_destroy_ep(end.id);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(at);
	rdma_freeaddrinfo(to);
}

static void next_event(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted,
		       struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;

	MUST(!rdma_get_cm_event(channel, &event));
	MUST(event->event == wanted);
	if (id)
		*id = event->id;
	IS(rdma_ack_cm_event(event), 0);
}

static struct rdma_cm_id *listening(struct rdma_event_channel *channel, int backlog)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	IS(rdma_bind_addr(id, (struct sockaddr *)&here), 0);
	IS(rdma_listen(id, backlog), 0);
	return id;
}

/* An id that may connect to the one that listens. */
static struct rdma_cm_id *resolved(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	IS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000), 0);
	next_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	IS(rdma_resolve_route(id, 1000), 0);
	next_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	return id;
}

/* A request that the program has seen has left the backlog, decided or not.  A listener that is told to
 * listen again goes on as it was. */
static void undecided(void)
{
	struct rdma_event_channel *servers = rdma_create_event_channel(),
				  *clients = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_cm_id *listener, *client[UNDECIDED], *request[UNDECIDED];
	struct ibv_qp_init_attr init;
	int i;

	MUST(servers && clients);
	listener = listening(servers, 1);
	IS(rdma_listen(listener, 1), EINVAL);
	for (i = 0; i < UNDECIDED; i++) {
		client[i] = resolved(clients);
		init = qp_init;
		init.qp_type = IBV_QPT_RC;
		IS(rdma_create_qp(client[i], NULL, &init), 0);
		IS(rdma_connect(client[i], &param), 0);
		next_event(servers, RDMA_CM_EVENT_CONNECT_REQUEST, &request[i]);
	}
	for (i = 0; i < UNDECIDED; i++) {
		IS(rdma_reject(request[i], NULL, 0), 0);
		IS(rdma_destroy_id(request[i]), 0);
		next_event(clients, RDMA_CM_EVENT_REJECTED, NULL);
	}
	for (i = 0; i < UNDECIDED; i++) {
		rdma_destroy_qp(client[i]);
		IS(rdma_destroy_id(client[i]), 0);
	}
	IS(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(servers);
	rdma_destroy_event_channel(clients);
}

static void await(struct rdma_event_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	MUST(poll(&fd, 1, EVENT_MS) == 1);
}

/* A request follows its listener to another channel, and outlives the one to which it came. */
static void migrated(void)
{
	struct rdma_event_channel *first = rdma_create_event_channel(),
				  *second = rdma_create_event_channel(),
				  *clients = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 0x123 };
	struct rdma_cm_id *listener, *client, *request;

	MUST(first && second && clients);
	listener = listening(first, 1);
	client = resolved(clients);
	IS(rdma_connect(client, &param), 0);
	await(first);
	IS(rdma_migrate_id(listener, second), 0);
	rdma_destroy_event_channel(first);
	await(second);
	next_event(second, RDMA_CM_EVENT_CONNECT_REQUEST, &request);
	IS(rdma_reject(request, NULL, 0), 0);
	next_event(clients, RDMA_CM_EVENT_REJECTED, NULL);
	IS(rdma_destroy_id(request), 0);
	IS(rdma_destroy_id(client), 0);
	IS(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(second);
	rdma_destroy_event_channel(clients);
}

/* The time-out of a QP, which 0 turns off. */
static void no_ack_timeout(void)
{
	struct rdma_event_channel *servers = rdma_create_event_channel(),
				  *clients = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_cm_id *listener, *client, *request;
	struct ibv_qp_init_attr init = qp_init, out;
	struct ibv_qp_attr attr;
	uint8_t none = 0;

	MUST(servers && clients);
	listener = listening(servers, 1);
	client = resolved(clients);
	IS(rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &none, 1), 0);
	init.qp_type = IBV_QPT_RC;
	IS(rdma_create_qp(client, NULL, &init), 0);
	IS(rdma_connect(client, &param), 0);
	next_event(servers, RDMA_CM_EVENT_CONNECT_REQUEST, &request);
	init = qp_init;
	init.qp_type = IBV_QPT_RC;
	IS(rdma_create_qp(request, NULL, &init), 0);
	IS(rdma_accept(request, &param), 0);
	next_event(clients, RDMA_CM_EVENT_ESTABLISHED, NULL);
	MUST(!ibv_query_qp(client->qp, &attr, IBV_QP_TIMEOUT, &out));
	IS(attr.timeout ? (errno = attr.timeout) : 0, 0);
	MUST(!ibv_query_qp(request->qp, &attr, IBV_QP_TIMEOUT, &out) && attr.timeout);
	next_event(servers, RDMA_CM_EVENT_ESTABLISHED, NULL);
	rdma_disconnect(client);
	rdma_destroy_qp(client);
	IS(rdma_destroy_id(client), 0);
	rdma_destroy_qp(request);
	next_event(servers, RDMA_CM_EVENT_DISCONNECTED, NULL);
	IS(rdma_destroy_id(request), 0);
	IS(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(servers);
	rdma_destroy_event_channel(clients);
}

int main(int argc, char **argv)
{
	here = nobody = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(7470) };
	MUST(argc == 2 && inet_pton(AF_INET, argv[1], &here.sin_addr) == 1);
	nobody.sin_addr.s_addr = htonl(0xc6336409); /* 198.51.100.9, of TEST-NET-2 */
	unconnected();
	without_a_device();
	late_receive();
	undecided();
	migrated();
	no_ack_timeout();
	return differences != 0;
}
