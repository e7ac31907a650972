// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Multicast of the UDP port.  A socket that is bound to a group's address receives the packets
 * of that group and no others; the kernel gives a copy to each process that has one.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io/udp_impl.h"

static int open_socket(void *port, const struct dp_addr *group)
{
	struct epoll_event in = { .events = EPOLLIN };
	const int on = 1, off = 0;
	struct udp_port *u = port;
	bool v4 = dp_addr_is_v4(group);
	union dp_sockaddr local;
	socklen_t len = dp_addr_to_sockaddr(group, DP_ROCE_PORT, u->port.info.ifindex, &local);
	int fd, err;

	fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	err = dp_udp_configure(fd, v4);
	if (!err && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		     (v4 && setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off))) ||
		     bind(fd, &local.sa, len) || epoll_ctl(u->port.fd, EPOLL_CTL_ADD, fd, &in)))
		err = -errno;
	setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
	if (!err)
		return fd;
	close(fd);
	return err;
}

int dp_udp_join(struct dp_port *port, const struct dp_addr *group)
{
	struct udp_port *u = (struct udp_port *)port;

	return dp_groups_join(&u->groups, group, port->info.ifindex, open_socket, u);
}

void dp_udp_leave(struct dp_port *port, const struct dp_addr *group)
{
	dp_groups_leave(&((struct udp_port *)port)->groups, group);
}
