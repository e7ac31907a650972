// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The device that a host uses, what it can do, its memory and CQ, and this end of each QP.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

static struct ibv_context *open_device(const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *context = NULL;

	for (int i = 0; list && i < n; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	}
	if (!context)
		complain(ENODEV, "device %s: %s", name,
			 n ? "cannot be opened, or not among this host's verbs devices" :
			     "this host has no verbs device");
	if (list)
		ibv_free_device_list(list);
	return context;
}

static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

static int choose_gid(struct run *run, struct verbs *v)
{
	v->gid_index = run->opt.gid_index;
	if (v->gid_index >= 0) {
		if (ibv_query_gid(v->context, 1, v->gid_index, &v->gid))
			return complain(EINVAL, "device %s has no GID %d", run->opt.device,
					v->gid_index);
		return 0;
	}
	for (int i = 0; i < v->port.gid_tbl_len; i++) {
		if (!ibv_query_gid(v->context, 1, i, &v->gid) && is_ipv4(&v->gid)) {
			v->gid_index = i;
			return 0;
		}
	}
	v->gid_index = 0;
	if (ibv_query_gid(v->context, 1, 0, &v->gid))
		return complain(ENODEV, "device %s has no GID", run->opt.device);
	return 0;
}

static int query_device(struct run *run, struct verbs *v)
{
	if (ibv_query_device(v->context, &v->attr) || ibv_query_port(v->context, 1, &v->port))
		return complain(errno, "device %s: %s", run->opt.device, strerror(errno));
	if (v->port.state != IBV_PORT_ACTIVE)
		return complain(ENETDOWN, "device %s: its port is not active", run->opt.device);
	return choose_gid(run, v);
}

/*
 * iWARP has no RNR and completes a SEND before it has arrived: nothing keeps a
 * sender from overrunning the receives, which would end the connection.
 */
static int check_operations(const struct run *run, const struct verbs *v)
{
	if (v->context->device->transport_type != IBV_TRANSPORT_IWARP)
		return 0;
	for (uint32_t i = 0; i < run->n_conns; i++) {
		if (run->conn[i].opcode == OP_SEND)
			return complain(EOPNOTSUPP,
					"SEND over iWARP could overrun the receiver; use WRITE or "
					"READ");
		if (run->conn[i].opcode == OP_WRITE && run->opt.verify)
			return complain(EOPNOTSUPP,
					"iWARP has no WRITE that the receiver sees, so --verify "
					"is for READ there");
	}
	return 0;
}

static int make_cq(struct run *run, struct verbs *v)
{
	uint64_t entries = 1;

	for (uint32_t i = 0; i < run->n_conns; i++) {
		const struct conn *conn = &run->conn[i];

		entries += (conn_out(run, conn) ? conn->limit : 0) + verbs_receives(run, conn);
	}
	if (entries > (uint64_t)v->attr.max_cqe)
		return complain(E2BIG,
				"%llu messages could complete at once, the CQ of device %s holds "
				"%d; use less depth or fewer QPs",
				(unsigned long long)entries, run->opt.device, v->attr.max_cqe);
	v->channel = ibv_create_comp_channel(v->context);
	if (!v->channel)
		return complain(errno, "completion channel: %s", strerror(errno));
	v->cq = ibv_create_cq(v->context, (int)entries, NULL, v->channel, 0);
	if (!v->cq)
		return complain(errno, "CQ of %llu entries: %s", (unsigned long long)entries,
				strerror(errno));
	return 0;
}

int verbs_open(struct run *run, struct record *records, uint32_t *n)
{
	struct verbs *v = calloc(1, sizeof(*v));
	int err = 0;

	run->state = v;
	if (v)
		v->half = calloc(run->n_conns + 1, sizeof(*v->half));
	if (!v || !v->half)
		return complain(ENOMEM, "no memory");
	if (run->opt.cm)
		err = cm_open(run, &v->cm, &v->context);
	else
		v->context = open_device(run->opt.device);
	if (err || !v->context)
		return err ? err : -ENODEV;
	err = query_device(run, v);
	if (!err)
		err = check_operations(run, v);
	if (err)
		return err;
	v->pd = ibv_alloc_pd(v->context);
	if (!v->pd)
		return complain(errno, "PD: %s", strerror(errno));
	err = verbs_register(run, v);
	if (!err)
		err = make_cq(run, v);
	*n = 0;
	for (uint32_t i = 0; i < run->n_conns && !err; i++) {
		uint32_t end = conn_in(run, &run->conn[i]);
		struct record *record = &records[*n];

		if (!conn_mine(run, &run->conn[i]))
			continue;
		if (!run->opt.cm)
			err = verbs_make_qp(run, v, i);
		*record = (struct record){ .conn = i,
					   .end = end,
					   .qpn = v->half[i].qp ? v->half[i].qp->qp_num : 0,
					   .psn = verbs_psn(i, end),
					   .rkey = v->mr->rkey,
					   .mtu = v->port.active_mtu,
					   .addr = (uintptr_t)verbs_slot(run, v, i, 0),
					   .lid = v->port.lid };
		memcpy(record->gid, &v->gid, sizeof(record->gid));
		(*n)++;
	}
	return err;
}
