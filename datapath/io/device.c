// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/device.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "io/device_impl.h"
#include "io/urgent.h"
#include "posix/clock.h"

uint64_t dp_device_now_ns(void)
{
	return dp_now_ns();
}

/* ---- the lock --------------------------------------------------------------- */

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
	int kick_fd = -1;

	dp_device_hand_over_events(dev);
	/* In THREAD mode only the device's thread, or the waiter, serves an earlier deadline.  A thread
	 * that slept when the program took over does not look at the program yet. */
	if ((dev->mode == DP_MODE_THREAD || dev->resting) &&
	    dp_engine_deadline(dev->engine) < dev->wake_ns) {
		dev->wake_ns = 0; /* one kick is enough */
		kick_fd = dp_device_kick_fd(dev);
	}
	dp_unlock(&dev->lock);
	/* Now, or the thread would wake only to wait for the lock. */
	if (kick_fd >= 0)
		dp_device_signal(kick_fd);
}

/* ---- the calls of the program --------------------------------------------------- */

/* Once the program is hot, the thread has to know before anything is delayed. */
static void note_gap(struct dp_device *dev, uint64_t gap_ns)
{
	bool was_hot = dp_heat_hot(&dev->heat);

	dp_heat_called(&dev->heat, gap_ns, dev->delayed);
	if (!dp_heat_hot(&dev->heat))
		dev->delaying = false;
	else if (!was_hot && !dev->delaying && dev->mode == DP_MODE_PROGRAM)
		dp_device_kick(dev);
}

static bool may_delay(const struct dp_device *dev)
{
	return dev->mode == DP_MODE_PROGRAM && dev->delaying && dp_heat_hot(&dev->heat);
}

/* Half of a full lease has passed. */
static void renew_lease(struct dp_device *dev, uint64_t now)
{
	if (may_delay(dev))
		dp_lease_begin(&dev->lease, now + DP_LEASE_FULL_NS, DP_LEASE_FULL_NS);
	else
		dp_lease_end(&dev->lease);
}

static void note_call(struct dp_device *dev, uint64_t now)
{
	dp_device_count_call(dev);
	atomic_store_explicit(&dev->caller, dp_own_thread(), memory_order_relaxed);
	if (dp_lease_is_half_over(&dev->lease, now))
		renew_lease(dev, now);
	if (!dev->mark_ns)
		return;
	note_gap(dev, now - dev->mark_ns);
	dev->mark_ns = 0;
}

/* A program that posts over many QPs fills all their queues before it polls. */
static void note_post(struct dp_device *dev)
{
	if (dev->mode == DP_MODE_THREAD && !dev->armed && ++dev->row >= dev->row_needed)
		dev->mode = DP_MODE_PROGRAM;
}

void dp_device_posted(struct dp_device *dev)
{
	uint64_t now;

	if (may_delay(dev) && ++dev->delayed > 1 && dev->delayed < DP_DELAYED_MAX) {
		dp_device_count_call(dev);
		return;
	}
	now = dp_device_read_clock(dev);
	note_post(dev);
	note_call(dev, now);
	/* A program that posts and does not poll must serve its peers all the same. */
	if (dev->mode == DP_MODE_PROGRAM && now - dev->heard_ns > DP_UNHEARD_NS)
		for (int i = 0; i < DP_ROUNDS_PROGRAM; i++)
			if (dp_device_rx_burst(dev, &now) < DP_PORT_BATCH)
				break;
	dp_device_tx_due(dev, now);
	dp_device_count_call(dev); /* it may have taken longer than a lease */
	dev->delayed = 1;
	dev->mark_ns = dp_device_now_ns();
}

void dp_device_flush(struct dp_device *dev)
{
	dp_device_tx_due(dev, dp_device_read_clock(dev));
}

void dp_device_armed(struct dp_device *dev)
{
	dev->armed = true;
	if (dev->mode == DP_MODE_THREAD)
		return;
	if (dev->habit) {
		if (dev->delayed)
			dp_device_flush(dev);
		return;
	}
	dp_device_enter_thread_mode(dev);
	dp_device_kick(dev);
}

/* The program was quicker than the thread.  If that happens often, the program moves the packets
 * alone. */
static void note_ahead(struct dp_device *dev)
{
	if (dev->mode == DP_MODE_THREAD && !dev->armed && ++dev->ahead >= dev->ahead_needed)
		dev->mode = DP_MODE_PROGRAM;
}

/* An empty poll: no packet was received, and none is due to be sent.  Timers, and the thread's view
 * of the program, can wait for a few more of these. */
static bool idle_poll(struct dp_device *dev)
{
	return !dev->mark_ns && ++dev->idle_polls % DP_IDLE_POLLS &&
	       dp_engine_deadline(dev->engine) != 0;
}

/* The CQ is empty: moves packets, then polls again. */
static int poll_moving(struct dp_device *dev, struct dp_cq *cq, int max, struct dp_wc *out)
{
	int rounds = DP_ROUNDS_PROGRAM, rx, n;
	uint64_t now;

	rx = dp_device_rx_burst(dev, &now);
	if (!rx) {
		if (idle_poll(dev))
			return 0;
		now = dp_device_read_clock(dev);
	}
	note_call(dev, now);
	while (rx) {
		note_ahead(dev);
		rx = rx == DP_PORT_BATCH && --rounds ? dp_device_rx_burst(dev, &now) : 0;
	}
	n = dp_cq_poll(cq, max, out);
	dev->delayed = 0;
	/* A hot program posts right after it gets completions, and its requests
	 * go out together with the acknowledgements. */
	if (n && may_delay(dev)) {
		dev->mark_ns = now;
		return n;
	}
	/* Sending may complete requests, too. */
	if (dp_device_tx_due(dev, now) && !n)
		n = dp_cq_poll(cq, max, out);
	if (n)
		dev->mark_ns = dp_device_now_ns();
	return n;
}

int dp_device_poll_cq(struct dp_device *dev, struct dp_cq *cq, int max, struct dp_wc *out)
{
	int n, err;

	err = dp_device_lock(dev);
	if (err)
		return err;
	dev->row = 0;
	n = dp_cq_poll(cq, max, out);
	if (n == 0)
		n = poll_moving(dev, cq, max, out);
	else if (dev->mode == DP_MODE_PROGRAM)
		dp_device_count_call(dev);
	dp_device_unlock(dev);
	return n;
}

int dp_device_resolve(struct dp_device *dev, const struct dp_addr *peer, int timeout_ms,
		      uint32_t *path_id)
{
	uint64_t until = dp_device_now_ns() + (uint64_t)timeout_ms * 1000000;
	int err;

	for (;;) {
		err = dp_device_lock(dev);
		if (err)
			return err;
		err = dp_port_resolve(dev->port, peer, path_id);
		dp_device_unlock(dev);
		if (err != -EAGAIN || !timeout_ms)
			return err;
		if (dp_device_now_ns() >= until)
			return -EHOSTUNREACH;
		/* Without the lock: packets of other QPs move meanwhile. */
		usleep(DP_RESOLVE_STEP_US);
	}
}

void dp_device_release(struct dp_device *dev, uint32_t path_id)
{
	dp_port_release(dev->port, path_id);
}

int dp_device_refresh(struct dp_device *dev, uint32_t path_id)
{
	int err = dp_device_lock(dev);

	if (err)
		return err;
	err = dp_port_refresh(dev->port, path_id);
	dp_device_unlock(dev);
	return err;
}

int dp_device_join(struct dp_device *dev, const struct dp_addr *group)
{
	return dp_port_join(dev->port, group);
}

void dp_device_leave(struct dp_device *dev, const struct dp_addr *group)
{
	dp_port_leave(dev->port, group);
}

int dp_device_fd(const struct dp_device *dev)
{
	return dp_port_fd(dev->port);
}

int dp_device_serve(struct dp_device *dev, uint64_t service_id)
{
	return dp_port_serve(dev->port, service_id);
}

void dp_device_unserve(struct dp_device *dev, uint64_t service_id)
{
	dp_port_unserve(dev->port, service_id);
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

const struct dp_sleeps *dp_device_sleeps(const struct dp_device *dev)
{
	return &dev->sleeps;
}

void dp_device_engine_stats(struct dp_device *dev, struct dp_engine_stats *out)
{
	memset(out, 0, sizeof(*out));
	if (dp_device_lock(dev))
		return;
	dp_engine_stats(dev->engine, out);
	dp_device_unlock(dev);
}

void dp_device_port_stats(struct dp_device *dev, struct dp_port_stats *out)
{
	dp_port_stats(dev->port, out);
}
