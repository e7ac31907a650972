// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * One thread serves all agents.  It takes in messages that arrive, and repeats messages that are
 * not answered in time.  When a program ends, the peers of its connections are told: exit() waits
 * a moment for the answers to its DREQs.  The thread sends them, since exit() may be called by a
 * signal handler, inside a call that holds the device's lock.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "posix/clock.h"
#include "posix/thread.h"
#include "verbs/ucm/ucm.h"

enum { FAREWELL_MS = 1500 };

static int poll_fd = -1, wake_fd = -1;
static bool running;
static atomic_bool leaving, left; /* the program ends; nothing is left to be told */
static pthread_t leaver;	  /* the thread in exit(), once `leaving` is set */

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

static uint32_t farewells(void)
{
	struct ucm_agent *a;
	uint32_t n = 0;

	for (a = ucm_agents(); a; a = a->next)
		n += dp_cm_farewells(a->cm, dp_now_ns());
	return n;
}

/* Under the lock. */
static void serve_leaving(void)
{
	if (!leaving || left)
		return;
	ucm_end_all();
	left = !farewells();
}

static void *run(void *unused)
{
	struct epoll_event event;
	uint64_t deadline, now, count;

	(void)unused;
	for (;;) {
		pthread_mutex_lock(&ucm_lock);
		serve_leaving();
		now = dp_now_ns();
		deadline = serve_all(now);
		pthread_mutex_unlock(&ucm_lock);
		if (epoll_wait(poll_fd, &event, 1, timeout_ms(deadline, now)) > 0 &&
		    event.data.fd == wake_fd && read(wake_fd, &count, sizeof(count)) < 0)
			continue; /* another read() took the wake-up */
	}
	return NULL;
}

void ucm_thread_wake(void)
{
	uint64_t one = 1;

	if (wake_fd >= 0 && write(wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full, so the thread is awake */
}

int ucm_thread_watch(int fd)
{
	struct epoll_event in = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &in) ? -errno : 0;
}

/* ---- the end of the program ------------------------------------------------------------------ */

/* The kernel does the same when a program's descriptors are closed. */
static void take_leave(void)
{
	uint64_t end = dp_now_ns() + FAREWELL_MS * UINT64_C(1000000);

	if (!running)
		return;
	leaver = pthread_self();
	leaving = true;
	/* By the clock: on a busy machine a sleep of 1 ms takes several. */
	while (!left && dp_now_ns() < end) {
		ucm_thread_wake();
		usleep(1000);
	}
}

/*
 * The kernel's exit waits for no peer, and ends all threads.  rping has one that goes on to ask a
 * closed channel for events, and would end the program by the error.
 */
void ucm_thread_stop_late(void)
{
	while (leaving && !pthread_equal(pthread_self(), leaver))
		pause();
}

/* ---- starting, and fork() -------------------------------------------------------------------- */

/* In a child after fork(), the parent's thread does not run, and the devices are the parent's. */
static void forget(void)
{
	pthread_mutex_init(&ucm_lock, NULL);
	running = leaving = left = false;
	poll_fd = wake_fd = -1;
	ucm_forget_agents();
	ucm_forget_resolving();
}

static void register_handlers(void)
{
	atexit(take_leave);
	pthread_atfork(NULL, NULL, forget);
}

int ucm_thread_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
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
	err = -dp_thread_start(&thread, run, NULL);
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
