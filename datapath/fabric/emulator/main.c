// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dp_fabric port|dated:NODE:NETDEV[:MAC] ... link:NAME:FROM:TO ...
 *
 * Ports and links end at nodes; links come in pairs, the two directions of a cable.  Without MACs
 * there are two ports, and frames that arrive at one leave by the other.  With MACs there may be
 * many ports, and a frame leaves by the port of its destination.  It crosses the links of a
 * shortest path between the nodes of the two ports.  At the same node it crosses none.
 *
 * RoCEv2 frames that leave by a dated port end with the time at which their last link let them go
 * (xdp/steer.h), so that the host can tell the network's delay from this program's.
 *
 * Prints `ready {...}` or `error ...`, then obeys control.c until standard input ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/awake.h"
#include "fabric/emulator/emulator.h"
#include "posix/priority.h"
#include "posix/realtime.h"

/* No frame can leave before the link's delay is over.  Until then the receive rings need not be
 * looked at.  The margin is for waking up. */
#define LOOK_MARGIN_NS (50 * NS_PER_US)
/* A receive ring holds the frames of this time at 40 Gbit/s and 1500 bytes. */
#define LOOK_MAX_NS (1000 * NS_PER_US)
/* How soon a device that took no more frames is asked again. */
#define RETRY_NS (50 * NS_PER_US)
#define CONTROL_NS (2000 * NS_PER_US)

/* ---- all ports ---------------------------------------------------------------------- */

static int open_ports(struct emulator *e, char *why, size_t size)
{
	/* Half of the chunks wait to be received into, the others are in the links. */
	uint32_t fill_target = CHUNKS / 2 / e->n_ports;
	int err;

	e->chunk = calloc(CHUNKS, sizeof(*e->chunk));
	err = e->chunk ? dp_raw_open(&e->raw, e->chunk, sizeof(*e->chunk), CHUNKS) : -ENOMEM;
	if (err)
		snprintf(why, size, "no memory for %d chunks", CHUNKS);
	for (uint32_t i = 0; i < e->n_ports && !err; i++) {
		struct dp_raw_port *p = &e->port[i].raw;

		p->fill_target = fill_target < DP_RAW_RING ? fill_target : DP_RAW_RING;
		err = dp_raw_port_open(&e->raw, p, why, size);
	}
	return err;
}

static void close_ports(struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_ports; i++)
		dp_raw_port_close(&e->port[i].raw);
	dp_raw_close(&e->raw);
	free(e->chunk);
}

static void reclaim(struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_ports; i++)
		dp_raw_reap(&e->raw, &e->port[i].raw);
	for (uint32_t i = 0; i < e->n_ports; i++)
		dp_raw_refill(&e->raw, &e->port[i].raw);
}

void kick_ports(struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_ports; i++)
		dp_raw_kick(&e->port[i].raw);
}

/* ---- waiting ---------------------------------------------------------------------- */

static uint64_t next_deadline(const struct emulator *e)
{
	uint64_t first = e->pause_ns;

	for (uint32_t i = 0; i < e->n_wires; i++)
		if (e->due_ns[i] < first)
			first = e->due_ns[i];
	return first;
}

static bool is_pending(const struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_ports; i++)
		if (e->port[i].raw.pending)
			return true;
	return false;
}

/* The shortest time from a frame's arrival until it can leave a link. */
static uint64_t shortest_delay(const struct emulator *e)
{
	uint64_t shortest = UINT64_MAX;

	for (uint32_t i = 0; i < e->n_wires; i++) {
		uint64_t delay = e->wire[i].link ? e->wire[i].delay_ns : 0;

		if (delay < shortest)
			shortest = delay;
	}
	return shortest;
}

static void sleep_until(struct emulator *e, uint64_t until, bool arrivals)
{
	struct pollfd fds[PORTS_MAX + 1] = { { .fd = STDIN_FILENO, .events = POLLIN } };
	struct timespec wait;
	uint64_t now = dp_now_ns();
	nfds_t n = 1;
	bool for_ever;
	int ready;

	if (until > e->sample_ns)
		until = e->sample_ns;
	if (until > e->change_ns)
		until = e->change_ns;
	for_ever = until == UINT64_MAX;
	until = dp_early_timer(&e->early, until);
	if (until <= now) {
		dp_yield_realtime();
		return;
	}
	wait.tv_sec = (time_t)((until - now) / NS_PER_S);
	wait.tv_nsec = (long)((until - now) % NS_PER_S);
	for (uint32_t i = 0; arrivals && i < e->n_ports; i++)
		fds[n++] = (struct pollfd){ .fd = e->port[i].raw.fd, .events = POLLIN };
	e->woke = true;
	ready = ppoll(fds, n, for_ever ? NULL : &wait, NULL);
	if (!ready)
		dp_early_woke(&e->early, until, dp_now_ns());
	if (ready > 0 && fds[0].revents)
		control_read(e);
}

/*
 * Waits until there is work.  While frames are on the links, the next deadline tells when to wake.
 * New frames may arrive meanwhile.  They are looked for within the delay that they have anyway.
 * Without such a delay they wake the sleeper.
 */
static void wait_for_work(struct emulator *e)
{
	uint64_t deadline = next_deadline(e), now = dp_now_ns(), look;

	if (deadline <= now + DP_EMULATOR_SPIN_NS) {
		if (deadline > now)
			dp_yield_realtime();
		return;
	}
	if (is_pending(e) && deadline > now + RETRY_NS)
		deadline = now + RETRY_NS;
	look = shortest_delay(e);
	if (deadline == UINT64_MAX || look < 2 * LOOK_MARGIN_NS) {
		sleep_until(e, deadline, true);
		return;
	}
	if (look > LOOK_MAX_NS)
		look = LOOK_MAX_NS;
	look += e->drained_ns - LOOK_MARGIN_NS;
	sleep_until(e, look < deadline ? look : deadline, false);
}

static void run(struct emulator *e)
{
	uint64_t controlled = 0, now, asleep;
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };

	while (!e->quit) {
		now = dp_now_ns();
		if (now >= e->change_ns)
			changes_make(e, now);
		forward_receive(e);
		forward_send(e, dp_now_ns());
		reclaim(e);
		if (now >= e->sample_ns)
			sample_take(e, now);
		/* Commands are read even when there is no time to sleep. */
		if (now - controlled > CONTROL_NS) {
			controlled = now;
			if (poll(&in, 1, 0) > 0)
				control_read(e);
		}
		asleep = dp_now_ns();
		e->busy_ns += asleep - now;
		wait_for_work(e);
	}
}

int main(int argc, char **argv)
{
	struct emulator *e = calloc(1, sizeof(*e));
	char why[256] = "usage: dp_fabric port|dated:NODE:NETDEV[:MAC] ... link:NAME:FROM:TO ...";
	int err;

	if (!e)
		return 1;
	err = layout_read(e, argc, argv);
	if (!err)
		err = open_ports(e, why, sizeof(why));
	if (err) {
		printf("error %s\n", why);
	} else {
		fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
		e->began_ns = dp_now_ns();
		e->sample_ns = e->change_ns = e->pause_ns = UINT64_MAX;
		printf("ready {\"priority\":\"%s\"}\n", dp_take_priority());
		fflush(stdout);
		run(e);
	}
	sample_end(e);
	for (uint32_t i = 0; i < e->n_wires; i++)
		wire_close(&e->wire[i]);
	for (uint32_t i = 0; i < e->n_nodes; i++)
		buffer_close(e, i);
	for (uint32_t i = 0; i < e->n_wires; i++)
		pauses_drop(&e->wire[i]); /* a node's frames tell of pauses when they are freed */
	dp_routes_free(&e->routes);
	close_ports(e);
	dp_lines_free(&e->lines);
	free(e);
	return err ? 1 : 0;
}
