/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Address handles, and how a program answers the sender of a datagram. */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/grh.h"
#include "wire/ipv4.h"

enum { HOP_LIMIT_MAX = 255 };

int front_resolve(struct front_context *c, const struct ibv_ah_attr *attr, struct dp_addr *addr,
		  uint32_t *path_id)
{
	if (!attr->is_global || attr->port_num != FRONT_PORT || attr->grh.sgid_index >= FRONT_GIDS)
		return -EINVAL;
	memcpy(addr->b, attr->grh.dgid.raw, sizeof(addr->b));
	return dp_device_resolve(c->dev, addr, FRONT_RESOLVE_MS, path_id);
}

static int create_in_engine(struct front_ah *ah, struct front_context *c, struct ibv_pd *pd,
			    const struct dp_addr *addr, uint8_t tos)
{
	int err = dp_device_lock(c->dev);

	if (err)
		return err;
	err = dp_ah_create(front_engine_pd(pd), addr, ah->path_id, tos, &ah->ah);
	if (err)
		dp_device_release(c->dev, ah->path_id);
	dp_device_unlock(c->dev);
	return err;
}

struct ibv_ah *front_create_ah(struct ibv_pd *pd, const struct ibv_ah_attr *attr)
{
	struct front_context *c = to_context(pd->context);
	struct front_ah *ah = calloc(1, sizeof(*ah));
	struct dp_addr addr;
	int err;

	if (!ah)
		return front_fail(ENOMEM);
	err = front_resolve(c, attr, &addr, &ah->path_id);
	if (!err)
		err = create_in_engine(ah, c, pd, &addr, attr->grh.traffic_class & ~DP_ECN_MASK);
	if (err) {
		free(ah);
		return front_fail(-err);
	}
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	front_enter(pd->context, &c->ahs, &ah->object);
	return &ah->ibv;
}

int front_end_ah(struct front_ah *ah)
{
	struct dp_device *dev = to_context(ah->ibv.context)->dev;
	int err;

	dp_device_flush(dev); /* posted requests still use the handle */
	err = dp_ah_destroy(ah->ah);
	if (!err)
		dp_device_release(dev, ah->path_id);
	return err;
}

int front_destroy_ah(struct ibv_ah *ibv)
{
	struct dp_device *dev = to_context(ibv->context)->dev;
	struct front_ah *ah = (struct front_ah *)ibv;
	int err;

	err = dp_device_lock(dev);
	if (err)
		return -err;
	err = front_end_ah(ah);
	dp_device_unlock(dev);
	if (err)
		return -err;
	front_leave(ibv->context, &ah->object);
	free(ah);
	return 0;
}

/*
 * Reads addresses and TOS of the IP header at the start of a receive buffer.  As in libibverbs, the
 * header is IPv4 if the last 20 bytes are an IPv4 header with a correct checksum.
 */
static void read_header(const uint8_t *grh, struct ibv_global_route *out, struct dp_addr *to)
{
	const uint8_t *v4 = grh + DP_GRH_LEN - DP_IPV4_LEN;
	struct dp_addr from;

	if (v4[0] == 0x45 && dp_get16(v4 + DP_IPV4_SUM) == dp_ipv4_sum(v4)) {
		dp_addr_from_v4(&from, v4 + DP_IPV4_SRC);
		dp_addr_from_v4(to, v4 + DP_IPV4_DST);
		out->traffic_class = v4[DP_IPV4_TOS];
	} else {
		memcpy(from.b, grh + 8, sizeof(from.b));
		memcpy(to->b, grh + 24, sizeof(to->b));
		out->traffic_class = (uint8_t)(grh[0] << 4 | grh[1] >> 4);
		out->flow_label = dp_get32(grh) & 0xfffff;
	}
	memcpy(out->dgid.raw, from.b, sizeof(from.b));
	out->hop_limit = HOP_LIMIT_MAX;
}

int front_init_ah_from_wc(struct ibv_context *context, uint8_t port, const struct ibv_wc *wc,
			  const struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const struct dp_port_info *info = dp_device_port(to_context(context)->dev);
	struct dp_addr to;

	memset(attr, 0, sizeof(*attr));
	attr->port_num = port;
	attr->is_global = 1;
	if (port != FRONT_PORT || !(wc->wc_flags & IBV_WC_GRH))
		goto invalid;
	read_header((const uint8_t *)grh, &attr->grh, &to);
	if (memcmp(&to, &info->addr, sizeof(to)))
		goto invalid;
	return 0;

invalid:
	errno = EINVAL;
	return -1;
}

struct ibv_ah *front_create_ah_from_wc(struct ibv_pd *pd, const struct ibv_wc *wc,
				       const struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	return front_init_ah_from_wc(pd->context, port, wc, grh, &attr) ?
		       NULL :
		       front_create_ah(pd, &attr);
}
