// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The device, and the memory that peers write to. */
#include <fcntl.h>
#include <sys/mman.h>

#include "collectives/live/coll.h"

static struct ibv_context *open_named(const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *context = NULL;

	for (int i = 0; list && i < n && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

static int choose_gid(struct dpcoll *comm)
{
	comm->gid_index = comm->cfg.gid_index;
	if (comm->gid_index < 0) {
		for (int i = 0; i < comm->port.gid_tbl_len; i++)
			if (!ibv_query_gid(comm->context, 1, i, &comm->gid) &&
			    is_ipv4(&comm->gid)) {
				comm->gid_index = i;
				return 0;
			}
		comm->gid_index = 0;
	}
	if (ibv_query_gid(comm->context, 1, comm->gid_index, &comm->gid))
		return coll_fail(comm, ENODEV, "device %s has no GID %d", comm->device,
				 comm->gid_index);
	return 0;
}

int coll_device_open(struct dpcoll *comm)
{
	comm->context = open_named(comm->device);
	if (!comm->context)
		return coll_fail(comm, ENODEV,
				 "device %s cannot be opened, or is not among this host's verbs "
				 "devices",
				 comm->device);
	if (comm->context->device->transport_type == IBV_TRANSPORT_IWARP)
		return coll_fail(comm, EOPNOTSUPP, "device %s: iWARP has no WRITE with immediate",
				 comm->device);
	if (ibv_query_port(comm->context, 1, &comm->port))
		return coll_fail(comm, errno, "device %s: %s", comm->device, strerror(errno));
	if (comm->port.state != IBV_PORT_ACTIVE)
		return coll_fail(comm, ENETDOWN, "device %s: its port is not active", comm->device);
	comm->pd = ibv_alloc_pd(comm->context);
	if (!comm->pd)
		return coll_fail(comm, errno, "PD: %s", strerror(errno));
	return choose_gid(comm);
}

/* Slots of all connections, then what peers tell, then our own counter and error. */
static int lay_out(struct dpcoll *comm)
{
	size_t slots = (size_t)comm->slot_bytes * COLL_SLOTS, at = comm->n_conns * slots;
	char *tell;

	comm->memory_bytes = at + (comm->n_conns + 1) * sizeof(struct coll_peer_memory);
	comm->memory = mmap(NULL, comm->memory_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (comm->memory == MAP_FAILED) {
		comm->memory = NULL;
		return coll_fail(comm, ENOMEM, "no memory for %zu bytes of slots",
				 comm->memory_bytes);
	}
	comm->mr = ibv_reg_mr(comm->pd, comm->memory, comm->memory_bytes,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!comm->mr)
		return coll_fail(comm, errno, "registering %zu bytes: %s", comm->memory_bytes,
				 strerror(errno));
	tell = comm->memory + at;
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		comm->conn[i].slots = comm->memory + i * slots;
		comm->conn[i].memory = (struct coll_peer_memory *)tell + i;
	}
	comm->farewell = ((struct coll_peer_memory *)tell + comm->n_conns)->mailbox;
	comm->alive = &((struct coll_peer_memory *)tell + comm->n_conns)->alive;
	return 0;
}

int coll_device_prepare(struct dpcoll *comm)
{
	int entries = (int)(comm->n_conns * (COLL_RECEIVES + COLL_SENDS) + 1);
	int err = lay_out(comm), flags;

	if (err)
		return err;
	comm->channel = ibv_create_comp_channel(comm->context);
	if (!comm->channel)
		return coll_fail(comm, errno, "completion channel: %s", strerror(errno));
	flags = fcntl(comm->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(comm->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return coll_fail(comm, errno, "completion channel: %s", strerror(errno));
	comm->cq = ibv_create_cq(comm->context, entries, NULL, comm->channel, 0);
	return comm->cq ? 0 : coll_fail(comm, errno, "CQ of %d: %s", entries, strerror(errno));
}

void coll_device_close(struct dpcoll *comm)
{
	if (comm->cq) {
		ibv_ack_cq_events(comm->cq, comm->unacked_events);
		ibv_destroy_cq(comm->cq);
	}
	if (comm->channel)
		ibv_destroy_comp_channel(comm->channel);
	if (comm->mr)
		ibv_dereg_mr(comm->mr);
	if (comm->memory)
		munmap(comm->memory, comm->memory_bytes);
	if (comm->pd)
		ibv_dealloc_pd(comm->pd);
	if (comm->context)
		ibv_close_device(comm->context);
}
