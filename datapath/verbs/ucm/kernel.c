// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Real devices beside ours.  Where the kernel has RDMA-CM, each of our descriptors holds one of the
 * kernel's, and each id has a twin there.  If no device of ours has an id's address, the id belongs
 * to the kernel from then on.  An id that is bound to any address listens on both sides.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "verbs/ucm/ucm.h"

enum { COMMAND_MAX = 1024 };

int ucm_kernel_open(struct ucm_file *file)
{
	struct epoll_event in = { .events = EPOLLIN };
	int both;

	file->kernel_fd = open(UCM_NODE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (file->kernel_fd < 0)
		return 0;
	/* Readable while one of the two is. */
	both = epoll_create1(EPOLL_CLOEXEC);
	if (both < 0 || epoll_ctl(both, EPOLL_CTL_ADD, file->event_fd, &in) ||
	    epoll_ctl(both, EPOLL_CTL_ADD, file->kernel_fd, &in)) {
		if (both >= 0)
			close(both);
		return -errno;
	}
	file->fd = both;
	return 0;
}

/* Writes a command to the kernel.  Returns 0 or -errno. */
static int write_command(const struct ucm_file *file, uint32_t number, const void *in, size_t len,
			 size_t out_len)
{
	uint64_t buffer[COMMAND_MAX / sizeof(uint64_t)];
	struct rdma_ucm_cmd_hdr header = { number, (uint16_t)len, (uint16_t)out_len };
	size_t whole = sizeof(header) + len;

	if (whole > sizeof(buffer))
		return -EINVAL;
	memcpy(buffer, &header, sizeof(header));
	memcpy((uint8_t *)buffer + sizeof(header), in, len);
	return write(file->kernel_fd, buffer, whole) < 0 ? -errno : 0;
}

int ucm_kernel_forward(const struct ucm_id *id, const struct rdma_ucm_cmd_hdr *header,
		       const void *in, size_t id_at)
{
	uint8_t copy[COMMAND_MAX];

	if (header->in > sizeof(copy))
		return -EINVAL;
	memcpy(copy, in, header->in);
	memcpy(copy + id_at, &id->kernel_id, sizeof(id->kernel_id));
	return write_command(id->file, header->cmd, copy, header->in, header->out);
}

void ucm_kernel_create(struct ucm_id *id)
{
	struct rdma_ucm_create_id_resp out = {};
	struct rdma_ucm_create_id in = {
		.uid = id->uid,
		.response = (uintptr_t)&out,
		.ps = id->port_space,
		.qp_type = id->qp_type,
	};

	if (id->file->kernel_fd < 0 ||
	    write_command(id->file, RDMA_USER_CM_CMD_CREATE_ID, &in, sizeof(in), sizeof(out)))
		return;
	id->has_kernel = true;
	id->kernel_id = out.id;
}

uint32_t ucm_kernel_destroy(struct ucm_id *id)
{
	struct rdma_ucm_destroy_id_resp out = {};
	struct rdma_ucm_destroy_id in = { .response = (uintptr_t)&out, .id = id->kernel_id };

	if (!id->has_kernel)
		return 0;
	id->has_kernel = false;
	write_command(id->file, RDMA_USER_CM_CMD_DESTROY_ID, &in, sizeof(in), sizeof(out));
	return out.events_reported;
}

/* At this time, `id` still belongs to the descriptor that it leaves. */
uint32_t ucm_kernel_migrate(struct ucm_id *id, const struct ucm_file *to)
{
	struct rdma_ucm_migrate_resp out = {};
	struct rdma_ucm_migrate_id in = { .response = (uintptr_t)&out,
					  .id = id->kernel_id,
					  .fd = (uint32_t)id->file->kernel_fd };

	if (id->has_kernel)
		write_command(to, RDMA_USER_CM_CMD_MIGRATE_ID, &in, sizeof(in), sizeof(out));
	return out.events_reported;
}

/* Makes an id for a connection request that the kernel got. */
static int adopt(struct ucm_file *file, struct rdma_ucm_event_resp *event)
{
	struct ucm_id *id;
	int err = ucm_id_create(file, &id);

	if (err)
		return err;
	id->foreign = id->has_kernel = true;
	id->kernel_id = event->id;
	event->id = id->handle;
	return 0;
}

int ucm_kernel_event(struct ucm_file *file, struct rdma_ucm_event_resp *out)
{
	struct rdma_ucm_get_event in = { .response = (uintptr_t)out };
	int err;

	if (file->kernel_fd < 0)
		return -EAGAIN;
	err = write_command(file, RDMA_USER_CM_CMD_GET_EVENT, &in, sizeof(in), sizeof(*out));
	if (!err && out->event == UCM_EVENT_CONNECT_REQUEST)
		err = adopt(file, out);
	return err;
}
