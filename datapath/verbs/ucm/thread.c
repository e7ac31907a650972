// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * One thread for all agents: it brings in the messages that arrive, and sends again what is not
 * answered in time.  It also sees to it that peers hear of the end of a program: a program that
 * exits waits a moment for the answers to its DREQs.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "posix/clock.h"
#include "verbs/ucm/ucm.h"

enum { FAREWELL_MS = 1500 };

static int poll_fd = -1, wake_fd = -1;
static bool running;

static int timeout_ms(uint64_t deadline, uint64_t now)
{
	if (deadline == DP_NEVER)
		return -1;
	return deadline <= now ? 0 : (int)((deadline - now + 999999) / 1000000);
}

static uint64_t serve_all(uint64_t now)
{
	uint64_t deadline = ucm_serve_resolving(now), next;
	struct ucm_agent *a;

	for (a = ucm_agents(); a; a = a->next) {
		next = ucm_agent_serve(a, now);
		if (next < deadline)
			deadline = next;
	}
	return deadline;
}

static void *run(void *unused)
{
	struct epoll_event event;
	uint64_t deadline, now, count;

	(void)unused;
	for (;;) {
		pthread_mutex_lock(&ucm_lock);
		now = dp_now_ns();
		deadline = serve_all(now);
		pthread_mutex_unlock(&ucm_lock);
		if (epoll_wait(poll_fd, &event, 1, timeout_ms(deadline, now)) > 0 &&
		    event.data.fd == wake_fd && read(wake_fd, &count, sizeof(count)) < 0)
			continue; /* somebody else's wake-up */
	}
	return NULL;
}

void ucm_thread_wake(void)
{
	uint64_t one = 1;

	if (wake_fd >= 0 && write(wake_fd, &one, sizeof(one)) < 0)
		return; /* it is awake */
}

int ucm_thread_watch(int fd)
{
	struct epoll_event in = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &in) ? -errno : 0;
}

/* ---- the end of the program ------------------------------------------------------------------ */

static uint32_t farewells(void)
{
	struct ucm_agent *a;
	uint32_t n = 0;

	for (a = ucm_agents(); a; a = a->next)
		n += dp_cm_farewells(a->cm, dp_now_ns());
	return n;
}

/* As the kernel does when a program's descriptors are closed. */
static void take_leave(void)
{
	int ms;

	if (!running || !front_lock_within(&ucm_lock, FAREWELL_MS))
		return;
	ucm_end_all();
	for (ms = 0; ms < FAREWELL_MS && farewells(); ms++) {
		pthread_mutex_unlock(&ucm_lock);
		usleep(1000);
		if (!front_lock_within(&ucm_lock, FAREWELL_MS))
			return;
	}
	pthread_mutex_unlock(&ucm_lock);
}

/* ---- starting, and fork() -------------------------------------------------------------------- */

/* The child has no thread of the parent's, and its devices are not its own. */
static void forget(void)
{
	pthread_mutex_init(&ucm_lock, NULL);
	running = false;
	poll_fd = wake_fd = -1;
	ucm_forget_agents();
}

static void register_handlers(void)
{
	atexit(take_leave);
	pthread_atfork(NULL, NULL, forget);
}

int ucm_thread_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	sigset_t all, before;
	pthread_t thread;
	int err;

	if (running)
		return 0;
	poll_fd = epoll_create1(EPOLL_CLOEXEC);
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (poll_fd < 0 || wake_fd < 0 || ucm_thread_watch(wake_fd)) {
		err = errno;
		goto fail;
	}
	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		goto fail;
	pthread_setname_np(thread, "dp:cm");
	pthread_detach(thread);
	pthread_once(&once, register_handlers);
	running = true;
	return 0;

fail:
	if (poll_fd >= 0)
		close(poll_fd);
	if (wake_fd >= 0)
		close(wake_fd);
	poll_fd = wake_fd = -1;
	return -err;
}
