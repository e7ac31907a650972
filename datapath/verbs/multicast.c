/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Multicast: QPs in groups.  A group's GID is its IP address, IPv4 as ::ffff:a.b.c.d, as in the
 * kernel's RDMA-CM and in rxe.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct front_membership **find(struct front_qp *qp, const struct dp_addr *group)
{
	struct front_membership **at = &qp->groups;

	while (*at && memcmp(&(*at)->group, group, sizeof(*group)))
		at = &(*at)->next;
	return at;
}

/* Call with the device locked. */
static int attach(struct front_qp *qp, struct front_membership *new)
{
	struct dp_device *dev = front_context_of(qp)->dev;
	int err = dp_device_join(dev, &new->group);

	if (err)
		return err;
	err = dp_multicast_attach(qp->qp, &new->group);
	if (err) {
		dp_device_leave(dev, &new->group);
		return err;
	}
	new->next = qp->groups;
	qp->groups = new;
	return 0;
}

int front_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid)
{
	struct front_membership *new = calloc(1, sizeof(*new));
	struct front_qp *qp = to_qp(ibv);
	int err;

	if (!new)
		return ENOMEM;
	memcpy(new->group.b, gid->raw, sizeof(new->group.b));
	err = ibv->qp_type == IBV_QPT_UD && dp_addr_is_group(&new->group) ?
		      dp_device_lock(front_context_of(qp)->dev) :
		      -EINVAL;
	if (!err) {
		/* Attaching a QP twice is no error, and brings no second copy. */
		err = *find(qp, &new->group) ? -EEXIST : attach(qp, new);
		dp_device_unlock(front_context_of(qp)->dev);
	}
	if (err)
		free(new);
	return err == -EEXIST ? 0 : -err;
}

/* Call with the device locked. */
static void detach(struct front_qp *qp, struct front_membership **at)
{
	struct front_membership *old = *at;

	dp_multicast_detach(qp->qp, &old->group);
	dp_device_leave(front_context_of(qp)->dev, &old->group);
	*at = old->next;
	free(old);
}

int front_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid)
{
	struct front_qp *qp = to_qp(ibv);
	struct front_membership **at;
	struct dp_addr group;
	int err = dp_device_lock(front_context_of(qp)->dev);

	if (err)
		return -err;
	memcpy(group.b, gid->raw, sizeof(group.b));
	at = find(qp, &group);
	err = *at ? 0 : EINVAL;
	if (*at)
		detach(qp, at);
	dp_device_unlock(front_context_of(qp)->dev);
	return err;
}

void front_leave_groups(struct front_qp *qp)
{
	while (qp->groups)
		detach(qp, &qp->groups);
}
