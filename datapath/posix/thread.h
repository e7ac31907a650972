/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads of our own in other people's programs. */
#ifndef DP_POSIX_THREAD_H
#define DP_POSIX_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Starts a thread that takes no signals: they are for the program's own threads.  A write to a pipe
 * that has lost its reader fails there with EPIPE, and no SIGPIPE ends the program.  Returns 0 or
 * -errno. */
static inline int dp_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

#endif
