// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "posix/forked.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	int *fd;
	size_t n, room;
} own = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void hold(void)
{
	pthread_mutex_lock(&own.lock);
}

static void let_go(void)
{
	pthread_mutex_unlock(&own.lock);
}

static void close_in_child(void)
{
	while (own.n)
		close(own.fd[--own.n]);
	let_go();
}

static void watch_forks(void)
{
	pthread_atfork(hold, let_go, close_in_child);
}

/* Call with the lock held. */
static bool has_room(void)
{
	size_t room = 2 * own.room + 16;
	int *grown;

	if (own.n < own.room)
		return true;
	grown = realloc(own.fd, room * sizeof(*grown));
	if (!grown)
		return false;
	own.fd = grown;
	own.room = room;
	return true;
}

int dp_own_fd(int fd)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	bool kept;

	if (fd < 0)
		return -1;
	pthread_once(&once, watch_forks);
	hold();
	kept = has_room();
	if (kept)
		own.fd[own.n++] = fd;
	let_go();
	if (kept)
		return fd;
	close(fd);
	errno = ENOMEM;
	return -1;
}

void dp_close_own_fd(int fd)
{
	hold();
	for (size_t i = 0; i < own.n; i++)
		if (own.fd[i] == fd) {
			own.fd[i] = own.fd[--own.n];
			close(fd);
			break;
		}
	let_go();
}
