/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Symbols of libibverbs, as those in export.c, that our device refuses with EOPNOTSUPP: link
 * addresses by GID, ECE, and objects imported from another process.
 */
#include "verbs/front.h"

#include <errno.h>

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	return front_owns(context) ? EOPNOTSUPP :
				     REAL(ibv_resolve_eth_l2_from_gid)(context, attr, mac, vid);
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return front_owns(qp->context) ? EOPNOTSUPP : REAL(ibv_set_ece)(qp, ece);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return front_owns(qp->context) ? EOPNOTSUPP : REAL(ibv_query_ece)(qp, ece);
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	if (front_owns_fd(cmd_fd) || !REAL(ibv_import_device))
		return front_fail(EOPNOTSUPP);
	return REAL(ibv_import_device)(cmd_fd);
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	return front_owns(context) ? front_fail(EOPNOTSUPP) : REAL(ibv_import_pd)(context, handle);
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (!front_owns(pd->context))
		REAL(ibv_unimport_pd)(pd);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	return front_owns(pd->context) ? front_fail(EOPNOTSUPP) : REAL(ibv_import_mr)(pd, handle);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (!front_owns(mr->context))
		REAL(ibv_unimport_mr)(mr);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	return front_owns(context) ? front_fail(EOPNOTSUPP) : REAL(ibv_import_dm)(context, handle);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	if (!front_owns(dm->context))
		REAL(ibv_unimport_dm)(dm);
}
