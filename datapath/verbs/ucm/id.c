// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Ids: create, destroy, move to another descriptor, query. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "posix/clock.h"
#include "verbs/ucm/ucm.h"

enum { LINK_RATE = 0, PATH_EXACTLY = 2 };

/* Indexed by handle.  librdmacm has an index of the same size. */
static struct ucm_id **handles;
static uint32_t n_handles, next_handle;

static bool grow(void)
{
	uint32_t n = n_handles ? 2 * n_handles : 64;
	struct ucm_id **grown;

	if (n > UCM_HANDLES_MAX)
		return false;
	grown = realloc(handles, n * sizeof(*grown));
	if (!grown)
		return false;
	memset(grown + n_handles, 0, (n - n_handles) * sizeof(*grown));
	next_handle = n_handles;
	handles = grown;
	n_handles = n;
	return true;
}

static int take_handle(struct ucm_id *id)
{
	uint32_t tries;

	for (tries = 0; tries < n_handles && handles[next_handle % n_handles]; tries++)
		next_handle++;
	if (tries == n_handles && !grow())
		return -ENOMEM;
	id->handle = next_handle++ % n_handles;
	handles[id->handle] = id;
	return 0;
}

static void enter(struct ucm_id *id, struct ucm_file *file)
{
	id->file = file;
	id->next = file->ids;
	id->at = &file->ids;
	if (id->next)
		id->next->at = &id->next;
	file->ids = id;
}

static void leave(struct ucm_id *id)
{
	*id->at = id->next;
	if (id->next)
		id->next->at = id->at;
}

int ucm_id_create(struct ucm_file *file, struct ucm_id **out)
{
	struct ucm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return -ENOMEM;
	if (take_handle(id)) {
		free(id);
		return -ENOMEM;
	}
	enter(id, file);
	*out = id;
	return 0;
}

struct ucm_id *ucm_id_find(const struct ucm_file *file, uint32_t handle)
{
	struct ucm_id *id = handle < n_handles ? handles[handle] : NULL;

	return id && id->file == file ? id : NULL;
}

void ucm_id_destroy(struct ucm_id *id)
{
	ucm_stop_resolving(id);
	ucm_stop_listening(id);
	ucm_leave_all(id);
	ucm_purge(id, ucm_id_destroy);
	ucm_kernel_destroy(id);
	if (id->conn) {
		dp_cm_conn_set_user(id->conn, NULL);
		dp_cm_release(id->conn, dp_now_ns());
		ucm_agent_flush(id->agent);
	}
	handles[id->handle] = NULL;
	leave(id);
	free(id);
}

void ucm_id_move(struct ucm_id *id, struct ucm_file *to)
{
	ucm_move_events(id, to);
	leave(id);
	enter(id, to);
}

/* ---- commands ----------------------------------------------------------------------------- */

int ucm_create_id(const struct ucm_command *c)
{
	const struct rdma_ucm_create_id *in = c->in;
	struct rdma_ucm_create_id_resp *out = c->out;
	struct ucm_id *id;
	int err;

	/*
	 * librdmacm creates an id of RDMA_PS_IB to find out whether the kernel takes addresses of
	 * the family AF_IB.  ucm_bind_ip() refuses them.
	 */
	if (in->ps != RDMA_PS_TCP && in->ps != RDMA_PS_UDP && in->ps != RDMA_PS_IB)
		return in->ps == RDMA_PS_IPOIB ? -EOPNOTSUPP : -EINVAL;
	err = ucm_id_create(c->file, &id);
	if (err)
		return err;
	id->uid = in->uid;
	id->port_space = in->ps;
	id->qp_type = in->qp_type;
	if (in->ps != RDMA_PS_IB)
		ucm_kernel_create(id);
	out->id = id->handle;
	return 0;
}

int ucm_destroy_id(const struct ucm_command *c)
{
	const struct rdma_ucm_destroy_id *in = c->in;
	struct rdma_ucm_destroy_id_resp *out = c->out;
	struct ucm_id *id = ucm_id_find(c->file, in->id);

	if (!id)
		return -ENOENT;
	ucm_stop_resolving(id);
	ucm_stop_listening(id);
	ucm_purge(id, ucm_id_destroy);
	out->events_reported = id->events_reported + ucm_kernel_destroy(id);
	ucm_id_destroy(id);
	return 0;
}

/* The command arrives at the descriptor to which the id moves. */
int ucm_migrate_id(const struct ucm_command *c)
{
	const struct rdma_ucm_migrate_id *in = c->in;
	struct rdma_ucm_migrate_resp *out = c->out;
	struct ucm_file *from = ucm_file_of((int)in->fd);
	struct ucm_id *id = from ? ucm_id_find(from, in->id) : NULL;

	if (!id)
		return -ENOENT;
	out->events_reported = id->events_reported;
	if (from != c->file) {
		out->events_reported += ucm_kernel_migrate(id, c->file);
		ucm_id_move(id, c->file);
	}
	return 0;
}

static void put_sockaddr(struct sockaddr_in6 *out, const struct ucm_id *id,
			 const struct dp_addr *addr, uint16_t port)
{
	memset(out, 0, sizeof(*out));
	if (id->family == AF_INET) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)out;

		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, addr->b + 12, 4);
	} else if (id->family == AF_INET6) {
		out->sin6_family = AF_INET6;
		out->sin6_port = htons(port);
		memcpy(&out->sin6_addr, addr->b, 16);
		out->sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&out->sin6_addr) ? id->scope : 0;
	}
}

static void put_path(struct ib_user_path_rec *out, const struct ucm_id *id)
{
	static const struct dp_addr any;

	memcpy(out->sgid, id->agent->addr.b, sizeof(out->sgid));
	if (memcmp(&id->dst, &any, sizeof(any)))
		memcpy(out->dgid, id->dst.b, sizeof(out->dgid));
	out->pkey = 0xffff;
	out->hop_limit = UCM_HOP_LIMIT;
	out->traffic_class = id->tos;
	out->numb_path = 1;
	out->reversible = 1;
	out->mtu_selector = PATH_EXACTLY;
	out->mtu = id->agent->path_mtu;
	out->packet_life_time_selector = PATH_EXACTLY;
	out->packet_life_time = UCM_ACK_TIMEOUT - 1;
}

int ucm_query_route(const struct ucm_command *c)
{
	const struct rdma_ucm_query *in = c->in;
	struct rdma_ucm_query_route_resp *out = c->out;
	struct ucm_id *id = ucm_id_find(c->file, in->id);

	if (!id)
		return -ENOENT;
	memset(out, 0, sizeof(*out));
	put_sockaddr(&out->src_addr, id, &id->src, id->src_port);
	put_sockaddr(&out->dst_addr, id, &id->dst, id->dst_port);
	if (!id->agent)
		return 0;
	out->node_guid = id->agent->guid;
	out->ibdev_index = (uint32_t)front_device_index(id->agent->device);
	out->port_num = FRONT_PORT;
	out->num_paths = id->state >= UCM_ROUTE_RESOLVED && id->state != UCM_LISTENING;
	put_path(&out->ib_route[0], id);
	return 0;
}

/*
 * Options that have no effect here are accepted: a port is free again as soon as nobody uses it,
 * and an id takes addresses of both families.
 */
int ucm_set_option(const struct ucm_command *c)
{
	const struct rdma_ucm_set_option *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	const uint8_t *value = (const uint8_t *)(uintptr_t)in->optval;

	if (!id)
		return -ENOENT;
	if (id->has_kernel)
		ucm_kernel_forward(id, c->header, in, offsetof(struct rdma_ucm_set_option, id));
	if (in->level != RDMA_OPTION_ID)
		return -ENOSYS;
	switch (in->optname) {
	case RDMA_OPTION_ID_TOS:
		if (in->optlen != 1)
			return -EINVAL;
		id->tos = *value;
		return 0;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (in->optlen != 1 || *value > 31)
			return -EINVAL;
		id->ack_timeout = *value;
		id->ack_timeout_set = true;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
	case RDMA_OPTION_ID_AFONLY:
		return in->optlen == sizeof(int) ? 0 : -EINVAL;
	default:
		return -ENOSYS;
	}
}

/* An event for the program's own use, in turn with the others. */
int ucm_write_event(const struct ucm_command *c)
{
	const struct ucm_write_event *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	struct ucm_event *event;

	if (!id)
		return -ENOENT;
	if (in->event != UCM_EVENT_USER && in->event != UCM_EVENT_INTERNAL)
		return -EINVAL;
	event = calloc(1, sizeof(*event));
	if (!event)
		return -ENOMEM;
	event->resp.event = in->event;
	event->resp.status = in->status;
	memcpy(&event->resp.param, &in->arg, sizeof(in->arg));
	return ucm_push(id, event);
}
