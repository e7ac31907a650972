// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * How two ends meet.  No step blocks: each call goes on from where the last one stopped.
 *
 *   connecting                       listening
 *   DIALLING   TCP connection
 *   GREETING   net_hello        ──▶  reads it; the secret is that of its handle
 *   LISTENING                   ◀──  net_hello, after its QP is ready
 *              one byte         ──▶  the sender's QP is ready: offers may go
 *
 * The state of an end that connects is kept by its handle, which comes back with each call.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "collectives/nccl/net.h"
#include "posix/forked.h"

enum {
	BACKLOG = 512,
	VISITORS = 64, /* that have connected, and are not done */
	KEEPALIVE_S = 10,
	READY = 'R',
};

static const uint64_t handle_magic = 0x6470006e63636c31;

struct dialling {
	struct net_comm *comm;
	enum { DIALLING, GREETING, LISTENING } step;
	size_t done; /* bytes of the step */
};

struct handle {
	uint64_t magic;
	struct in_addr address;
	uint16_t port;
	uint8_t secret[NET_SECRET_BYTES];
	struct dialling *dialling; /* of the end that connects; NULL at first */
};

_Static_assert(sizeof(struct handle) <= NCCL_HANDLE_BYTES, "NCCL hands over so many bytes");

struct visitor {
	int fd; /* -1: none */
	size_t done;
	struct net_hello hello;
	struct net_comm *comm; /* once the secret was right; it owns fd then */
};

struct listener {
	struct net_device *device;
	int fd;
	uint8_t secret[NET_SECRET_BYTES];
	struct visitor visitor[VISITORS];
	uint32_t next; /* the stranger that has waited longest, if all places are taken */
};

static int set_options(int fd)
{
	int on = 1, idle_s = KEEPALIVE_S, every_s = KEEPALIVE_S / 2;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s)))
		return -errno;
	return 0;
}

/* Goes on to read; 0: all is there, -EAGAIN: not yet, or another -errno. */
static int take(int fd, void *into, size_t bytes, size_t *done)
{
	while (*done < bytes) {
		ssize_t got = recv(fd, (char *)into + *done, bytes - *done, MSG_DONTWAIT);

		if (!got)
			return -ECONNRESET;
		if (got < 0)
			return errno == EINTR ? -EAGAIN : -errno;
		*done += (size_t)got;
	}
	return 0;
}

static int give(int fd, const void *from, size_t bytes, size_t *done)
{
	while (*done < bytes) {
		ssize_t put = send(fd, (const char *)from + *done, bytes - *done,
				   MSG_NOSIGNAL | MSG_DONTWAIT);

		if (put < 0)
			return errno == EINTR ? -EAGAIN : -errno;
		*done += (size_t)put;
	}
	return 0;
}

/* ---- the end that connects ---------------------------------------------------------------- */

static enum nccl_result dial(struct net_device *dev, int traffic_class, struct handle *h)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr = h->address,
				  .sin_port = h->port };
	struct dialling *d = calloc(1, sizeof(*d));
	enum nccl_result result;

	if (!d)
		return NCCL_SYSTEM_ERROR;
	result = net_comm_make(dev, true, &d->comm);
	if (result) {
		free(d);
		return result;
	}
	memcpy(d->comm->own.secret, h->secret, sizeof(h->secret));
	d->comm->own.traffic_class = (uint32_t)(traffic_class - NCCL_UNDEFINED);
	d->comm->fd = dp_own_fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (d->comm->fd < 0 || set_options(d->comm->fd) ||
	    (connect(d->comm->fd, (struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS)) {
		result = net_comm_fail(d->comm, NCCL_SYSTEM_ERROR, "TCP to the listener: %s",
				       strerror(errno));
		net_comm_free(d->comm);
		free(d);
		return result;
	}
	h->dialling = d;
	return NCCL_SUCCESS;
}

/* 0: connected, -EAGAIN: not yet, or another -errno. */
static int answered(int fd)
{
	struct pollfd look = { .fd = fd, .events = POLLOUT };
	socklen_t bytes = sizeof(int);
	int err = 0;

	if (poll(&look, 1, 0) <= 0)
		return -EAGAIN;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &bytes))
		return -errno;
	return -err;
}

/* A step of the end that connects: 0, -EAGAIN or another -errno. */
static int go_on(struct dialling *d)
{
	struct net_comm *comm = d->comm;
	int err = 0;

	if (d->step == DIALLING) {
		err = answered(comm->fd);
		d->step += !err;
	}
	if (!err && d->step == GREETING) {
		err = give(comm->fd, &comm->own, sizeof(comm->own), &d->done);
		if (!err) {
			d->step = LISTENING;
			d->done = 0;
		}
	}
	if (!err && d->step == LISTENING)
		err = take(comm->fd, &comm->theirs, sizeof(comm->theirs), &d->done);
	return err;
}

enum nccl_result net_connect(int device, int traffic_class, void *handle, void **comm)
{
	static const char ready = READY;
	struct net_device *dev = net_device(device);
	struct handle *h = handle;
	struct dialling *d;
	enum nccl_result result;
	size_t done = 0;
	int err;

	*comm = NULL;
	if (!dev || h->magic != handle_magic)
		return net_fail(NCCL_INTERNAL_ERROR, "connect: no device %d, or no handle of ours",
				device);
	if (!h->dialling) {
		result = dial(dev, traffic_class, h);
		if (result)
			return result;
	}
	d = h->dialling;
	err = go_on(d);
	if (err == -EAGAIN)
		return NCCL_SUCCESS;
	result = err ? net_comm_fail(d->comm, NCCL_REMOTE_ERROR, "TCP to the listener: %s",
				     strerror(-err)) :
		       net_comm_connect(d->comm, traffic_class);
	if (!result && give(d->comm->fd, &ready, 1, &done))
		result = net_comm_fail(d->comm, NCCL_REMOTE_ERROR, "the listener has gone");
	if (result)
		net_comm_free(d->comm);
	else
		*comm = d->comm;
	free(d);
	h->dialling = NULL;
	return result;
}

/* ---- the end that listens ----------------------------------------------------------------- */

enum nccl_result net_listen(int device, void *handle, void **listener)
{
	struct net_device *dev = net_device(device);
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t bytes = sizeof(at);
	struct listener *l;
	struct handle *h = handle;

	if (!dev)
		return net_fail(NCCL_INTERNAL_ERROR, "listen: there is no device %d", device);
	l = calloc(1, sizeof(*l));
	if (!l)
		return NCCL_SYSTEM_ERROR;
	for (int i = 0; i < VISITORS; i++)
		l->visitor[i].fd = -1;
	l->device = dev;
	at.sin_addr = dev->address;
	l->fd = dp_own_fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&at, bytes) || listen(l->fd, BACKLOG) ||
	    getsockname(l->fd, (struct sockaddr *)&at, &bytes) ||
	    getrandom(l->secret, sizeof(l->secret), 0) != sizeof(l->secret)) {
		net_fail(NCCL_SYSTEM_ERROR, "device %s: listening at %s: %s", dev->name,
			 inet_ntoa(dev->address), strerror(errno));
		net_close_listen(l);
		return NCCL_SYSTEM_ERROR;
	}
	*h = (struct handle){ .magic = handle_magic, .address = at.sin_addr, .port = at.sin_port };
	memcpy(h->secret, l->secret, sizeof(h->secret));
	*listener = l;
	return NCCL_SUCCESS;
}

static void forget(struct visitor *v)
{
	if (v->comm)
		net_comm_free(v->comm);
	else if (v->fd >= 0)
		dp_close_own_fd(v->fd);
	*v = (struct visitor){ .fd = -1 };
}

enum nccl_result net_close_listen(void *listener)
{
	struct listener *l = listener;

	for (int i = 0; i < VISITORS; i++)
		forget(&l->visitor[i]);
	if (l->fd >= 0)
		dp_close_own_fd(l->fd);
	free(l);
	return NCCL_SUCCESS;
}

static struct visitor *free_place(struct listener *l)
{
	for (int i = 0; i < VISITORS; i++)
		if (l->visitor[i].fd < 0)
			return &l->visitor[i];
	return NULL;
}

/* Strangers have not said the secret yet: one of them makes room for newcomers. */
static void make_room(struct listener *l)
{
	for (int tries = 0; tries < VISITORS; tries++) {
		struct visitor *v = &l->visitor[l->next++ % VISITORS];

		if (!v->comm) {
			forget(v);
			return;
		}
	}
}

static enum nccl_result let_in(struct listener *l)
{
	struct pollfd look = { .fd = l->fd, .events = POLLIN };
	struct visitor *v;

	/* One a call, so that each newcomer is listened to before it may have to make room. */
	if (!free_place(l) && poll(&look, 1, 0) > 0)
		make_room(l);
	while ((v = free_place(l)) && poll(&look, 1, 0) > 0) {
		int fd = dp_own_fd(accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));

		if (fd < 0 && dp_accept_lacks(errno))
			return net_fail(NCCL_SYSTEM_ERROR, "device %s: accepting a connection: %s",
					l->device->name, strerror(errno));
		if (fd < 0)
			return NCCL_SUCCESS;
		if (set_options(fd))
			dp_close_own_fd(fd);
		else
			v->fd = fd;
	}
	return NCCL_SUCCESS;
}

/* The visitor has sent its hello: make a QP for it, and the answer.  *failed: what failed here. */
static int answer(struct listener *l, struct visitor *v, enum nccl_result *failed)
{
	enum nccl_result result;
	size_t done = 0;

	if (memcmp(v->hello.secret, l->secret, sizeof(l->secret)))
		return -EPERM;
	*failed = net_comm_make(l->device, false, &v->comm);
	if (*failed)
		return -ENOMEM;
	v->comm->fd = v->fd;
	v->comm->theirs = v->hello;
	v->done = 0;
	result = net_comm_connect(v->comm, (int)v->hello.traffic_class + NCCL_UNDEFINED);
	if (result == NCCL_REMOTE_ERROR)
		return -EPROTO;
	*failed = result;
	return result ? -EIO : give(v->fd, &v->comm->own, sizeof(v->comm->own), &done);
}

/* 0: the visitor's communicator is ready. */
static int attend(struct listener *l, struct visitor *v, enum nccl_result *failed)
{
	char ready;
	int err;

	if (!v->comm) {
		err = take(v->fd, &v->hello, sizeof(v->hello), &v->done);
		if (!err)
			err = answer(l, v, failed);
		if (err)
			return err;
	}
	return take(v->fd, &ready, 1, &v->done);
}

enum nccl_result net_accept(void *listener, void **comm)
{
	struct listener *l = listener;
	enum nccl_result failed = let_in(l);

	*comm = NULL;
	for (int i = 0; i < VISITORS && !failed; i++) {
		struct visitor *v = &l->visitor[i];
		int err = v->fd < 0 ? -EAGAIN : attend(l, v, &failed);

		if (!err) {
			*comm = v->comm;
			*v = (struct visitor){ .fd = -1 };
			return NCCL_SUCCESS;
		}
		/* A visitor that gives up, or is a stranger, does not disturb the listener. */
		if (err != -EAGAIN)
			forget(v);
	}
	return failed;
}
