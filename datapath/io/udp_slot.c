// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/udp_slot.h"

#include <errno.h>
#include <linux/filter.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/addr.h"

enum {
	BUFFER = 8 << 20,
	LOCK_WAIT_MS = 1000,
	FOREIGN_MAX = 16,
	/* A Unix socket queues few datagrams (net.unix.max_dgram_qlen, often 10):
	 * so long a process waits for another to take some. */
	HAND_ON_WAIT_US = 10000,
};

/* The abstract name of something of an address: a slot's number, or "lock". */
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

static int unix_socket(struct dp_error *error)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd >= 0 ? fd :
			 dp_fail(error, -errno, "cannot make a Unix socket: %s", strerror(errno));
}

/* A bound name is the lock: the kernel frees it when its holder dies. */
static int take_lock(struct dp_slot *s, struct dp_error *error)
{
	struct sockaddr_un name;
	socklen_t len = unix_name(&s->addr, "lock", &name);

	s->lock_fd = unix_socket(error);
	if (s->lock_fd < 0)
		return s->lock_fd;
	for (int ms = 0; bind(s->lock_fd, (void *)&name, len); ms++) {
		if (errno != EADDRINUSE || ms >= LOCK_WAIT_MS)
			return dp_fail(error, -errno,
				       "another process has been opening a UDP port on the same "
				       "address for %d ms: is it stopped?",
				       ms);
		usleep(1000);
	}
	return 0;
}

void dp_slot_settled(struct dp_slot *s)
{
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->lock_fd = -1;
}

int dp_slot_claim(struct dp_slot *s, const struct dp_addr *addr, struct dp_error *error)
{
	const struct timeval wait = { .tv_usec = HAND_ON_WAIT_US };
	int one = 1, size = BUFFER, err;
	char text[DP_ADDR_TEXT];

	s->addr = *addr;
	err = take_lock(s, error);
	if (err)
		return err;
	s->fd = unix_socket(error);
	if (s->fd < 0)
		return s->fd;
	setsockopt(s->fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	for (s->number = 0; s->number < DP_SLOTS; s->number++) {
		struct sockaddr_un name;
		socklen_t len = slot_name(addr, s->number, &name);

		if (!bind(s->fd, (void *)&name, len))
			return 0;
		if (errno != EADDRINUSE)
			return dp_fail(error, -errno, "cannot bind a Unix socket: %s",
				       strerror(errno));
	}
	return dp_fail(error, -EADDRINUSE, "%d processes use UDP ports on %s already", DP_SLOTS,
		       dp_addr_text(addr, text));
}

void dp_slot_release(struct dp_slot *s)
{
	dp_slot_settled(s);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

int dp_slot_steer(int udp_fd, struct dp_error *error)
{
	/* index in the group = datagram[5]; past the end, the kernel picks any */
	struct sock_filter code[] = {
		{ BPF_LD | BPF_B | BPF_ABS, 0, 0, DP_SLOT_BYTE },
		{ BPF_RET | BPF_A, 0, 0, 0 },
	};
	struct sock_fprog program = { .len = 2, .filter = code };

	if (setsockopt(udp_fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)))
		return dp_fail(error, -errno, "cannot steer UDP sockets by QPN: %s",
			       strerror(errno));
	return 0;
}

int dp_slot_hand_on(struct dp_slot *s, uint32_t owner, const struct dp_slot_header *h,
		    const void *data, size_t len)
{
	struct sockaddr_un name;
	struct iovec iov[2] = {
		{ .iov_base = (void *)h, .iov_len = sizeof(*h) },
		{ .iov_base = (void *)data, .iov_len = len },
	};
	struct msghdr msg = {
		.msg_name = &name,
		.msg_namelen = slot_name(&s->addr, owner, &name),
		.msg_iov = iov,
		.msg_iovlen = 2,
	};
	int flags = MSG_NOSIGNAL;
	ssize_t n;

	/* One that kept us waiting in vain must not do so for each packet. */
	if (s->stuck[owner])
		flags |= MSG_DONTWAIT;
	do
		n = sendmsg(s->fd, &msg, flags);
	while (n < 0 && errno == EINTR);
	s->stuck[owner] = n < 0 && errno == EAGAIN;
	return n < 0 ? -errno : 0;
}

static bool from_same_user(const struct msghdr *msg)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
		return false;
	return ((const struct ucred *)CMSG_DATA(c))->uid == geteuid();
}

int dp_slot_receive(const struct dp_slot *s, struct dp_slot_header *h, void *data, size_t len)
{
	char control[CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8)));
	struct iovec iov[2] = {
		{ .iov_base = h, .iov_len = sizeof(*h) },
		{ .iov_base = data, .iov_len = len },
	};

	/* what others wrote is thrown away, and the next message looked at */
	for (int tries = 0; tries < FOREIGN_MAX; tries++) {
		struct msghdr msg = {
			.msg_iov = iov,
			.msg_iovlen = 2,
			.msg_control = control,
			.msg_controllen = sizeof(control),
		};
		ssize_t n = recvmsg(s->fd, &msg, MSG_DONTWAIT);

		if (n < 0)
			return -errno;
		if (from_same_user(&msg) && n > (ssize_t)sizeof(*h) && h->segment_len)
			return (int)(n - (ssize_t)sizeof(*h));
	}
	return -EAGAIN;
}
