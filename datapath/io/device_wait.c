// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A thread of the program that waits for an event serves the device: device.h tells when. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "io/device_impl.h"
#include "io/urgent.h"

/* How a signal handler affects a system call that it interrupts. */
enum handlers { DP_RESTART = 1, DP_INTERRUPT = 2 };

/* ppoll() fails with EINTR after any handler; read(), which programs expect here, only after one
 * that was installed without SA_RESTART. */
static int installed_handlers(void)
{
	struct sigaction action;
	int signal, found = 0;

	for (signal = 1; signal < _NSIG; signal++) {
		if (sigaction(signal, NULL, &action) || action.sa_handler == SIG_DFL ||
		    action.sa_handler == SIG_IGN)
			continue;
		found |= action.sa_flags & SA_RESTART ? DP_RESTART : DP_INTERRUPT;
	}
	return found;
}

/* Once in each thread, and for good: the default slack of 50 us is longer than the engine's shortest
 * deadlines, and a thread with default slices waits for those of others when a packet comes. */
static void prepare_thread(void)
{
	static _Thread_local bool done;

	if (done)
		return;
	prctl(PR_SET_TIMERSLACK, 1000UL);
	dp_take_short_slices();
	done = true;
}

/* Under the lock.  The thread has the device again. */
static void give_up(struct dp_device *dev)
{
	dev->waiter = false;
	dp_device_enter_thread_mode(dev);
	dp_device_kick(dev);
}

static void cancelled(void *dev)
{
	dp_lock(&((struct dp_device *)dev)->lock);
	give_up(dev);
	dp_unlock(&((struct dp_device *)dev)->lock);
}

/* Under the lock.  The program is going to call; the thread looks once in a lease if it does. */
static void go_back(struct dp_device *dev)
{
	dev->waiter = false;
	dev->habit = DP_HABIT_LEASES;
	dev->mode = DP_MODE_PROGRAM;
	dp_device_count_call(dev);
	if (dev->resting)
		dp_device_kick(dev);
}

/* Without the lock.  Only here may the thread be cancelled.  Returns 0 or -errno. */
static int sleep_cancellable(struct dp_device *dev, int fd, int port_fd, uint64_t wake_ns,
			     int cancel_state)
{
	struct pollfd fds[3] = {
		{ .fd = dev->waiter_kick_fd, .events = POLLIN },
		{ .fd = fd, .events = POLLIN },
		{ .fd = port_fd, .events = POLLIN },
	};
	int err;

	pthread_cleanup_push(cancelled, dev);
	pthread_setcancelstate(cancel_state, NULL);
	err = dp_device_sleep(dev, fds, 3, wake_ns, true) < 0 ? -errno : 0;
	pthread_testcancel(); /* it need not have slept */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_pop(0);
	return err;
}

/* Under the lock, which it gives away meanwhile. */
static void linger(struct dp_device *dev, uint64_t wake_ns)
{
	unsigned calls = dev->calls;
	bool alone;

	dp_unlock(&dev->lock);
	alone = dp_device_linger(dev, calls, wake_ns);
	dp_lock(&dev->lock);
	if (!alone)
		dp_linger_pause(&dev->linger, dp_device_now_ns());
}

/* One look and one sleep, under the lock.  Returns -EAGAIN to go on. */
static int serve_once(struct dp_device *dev, int fd, bool (*ready)(void *), void *arg,
		      int cancel_state)
{
	uint64_t wake_ns = dp_device_attend(dev);
	int port_fd = dp_device_port_fd(dev), err = 0;

	if (ready(arg)) {
		go_back(dev);
		return 0;
	}
	if (dev->stop || dev->crowd || dev->mode != DP_MODE_THREAD) {
		give_up(dev);
		return -EBUSY;
	}
	if (dp_device_may_linger(dev, wake_ns)) {
		linger(dev, wake_ns);
		return -EAGAIN;
	}
	dp_port_watch(dev->port, true);
	dp_device_note_sleep(dev, wake_ns, true);
	dp_linger_slept(&dev->linger, dev->clock_ns);
	dev->wake_ns = wake_ns;
	dp_unlock(&dev->lock);
	err = sleep_cancellable(dev, fd, port_fd, wake_ns, cancel_state);
	dp_lock(&dev->lock);
	if (dev->slept_ns)
		dev->woke_ns = dp_device_now_ns();
	if (err == -EINTR && installed_handlers() & DP_INTERRUPT) {
		give_up(dev);
		/* Which of several handlers ran is not known.  The next signal finds the program
		 * in read(). */
		return installed_handlers() & DP_RESTART ? -EBUSY : -EINTR;
	}
	return -EAGAIN;
}

/* Under the lock.  With two threads that wait, the one that serves would leave the other without
 * service when it goes back: from now on, the device's thread serves both. */
static bool may_wait(struct dp_device *dev)
{
	if (dev->waiter) {
		dev->crowd = true;
		dp_device_kick(dev);
	}
	return !dev->no_thread && !dev->stop && !dev->crowd;
}

int dp_device_wait(struct dp_device *dev, int fd, bool (*ready)(void *), void *arg)
{
	int err, state;

	err = dp_device_lock(dev);
	if (err)
		return err;
	if (!may_wait(dev)) {
		dp_device_unlock(dev);
		return -EBUSY;
	}
	prepare_thread();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	dev->waiter = true;
	dp_device_enter_thread_mode(dev);
	do
		err = serve_once(dev, fd, ready, arg, state);
	while (err == -EAGAIN);
	dp_unlock(&dev->lock);
	pthread_setcancelstate(state, NULL);
	return err;
}
