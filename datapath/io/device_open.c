// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "io/device_impl.h"
#include "posix/thread.h"
#include "wire/crc32.h"
#include "wire/sizes.h"

enum { FORK_WAIT_MS = 1000 };

static struct dp_device *devices;
/* Held while the list changes, and while a port is open that no device of it has.  fork() in another
 * thread waits for it. */
static struct dp_lock between;
static _Thread_local bool fork_holds; /* between */

static void choose_crc32(void)
{
	dp_crc32_choose(dp_device_now_ns);
}

/* Not for ever: the caller may be a signal handler in the thread that has the lock, or the program may
 * hold a lock of its own that opening waits for.  Such a child keeps the port. */
static void before_fork(void)
{
	fork_holds = dp_trylock(&between) ||
		     dp_lock_slow(&between, dp_device_now_ns() + FORK_WAIT_MS * UINT64_C(1000000));
}

static void after_fork(void)
{
	if (fork_holds)
		dp_unlock(&between);
}

/*
 * The child has only this thread.  Locks that other threads held stay locked.  The child's copies
 * of a port's descriptors and mappings are given up, or they would keep the port's sockets, names
 * and XDP program for as long as the child lives: the kernel would still give packets to a socket
 * that nobody reads, and hold the device's queue, after the parent has closed the device.
 */
static void forget_all(void)
{
	struct dp_device *dev;

	for (dev = devices; dev; dev = dev->next) {
		dev->dead = true;
		dp_port_close(dev->port);
		dev->port = NULL;
	}
	devices = NULL;
	between = (struct dp_lock){ 0 };
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, forget_all);
}

/* Call this and the next one with `between` held. */
static void list_add(struct dp_device *dev)
{
	dev->next = devices;
	devices = dev;
}

static void list_del(struct dp_device *dev)
{
	struct dp_device **at;

	for (at = &devices; *at; at = &(*at)->next) {
		if (*at == dev) {
			*at = dev->next;
			break;
		}
	}
}

/* Chooses the segment that was asked for, or less if the port does not carry it with room for
 * telemetry. */
static uint32_t choose_segment(const struct dp_device *dev, const struct dp_device_options *opt)
{
	uint32_t segment = dp_segment_wanted(opt->segment, dev->path_mtu, dev->info.path_mtu,
					     dev->info.segment);

	return dp_segment_with_room(segment, opt->telemetry ? DP_TELEMETRY_ROOM_MAX : 0,
				    dev->info.segment_max);
}

static int open_engine(struct dp_device *dev, const struct dp_device_options *opt, char *error,
		       size_t error_len)
{
	struct dp_engine_config config = {
		.addr = dev->info.addr,
		.udp_sport = dev->info.udp_sport,
		.ecn = opt->ecn,
		.bundle = !opt->alone,
		.telemetry = opt->telemetry,
		.paths = (uint8_t)opt->paths,
		.extended = !opt->standard,
		.window_psns = opt->window_psns,
		.line_rate_bps = dev->info.line_rate_bps,
		.min_rto_ns = opt->min_rto_ns,
		.cnp_ns = opt->cnp_ns,
		.qpn_prefix = dev->info.qpn_prefix,
	};
	int err;

	if (opt->paths > 1 && dev->info.udp_sport) {
		snprintf(error, error_len,
			 "paths=%u: a port of kind %s has one UDP source port; use afxdp",
			 opt->paths, dev->info.kind);
		return -EINVAL;
	}
	dev->path_mtu = dev->info.path_mtu;
	if (opt->path_mtu_max && opt->path_mtu_max < dev->path_mtu)
		dev->path_mtu = opt->path_mtu_max;
	config.path_mtu_max = dev->path_mtu;
	config.segment_max = choose_segment(dev, opt);
	if (getrandom(&config.seed, sizeof(config.seed), 0) != sizeof(config.seed))
		config.seed = dp_device_now_ns();
	dev->heard_ns = dev->looked_ns = dp_device_read_clock(dev);
	err = dp_engine_create(&config, &dev->engine);
	if (err)
		snprintf(error, error_len, "cannot make an engine: %s", strerror(-err));
	return err;
}

static void close_kick_fds(struct dp_device *dev)
{
	if (dev->kick_fd >= 0)
		close(dev->kick_fd);
	if (dev->waiter_kick_fd >= 0)
		close(dev->waiter_kick_fd);
}

static int start_thread(struct dp_device *dev, char *error, size_t error_len)
{
	int err;

	err = dp_lease_open(&dev->lease);
	if (err)
		goto fail;
	dev->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->waiter_kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = dev->kick_fd < 0 || dev->waiter_kick_fd < 0 ? -errno : 0;
	if (!err)
		err = dp_thread_start(&dev->thread, dp_device_run, dev);
	if (!err)
		return 0;

	close_kick_fds(dev);
	dp_lease_close(&dev->lease);
fail:
	snprintf(error, error_len, "cannot start the device's thread: %s", strerror(-err));
	return err;
}

static void stop_thread(struct dp_device *dev)
{
	struct timespec pause = { .tv_nsec = 100000 };

	dp_lock(&dev->lock);
	dev->stop = true;
	dp_device_signal(dev->kick_fd);
	dp_unlock(&dev->lock);
	pthread_join(dev->thread, NULL);
	/* A thread of the program that still waits for an event leaves. */
	for (dp_lock(&dev->lock); dev->waiter; dp_lock(&dev->lock)) {
		dp_device_kick(dev);
		dp_unlock(&dev->lock);
		nanosleep(&pause, NULL);
	}
	dp_unlock(&dev->lock);
	close_kick_fds(dev);
	dp_lease_close(&dev->lease);
}

/* Call with `between` held. */
static int open_port(struct dp_device *dev, const char *spec, const struct dp_device_options *opt,
		     char *error, size_t error_len)
{
	int err;

	err = dp_port_open(spec, &dev->port, error, error_len);
	if (err)
		return err;
	dp_port_info(dev->port, &dev->info);
	err = open_engine(dev, opt, error, error_len);
	if (err)
		goto close_port;
	err = dev->no_thread ? 0 : start_thread(dev, error, error_len);
	if (err)
		goto destroy_engine;
	list_add(dev);
	return 0;

destroy_engine:
	dp_engine_destroy(dev->engine);
close_port:
	dp_port_close(dev->port);
	return err;
}

static void prepare_process(void)
{
	choose_crc32();
	watch_forks();
}

int dp_device_open(const char *spec, const struct dp_device_options *opt, struct dp_device **out,
		   char *error, size_t error_len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct dp_device *dev;
	int err;

	pthread_once(&once, prepare_process);
	dev = calloc(1, sizeof(*dev));
	if (!dev) {
		snprintf(error, error_len, "out of memory");
		return -ENOMEM;
	}
	snprintf(dev->name, sizeof(dev->name), "dp:%.12s", opt->name);
	dev->no_thread = opt->no_thread;
	dev->on_event = opt->on_event;
	dev->on_control = opt->on_control;
	dev->control = opt->control;
	dev->control_fd = opt->on_control ? opt->control_fd : -1;
	dev->ahead_needed = DP_AHEAD_MIN;
	dev->row_needed = DP_ROW_MIN;
	dev->tx_want = 4;
	dev->kick_fd = dev->waiter_kick_fd = -1;
	dp_lease_end(&dev->lease);

	dp_lock(&between);
	err = open_port(dev, spec, opt, error, error_len);
	dp_unlock(&between);
	if (err) {
		free(dev);
		return err;
	}
	*out = dev;
	return 0;
}

void dp_device_close(struct dp_device *dev)
{
	/* A child does not touch the parent's sockets and XDP programs. */
	if (dev->dead)
		return;
	if (!dev->no_thread)
		stop_thread(dev);
	dp_engine_destroy(dev->engine);
	dp_lock(&between);
	list_del(dev);
	dp_port_close(dev->port);
	dp_unlock(&between);
	free(dev);
}
