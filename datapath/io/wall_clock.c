// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/wall_clock.h"
#include "posix/clock.h"

#include <stdbool.h>
#include <string.h>

enum {
	MEASURE_NS =
		1000000,   /* a stamp this far from the last measurement needs a new measurement */
	EXACT_NS = 1000,   /* both clocks read within this time count as read at once */
	USABLE_NS = 10000, /* ...and within this time as nearly so */
	TRIES = 3,
	SLEW = 1000, /* the kernel slews by less than one part in this many */
};

void dp_wall_clock_init(struct dp_wall_clock *w)
{
	memset(w, 0, sizeof(*w));
	w->read = dp_clock_ns;
}

/* Reads both clocks at one moment; false: this thread was interrupted each time it tried. */
static bool read_both(const struct dp_wall_clock *w, uint64_t *mono, uint64_t *real)
{
	uint64_t before, after, at, took = UINT64_MAX;

	for (int i = 0; i < TRIES && took > EXACT_NS; i++) {
		before = w->read(CLOCK_MONOTONIC);
		at = w->read(CLOCK_REALTIME);
		after = w->read(CLOCK_MONOTONIC);
		if (after - before >= took)
			continue;
		took = after - before;
		*mono = before + took / 2;
		*real = at;
	}
	return took <= USABLE_NS;
}

static bool measure(struct dp_wall_clock *w)
{
	uint64_t mono, real, most;
	int64_t offset, moved;

	if (!read_both(w, &mono, &real))
		return false;
	offset = (int64_t)(real - mono);
	moved = offset - w->offset_ns;
	most = USABLE_NS + (mono - w->mono_ns) / SLEW;
	if (w->mono_ns && (uint64_t)(moved < 0 ? -moved : moved) > most)
		w->valid_from_ns = real;
	w->offset_ns = offset;
	w->mono_ns = mono;
	w->real_ns = real;
	return true;
}

uint64_t dp_wall_to_monotonic(struct dp_wall_clock *w, uint64_t stamp_ns)
{
	uint64_t away = stamp_ns > w->real_ns ? stamp_ns - w->real_ns : w->real_ns - stamp_ns;

	if (away > MEASURE_NS && !measure(w))
		return 0;
	return stamp_ns >= w->valid_from_ns ? stamp_ns - (uint64_t)w->offset_ns : 0;
}
