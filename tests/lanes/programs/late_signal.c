/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For LD_PRELOAD: a program that is about to sleep until a signal gets SIGTERM just before it does.
 */
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

static void signal_once(void)
{
	static int done;

	if (!done++)
		kill(getpid(), SIGTERM);
}

int pause(void)
{
	int (*real)(void) = (int (*)(void))dlsym(RTLD_NEXT, "pause");

	signal_once();
	return real();
}

int sigsuspend(const sigset_t *mask)
{
	int (*real)(const sigset_t *) = (int (*)(const sigset_t *))dlsym(RTLD_NEXT, "sigsuspend");

	signal_once();
	return real(mask);
}
