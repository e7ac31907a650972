// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The devices, and the memory that peers write to. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/live/coll.h"
#include "collectives/live/gid.h"
#include "posix/forked.h"

static int open_named(struct dpcoll *comm, struct coll_device *device)
{
	int n = 0, err = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	device->by_cm = comm->cfg.flags & DPCOLL_BY_CM;
	device->no_immediate = comm->cfg.flags & DPCOLL_NO_IMMEDIATE;
	for (int i = 0; list && i < n && !device->context && !err; i++) {
		bool iwarp = list[i]->transport_type == IBV_TRANSPORT_IWARP;

		if (strcmp(ibv_get_device_name(list[i]), device->name))
			continue;
		device->by_cm |= iwarp;
		device->no_immediate |= iwarp;
		if (!device->by_cm)
			device->context = ibv_open_device(list[i]);
		else
			err = coll_cm_open(comm, device);
	}
	if (list)
		ibv_free_device_list(list);
	if (!err && !device->context)
		err = coll_fail(comm, ENODEV,
				"device %s cannot be opened, or is not among this host's verbs "
				"devices",
				device->name);
	return err;
}

static int choose_gid(struct dpcoll *comm, struct coll_device *device)
{
	device->gid_index = comm->cfg.gid_index;
	if (device->gid_index < 0)
		device->gid_index = coll_choose_gid(device->context, &device->port);
	if (ibv_query_gid(device->context, 1, device->gid_index, &device->gid))
		return coll_fail(comm, ENODEV, "device %s has no GID %d", device->name,
				 device->gid_index);
	return 0;
}

static int open_device(struct dpcoll *comm, struct coll_device *device)
{
	int err = open_named(comm, device);

	if (err)
		return err;
	if (ibv_query_port(device->context, 1, &device->port))
		return coll_fail(comm, errno, "device %s: %s", device->name, strerror(errno));
	if (device->port.state != IBV_PORT_ACTIVE)
		return coll_fail(comm, ENETDOWN, "device %s: its port is not active", device->name);
	device->pd = ibv_alloc_pd(device->context);
	if (!device->pd)
		return coll_fail(comm, errno, "PD: %s", strerror(errno));
	err = choose_gid(comm, device);
	return err || !device->by_cm ? err : coll_cm_listen(comm, device);
}

int coll_devices_open(struct dpcoll *comm)
{
	int err = 0;

	for (uint32_t i = 0; i < comm->n_devices && !err; i++)
		err = open_device(comm, &comm->device[i]);
	return err;
}

int coll_register(struct dpcoll *comm, void *at, size_t bytes, struct ibv_mr *mr[COLL_DEVICES])
{
	for (uint32_t i = 0; i < comm->n_devices; i++) {
		mr[i] = ibv_reg_mr(comm->device[i].pd, at, bytes, 0);
		if (!mr[i])
			return -errno;
	}
	return 0;
}

void coll_deregister(struct ibv_mr *mr[COLL_DEVICES])
{
	for (int i = 0; i < COLL_DEVICES; i++)
		if (mr[i])
			ibv_dereg_mr(mr[i]);
}

static int make_bell(struct dpcoll *comm)
{
	int end[2];

	if (pipe2(end, O_CLOEXEC | O_NONBLOCK))
		return coll_fail(comm, errno, "pipe: %s", strerror(errno));
	for (int i = 0; i < 2; i++)
		comm->bell[i] = dp_own_fd(end[i]);
	if (comm->bell[0] < 0 || comm->bell[1] < 0)
		return coll_fail(comm, ENOMEM, "no memory for a pipe");
	return 0;
}

/* Memory that other ranks of this host can map, and that never shrinks under them. */
static int make_memory(struct dpcoll *comm)
{
	comm->memory_fd = memfd_create("dpcoll", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (comm->memory_fd < 0 || ftruncate(comm->memory_fd, (off_t)comm->memory_bytes) ||
	    fcntl(comm->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return coll_fail(comm, errno, "no memory for %zu bytes of slots: %s",
				 comm->memory_bytes, strerror(errno));
	comm->memory = mmap(NULL, comm->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			    comm->memory_fd, 0);
	if (comm->memory == MAP_FAILED) {
		comm->memory = NULL;
		return coll_fail(comm, ENOMEM, "no memory for %zu bytes of slots",
				 comm->memory_bytes);
	}
	comm->shared = (struct coll_shared *)comm->memory;
	return make_bell(comm);
}

/* Shared memory of the host's ranks, slots of all connections, peers' messages, our counter and
 * error. */
static int lay_out(struct dpcoll *comm)
{
	size_t slots = (size_t)comm->slot_bytes * COLL_SLOTS;
	size_t first = sizeof(struct coll_shared), at = first + comm->n_conns * slots;
	struct coll_peer_memory *tell;
	int err;

	at = (at + _Alignof(struct coll_peer_memory) - 1) & -_Alignof(struct coll_peer_memory);
	comm->memory_bytes = at + (comm->n_conns + 1) * sizeof(*tell);
	err = make_memory(comm);
	if (err)
		return err;
	tell = (struct coll_peer_memory *)(comm->memory + at);
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		comm->conn[i].slots = comm->memory + first + i * slots;
		comm->conn[i].memory = &tell[i];
	}
	comm->farewell = tell[comm->n_conns].mailbox;
	comm->alive = &tell[comm->n_conns].alive;
	return 0;
}

static int prepare(struct dpcoll *comm, struct coll_device *device)
{
	int sends = device->no_immediate ? 2 * COLL_SENDS : COLL_SENDS;
	int entries = (int)comm->n_conns * (COLL_RECEIVES + sends) + 1, flags;

	device->mr = ibv_reg_mr(device->pd, comm->memory, comm->memory_bytes,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!device->mr)
		return coll_fail(comm, errno, "registering %zu bytes: %s", comm->memory_bytes,
				 strerror(errno));
	device->channel = ibv_create_comp_channel(device->context);
	if (!device->channel)
		return coll_fail(comm, errno, "completion channel: %s", strerror(errno));
	flags = fcntl(device->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(device->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return coll_fail(comm, errno, "completion channel: %s", strerror(errno));
	device->cq = ibv_create_cq(device->context, entries, NULL, device->channel, 0);
	return device->cq ? 0 : coll_fail(comm, errno, "CQ of %d: %s", entries, strerror(errno));
}

int coll_devices_prepare(struct dpcoll *comm)
{
	int err = lay_out(comm);

	for (uint32_t i = 0; i < comm->n_devices && !err; i++)
		err = prepare(comm, &comm->device[i]);
	return err;
}

static void close_device(struct coll_device *device)
{
	if (device->cq) {
		ibv_ack_cq_events(device->cq, device->unacked_events);
		ibv_destroy_cq(device->cq);
	}
	if (device->channel)
		ibv_destroy_comp_channel(device->channel);
	if (device->mr)
		ibv_dereg_mr(device->mr);
	if (device->pd)
		ibv_dealloc_pd(device->pd);
	if (device->context && !device->by_cm)
		ibv_close_device(device->context);
}

void coll_devices_close(struct dpcoll *comm)
{
	for (uint32_t i = 0; i < comm->n_devices; i++)
		close_device(&comm->device[i]);
	coll_cm_close(comm);
	if (comm->memory)
		munmap(comm->memory, comm->memory_bytes);
	if (comm->memory_fd >= 0)
		close(comm->memory_fd);
	for (int i = 0; i < 2; i++)
		if (comm->bell[i] >= 0)
			dp_close_own_fd(comm->bell[i]);
}
