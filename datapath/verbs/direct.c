/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The calls of dpdv.h. */
#include "verbs/dpdv.h"

#include <errno.h>
#include <string.h>

#include "verbs/front.h"

bool dpdv_is_supported(struct ibv_device *device)
{
	return front_owns_device(device);
}

int dpdv_set_cc(struct ibv_qp *base, const char *object)
{
	struct front_cc *cc = NULL;
	struct dp_device *dev;
	char error[1];
	int err = 0;

	if (!front_owns(base->context))
		return EOPNOTSUPP;
	if (object)
		err = front_cc_load(object, &cc, error, sizeof(error));
	if (err)
		return -err;
	dev = to_context(base->context)->dev;
	err = dp_device_lock(dev);
	if (!err) {
		err = front_cc_set(to_qp(base), cc);
		dp_device_flush(dev); /* the new window may allow more packets */
		dp_device_unlock(dev);
	}
	front_cc_put(cc);
	front_cc_sweep();
	return -err;
}

static void copy(char *to, size_t size, const char *text)
{
	size_t len = strnlen(text, size - 1);

	memcpy(to, text, len);
	to[len] = 0;
}

int dpdv_query_cc(struct ibv_qp *base, struct dpdv_cc *out, size_t len)
{
	struct front_qp *qp = to_qp(base);
	struct dpdv_cc full = { 0 };
	int err;

	if (!front_owns(base->context))
		return EOPNOTSUPP;
	err = dp_device_lock(front_context_of(qp)->dev);
	if (err)
		return -err;
	copy(full.name, sizeof(full.name), front_cc_name(qp->cc));
	copy(full.params, sizeof(full.params), front_cc_params(qp->cc));
	copy(full.object, sizeof(full.object), front_cc_object(qp->cc));
	full.changes = qp->cc_changes;
	dp_device_unlock(front_context_of(qp)->dev);
	/* The program may have been built with a smaller or a larger struct. */
	memset(out, 0, len);
	memcpy(out, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}

struct ibv_qp *dpdv_find_qp(const char *device, uint32_t qp_num)
{
	struct front_qp *found = NULL;

	errno = front_find_qp(device, qp_num, &found);
	return found ? &found->ex.qp_base : NULL;
}

int dpdv_query_place(const char *device, struct dpdv_place *out, size_t len)
{
	struct front_device *d = front_devices();
	struct dpdv_place full = { 0 };
	struct dp_port_info info;
	int err;

	while (d && strcmp(d->config.name, device))
		d = d->next;
	err = d ? front_find_place(d, &info) : -ENOENT;
	if (err)
		return -err;
	copy(full.netdev, sizeof(full.netdev), info.netdev);
	full.ifindex = info.ifindex;
	full.up = !dp_port_is_down(dp_port_state(&info));
	memcpy(full.gid.raw, info.addr.b, sizeof(full.gid.raw));
	full.gids = FRONT_GIDS;
	full.guid = front_guid_of(&info);
	full.rate_bps = front_rate_bps(&info);
	memset(out, 0, len);
	memcpy(out, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}
