/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Makes connections by RDMA-CM and ends them, and tells how long it took to make each.
 *
 *   dp-connections server ADDRESS PORT COUNT
 *   dp-connections client ADDRESS PORT COUNT AT_A_TIME
 *
 * The client sends one message on each connection before it disconnects.  Each end prints one
 * line of JSON once COUNT connections have ended or failed.  left: connections that are still
 * open, and descriptors beyond those that were open after the first connection.
 *
 * The server never hears of a connection that was lost on the way to it.  So SIGTERM tells it that
 * the client is done: it gives what is under way TIMEOUT_MS, and prints its line.
 */
#include "posix/clock.h"
#include "posix/number.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 5000, BACKLOG = 128, MESSAGE = 64, DEPTH = 4, COUNT_MAX = 1000000 };

struct connection {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	double started_s;
	int number; /* of the connections of this end; also in its work requests */
	bool failed;
	char buffer[MESSAGE];
};

struct end {
	struct rdma_event_channel *channel;
	struct sockaddr_in peer; /* client */
	struct ibv_cq *cq;
	bool is_client;
	int wanted, at_a_time, begun, made, used, ended, failed, open;
	double *times_s, done_s; /* done_s: when the server was told that the client is done */
	struct connection **connection; /* by number; NULL: it is over */
	int descriptors;
};

static volatile sig_atomic_t client_is_done;

static void on_sigterm(int signal)
{
	(void)signal;
	client_is_done = 1;
}

static double now_s(void)
{
	return (double)dp_now_ns() / 1e9;
}

static void must(int err, const char *what)
{
	if (!err)
		return;
	perror(what);
	exit(2);
}

static int count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* ---- one connection ------------------------------------------------------------------- */

static void make_qp(struct end *e, struct connection *c)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = DEPTH,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)c->number, .num_sge = 1 }, *bad;
	struct ibv_sge sge = { .addr = (uintptr_t)c->buffer, .length = MESSAGE };

	if (!e->cq)
		e->cq = ibv_create_cq(c->id->verbs, 4096, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = e->cq;
	must(!e->cq || rdma_create_qp(c->id, NULL, &attr), "rdma_create_qp");
	c->mr = ibv_reg_mr(c->id->pd, c->buffer, MESSAGE, IBV_ACCESS_LOCAL_WRITE);
	must(!c->mr, "ibv_reg_mr");
	sge.lkey = c->mr->lkey;
	wr.sg_list = &sge;
	must(ibv_post_recv(c->id->qp, &wr, &bad), "ibv_post_recv");
}

static void send_message(struct connection *c)
{
	struct ibv_sge sge = { .addr = (uintptr_t)c->buffer,
			       .length = MESSAGE,
			       .lkey = c->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)c->number,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	must(ibv_post_send(c->id->qp, &wr, &bad), "ibv_post_send");
}

static struct connection *begin(struct end *e, struct rdma_cm_id *id)
{
	struct connection *c = calloc(1, sizeof(*c));

	must(!c, "calloc");
	c->id = id;
	c->started_s = now_s();
	c->number = e->begun++;
	e->connection[c->number] = c;
	e->open++;
	id->context = c;
	return c;
}

/* A connection counts once, whatever else happens to it. */
static void fail(struct end *e, struct connection *c)
{
	if (!c->failed)
		e->failed++;
	c->failed = true;
}

static void end_of(struct end *e, struct connection *c)
{
	if (c->id->qp)
		rdma_destroy_qp(c->id);
	if (c->mr)
		ibv_dereg_mr(c->mr);
	rdma_destroy_id(c->id);
	e->connection[c->number] = NULL;
	free(c);
	e->open--;
}

static void connect_one(struct end *e)
{
	struct rdma_cm_id *id;

	must(rdma_create_id(e->channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	begin(e, id);
	must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&e->peer, TIMEOUT_MS),
	     "rdma_resolve_addr");
}

/* ---- events ------------------------------------------------------------------------------ */

static struct connection *on_event(struct end *e, const struct rdma_cm_event *event)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct connection *c = event->id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(rdma_resolve_route(c->id, TIMEOUT_MS), "rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_qp(e, c);
		must(rdma_connect(c->id, &param), "rdma_connect");
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		if (e->begun == e->wanted) { /* of another client */
			rdma_reject(event->id, NULL, 0);
			break;
		}
		c = begin(e, event->id);
		make_qp(e, c);
		must(rdma_accept(c->id, &param), "rdma_accept");
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		e->times_s[e->made++] = now_s() - c->started_s;
		if (e->is_client)
			send_message(c);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		e->ended += !c->failed;
		if (!e->is_client)
			rdma_disconnect(c->id);
		return c;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
		if (c)
			fail(e, c);
		return c;
	}
	return NULL;
}

static void take_completions(struct end *e)
{
	struct ibv_wc wc;

	while (e->cq && ibv_poll_cq(e->cq, 1, &wc) > 0) {
		struct connection *c = e->connection[wc.wr_id];

		if (!c || wc.status == IBV_WC_WR_FLUSH_ERR)
			continue;
		if (wc.status) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
			fail(e, c);
		} else {
			e->used++;
		}
		if (wc.status || e->is_client)
			rdma_disconnect(c->id);
	}
}

/*
 * Returns true if there was an event.  Completions of before it come first: a QP takes those of
 * its connection along when it ends.
 */
static bool take_event(struct end *e)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *refused = NULL;
	struct connection *over;

	if (rdma_get_cm_event(e->channel, &event))
		return false;
	take_completions(e);
	over = on_event(e, event);
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && !event->id->context)
		refused = event->id;
	rdma_ack_cm_event(event);
	if (refused)
		rdma_destroy_id(refused);
	if (over)
		end_of(e, over);
	if (over && !e->descriptors)
		e->descriptors = count_descriptors();
	return true;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void tell(const struct end *e, double took_s)
{
	int left = e->descriptors ? count_descriptors() - e->descriptors : 0, i;

	printf("{\"made\": %d, \"used\": %d, \"ended\": %d, \"failed\": %d, \"left\": %d, "
	       "\"seconds\": %.6f, \"times_us\": [",
	       e->made, e->used, e->ended, e->failed, e->open + (left > 0 ? left : 0), took_s);
	for (i = 0; i < e->made; i++)
		printf("%s%.0f", i ? ", " : "", 1e6 * e->times_s[i]);
	printf("]}\n");
}

/* Returns true if all connections are over, or no others will come. */
static bool is_over(struct end *e)
{
	if (client_is_done && !e->done_s)
		e->done_s = now_s();
	return e->ended + e->failed >= e->wanted ||
	       (e->done_s && now_s() > e->done_s + TIMEOUT_MS / 1e3);
}

/* Reads the command line: 0 or -EINVAL. */
static int parse(int argc, char **argv, struct end *e)
{
	uint32_t port, wanted, at_a_time = 0;

	e->is_client = argc == 6 && !strcmp(argv[1], "client");
	if (!e->is_client && (argc != 5 || strcmp(argv[1], "server")))
		return -EINVAL;
	if (inet_pton(AF_INET, argv[2], &e->peer.sin_addr) != 1 ||
	    dp_read_u32(argv[3], 1, UINT16_MAX, &port) ||
	    dp_read_u32(argv[4], 1, COUNT_MAX, &wanted) ||
	    (e->is_client && dp_read_u32(argv[5], 1, COUNT_MAX, &at_a_time)))
		return -EINVAL;
	e->peer.sin_port = htons((uint16_t)port);
	e->wanted = (int)wanted;
	e->at_a_time = (int)at_a_time;
	return 0;
}

int main(int argc, char **argv)
{
	struct end e = { .peer = { .sin_family = AF_INET } };
	struct rdma_cm_id *listener = NULL;
	double start_s;
	int flags;

	if (parse(argc, argv, &e)) {
		fprintf(stderr, "usage: dp-connections server ADDRESS PORT COUNT\n"
				"       dp-connections client ADDRESS PORT COUNT AT_A_TIME\n");
		return 2;
	}
	e.times_s = calloc((size_t)e.wanted, sizeof(double));
	e.connection = calloc((size_t)e.wanted, sizeof(struct connection *));
	must(!e.times_s || !e.connection, "calloc");
	e.channel = rdma_create_event_channel();
	must(!e.channel, "rdma_create_event_channel");
	flags = fcntl(e.channel->fd, F_GETFL);
	fcntl(e.channel->fd, F_SETFL, flags | O_NONBLOCK);
	if (!e.is_client) {
		must(rdma_create_id(e.channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
		must(rdma_bind_addr(listener, (struct sockaddr *)&e.peer), "rdma_bind_addr");
		must(rdma_listen(listener, BACKLOG), "rdma_listen");
		signal(SIGTERM, on_sigterm);
		fprintf(stderr, "listening, process %d\n", getpid());
	}
	start_s = now_s();
	while (!is_over(&e)) {
		struct pollfd wait = { .fd = e.channel->fd, .events = POLLIN };

		while (e.begun < e.wanted && e.open < e.at_a_time)
			connect_one(&e);
		poll(&wait, 1, 1); /* completions are looked for each millisecond */
		while (take_event(&e))
			;
		take_completions(&e);
	}
	tell(&e, now_s() - start_s);
	return 0;
}
