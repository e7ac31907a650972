// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Multicast groups of ids.  No other host is asked: a group's GID is its IP address.  librdmacm
 * attaches the id's QP when it reads the event, and then the port joins the group.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/ucm/ucm.h"
#include "wire/headers.h"

static uint32_t next_handle;

static int group_address(const struct sockaddr_in6 *in, struct dp_addr *out)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)in;

	memset(out, 0, sizeof(*out));
	if (in->sin6_family == AF_INET6) {
		memcpy(out->b, &in->sin6_addr, sizeof(out->b));
	} else if (in->sin6_family == AF_INET) {
		memset(out->b + 10, 0xff, 2);
		memcpy(out->b + 12, &v4->sin_addr, 4);
	}
	return dp_addr_is_group(out) ? 0 : -EINVAL;
}

static int raise_joined(struct ucm_id *id, struct ucm_group *group, const struct dp_addr *addr)
{
	struct ucm_event *event = calloc(1, sizeof(*event));
	struct rdma_ucm_ud_param *ud;

	if (!event)
		return -ENOMEM;
	event->group = group;
	event->resp.event = UCM_EVENT_MULTICAST_JOIN;
	ud = &event->resp.param.ud;
	ud->qp_num = DP_MULTICAST_QPN;
	ud->qkey = id->qkey ? id->qkey : UCM_QKEY;
	ucm_fill_address(&ud->ah_attr, id, addr);
	return ucm_push(id, event);
}

int ucm_join_ip(const struct ucm_command *c)
{
	const struct rdma_ucm_join_ip_mcast *in = c->in;
	struct rdma_ucm_create_id_resp *out = c->out;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	struct ucm_group *group;
	struct dp_addr addr;
	int err;

	if (!id)
		return -ENOENT;
	if (id->foreign)
		return -EOPNOTSUPP;
	if (!id->agent || id->port_space != RDMA_PS_UDP)
		return -EINVAL;
	err = group_address(&in->addr, &addr);
	if (err)
		return err;
	group = calloc(1, sizeof(*group));
	if (!group)
		return -ENOMEM;
	group->uid = in->uid;
	group->handle = next_handle++;
	err = raise_joined(id, group, &addr);
	if (err) {
		free(group);
		return err;
	}
	group->next = id->groups;
	id->groups = group;
	out->id = group->handle;
	return 0;
}

static struct ucm_group **find(const struct ucm_file *file, uint32_t handle, struct ucm_id **owner)
{
	struct ucm_group **at;
	struct ucm_id *id;

	for (id = file->ids; id; id = id->next)
		for (at = &id->groups; *at; at = &(*at)->next)
			if ((*at)->handle == handle) {
				*owner = id;
				return at;
			}
	return NULL;
}

int ucm_leave_group(const struct ucm_command *c)
{
	const struct rdma_ucm_destroy_id *in = c->in;
	struct rdma_ucm_destroy_id_resp *out = c->out;
	struct ucm_group **at, *group;
	struct ucm_id *id;

	at = find(c->file, in->id, &id);
	if (!at)
		return -ENOENT;
	group = *at;
	*at = group->next;
	ucm_purge_group(id, group);
	out->events_reported = group->events_reported;
	free(group);
	return 0;
}

void ucm_leave_all(struct ucm_id *id)
{
	struct ucm_group *group;

	while ((group = id->groups)) {
		id->groups = group->next;
		ucm_purge_group(id, group);
		free(group);
	}
}
