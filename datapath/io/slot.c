// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/slot.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/addr.h"
#include "posix/clock.h"

enum {
	BUFFER = 8 << 20,
	LOCK_WAIT_MS = 10000, /* a busy machine may hold a process up for seconds */
	SILENT_TRIES = 20,    /* tries of 1 ms: for so long a bound name may not listen yet */
	EVENTS_MAX = 16,      /* looked at in one call */
	DEAF_NS = 100000000,  /* after which connections are taken again, if one could not be */
};

struct dp_slot_service {
	struct dp_slot_service *next;
	uint64_t service_id;
	int fd; /* listens */
};

/* The process that holds a name. */
enum holder { HOLDER_OURS, HOLDER_FOREIGN, HOLDER_SILENT };

/* The abstract name for an address and `what`: the number of a slot, or "lock". */
static socklen_t unix_name(const struct dp_addr *addr, const char *what, struct sockaddr_un *out)
{
	char text[DP_ADDR_TEXT];
	int n;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	/* a leading zero byte: the abstract name space, no file */
	n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "datapath-udp:%s:%s",
		     dp_addr_text(addr, text), what);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static socklen_t slot_name(const struct dp_addr *addr, uint32_t number, struct sockaddr_un *out)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	return unix_name(addr, text, out);
}

static socklen_t service_name(const struct dp_addr *addr, uint64_t service_id,
			      struct sockaddr_un *out)
{
	char text[32];

	snprintf(text, sizeof(text), "service-%016llx", (unsigned long long)service_id);
	return unix_name(addr, text, out);
}

static int unix_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd >= 0 ? fd : -errno;
}

static int socket_failed(struct dp_error *error, int err)
{
	return dp_fail(error, err, "cannot make a Unix socket: %s", strerror(-err));
}

void dp_slot_init(struct dp_slot *s)
{
	memset(s, 0, sizeof(*s));
	s->fd = s->lock_fd = s->poll_fd = s->timer_fd = -1;
	for (int i = 0; i < DP_SLOTS; i++)
		s->to[i] = -1;
}

/* ---- who is at the other end ------------------------------------------------- */

static bool is_ours(const struct dp_slot *s, int fd)
{
	struct ucred peer = {};
	socklen_t len = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && peer.uid == s->uid;
}

/* Connects to a name and tells who holds it.  Keeps the connection if the holder is one of ours. */
static enum holder connect_to(const struct dp_slot *s, const struct sockaddr_un *name,
			      socklen_t len, int *out)
{
	int fd = unix_socket();

	if (fd < 0)
		return HOLDER_SILENT;
	if (!connect(fd, (const void *)name, len)) {
		if (is_ours(s, fd)) {
			*out = fd;
			return HOLDER_OURS;
		}
		close(fd);
		return HOLDER_FOREIGN;
	}
	close(fd);
	return HOLDER_SILENT;
}

/* ---- claiming ------------------------------------------------------------------ */

/* 0: bound, and listening; -EADDRINUSE: another process has the name. */
static int bind_and_listen(int fd, const struct sockaddr_un *name, socklen_t len)
{
	return bind(fd, (const void *)name, len) || listen(fd, SOMAXCONN) ? -errno : 0;
}

/* The lock's holder never accepts.  When it releases the lock, the kernel closes this
 * connection. */
static void wait_for_hang_up(int fd, uint64_t until_ns)
{
	struct pollfd p = { .fd = fd };
	uint64_t now = dp_now_ns();

	poll(&p, 1, now < until_ns ? (int)((until_ns - now) / 1000000) : 0);
	close(fd);
}

/*
 * The lock is a bound name: the kernel frees it when its holder dies.  If another user holds the
 * name, or nobody answers under it, the process goes on without a lock.
 */
static int take_lock(struct dp_slot *s, struct dp_error *error)
{
	uint64_t until_ns = dp_now_ns() + LOCK_WAIT_MS * 1000000ull;
	int silent = 0, err, other = -1;
	struct sockaddr_un name;
	socklen_t len = unix_name(&s->addr, "lock", &name);

	s->lock_fd = unix_socket();
	if (s->lock_fd < 0)
		return socket_failed(error, s->lock_fd);
	while ((err = bind_and_listen(s->lock_fd, &name, len)) == -EADDRINUSE) {
		if (dp_now_ns() >= until_ns)
			return dp_fail(error, err,
				       "another process has been opening a port on the same "
				       "address for %d ms: is it stopped?",
				       LOCK_WAIT_MS);
		switch (connect_to(s, &name, len, &other)) {
		case HOLDER_OURS:
			wait_for_hang_up(other, until_ns);
			break;
		case HOLDER_FOREIGN:
			return 0;
		case HOLDER_SILENT:
			if (++silent == SILENT_TRIES)
				return 0;
			usleep(1000);
		}
	}
	return err ? dp_fail(error, err, "cannot lock an address: %s", strerror(-err)) : 0;
}

void dp_slot_settled(struct dp_slot *s)
{
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->lock_fd = -1;
}

static int no_slot_left(const struct dp_slot *s, struct dp_error *error)
{
	char text[DP_ADDR_TEXT];
	struct sockaddr_un name;
	int foreign = 0, fd = -1;

	for (uint32_t i = 0; i < DP_SLOTS; i++) {
		socklen_t len = slot_name(&s->addr, i, &name);

		if (connect_to(s, &name, len, &fd) == HOLDER_OURS)
			close(fd);
		else
			foreign++;
	}
	dp_addr_text(&s->addr, text);
	if (!foreign)
		return dp_fail(error, -EADDRINUSE, "%d ports are open on %s already", DP_SLOTS,
			       text);
	return dp_fail(error, -EADDRINUSE,
		       "other users hold %d of the %d names that ports on %s need: "
		       "ss -xlp | grep datapath-udp shows them",
		       foreign, DP_SLOTS, text);
}

static int take_number(struct dp_slot *s, struct dp_error *error)
{
	struct sockaddr_un name;
	int err;

	for (s->number = 0; s->number < DP_SLOTS; s->number++) {
		socklen_t len = slot_name(&s->addr, s->number, &name);

		err = bind_and_listen(s->fd, &name, len);
		if (!err)
			return 0;
		if (err != -EADDRINUSE)
			return dp_fail(error, err, "cannot bind a Unix socket: %s", strerror(-err));
	}
	return no_slot_left(s, error);
}

static int watch(const struct dp_slot *s, int fd)
{
	struct epoll_event in = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(s->poll_fd, EPOLL_CTL_ADD, fd, &in) ? -errno : 0;
}

static int open_poll_fd(struct dp_slot *s, struct dp_error *error)
{
	int err;

	s->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	err = s->poll_fd < 0 ? -errno : watch(s, s->fd);
	if (!err) {
		s->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		err = s->timer_fd < 0 ? -errno : watch(s, s->timer_fd);
	}
	return err ? dp_fail(error, err, "cannot make a poll descriptor: %s", strerror(-err)) : 0;
}

int dp_slot_claim(struct dp_slot *s, const struct dp_addr *addr, struct dp_error *error)
{
	int err;

	s->addr = *addr;
	s->uid = geteuid();
	err = take_lock(s, error);
	if (err)
		return err;
	s->fd = unix_socket();
	if (s->fd < 0)
		return socket_failed(error, s->fd);
	err = take_number(s, error);
	return err ? err : open_poll_fd(s, error);
}

/* In this order: fork() in another thread must not leave the number of a closed descriptor. */
static void close_fd(int *fd)
{
	int was = *fd;

	*fd = -1;
	if (was >= 0)
		close(was);
}

/* A child between vfork() and exec() has a copy of the descriptor, for which the kernel would go on
 * to report events under a number that may be somebody else's by then. */
static void forget_fd(const struct dp_slot *s, int fd)
{
	if (s->poll_fd >= 0)
		epoll_ctl(s->poll_fd, EPOLL_CTL_DEL, fd, NULL);
	close(fd);
}

void dp_slot_release(struct dp_slot *s)
{
	dp_slot_settled(s);
	close_fd(&s->fd);
	close_fd(&s->poll_fd);
	close_fd(&s->timer_fd);
	for (int i = 0; i < DP_SLOTS; i++)
		close_fd(&s->to[i]);
	while (s->n_from)
		close(s->from[--s->n_from]);
	while (s->services)
		dp_slot_unserve(s, s->services->service_id);
}

/* ---- services ----------------------------------------------------------------- */

int dp_slot_serve(struct dp_slot *s, uint64_t service_id)
{
	struct dp_slot_service *service = malloc(sizeof(*service));
	struct sockaddr_un name;
	socklen_t len = service_name(&s->addr, service_id, &name);
	int err;

	if (!service)
		return -ENOMEM;
	service->service_id = service_id;
	service->fd = unix_socket();
	err = service->fd < 0 ? service->fd : bind_and_listen(service->fd, &name, len);
	if (!err && s->poll_fd >= 0)
		err = watch(s, service->fd);
	if (err) {
		close_fd(&service->fd);
		free(service);
		return err;
	}
	service->next = s->services;
	s->services = service;
	return 0;
}

void dp_slot_unserve(struct dp_slot *s, uint64_t service_id)
{
	struct dp_slot_service **at, *service;

	for (at = &s->services; *at && (*at)->service_id != service_id; at = &(*at)->next)
		;
	service = *at;
	if (!service)
		return;
	*at = service->next;
	forget_fd(s, service->fd);
	free(service);
}

bool dp_slot_serves(const struct dp_slot *s, uint64_t service_id)
{
	const struct dp_slot_service *service = s->services;

	while (service && service->service_id != service_id)
		service = service->next;
	return service != NULL;
}

static bool is_listening(const struct dp_slot *s, int fd)
{
	const struct dp_slot_service *service = s->services;

	while (service && service->fd != fd)
		service = service->next;
	return fd == s->fd || service;
}

/* ---- handing on ----------------------------------------------------------------- */

static bool connect_to_owner(struct dp_slot *s, uint32_t owner)
{
	struct sockaddr_un name;
	socklen_t len = slot_name(&s->addr, owner, &name);
	int size = BUFFER;

	if (connect_to(s, &name, len, &s->to[owner]) != HOLDER_OURS)
		return false;
	setsockopt(s->to[owner], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	return true;
}

static int send_datagram(int fd, const struct dp_slot_header *h, const void *data, size_t len)
{
	struct iovec iov[2] = {
		{ .iov_base = (void *)h, .iov_len = sizeof(*h) },
		{ .iov_base = (void *)data, .iov_len = len },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	ssize_t n;

	do
		n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int dp_slot_hand_on(struct dp_slot *s, uint32_t owner, const struct dp_slot_header *h,
		    const void *data, size_t len)
{
	int err;

	/* Two tries: if the owner has died, it may have a successor. */
	for (int tries = 0; tries < 2; tries++) {
		if (s->to[owner] < 0 && !connect_to_owner(s, owner))
			break;
		err = send_datagram(s->to[owner], h, data, len);
		if (err != -EPIPE && err != -ECONNRESET)
			return err;
		close_fd(&s->to[owner]);
	}
	return -ECONNREFUSED;
}

/* A request is rare: the connection is made for it alone. */
int dp_slot_hand_on_request(struct dp_slot *s, uint64_t service_id, const struct dp_slot_header *h,
			    const void *data, size_t len)
{
	struct sockaddr_un name;
	socklen_t name_len = service_name(&s->addr, service_id, &name);
	int fd = -1, err;

	if (connect_to(s, &name, name_len, &fd) != HOLDER_OURS)
		return -ECONNREFUSED;
	err = send_datagram(fd, h, data, len);
	close(fd);
	return err;
}

static void listen_for(const struct dp_slot *s, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	epoll_ctl(s->poll_fd, EPOLL_CTL_MOD, fd, &event);
}

static void listen_again(const struct dp_slot *s)
{
	const struct dp_slot_service *service;
	uint64_t expired;

	if (read(s->timer_fd, &expired, sizeof(expired)) < 0)
		return;
	listen_for(s, s->fd, EPOLLIN);
	for (service = s->services; service; service = service->next)
		listen_for(s, service->fd, EPOLLIN);
}

static void accept_one(struct dp_slot *s, int listening)
{
	const struct itimerspec later = { .it_value.tv_nsec = DEAF_NS };
	int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	/* The process has no descriptor left, say: the connection waits, and would wake us on and
	 * on. */
	if (fd < 0 && errno != EAGAIN && errno != EINTR) {
		listen_for(s, listening, 0);
		timerfd_settime(s->timer_fd, 0, &later, NULL);
	}
	if (fd < 0)
		return;
	if (s->n_from < DP_SLOTS && is_ours(s, fd) && !watch(s, fd))
		s->from[s->n_from++] = fd;
	else
		close(fd);
}

static void hang_up(struct dp_slot *s, int fd)
{
	uint32_t i;

	for (i = 0; i < s->n_from && s->from[i] != fd; i++)
		;
	assert(i < s->n_from);
	s->from[i] = s->from[--s->n_from];
	forget_fd(s, fd);
}

int dp_slot_receive(struct dp_slot *s, struct dp_slot_header *h, void *data, size_t len)
{
	struct iovec iov[2] = {
		{ .iov_base = h, .iov_len = sizeof(*h) },
		{ .iov_base = data, .iov_len = len },
	};
	struct epoll_event event;

	for (int tries = 0; tries < EVENTS_MAX; tries++) {
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
		ssize_t n;

		if (epoll_wait(s->poll_fd, &event, 1, 0) <= 0)
			break;
		if (event.data.fd == s->timer_fd) {
			listen_again(s);
			continue;
		}
		if (is_listening(s, event.data.fd)) {
			accept_one(s, event.data.fd);
			continue;
		}
		n = recvmsg(event.data.fd, &msg, MSG_DONTWAIT);
		if (n > (ssize_t)sizeof(*h) && h->segment_len)
			return (int)(n - (ssize_t)sizeof(*h));
		if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
			hang_up(s, event.data.fd);
	}
	return -EAGAIN;
}
