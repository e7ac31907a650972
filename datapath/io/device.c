/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "io/device.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "io/lock.h"
#include "wire/crc32.h"
#include "wire/ext.h"

enum {
	DP_LEASE_NS = 1000000,	 /* PROGRAM mode: how often the thread looks */
	DP_LEASE_HOT_NS = 50000, /* the same while sends may wait for a call, at first */
	DP_LEASE_TRUST = 64,	 /* twice as long after so many that were kept... */
	DP_LEASE_TRUST_MAX = 3,	 /* ...so many times */
	DP_QUICK_NS = 10000,	 /* a program that calls again this soon is hot */
	DP_HOT_CALLS = 64,	 /* after so many, each slow call halving the count */
	DP_HOT_MAX = 256,
	DP_DELAYED_MAX = 32, /* requests that wait for the next call */
	DP_AHEAD_MIN = 4,    /* THREAD -> PROGRAM after so many */
	DP_AHEAD_MAX = 4096,
	DP_AHEAD_FORGET = 1000, /* leases without a miss */
	DP_ROUNDS_PROGRAM = 4,	/* bursts moved in one call */
	DP_ROUNDS_THREAD = 16,
	DP_IDLE_POLLS = 8,	/* empty polls between two looks at the clock */
	DP_TX_FULL_NS = 20000,	/* no transmit buffer: look again after this */
	DP_NAP_NS = 5000000,	/* longest sleep while there is traffic */
	DP_CALM_NS = 100000000, /* no traffic for so long: sleep until called */
	DP_RESOLVE_SLICE_MS = 20,
};

enum dp_mode { DP_MODE_THREAD, DP_MODE_PROGRAM };

struct dp_device {
	struct dp_lock lock;
	struct dp_engine *engine;
	struct dp_port *port;
	void (*on_event)(const struct dp_event *);
	void (*on_control)(struct dp_device *, void *control);
	void *control;
	int control_fd; /* -1: none */
	_Atomic(enum dp_mode) mode;
	atomic_uint calls;    /* of the program; tells the thread that it polls */
	atomic_bool delaying; /* the thread watches over delayed sends */
	bool armed;	      /* the program is going to wait for an event */
	bool tx_full;	      /* the port had no buffer */
	bool dead;	      /* in a child after fork() */
	uint32_t ahead;	      /* bursts that the program took before the thread */
	uint32_t ahead_needed;
	uint32_t leases;     /* kept in PROGRAM mode since the last miss */
	uint32_t hot;	     /* quick calls, less the slow (or preempted) ones */
	uint32_t hot_leases; /* kept while delaying */
	uint32_t idle_polls;
	uint32_t delayed; /* requests posted and not sent, since the last poll */
	int tx_want;	  /* transmit buffers to ask for */
	uint64_t mark_ns; /* when something was, or could have been, delayed */
	uint64_t busy_ns; /* when a packet last moved */
	uint64_t wake_ns; /* when the thread will wake by itself */
	int kick_fd;	  /* wakes the thread */
	atomic_bool stop;
	pthread_t thread;
	struct dp_port_info info;
	uint32_t path_mtu;
	char name[16];
	struct dp_device *next; /* list of all, for fork() */
};

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dp_device *devices;

uint64_t dp_device_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void choose_crc32(void)
{
	dp_crc32_choose(dp_device_now_ns);
}

/* ---- moving packets: all under the lock --------------------------------- */

/* Sets *now only if there were packets: an empty look costs no clock. */
static int rx_burst(struct dp_device *dev, uint64_t *now)
{
	struct dp_packet pkts[DP_PORT_BATCH];
	int i, n;

	n = dp_port_rx(dev->port, pkts, DP_PORT_BATCH);
	if (n <= 0)
		return 0;
	*now = dp_device_now_ns();
	for (i = 0; i < n; i++)
		dp_engine_rx(dev->engine, &pkts[i], *now);
	dp_port_rx_release(dev->port, pkts, n);
	dev->busy_ns = *now;
	return n;
}

/* Sends one burst, if the engine has anything due. */
static int tx_burst(struct dp_device *dev, uint64_t now)
{
	struct dp_packet pkts[DP_PORT_BATCH];
	int n, used;

	dev->tx_full = false;
	if (dp_engine_deadline(dev->engine) > now)
		return 0;
	dp_engine_tick(dev->engine, now);
	n = dp_port_tx_reserve(dev->port, pkts, dev->tx_want);
	if (n <= 0) {
		dev->tx_full = true;
		return 0;
	}
	used = dp_engine_tx(dev->engine, pkts, n, now);
	dp_port_tx_commit(dev->port, pkts, used, n);
	/* Reserve about what is needed: small batches stay cheap, large ones
	 * go out in one system call. */
	dev->tx_want = used == n ? DP_PORT_BATCH : used + used / 2 + 4;
	if (dev->tx_want > DP_PORT_BATCH)
		dev->tx_want = DP_PORT_BATCH;
	if (used)
		dev->busy_ns = now;
	return used;
}

/* Packets sent, a few bursts at most. */
static int tx_due(struct dp_device *dev, uint64_t now)
{
	int rounds = DP_ROUNDS_PROGRAM, n, sent = 0;

	dev->delayed = 0;
	while (rounds-- && (n = tx_burst(dev, now)) > 0)
		sent += n;
	return sent;
}

static void hand_over_events(struct dp_device *dev)
{
	struct dp_event event;

	while (dp_engine_event(dev->engine, &event)) {
		if (event.type == DP_EVENT_CQ)
			dev->armed = false;
		dev->on_event(&event);
	}
}

/* ---- lock and thread ------------------------------------------------------ */

/* Under the lock. */
static void kick(struct dp_device *dev)
{
	uint64_t one = 1;

	dev->wake_ns = 0;
	if (write(dev->kick_fd, &one, sizeof(one)) < 0) {
		/* The counter is full: the thread is awake. */
	}
}

int dp_device_lock(struct dp_device *dev)
{
	if (__builtin_expect(dev->dead, 0))
		return -EIO;
	dp_lock(&dev->lock);
	return 0;
}

int dp_device_lock_within(struct dp_device *dev, int timeout_ms)
{
	uint64_t until = dp_device_now_ns() + (uint64_t)timeout_ms * 1000000;

	if (dev->dead)
		return -EIO;
	return dp_trylock(&dev->lock) || dp_lock_slow(&dev->lock, until) ? 0 : -ETIMEDOUT;
}

void dp_device_unlock(struct dp_device *dev)
{
	hand_over_events(dev);
	/* In THREAD mode nobody else serves a deadline that has become nearer. */
	if (dev->mode == DP_MODE_THREAD && dp_engine_deadline(dev->engine) < dev->wake_ns)
		kick(dev);
	dp_unlock(&dev->lock);
}

static void enter_thread_mode(struct dp_device *dev)
{
	dev->mode = DP_MODE_THREAD;
	dev->delaying = false;
	dev->hot = 0;
	dev->ahead = 0;
}

/* THREAD mode, under the lock: do what is due, say until when to sleep. */
static uint64_t serve(struct dp_device *dev)
{
	uint64_t now = dp_device_now_ns(), deadline, nap;
	int rounds = DP_ROUNDS_THREAD, rx, tx;

	do {
		rx = rx_burst(dev, &now);
		tx = tx_burst(dev, now);
		if (rx)
			dev->ahead = 0;
		now = dp_device_now_ns();
	} while ((rx || tx) && --rounds);
	hand_over_events(dev);
	if (rx || tx)
		return now; /* more to do: let others have the lock, then go on */
	if (dev->tx_full)
		return now + DP_TX_FULL_NS;
	deadline = dp_engine_deadline(dev->engine);
	/* While there is traffic the program's posts keep making new deadlines,
	 * milliseconds away: a nap spares the kick that each would need. */
	nap = now - dev->busy_ns < DP_CALM_NS ? now + DP_NAP_NS : DP_NEVER;
	return deadline < nap ? deadline : nap;
}

/* PROGRAM mode, under the lock, a lease having passed without a call. */
static void lease_expired(struct dp_device *dev)
{
	uint64_t now = dp_device_now_ns();

	if (dev->delaying) {
		/* It has only become slower: no more delays for now. */
		dev->delaying = false;
		dev->hot_leases = 0;
		dev->hot /= 2;
		tx_due(dev, now);
		return;
	}
	if (rx_burst(dev, &now) > 0 && dev->ahead_needed < DP_AHEAD_MAX)
		dev->ahead_needed *= 8;
	dev->leases = 0;
	enter_thread_mode(dev);
}

/* A hot program keeps its leases, and the thread that looks is a disturbance:
 * let it look less often the longer that lasts. */
static uint64_t next_lease(struct dp_device *dev)
{
	uint32_t trust;

	dev->delaying = dev->hot >= DP_HOT_CALLS;
	if (!dev->delaying) {
		dev->hot_leases = 0;
		return DP_LEASE_NS;
	}
	trust = dev->hot_leases++ / DP_LEASE_TRUST;
	return DP_LEASE_HOT_NS << (trust < DP_LEASE_TRUST_MAX ? trust : DP_LEASE_TRUST_MAX);
}

/* Under the lock: do the thread's part, say until when to sleep. */
static uint64_t attend(struct dp_device *dev, unsigned *seen)
{
	unsigned calls = dev->calls;
	bool called = calls != *seen;

	*seen = calls;
	if (dev->mode == DP_MODE_PROGRAM && !called)
		lease_expired(dev);
	if (dev->mode == DP_MODE_THREAD)
		return serve(dev);
	if (++dev->leases == DP_AHEAD_FORGET)
		dev->ahead_needed = DP_AHEAD_MIN;
	return dp_device_now_ns() + next_lease(dev);
}

/* True: somebody wants something of control_fd. */
static bool sleep_until(struct dp_device *dev, uint64_t wake_ns, bool watch_port)
{
	struct pollfd fds[3] = {
		{ .fd = dev->kick_fd, .events = POLLIN },
		{ .fd = dev->control_fd, .events = POLLIN }, /* none is passed over */
		{ .fd = dp_port_fd(dev->port), .events = POLLIN },
	};
	struct timespec ts, *timeout = NULL;
	uint64_t now, left, count;

	if (wake_ns != DP_NEVER) {
		now = dp_device_now_ns();
		left = wake_ns > now ? wake_ns - now : 0;
		ts.tv_sec = (time_t)(left / 1000000000);
		ts.tv_nsec = (long)(left % 1000000000);
		timeout = &ts;
	}
	if (ppoll(fds, watch_port ? 3 : 2, timeout, NULL) <= 0)
		return false;
	if (fds[0].revents && read(dev->kick_fd, &count, sizeof(count)) < 0) {
		/* Another reader there is not; nothing to do. */
	}
	return fds[1].revents != 0;
}

static void *run(void *arg)
{
	struct dp_device *dev = arg;
	unsigned seen = 0;
	uint64_t wake_ns;
	bool watch_port;

	prctl(PR_SET_NAME, dev->name);
	prctl(PR_SET_TIMERSLACK, 1000UL);
	while (!dev->stop) {
		dp_lock(&dev->lock);
		wake_ns = attend(dev, &seen);
		watch_port = dev->mode == DP_MODE_THREAD;
		dp_port_watch(dev->port, watch_port);
		dev->wake_ns = wake_ns;
		dp_unlock(&dev->lock);
		if (sleep_until(dev, wake_ns, watch_port))
			dev->on_control(dev, dev->control);
	}
	return NULL;
}

/* ---- the program's side --------------------------------------------------- */

/* The program has called: was that soon after it could have been waited for? */
static void note_call(struct dp_device *dev, uint64_t now)
{
	dev->calls++;
	if (!dev->mark_ns)
		return;
	if (now - dev->mark_ns >= DP_QUICK_NS)
		dev->hot /= 2;
	else if (dev->hot < DP_HOT_MAX)
		dev->hot++;
	dev->mark_ns = 0;
}

static bool may_delay(const struct dp_device *dev)
{
	return dev->mode == DP_MODE_PROGRAM && dev->delaying && dev->hot >= DP_HOT_CALLS;
}

void dp_device_posted(struct dp_device *dev)
{
	uint64_t now;

	if (may_delay(dev) && ++dev->delayed > 1 && dev->delayed < DP_DELAYED_MAX) {
		dev->calls++;
		return;
	}
	now = dp_device_now_ns();
	note_call(dev, now);
	dev->mark_ns = now;
	tx_due(dev, now);
	dev->delayed = 1;
}

void dp_device_flush(struct dp_device *dev)
{
	tx_due(dev, dp_device_now_ns());
}

void dp_device_armed(struct dp_device *dev)
{
	dev->armed = true;
	if (dev->mode == DP_MODE_THREAD)
		return;
	enter_thread_mode(dev);
	kick(dev);
}

/* The program was there before the thread: let it have the packets alone. */
static void note_ahead(struct dp_device *dev)
{
	if (dev->mode == DP_MODE_THREAD && !dev->armed && ++dev->ahead >= dev->ahead_needed) {
		dev->mode = DP_MODE_PROGRAM;
		dev->leases = 0;
	}
}

/* Nothing received, nothing to send at once: then timers and the thread's view
 * of the program can wait for a few polls more. */
static bool idle_poll(struct dp_device *dev)
{
	return !dev->mark_ns && ++dev->idle_polls % DP_IDLE_POLLS &&
	       dp_engine_deadline(dev->engine) != 0;
}

/* The CQ is empty: move packets, look again. */
static int poll_moving(struct dp_device *dev, struct dp_cq *cq, int max, struct dp_wc *out)
{
	int rounds = DP_ROUNDS_PROGRAM, rx, n;
	uint64_t now;

	rx = rx_burst(dev, &now);
	if (!rx) {
		if (idle_poll(dev))
			return 0;
		now = dp_device_now_ns();
	}
	note_call(dev, now);
	while (rx) {
		note_ahead(dev);
		rx = rx == DP_PORT_BATCH && --rounds ? rx_burst(dev, &now) : 0;
	}
	n = dp_cq_poll(cq, max, out);
	dev->delayed = 0;
	/* With completions in hand a hot program posts at once, and what it
	 * posts goes out together with the acknowledgements. */
	if (n)
		dev->mark_ns = now;
	if (n && may_delay(dev))
		return n;
	/* What is sent may end in a completion, too. */
	if (tx_due(dev, now) && !n)
		n = dp_cq_poll(cq, max, out);
	return n;
}

int dp_device_poll_cq(struct dp_device *dev, struct dp_cq *cq, int max, struct dp_wc *out)
{
	int n, err;

	err = dp_device_lock(dev);
	if (err)
		return err;
	n = dp_cq_poll(cq, max, out);
	if (n == 0)
		n = poll_moving(dev, cq, max, out);
	dp_device_unlock(dev);
	return n;
}

int dp_device_resolve(struct dp_device *dev, const struct dp_addr *peer, int timeout_ms,
		      uint32_t *path_id)
{
	int err;

	/* In slices, so that other QPs' packets move in between. */
	do {
		err = dp_device_lock(dev);
		if (err)
			return err;
		err = dp_port_resolve(dev->port, peer, DP_RESOLVE_SLICE_MS, path_id);
		dp_device_unlock(dev);
		timeout_ms -= DP_RESOLVE_SLICE_MS;
	} while ((err == -ETIMEDOUT || err == -EAGAIN) && timeout_ms > 0);
	return err;
}

void dp_device_release(struct dp_device *dev, uint32_t path_id)
{
	dp_port_release(dev->port, path_id);
}

struct dp_engine *dp_device_engine(struct dp_device *dev)
{
	return dev->engine;
}

const struct dp_port_info *dp_device_port(const struct dp_device *dev)
{
	return &dev->info;
}

uint32_t dp_device_path_mtu(const struct dp_device *dev)
{
	return dev->path_mtu;
}

void dp_device_port_stats(struct dp_device *dev, struct dp_port_stats *out)
{
	dp_port_stats(dev->port, out);
}

/* ---- open and close --------------------------------------------------------- */

static void mark_all_dead(void)
{
	struct dp_device *dev;

	/* The child has one thread, and whatever the others held stays held. */
	for (dev = devices; dev; dev = dev->next)
		dev->dead = true;
	devices = NULL;
	pthread_mutex_init(&devices_lock, NULL);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, mark_all_dead);
}

static void list_add(struct dp_device *dev)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&devices_lock);
	dev->next = devices;
	devices = dev;
	pthread_mutex_unlock(&devices_lock);
}

static void list_del(struct dp_device *dev)
{
	struct dp_device **at;

	pthread_mutex_lock(&devices_lock);
	for (at = &devices; *at; at = &(*at)->next) {
		if (*at == dev) {
			*at = dev->next;
			break;
		}
	}
	pthread_mutex_unlock(&devices_lock);
}

/* What was asked for, with room for telemetry, as far as the port carries it. */
static uint32_t choose_segment(const struct dp_device *dev, const struct dp_device_options *opt)
{
	uint32_t segment = opt->segment, room = opt->telemetry ? dp_room_len(DP_HOPS_MAX) : 0;

	if (!segment) /* who asks for a small path MTU wants small packets */
		segment = dev->path_mtu < dev->info.path_mtu ? dev->path_mtu : dev->info.segment;
	segment += room;
	if (segment > dev->info.segment_max)
		segment = dev->info.segment_max;
	return segment & ~3u;
}

static int open_engine(struct dp_device *dev, const struct dp_device_options *opt, char *error,
		       size_t error_len)
{
	struct dp_engine_config config = {
		.addr = dev->info.addr,
		.udp_sport = dev->info.udp_sport,
		.ecn = opt->ecn,
		.telemetry = opt->telemetry,
		.paths = (uint8_t)opt->paths,
		.extended = !opt->standard,
		.window_psns = opt->window_psns,
		.line_rate_bps = dev->info.line_rate_bps,
		.min_rto_ns = opt->min_rto_ns,
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
	err = dp_engine_create(&config, &dev->engine);
	if (err)
		snprintf(error, error_len, "cannot make an RC engine: %s", strerror(-err));
	return err;
}

static int start_thread(struct dp_device *dev, char *error, size_t error_len)
{
	sigset_t all, before;
	int err;

	dev->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (dev->kick_fd < 0) {
		err = errno;
	} else {
		/* Signals are the program's. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		err = pthread_create(&dev->thread, NULL, run, dev);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		if (err)
			close(dev->kick_fd);
	}
	if (err)
		snprintf(error, error_len, "cannot start the device's thread: %s", strerror(err));
	return -err;
}

int dp_device_open(const char *spec, const struct dp_device_options *opt, struct dp_device **out,
		   char *error, size_t error_len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct dp_device *dev;
	int err;

	pthread_once(&once, choose_crc32);
	dev = calloc(1, sizeof(*dev));
	if (!dev) {
		snprintf(error, error_len, "out of memory");
		return -ENOMEM;
	}
	snprintf(dev->name, sizeof(dev->name), "dp:%.12s", opt->name);
	dev->on_event = opt->on_event;
	dev->on_control = opt->on_control;
	dev->control = opt->control;
	dev->control_fd = opt->on_control ? opt->control_fd : -1;
	dev->ahead_needed = DP_AHEAD_MIN;
	dev->tx_want = 4;

	err = dp_port_open(spec, &dev->port, error, error_len);
	if (err)
		goto free_dev;
	dp_port_info(dev->port, &dev->info);
	err = open_engine(dev, opt, error, error_len);
	if (err)
		goto close_port;
	err = start_thread(dev, error, error_len);
	if (err)
		goto destroy_engine;
	list_add(dev);
	*out = dev;
	return 0;

destroy_engine:
	dp_engine_destroy(dev->engine);
close_port:
	dp_port_close(dev->port);
free_dev:
	free(dev);
	return err;
}

void dp_device_close(struct dp_device *dev)
{
	/* A child leaves the parent's sockets and programs alone. */
	if (dev->dead)
		return;
	list_del(dev);
	dp_lock(&dev->lock);
	dev->stop = true;
	kick(dev);
	dp_unlock(&dev->lock);
	pthread_join(dev->thread, NULL);
	close(dev->kick_fd);
	dp_engine_destroy(dev->engine);
	dp_port_close(dev->port);
	free(dev);
}
