// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The device's thread: device.h tells when it moves packets and when it only looks. */
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "io/device_impl.h"
#include "io/urgent.h"
#include "posix/brief.h"
#include "posix/clock.h"
#include "posix/early.h"
#include "posix/realtime.h"

void dp_device_signal(int kick_fd)
{
	uint64_t one = 1;

	if (write(kick_fd, &one, sizeof(one)) < 0) {
		/* The counter is full: the thread is awake. */
	}
}

void dp_device_kick(struct dp_device *dev)
{
	dev->wake_ns = 0;
	dp_device_signal(dp_device_kick_fd(dev));
}

void dp_device_enter_thread_mode(struct dp_device *dev)
{
	dev->mode = DP_MODE_THREAD;
	dev->delaying = false;
	dev->heat = (struct dp_heat){ 0 };
	dev->ahead = 0;
	dev->row = 0;
	dev->polled = 0;
	dev->habit = 0;
}

/* Under the lock, after the first look at the port since a sleep.  What came first ended the
 * sleep, unless it had come before the sleep began; a kick is not counted. */
static void note_wake(struct dp_device *dev, bool received)
{
	uint64_t arrived_ns = received ? dev->first_ns : 0;
	bool packet = arrived_ns && arrived_ns < dev->wake_ns;
	uint64_t due_ns = packet ? arrived_ns : dev->wake_ns;

	if (due_ns >= dev->slept_ns && due_ns <= dev->woke_ns)
		dp_late_add(packet ? &dev->sleeps.packet : &dev->sleeps.timer,
			    dev->woke_ns - due_ns);
	dev->slept_ns = 0;
}

void dp_device_note_sleep(struct dp_device *dev, uint64_t wake_ns, bool serving)
{
	if (serving && wake_ns <= dev->clock_ns)
		return; /* it stays awake */
	if (serving && dev->woke_ns) {
		dev->sleeps.wakes++;
		dev->sleeps.awake_ns += dev->clock_ns - dev->woke_ns;
	}
	dev->slept_ns = serving ? dev->clock_ns : 0;
	dev->woke_ns = 0;
}

/* Whether the program ran since the last look.  One that did, and made no call, computes or spins on
 * memory; one that did not may be polling, and waits for a CPU. */
static bool program_ran(struct dp_device *dev)
{
	uint64_t before_ns = dev->ran_ns;
	int caller = dev->caller;
	bool same = dev->looked_at == caller;

	dev->looked_at = caller;
	dev->ran_ns = dp_thread_ran_ns(caller);
	return same && caller && dev->ran_ns >= before_ns + DP_RAN_NS;
}

/* The thread found packets that a program which does not poll had left lying. */
static void note_miss(struct dp_device *dev, int packets)
{
	dev->missed_ns = dev->clock_ns;
	dev->missed_few = packets <= DP_FEW;
	if (dev->ahead_needed < DP_AHEAD_MAX)
		dev->ahead_needed *= 8;
}

/* The thread took a burst.  A program that made many calls since the last one polls, and would have
 * taken the burst itself: a thread that is urgent is always quicker. */
static void note_taken(struct dp_device *dev)
{
	unsigned calls = dev->calls;

	if (calls - dev->calls_then >= DP_POLLED_CALLS)
		dev->polled++;
	else
		dev->polled -= dev->polled < DP_UNPOLLED ? dev->polled : DP_UNPOLLED;
	dev->calls_then = calls;
	if (dev->polled >= DP_POLLED_ENOUGH && !dev->armed && !dev->waiter && !dev->no_thread)
		dev->mode = DP_MODE_PROGRAM;
}

/* In THREAD mode, under the lock: does what is due; returns until when to sleep. */
uint64_t dp_device_attend(struct dp_device *dev)
{
	uint64_t now = dp_device_read_clock(dev), deadline, nap, held_ns;
	int rounds = DP_ROUNDS_THREAD, rx, tx;

	do {
		rx = dp_device_rx_burst(dev, &now);
		if (dev->slept_ns)
			note_wake(dev, rx > 0);
		if (rx)
			dp_linger_arrived(&dev->linger, dev->first_ns ? dev->first_ns : now);
		if (rx && dev->spins && dev->first_ns && now - dev->first_ns > DP_LEFT_NS)
			note_miss(dev, rx);
		dev->spins = false;
		tx = dp_device_tx_burst(dev, now);
		if (rx) {
			dev->ahead = 0;
			note_taken(dev);
		}
		now = dp_device_read_clock(dev);
	} while ((rx || tx) && --rounds);
	dp_device_hand_over_events(dev);
	if (rx || tx)
		return now; /* more to do: let others have the lock, then go on */
	dp_linger_drained(&dev->linger, now);
	if (dev->tx_full)
		return now + DP_TX_FULL_NS;
	deadline = dp_engine_deadline(dev->engine);
	held_ns = dp_port_held_until(dev->port);
	if (held_ns && held_ns < deadline)
		deadline = held_ns;
	/* While there is traffic, the program's posts set new deadlines a few milliseconds ahead
	 * again and again.  A short sleep saves waking the thread for each of them. */
	nap = now - dev->busy_ns < DP_CALM_NS ? now + DP_NAP_NS : DP_NEVER;
	return deadline < nap ? deadline : nap;
}

/* PROGRAM mode, under the lock: the program has not served the device for a lease. */
static void lease_expired(struct dp_device *dev)
{
	uint64_t now = dp_device_read_clock(dev);
	int rx;

	if (dev->delaying) {
		/* The program has only become slower: no more delays for now. */
		dev->delaying = false;
		dev->hot_leases = 0;
		dp_heat_failed(&dev->heat);
		dp_device_tx_due(dev, now);
		return;
	}
	rx = dp_device_rx_burst(dev, &now);
	if (rx > 0 && dev->spins) {
		note_miss(dev, rx);
		if (dev->row_needed < DP_ROW_MAX)
			dev->row_needed *= 8;
	}
	dp_device_enter_thread_mode(dev);
}

/* When the thread looks again: a lease after the clock was last read, by a call of the program or by
 * the thread's own work, but not at once. */
static uint64_t look_after(const struct dp_device *dev, uint64_t lease_ns)
{
	uint64_t now = dp_device_now_ns(), soon = now + DP_LEASE_HOT_NS;
	uint64_t due = __atomic_load_n(&dev->clock_ns, __ATOMIC_RELAXED) + lease_ns;

	return due > soon ? due : soon;
}

/* The program has left packets lying of late. */
static bool spinner(const struct dp_device *dev)
{
	return dev->ahead_needed > DP_AHEAD_MIN;
}

/* ...and it was one message that the program waits for.  One that left many packets lying computes: it
 * would only be disturbed. */
static bool spins_for_message(const struct dp_device *dev)
{
	return spinner(dev) && dev->missed_few;
}

/* While a hot program keeps its leases, each look of the thread only disturbs it.  The longer that
 * lasts, the less often the thread looks. */
static uint64_t hot_lease(struct dp_device *dev)
{
	uint32_t trust = dev->hot_leases++ / DP_LEASE_TRUST;

	if (trust > DP_LEASE_TRUST_MAX)
		trust = DP_LEASE_TRUST_MAX;
	dev->lease_ns = DP_LEASE_HOT_NS << (spins_for_message(dev) ? 0 : trust);
	return dev->lease_ns;
}

static uint64_t next_lease(struct dp_device *dev)
{
	dev->delaying = dp_heat_hot(&dev->heat);
	if (dev->delaying)
		return hot_lease(dev);
	dev->hot_leases = 0;
	return spins_for_message(dev) ? DP_LEASE_HOT_NS : DP_LEASE_NS;
}

/* Under the lock.  The waiter serves the device; the thread only has to be awake when the program is
 * back, to see whether it makes calls. */
static uint64_t rest_while_waiter(struct dp_device *dev, bool called)
{
	dev->resting = !called;
	return called ? dp_device_now_ns() + DP_LEASE_NS : DP_NEVER;
}

/* Under the lock: the program armed a CQ, waited for its events in dp_device_wait() before, and does
 * not do so this time. */
static bool broke_habit(struct dp_device *dev)
{
	return dev->armed && dev->habit && !--dev->habit;
}

/* Whether the program serves the device: it has called since the last look, and has looked at the port.
 * A program that posts, or polls a CQ that is never empty, may leave the port alone. */
static bool serves(struct dp_device *dev, bool called)
{
	return called && atomic_exchange_explicit(&dev->looked, false, memory_order_relaxed);
}

/* Without the lock, which a program that polls nearly always holds: true if the program is hot, and
 * has served the device since the last look. */
static bool kept_lease(struct dp_device *dev, unsigned *seen, uint64_t *wake_ns)
{
	unsigned calls = dev->calls;

	if (dev->mode != DP_MODE_PROGRAM || !dev->delaying || !serves(dev, calls != *seen))
		return false;
	*seen = calls;
	program_ran(dev);
	*wake_ns = look_after(dev, hot_lease(dev));
	return true;
}

/* Does the thread's part under the lock; returns until when to sleep. */
static uint64_t attend(struct dp_device *dev, unsigned *seen)
{
	unsigned calls = dev->calls;
	bool called = calls != *seen;
	uint64_t wake_ns;

	*seen = calls;
	dev->resting = false;
	if (dev->waiter)
		return rest_while_waiter(dev, called);
	dev->spins = program_ran(dev) && !called;
	if (dev->mode == DP_MODE_PROGRAM && broke_habit(dev))
		dp_device_enter_thread_mode(dev);
	else if (dev->mode == DP_MODE_PROGRAM && !serves(dev, called))
		lease_expired(dev);
	if (dev->clock_ns - dev->missed_ns > DP_SPINS_NS) {
		dev->ahead_needed = DP_AHEAD_MIN;
		dev->row_needed = DP_ROW_MIN;
	}
	if (dev->mode == DP_MODE_THREAD) {
		wake_ns = dp_device_attend(dev);
		dev->resting = dev->mode == DP_MODE_THREAD;
		if (dev->resting)
			return wake_ns;
	}
	return look_after(dev, next_lease(dev));
}

/* Polls until the time has come, or a packet.  A kick does not end it: the time is near. */
static void await(const struct dp_device *dev, uint64_t wake_ns, uint64_t now)
{
	while (now < wake_ns && !dp_port_has_packets(dev->port)) {
		dp_yield_realtime();
		now = dp_device_now_ns();
	}
}

int dp_device_sleep(struct dp_device *dev, struct pollfd *fds, unsigned n, uint64_t wake_ns,
		    bool exact)
{
	static _Thread_local struct dp_early early;
	static _Thread_local struct dp_brief brief;
	struct timespec ts, *timeout = NULL;
	uint64_t now = dp_device_now_ns(), left = DP_NEVER, count, set_ns = wake_ns;
	bool polls;
	int ready;

	dp_brief_awake(&brief, now);
	polls = exact && dp_brief_may(&brief);
	if (wake_ns != DP_NEVER) {
		set_ns = polls ? dp_early_timer(&early, wake_ns) : wake_ns;
		left = set_ns > now ? set_ns - now : 0;
		ts.tv_sec = (time_t)(left / 1000000000);
		ts.tv_nsec = (long)(left % 1000000000);
		timeout = &ts;
	}
	if (polls && left < DP_BRIEF_NS) {
		await(dev, wake_ns, now);
		return 0;
	}
	ready = ppoll(fds, n, timeout, NULL);
	now = dp_device_now_ns();
	dp_brief_slept(&brief, left, now);
	if (!ready && exact) {
		if (left)
			dp_early_woke(&early, set_ns, now);
		await(dev, wake_ns, now);
	}
	if (ready > 0 && fds[0].revents && read(fds[0].fd, &count, sizeof(count)) < 0) {
		/* Nobody but the calling thread reads it. */
	}
	return ready;
}

bool dp_device_may_linger(const struct dp_device *dev, uint64_t wake_ns)
{
	return wake_ns > dev->clock_ns + DP_SHORT_NS &&
	       dp_linger_wanted(&dev->linger, dev->clock_ns) && !dp_is_realtime();
}

/* Under the lock: a program that makes calls looks for its packets itself, and one that spins on memory
 * needs its CPU. */
static bool may_linger(const struct dp_device *dev, bool called, uint64_t wake_ns)
{
	return dev->mode == DP_MODE_THREAD && !called && !spinner(dev) &&
	       dp_device_may_linger(dev, wake_ns);
}

bool dp_device_linger(struct dp_device *dev, unsigned calls, uint64_t wake_ns)
{
	uint64_t now = dp_device_now_ns(), until_ns = now + DP_LINGER_NS, last_ns;

	if (wake_ns < until_ns)
		until_ns = wake_ns;

	do {
		for (int i = 0; i < DP_IDLE_POLLS; i++)
			if (dp_port_has_packets(dev->port))
				return true;
		last_ns = now;
		now = dp_device_now_ns();
		if (dp_linger_disturbed(last_ns, now))
			return false;
	} while (now < until_ns && dev->calls == calls);
	return true;
}

/* How the thread sleeps. */
struct rest {
	uint64_t wake_ns;
	bool watch_port;
	int port_fd;	/* watch_port: dp_device_port_fd() */
	bool linger;	/* not yet */
	bool disturbed; /* somebody else wanted the CPU while it lingered */
	bool spins;	/* the program spins on memory */
};

/* Sleeps.  Returns true if control_fd has a request. */
static bool sleep_for(struct dp_device *dev, const struct rest *rest)
{
	struct pollfd fds[3] = {
		{ .fd = dev->kick_fd, .events = POLLIN },
		{ .fd = dev->control_fd, .events = POLLIN }, /* poll() ignores a descriptor of -1 */
		{ .fd = -1, .events = POLLIN },
	};
	uint64_t wake_ns = rest->wake_ns;

	if (rest->watch_port) {
		fds[2].fd = rest->port_fd;
	} else if (dev->lease_ns == DP_LEASE_FULL_NS) {
		dp_lease_begin(&dev->lease, wake_ns, DP_LEASE_FULL_NS);
		fds[2].fd = dev->lease.timer_fd;
		wake_ns = DP_NEVER;
	}
	return dp_device_sleep(dev, fds, 3, wake_ns, rest->watch_port) > 0 && fds[1].revents;
}

/* Under the lock: does the thread's part, and says how to sleep. */
static void prepare_sleep(struct dp_device *dev, unsigned *seen, struct rest *rest)
{
	unsigned before = *seen;

	dev->lease_ns = 0;
	if (rest->disturbed)
		dp_linger_pause(&dev->linger, dp_device_now_ns());
	rest->disturbed = false;
	rest->wake_ns = attend(dev, seen);
	rest->watch_port = dev->mode == DP_MODE_THREAD && !dev->waiter;
	rest->port_fd = dp_device_port_fd(dev);
	rest->spins = spinner(dev);
	rest->linger = !dev->waiter && may_linger(dev, *seen != before, rest->wake_ns);
	if (dev->waiter)
		return;
	if (!dev->habit)
		dp_port_watch(dev->port, rest->watch_port && !rest->linger);
	if (rest->linger)
		return;
	dp_device_note_sleep(dev, rest->wake_ns, rest->watch_port);
	dp_linger_slept(&dev->linger, dev->clock_ns);
	dev->wake_ns = rest->wake_ns;
}

void *dp_device_run(void *arg)
{
	struct dp_device *dev = arg;
	struct dp_urgent urgent;
	struct rest rest = { .watch_port = true };
	uint64_t woke_ns = dp_device_now_ns();
	unsigned seen = 0;
	bool control;

	prctl(PR_SET_NAME, dev->name);
	prctl(PR_SET_TIMERSLACK, 1000UL);
	dp_urgent_begin(&urgent, woke_ns);
	while (!dev->stop) {
		if (rest.watch_port || !kept_lease(dev, &seen, &rest.wake_ns)) {
			dp_lock(&dev->lock);
			if (rest.watch_port && dev->slept_ns && !dev->woke_ns && !dev->waiter)
				dev->woke_ns = woke_ns;
			prepare_sleep(dev, &seen, &rest);
			dp_unlock(&dev->lock);
		}
		if (rest.linger) {
			rest.disturbed = !dp_device_linger(dev, seen, rest.wake_ns);
			continue;
		}
		dp_urgent_note(&urgent, rest.spins, woke_ns, dp_device_now_ns());
		control = sleep_for(dev, &rest);
		woke_ns = dp_device_now_ns();
		if (control)
			dev->on_control(dev, dev->control);
	}
	return NULL;
}
