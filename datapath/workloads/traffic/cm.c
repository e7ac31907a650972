// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * QPs connected by RDMA-CM, which is iWARP's only way and a way of the others.
 *
 * The sending end of each connection calls the receiving one, at the address
 * under test; the private data says which connection it is.  All calls are under
 * way at once, and each event moves one of them a step further.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator.h"

enum { RESOLVE_MS = 5000, BACKLOG = 1024 };

/* Private data of a call. */
struct purpose {
	uint8_t token[TOKEN_BYTES];
	uint32_t conn;
};

struct cm {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct rdma_cm_id **id;	     /* by connection */
	struct rdma_cm_id *stranger; /* of the event at hand, to be destroyed behind it */
	struct ibv_context **contexts;
	uint32_t n_conns;
	uint32_t established;
};

static int listen_here(struct run *run, struct cm *cm)
{
	struct addrinfo *found;
	int err = resolve(run->opt.address[run->opt.host], run->opt.port + 1, &found);

	if (err)
		return err;
	if (rdma_create_id(cm->channel, &cm->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(cm->listener, found->ai_addr) || rdma_listen(cm->listener, BACKLOG))
		err = complain(errno, "RDMA-CM at %s: %s", run->opt.address[run->opt.host],
			       strerror(errno));
	freeaddrinfo(found);
	return err;
}

int cm_open(struct run *run, struct cm **out, struct ibv_context **context)
{
	struct cm *cm = calloc(1, sizeof(*cm));
	int n = 0;

	*out = cm;
	if (cm)
		cm->id = calloc(run->n_conns + 1, sizeof(*cm->id));
	if (!cm || !cm->id)
		return complain(ENOMEM, "no memory");
	cm->n_conns = run->n_conns;
	cm->channel = rdma_create_event_channel();
	if (!cm->channel)
		return complain(errno, "RDMA-CM: %s; is rdma_ucm loaded?", strerror(errno));
	cm->contexts = rdma_get_devices(&n);
	for (int i = 0; cm->contexts && i < n; i++) {
		if (!strcmp(ibv_get_device_name(cm->contexts[i]->device), run->opt.device))
			*context = cm->contexts[i];
	}
	if (!*context)
		return complain(ENODEV, "RDMA-CM has no device %s", run->opt.device);
	return listen_here(run, cm);
}

/* The next event; it is acknowledged by the caller. */
static int next_event(struct cm *cm, uint64_t until, struct rdma_cm_event **event)
{
	struct pollfd pfd = { .fd = cm->channel->fd, .events = POLLIN };
	uint64_t now = dp_now_ns();

	if (now >= until || poll(&pfd, 1, (int)((until - now) / 1000000 + 1)) < 1)
		return complain(ETIMEDOUT, "RDMA-CM: a connection did not come");
	if (rdma_get_cm_event(cm->channel, event))
		return complain(errno, "RDMA-CM: %s", strerror(errno));
	return 0;
}

static struct rdma_conn_param parameters(const struct run *run, const struct purpose *purpose)
{
	return (struct rdma_conn_param){ .private_data = purpose,
					 .private_data_len = sizeof(*purpose),
					 .responder_resources = 16,
					 .initiator_depth = 16,
					 .retry_count = run->opt.retry_count,
					 .rnr_retry_count = run->opt.rnr_retry };
}

static struct purpose purpose_of(const struct run *run, uint32_t conn)
{
	struct purpose purpose = { .conn = conn };

	memcpy(purpose.token, run->opt.token, TOKEN_BYTES);
	return purpose;
}

static int make_qp(struct run *run, struct rdma_cm_id *id, struct ibv_pd *pd, uint32_t conn,
		   int (*attributes)(struct run *, uint32_t, struct ibv_qp_init_attr *))
{
	struct ibv_qp_init_attr init;
	int err = attributes(run, conn, &init);

	if (!err && rdma_create_qp(id, pd, &init))
		err = complain(errno, "creating QP %u: %s", conn, strerror(errno));
	return err;
}

/* A caller without the token is refused and counted. */
static int turn_away(struct run *run, struct cm *cm, struct rdma_cm_id *id)
{
	run->strangers++;
	cm->stranger = id;
	rdma_reject(id, NULL, 0);
	return 0;
}

/* A call came in: the private data has the number of the connection. */
static int accept_call(struct run *run, struct cm *cm, struct ibv_pd *pd,
		       const struct rdma_cm_event *event,
		       int (*attributes)(struct run *, uint32_t, struct ibv_qp_init_attr *))
{
	const struct rdma_conn_param *asked = &event->param.conn;
	struct rdma_conn_param param;
	struct purpose purpose;
	int err;

	if (asked->private_data_len < sizeof(purpose))
		return turn_away(run, cm, event->id);
	memcpy(&purpose, asked->private_data, sizeof(purpose));
	if (!token_fits(run, purpose.token))
		return turn_away(run, cm, event->id);
	if (purpose.conn >= run->n_conns || !conn_in(run, &run->conn[purpose.conn]) ||
	    cm->id[purpose.conn])
		return complain(EPROTO, "RDMA-CM: a call for connection %u", purpose.conn);
	cm->id[purpose.conn] = event->id;
	err = make_qp(run, event->id, pd, purpose.conn, attributes);
	if (err)
		return err;
	param = parameters(run, &purpose);
	param.responder_resources = asked->initiator_depth;
	param.initiator_depth = asked->responder_resources;
	if (rdma_accept(event->id, &param))
		return complain(errno, "RDMA-CM accept: %s", strerror(errno));
	return 0;
}

static int start_call(struct run *run, struct cm *cm, uint32_t conn)
{
	struct addrinfo *found;
	int err = resolve(run->opt.address[run->conn[conn].dst], run->opt.port + 1, &found);

	if (err)
		return err;
	if (rdma_create_id(cm->channel, &cm->id[conn], (void *)(uintptr_t)conn, RDMA_PS_TCP) ||
	    rdma_resolve_addr(cm->id[conn], NULL, found->ai_addr, RESOLVE_MS))
		err = complain(errno, "RDMA-CM to %s: %s", run->opt.address[run->conn[conn].dst],
			       strerror(errno));
	freeaddrinfo(found);
	return err;
}

static int call(struct run *run, struct rdma_cm_id *id, struct ibv_pd *pd,
		int (*attributes)(struct run *, uint32_t, struct ibv_qp_init_attr *))
{
	uint32_t conn = (uint32_t)(uintptr_t)id->context;
	struct purpose purpose = purpose_of(run, conn);
	struct rdma_conn_param param = parameters(run, &purpose);
	int err = make_qp(run, id, pd, conn, attributes);

	if (!err && rdma_connect(id, &param))
		err = complain(errno, "RDMA-CM connect: %s", strerror(errno));
	return err;
}

static int handle(struct run *run, struct cm *cm, struct ibv_pd *pd,
		  const struct rdma_cm_event *event,
		  int (*attributes)(struct run *, uint32_t, struct ibv_qp_init_attr *))
{
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return accept_call(run, cm, pd, event, attributes);
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return rdma_resolve_route(event->id, RESOLVE_MS) ?
			       complain(errno, "RDMA-CM route: %s", strerror(errno)) :
			       0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return call(run, event->id, pd, attributes);
	case RDMA_CM_EVENT_ESTABLISHED:
		cm->established++;
		return 0;
	default:
		return complain(ECONNREFUSED, "RDMA-CM: %s, status %d",
				rdma_event_str(event->event), event->status);
	}
}

int cm_connect(struct run *run, struct cm *cm, struct ibv_pd *pd,
	       int (*attributes)(struct run *, uint32_t, struct ibv_qp_init_attr *),
	       struct ibv_qp **qp)
{
	uint64_t until = dp_now_ns() + run->opt.setup_ns;
	uint32_t wanted = 0;
	int err = 0;

	for (uint32_t i = 0; i < run->n_conns && !err; i++) {
		wanted += conn_mine(run, &run->conn[i]);
		if (conn_out(run, &run->conn[i]))
			err = start_call(run, cm, i);
	}
	while (!err && cm->established < wanted) {
		struct rdma_cm_event *event;

		err = next_event(cm, until, &event);
		if (err)
			break;
		err = handle(run, cm, pd, event, attributes);
		rdma_ack_cm_event(event);
		if (cm->stranger)
			rdma_destroy_id(cm->stranger);
		cm->stranger = NULL;
	}
	for (uint32_t i = 0; i < run->n_conns; i++)
		qp[i] = cm->id[i] ? cm->id[i]->qp : NULL;
	return err;
}

void cm_destroy_qps(struct cm *cm)
{
	for (uint32_t i = 0; i < cm->n_conns; i++) {
		if (cm->id[i] && cm->id[i]->qp)
			rdma_destroy_qp(cm->id[i]);
	}
}

/* Call it after all objects of its device are destroyed. */
void cm_close(struct cm *cm)
{
	for (uint32_t i = 0; i < cm->n_conns; i++) {
		if (cm->id[i])
			rdma_destroy_id(cm->id[i]);
	}
	if (cm->listener)
		rdma_destroy_id(cm->listener);
	if (cm->channel)
		rdma_destroy_event_channel(cm->channel);
	if (cm->contexts)
		rdma_free_devices(cm->contexts);
	free(cm->id);
	free(cm);
}
