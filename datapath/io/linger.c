// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/linger.h"

enum {
	SOON_MIN = 8, /* packets in a row that came soon: the next one will */
	SOON_MAX = 16,
	GAP_NS = 100000, /* between two looks: the CPU was given away */
	AWAKE_MAX_NS = 10000000,
	PAUSE_MIN_NS = 10000000,
	PAUSE_MAX_NS = 1000000000,
};

void dp_linger_drained(struct dp_linger *l, uint64_t now)
{
	if (!l->drained_ns)
		l->drained_ns = now;
}

void dp_linger_arrived(struct dp_linger *l, uint64_t arrived_ns)
{
	if (!l->drained_ns)
		return;
	if (arrived_ns > l->drained_ns + DP_LINGER_NS)
		l->soon /= 2;
	else if (l->soon < SOON_MAX)
		l->soon++;
	l->drained_ns = 0;
}

void dp_linger_slept(struct dp_linger *l, uint64_t now)
{
	l->slept_ns = now;
}

bool dp_linger_wanted(const struct dp_linger *l, uint64_t now)
{
	return l->soon >= SOON_MIN && now - l->drained_ns < DP_LINGER_NS &&
	       now - l->slept_ns < AWAKE_MAX_NS && now - l->disturbed_ns >= l->pause_ns;
}

bool dp_linger_disturbed(uint64_t last_ns, uint64_t now)
{
	return now - last_ns >= GAP_NS;
}

void dp_linger_pause(struct dp_linger *l, uint64_t now)
{
	if (now - l->disturbed_ns > l->pause_ns + PAUSE_MAX_NS)
		l->pause_ns = PAUSE_MIN_NS;
	else
		l->pause_ns = 2 * l->pause_ns < PAUSE_MAX_NS ? 2 * l->pause_ns : PAUSE_MAX_NS;
	l->disturbed_ns = now;
}
