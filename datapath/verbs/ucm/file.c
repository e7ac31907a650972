// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Descriptors that stand for /dev/infiniband/rdma_cm.  Each is an eventfd that is readable while
 * events wait.  So programs poll() it and make it non-blocking like the kernel's.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/ucm/ucm.h"

pthread_mutex_t ucm_lock = PTHREAD_MUTEX_INITIALIZER;

/* Indexed by descriptor. */
static struct ucm_file **files;
static int n_files;
static uint64_t serials;
static _Atomic(int) n_open; /* while it is 0, writes of librdmacm pass at once */

struct ucm_file *ucm_file_of(int fd)
{
	return fd >= 0 && fd < n_files ? files[fd] : NULL;
}

bool ucm_owns(int fd)
{
	bool found;

	if (!n_open)
		return false;
	pthread_mutex_lock(&ucm_lock);
	found = ucm_file_of(fd) != NULL;
	pthread_mutex_unlock(&ucm_lock);
	return found;
}

static int enter(struct ucm_file *file)
{
	int n = n_files ? n_files : 64;
	struct ucm_file **grown;

	while (n <= file->fd)
		n *= 2;
	if (n > n_files) {
		grown = realloc(files, (size_t)n * sizeof(*files));
		if (!grown)
			return -ENOMEM;
		memset(grown + n_files, 0, (size_t)(n - n_files) * sizeof(*files));
		files = grown;
		n_files = n;
	}
	files[file->fd] = file;
	return 0;
}

/* Closes all descriptors but the program's. */
static void close_behind(struct ucm_file *file)
{
	if (file->kernel_fd >= 0)
		close(file->kernel_fd);
	if (file->event_fd >= 0 && file->event_fd != file->fd)
		close(file->event_fd);
}

int ucm_open(int flags)
{
	struct ucm_file *file = calloc(1, sizeof(*file));
	int err;

	if (!file) {
		errno = ENOMEM;
		return -1;
	}
	file->last = &file->first;
	file->pid = getpid();
	file->kernel_fd = -1;
	file->fd = file->event_fd = eventfd(0, (flags & O_CLOEXEC ? EFD_CLOEXEC : 0) |
						       (flags & O_NONBLOCK ? EFD_NONBLOCK : 0));
	err = file->fd < 0 ? -errno : ucm_kernel_open(file);
	pthread_mutex_lock(&ucm_lock);
	if (!err)
		err = enter(file);
	file->serial = ++serials;
	if (!err)
		n_open++;
	pthread_mutex_unlock(&ucm_lock);
	if (!err)
		return file->fd;
	close_behind(file);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
	errno = -err;
	return -1;
}

int ucm_close(int fd)
{
	struct ucm_file *file;
	bool channel;
	int err;

	pthread_mutex_lock(&ucm_lock);
	file = ucm_file_of(fd);
	channel = file;
	if (file) {
		/* Ids that the parent made before fork() stay the parent's. */
		while (file->ids && file->pid == getpid())
			ucm_id_destroy(file->ids);
		files[fd] = NULL;
		close_behind(file);
		free(file);
	}
	/* Before other threads hear that it is no channel: they would write to the eventfd. */
	err = close(fd);
	n_open -= channel;
	pthread_mutex_unlock(&ucm_lock);
	return err;
}

void ucm_end_all(void)
{
	int fd;

	for (fd = 0; fd < n_files; fd++)
		while (files[fd] && files[fd]->pid == getpid() && files[fd]->ids)
			ucm_id_destroy(files[fd]->ids);
}

/* ---- events ------------------------------------------------------------------------------ */

static void set_readable(const struct ucm_file *file, bool on)
{
	uint64_t count = 1;

	if (on ? write(file->event_fd, &count, sizeof(count)) < 0 :
		 read(file->event_fd, &count, sizeof(count)) < 0)
		return; /* it is readable already */
}

int ucm_push(struct ucm_id *id, struct ucm_event *event)
{
	struct ucm_file *file = id->file;

	event->id = id;
	event->next = NULL;
	if (!file->first)
		set_readable(file, true);
	*file->last = event;
	file->last = &event->next;
	return 0;
}

int ucm_raise(struct ucm_id *id, enum ucm_event_type type, int status)
{
	struct ucm_event *event = calloc(1, sizeof(*event));

	if (!event)
		return -ENOMEM;
	event->resp.event = type;
	event->resp.status = (uint32_t)status;
	return ucm_push(id, event);
}

static struct ucm_event *unlink_event(struct ucm_file *file, struct ucm_event **at)
{
	struct ucm_event *event = *at;

	*at = event->next;
	if (file->last == &event->next)
		file->last = at;
	if (!file->first)
		set_readable(file, false);
	return event;
}

void ucm_purge(struct ucm_id *id, void (*drop)(struct ucm_id *))
{
	struct ucm_event **at = &id->file->first, *event;

	while (*at) {
		if ((*at)->id != id && (*at)->arrived != id) {
			at = &(*at)->next;
			continue;
		}
		event = unlink_event(id->file, at);
		if (event->arrived && event->arrived != id) {
			drop(event->arrived);
			at = &id->file->first; /* `drop` may have removed others */
		}
		free(event);
	}
}

void ucm_purge_group(struct ucm_id *id, const struct ucm_group *group)
{
	struct ucm_event **at = &id->file->first;

	while (*at)
		if ((*at)->group == group)
			free(unlink_event(id->file, at));
		else
			at = &(*at)->next;
}

void ucm_move_events(struct ucm_id *id, struct ucm_file *to)
{
	struct ucm_event **at = &id->file->first;
	struct ucm_file *from = id->file;
	struct ucm_event *event;

	while (*at) {
		if ((*at)->id != id) {
			at = &(*at)->next;
			continue;
		}
		event = unlink_event(from, at);
		id->file = to;
		ucm_push(id, event);
		id->file = from;
		/* The program asks for the new id where it gets the event. */
		if (event->arrived)
			ucm_id_move(event->arrived, to);
	}
}

/* Takes the oldest event.  Returns 0, or -EAGAIN if there is none. */
static int take_event(struct ucm_file *file, struct rdma_ucm_event_resp *out)
{
	struct ucm_event *event;

	if (!file->first)
		return ucm_kernel_event(file, out);
	event = unlink_event(file, &file->first);
	*out = event->resp;
	if (event->group) {
		out->uid = event->group->uid;
		out->id = event->group->handle;
		event->group->events_reported++;
	} else {
		out->uid = event->id->uid;
		out->id = event->arrived ? event->arrived->handle : event->id->handle;
		event->id->events_reported++;
		if (event->arrived)
			dp_cm_conn_seen(event->arrived->conn);
	}
	free(event);
	return 0;
}

/*
 * In the kernel, a thread waits for ever if another one destroys the channel on which it waits, or
 * is about to: its write() keeps the file.  rping relies on this: an error would end it.
 */
static void wait_for_ever(void)
{
	for (;;)
		pause();
}

/* Waits for an event, unless the descriptor was made non-blocking. */
static int get_event(int fd, struct rdma_ucm_event_resp *out)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	struct ucm_file *file;
	uint64_t serial = 0;
	bool blocks = true;
	int err;

	for (;;) {
		pthread_mutex_lock(&ucm_lock);
		file = ucm_file_of(fd);
		if (!file || (serial && file->serial != serial))
			err = -EBADF;
		else
			err = file->pid == getpid() ? take_event(file, out) : -EIO;
		if (err == -EAGAIN) {
			serial = file->serial;
			blocks = !(fcntl(fd, F_GETFL) & O_NONBLOCK);
		}
		pthread_mutex_unlock(&ucm_lock);
		if (err == -EBADF)
			wait_for_ever();
		if (err != -EAGAIN || !blocks)
			return err;
		if (poll(&wait, 1, -1) < 0)
			return -errno;
	}
}

/* ---- commands -------------------------------------------------------------------------------- */

struct row {
	int (*handle)(const struct ucm_command *); /* NULL: get_event() */
	size_t in, out; /* bytes: the shortest command, the longest response */
	size_t id; /* offset of the id in the command; NO_ID: the command names none that may be the kernel's */
	size_t to; /* offset of the response's address in the command */
};

union response {
	struct rdma_ucm_create_id_resp create;
	struct rdma_ucm_destroy_id_resp destroy;
	struct rdma_ucm_migrate_resp migrate;
	struct rdma_ucm_query_route_resp route;
	struct ib_uverbs_qp_attr attr;
	struct rdma_ucm_event_resp event;
};

#define NO_ID SIZE_MAX

/* A command with a response and an id. */
#define ASKS(function, type, answer)                                                               \
	{                                                                                          \
		function, sizeof(struct type), sizeof(struct answer), offsetof(struct type, id),   \
			offsetof(struct type, response)                                            \
	}
/* A command with a response, and without an existing id. */
#define MAKES(function, type, answer)                                                              \
	{                                                                                          \
		function, sizeof(struct type), sizeof(struct answer), NO_ID,                       \
			offsetof(struct type, response)                                            \
	}
#define TELLS(function, type)                                                                      \
	{                                                                                          \
		function, sizeof(struct type), 0, offsetof(struct type, id), 0                     \
	}
/* As in the kernel, a command may end before its last field, which is newer. */
#define TELLS_UP_TO(function, type, last)                                                          \
	{                                                                                          \
		function, offsetof(struct type, last), 0, offsetof(struct type, id), 0             \
	}

static const struct row rows[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] =
		MAKES(ucm_create_id, rdma_ucm_create_id, rdma_ucm_create_id_resp),
	[RDMA_USER_CM_CMD_DESTROY_ID] =
		MAKES(ucm_destroy_id, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp),
	[RDMA_USER_CM_CMD_BIND_IP] = TELLS(ucm_bind_ip, rdma_ucm_bind_ip),
	[RDMA_USER_CM_CMD_RESOLVE_IP] = TELLS(ucm_resolve_ip, rdma_ucm_resolve_ip),
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = TELLS(ucm_resolve_route, rdma_ucm_resolve_route),
	[RDMA_USER_CM_CMD_QUERY_ROUTE] =
		ASKS(ucm_query_route, rdma_ucm_query, rdma_ucm_query_route_resp),
	[RDMA_USER_CM_CMD_CONNECT] = TELLS_UP_TO(ucm_connect, rdma_ucm_connect, ece),
	[RDMA_USER_CM_CMD_LISTEN] = TELLS(ucm_listen, rdma_ucm_listen),
	[RDMA_USER_CM_CMD_ACCEPT] = TELLS_UP_TO(ucm_accept, rdma_ucm_accept, ece),
	[RDMA_USER_CM_CMD_REJECT] = TELLS(ucm_reject, rdma_ucm_reject),
	[RDMA_USER_CM_CMD_DISCONNECT] = TELLS(ucm_disconnect, rdma_ucm_disconnect),
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] =
		ASKS(ucm_init_qp_attr, rdma_ucm_init_qp_attr, ib_uverbs_qp_attr),
	[RDMA_USER_CM_CMD_GET_EVENT] = MAKES(NULL, rdma_ucm_get_event, rdma_ucm_event_resp),
	[RDMA_USER_CM_CMD_SET_OPTION] = TELLS(ucm_set_option, rdma_ucm_set_option),
	[RDMA_USER_CM_CMD_NOTIFY] = TELLS(ucm_notify, rdma_ucm_notify),
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] =
		MAKES(ucm_join_ip, rdma_ucm_join_ip_mcast, rdma_ucm_create_id_resp),
	[RDMA_USER_CM_CMD_LEAVE_MCAST] =
		MAKES(ucm_leave_group, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp),
	[RDMA_USER_CM_CMD_MIGRATE_ID] =
		MAKES(ucm_migrate_id, rdma_ucm_migrate_id, rdma_ucm_migrate_resp),
	[UCM_CMD_WRITE_EVENT] = TELLS(ucm_write_event, ucm_write_event),
};

/* Returns the command's id if the kernel alone has it; otherwise NULL. */
static struct ucm_id *foreign_id(const struct row *row, const struct ucm_command *c)
{
	struct ucm_id *id;
	uint32_t handle;

	if (row->id == NO_ID)
		return NULL;
	memcpy(&handle, (const uint8_t *)c->in + row->id, sizeof(handle));
	id = ucm_id_find(c->file, handle);
	return id && id->foreign ? id : NULL;
}

static int respond(const struct row *row, const struct ucm_command *c)
{
	uint64_t to;

	if (!row->out)
		return 0;
	memcpy(&to, (const uint8_t *)c->in + row->to, sizeof(to));
	memcpy((void *)(uintptr_t)to, c->out,
	       row->out < c->header->out ? row->out : c->header->out);
	return 0;
}

static int run(int fd, const struct row *row, struct ucm_command *c)
{
	struct ucm_id *foreign;
	int err = -EIO;

	pthread_mutex_lock(&ucm_lock);
	c->file = ucm_file_of(fd);
	if (c->file && c->file->pid == getpid()) {
		foreign = foreign_id(row, c);
		err = foreign ? ucm_kernel_forward(foreign, c->header, c->in, row->id) :
				row->handle(c);
		if (!err && !foreign)
			respond(row, c);
	}
	pthread_mutex_unlock(&ucm_lock);
	return err;
}

static int dispatch(int fd, const struct rdma_ucm_cmd_hdr *header, const void *in)
{
	const struct row *row = header->cmd < sizeof(rows) / sizeof(rows[0]) ? &rows[header->cmd] :
									       NULL;
	union response out = {};
	struct ucm_command c = { .header = header, .in = in, .out = &out };
	int err;

	if (!row || !row->in)
		return -EOPNOTSUPP;
	if (header->in < row->in)
		return -EINVAL;
	if (row->handle)
		return run(fd, row, &c);
	err = get_event(fd, &out.event);
	return err ? err : respond(row, &c);
}

ssize_t ucm_write(int fd, const void *data, size_t len)
{
	const struct rdma_ucm_cmd_hdr *header = data;
	int err = len < sizeof(*header) || header->in + sizeof(*header) > len ?
			  -EINVAL :
			  dispatch(fd, header, header + 1);

	if (!err)
		return (ssize_t)len;
	errno = -err;
	return -1;
}
