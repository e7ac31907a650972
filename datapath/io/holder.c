// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/holder.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	STEP_MS = 10,
	ALIVE_MS = 500,	 /* the holder may be about to end */
	ENDED_MS = 3000, /* no process is known to hold it */
};

static int make(uint32_t ifindex, uint32_t queue, struct sockaddr_un *name, socklen_t *len)
{
	char which[16] = "all";
	int n;

	if (queue != DP_ALL_QUEUES)
		snprintf(which, sizeof(which), "%u", queue);
	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	/* a leading zero byte: the abstract name space, no file */
	n = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "datapath-afxdp:%u:%s",
		     ifindex, which);
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int dp_holder_tell(uint32_t ifindex, uint32_t queue)
{
	struct sockaddr_un name;
	socklen_t len;
	int fd = make(ifindex, queue, &name, &len);

	/* Connections are never accepted.  Once as many wait as fit, the holder is no longer named. */
	if (fd >= 0 && (bind(fd, (const void *)&name, len) || listen(fd, SOMAXCONN))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static pid_t pid_of(uint32_t ifindex, uint32_t queue)
{
	struct ucred peer = {};
	socklen_t len, size = sizeof(peer);
	struct sockaddr_un name;
	int fd = make(ifindex, queue, &name, &len);

	if (fd < 0)
		return 0;
	if (connect(fd, (const void *)&name, len) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		peer.pid = 0;
	close(fd);
	return peer.pid;
}

pid_t dp_holder_pid(uint32_t ifindex, uint32_t queue)
{
	pid_t pid = pid_of(ifindex, queue);

	return pid ? pid : pid_of(ifindex, DP_ALL_QUEUES);
}

bool dp_holder_wait(uint32_t ifindex, uint32_t queue, int *waited_ms)
{
	if (*waited_ms >= ENDED_MS || (*waited_ms >= ALIVE_MS && dp_holder_pid(ifindex, queue)))
		return false;
	usleep(STEP_MS * 1000);
	*waited_ms += STEP_MS;
	return true;
}
