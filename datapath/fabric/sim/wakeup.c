// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * When the program of a host runs.
 *
 * A live program sleeps while it has nothing to do.  It runs again some time after a
 * packet has arrived, or after the time at which it wanted to be woken.  That delay is
 * drawn once for each sleep, from a random stream of the host's own.  A packet keeps
 * its time of arrival, as the kernel stamps it; it lies unread until the program runs.
 *
 * A program is awake, and never late, for some time after it woke, while it polls after a
 * completion, and while its packets wait for the NIC.
 *
 * The links between switches may be the work of a program too, as in a live run, where
 * one program emulates them: the link model is exact, and the links hand frames over when
 * the program wakes.
 *
 * Without a distribution (dp_sim_config.wakeup) programs sleep only when they are made to stand
 * still (dp_sim_stall()).
 */
#include "fabric/awake.h"
#include "fabric/sim/internal.h"

static bool points_valid(const struct dp_sim_quantile *point, uint32_t n)
{
	uint32_t i;

	if (n < 2 || point[0].share || point[n - 1].share != UINT32_MAX)
		return false;
	for (i = 1; i < n; i++)
		if (point[i].share < point[i - 1].share || point[i].ns < point[i - 1].ns)
			return false;
	return true;
}

bool sim_wakeup_valid(const struct dp_sim_wakeup *w)
{
	bool hosts = w->n_packet || w->n_timer;

	return (!hosts ||
		(points_valid(w->packet, w->n_packet) && points_valid(w->timer, w->n_timer))) &&
	       (!w->n_emulator || points_valid(w->emulator, w->n_emulator));
}

/* The quantile of a share: found by bisection, interpolated between two points. */
static uint64_t quantile(const struct dp_sim_quantile *point, uint32_t n, uint32_t share)
{
	uint32_t low = 0, high = n - 1, middle, width;

	while (high - low > 1) {
		middle = (low + high) / 2;
		if (point[middle].share <= share)
			low = middle;
		else
			high = middle;
	}
	width = point[high].share - point[low].share;
	if (!width)
		return point[high].ns;
	return point[low].ns +
	       (uint64_t)(point[high].ns - point[low].ns) * (share - point[low].share) / width;
}

static void draw(struct dp_sim *s, struct sim_lateness *l, uint64_t program)
{
	uint64_t stream = dp_mix64(s->cfg.seed ^ dp_mix64(program));

	l->share = (uint32_t)(dp_mix64(stream + ++l->draws * DP_RANDOM_STEP) >> 32);
}

/* ---- hosts ------------------------------------------------------------------------ */

static void draw_host(struct dp_sim *s, struct sim_host *h)
{
	draw(s, &h->sleep.late, 0x77616b6500000000ull + h->index);
}

void sim_keep_unread(struct dp_sim *s, struct sim_host *h, struct sim_packet *p)
{
	struct sim_sleep *z = &h->sleep;

	if (!z->unread) {
		z->unread = p;
		z->arrived_ns = s->now;
	} else {
		z->newest->frame.next = &p->frame;
	}
	p->frame.next = NULL;
	z->newest = p;
	s->unread++;
}

void sim_stay_awake(struct sim_host *h, uint64_t until_ns)
{
	if (until_ns > h->sleep.awake_ns)
		h->sleep.awake_ns = until_ns;
}

uint64_t sim_next_turn(struct dp_sim *s, struct sim_host *h, uint64_t deadline_ns, uint64_t nic_ns)
{
	const struct dp_sim_wakeup *w = &s->cfg.wakeup;
	const struct sim_sleep *z = &h->sleep;
	uint64_t at = DP_NEVER;

	if (!z->late.draws)
		draw_host(s, h);
	if (z->unread)
		at = z->arrived_ns + quantile(w->packet, w->n_packet, z->late.share);
	if (!deadline_ns) {
		deadline_ns = nic_ns;
		if (nic_ns != DP_NEVER) /* the NIC is not paused */
			sim_stay_awake(h, nic_ns);
	}
	if (deadline_ns != DP_NEVER && deadline_ns > z->awake_ns)
		deadline_ns += quantile(w->timer, w->n_timer, z->late.share);
	if (deadline_ns < at)
		at = deadline_ns;
	return at > s->now ? at : s->now + 1;
}

void sim_read_unread(struct dp_sim *s, struct sim_host *h)
{
	struct sim_sleep *z = &h->sleep;
	struct sim_packet *p;

	while ((p = z->unread)) {
		z->unread = (struct sim_packet *)p->frame.next;
		s->unread--;
		sim_host_read(s, h, p);
	}
}

void sim_wake(struct dp_sim *s, struct sim_host *h)
{
	sim_stay_awake(h, s->now + s->cfg.wakeup.awake_ns);
	draw_host(s, h);
	sim_read_unread(s, h);
}

/* ---- links ------------------------------------------------------------------------ */

/* One program emulates all links that have one: what is due on any of them is handed
 * over when it runs. */
static void draw_emulator(struct dp_sim *s)
{
	draw(s, &s->emulator.late, 0x656d756c00000000ull);
}

void sim_emulate_links(struct dp_sim *s)
{
	struct sim_link *l;
	uint32_t i;

	s->emulator.first = SIM_NONE;
	if (!s->cfg.wakeup.n_emulator)
		return;
	draw_emulator(s);
	for (i = 0; i < s->n_links; i++) {
		l = &s->link[i];
		if (l->from < s->n_hosts || l->to < s->n_hosts)
			continue;
		l->next_emulated = s->emulator.first;
		s->emulator.first = i;
		l->emulated = true;
		l->deadline_ns = DP_NEVER;
	}
}

uint64_t sim_link_turn(const struct dp_sim *s, uint64_t deadline_ns)
{
	const struct dp_sim_wakeup *w = &s->cfg.wakeup;

	if (deadline_ns == DP_NEVER)
		return DP_NEVER;
	if (deadline_ns <= s->emulator.awake_ns)
		return deadline_ns > s->now ? deadline_ns : s->now;
	return deadline_ns + quantile(w->emulator, w->n_emulator, s->emulator.late.share);
}

void sim_link_woke(struct dp_sim *s, uint32_t link)
{
	uint32_t i;

	if (!s->link[link].emulated)
		return;
	s->emulator.awake_ns = s->now + DP_EMULATOR_SPIN_NS;
	draw_emulator(s);
	for (i = s->emulator.first; i != SIM_NONE; i = s->link[i].next_emulated)
		if (i != link)
			sim_queue_set(&s->queue, i, sim_link_turn(s, s->link[i].deadline_ns));
}
