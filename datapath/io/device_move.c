// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Packets between port and engine: all under the lock. */
#include "io/device_impl.h"

/* A packet that lies unread in the port while this process waits for a CPU is not late.  So the
 * silence of a peer counts only up to the last look that found the port empty.  If no look finds
 * the port empty, it counts up to a look since which so many packets were read that all older
 * packets must be among them. */
static void note_heard(struct dp_device *dev, uint32_t n)
{
	dev->taken += n;
	if (!n)
		dev->heard_ns = dev->clock_ns;
	else if (dev->taken > DP_QUEUED_MAX)
		dev->heard_ns = dev->looked_ns;
	else
		return;
	dev->looked_ns = dev->clock_ns;
	dev->taken = 0;
}

int dp_device_rx_burst(struct dp_device *dev, uint64_t *now)
{
	struct dp_packet pkts[DP_PORT_BATCH];
	int i, n;

	n = dp_port_rx(dev->port, pkts, DP_PORT_BATCH);
	atomic_store_explicit(&dev->looked, true, memory_order_relaxed);
	note_heard(dev, n > 0 ? (uint32_t)n : 0);
	if (n <= 0)
		return 0;
	*now = dp_device_read_clock(dev);
	dev->first_ns = pkts[0].arrived_ns;
	for (i = 0; i < n; i++)
		dp_engine_rx(dev->engine, &pkts[i], *now);
	dp_port_rx_release(dev->port, pkts, n);
	dev->busy_ns = *now;
	return n;
}

int dp_device_tx_burst(struct dp_device *dev, uint64_t now)
{
	struct dp_packet pkts[DP_PORT_BATCH];
	int n, used;

	dev->tx_full = false;
	if (dp_engine_deadline(dev->engine) > now)
		return 0;
	dp_engine_heard(dev->engine, dev->heard_ns);
	dp_engine_tick(dev->engine, now);
	n = dp_port_tx_reserve(dev->port, pkts, dev->tx_want);
	if (n <= 0) {
		dev->tx_full = true;
		return 0;
	}
	used = dp_engine_tx(dev->engine, pkts, n, now);
	dp_port_tx_commit(dev->port, pkts, used, n);
	/* Reserves about as many buffers as will be needed: a small batch stays cheap, and a large
	 * one leaves in one system call. */
	dev->tx_want = used == n ? DP_PORT_BATCH : used + used / 2 + 4;
	if (dev->tx_want > DP_PORT_BATCH)
		dev->tx_want = DP_PORT_BATCH;
	if (used)
		dev->busy_ns = now;
	return used;
}

int dp_device_tx_due(struct dp_device *dev, uint64_t now)
{
	int rounds = DP_ROUNDS_PROGRAM, n, sent = 0;

	dev->delayed = 0;
	while (rounds-- && (n = dp_device_tx_burst(dev, now)) > 0)
		sent += n;
	return sent;
}

void dp_device_hand_over_events(struct dp_device *dev)
{
	struct dp_event event;

	while (dp_engine_event(dev->engine, &event)) {
		if (event.type == DP_EVENT_CQ)
			dev->armed = false;
		dev->on_event(&event);
	}
}
