// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Whole pieces and words over the connections of the management network.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "manage.h"

int manage_gone(uint32_t peer)
{
	return complain(ECONNRESET, "host %u went away", peer);
}

static int wait_for(struct run *run, uint32_t peer, short events, uint64_t until_ns)
{
	struct pollfd pfd = { .fd = run->peer[peer], .events = events };
	uint64_t now = dp_now_ns();
	int n;

	if (now >= until_ns)
		return complain(ETIMEDOUT, "host %u does not answer", peer);
	n = poll(&pfd, 1, (int)((until_ns - now) / 1000000 + 1));
	return n < 0 && errno != EINTR ? complain(errno, "poll: %s", strerror(errno)) : 0;
}

/* All bytes at `at` go out (POLLOUT) or come in (POLLIN), within the time that hosts have to
 * set up. */
static int move_whole(struct run *run, uint32_t peer, short way, char *at, size_t bytes)
{
	uint64_t until = dp_now_ns() + run->opt.setup_ns;
	int fd = run->peer[peer], err;

	while (bytes) {
		ssize_t n = way == POLLOUT ? send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) :
					     recv(fd, at, bytes, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN))
			return manage_gone(peer);
		if (n < 0) {
			err = wait_for(run, peer, way, until);
			if (err)
				return err;
			continue;
		}
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

int manage_send_whole(struct run *run, uint32_t peer, const void *from, size_t bytes)
{
	return move_whole(run, peer, POLLOUT, (char *)from, bytes);
}

int manage_receive_whole(struct run *run, uint32_t peer, void *to, size_t bytes)
{
	return move_whole(run, peer, POLLIN, to, bytes);
}

int manage_say(struct run *run, uint32_t peer, uint64_t kind, uint64_t value)
{
	struct word word = { kind, value };

	return manage_send_whole(run, peer, &word, sizeof(word));
}

int manage_hear(struct run *run, uint32_t peer, struct word *word)
{
	int err = manage_receive_whole(run, peer, word, sizeof(*word));

	if (!err && word->kind == WORD_GONE)
		return complain(ECONNRESET, "host %llu went away", (unsigned long long)word->value);
	return err;
}
