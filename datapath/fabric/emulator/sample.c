// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The queues over time: a file of series (io/series.h) for each direction.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fabric/emulator/emulator.h"
#include "io/series.h"

static const char *const columns[] = { "queue_bytes", "marked_packets" };
static const char *const names[DIRECTIONS] = { "forward", "backward" };

struct row {
	uint64_t time_ns, id;
	double queue_bytes, marked_packets;
};

int sample_begin(struct emulator *e, const char *prefix, uint64_t interval_ns, uint64_t max_bytes)
{
	struct dp_series_info info = {
		.kind = DP_SERIES_LINK,
		.columns = columns,
		.n_columns = sizeof(columns) / sizeof(*columns),
		.interval_ns = interval_ns,
		.max_bytes = max_bytes,
	};
	char path[PATH_MAX];
	int err = 0;

	sample_end(e);
	for (unsigned side = 0; !err && side < DIRECTIONS; side++) {
		info.name = names[side];
		if (snprintf(path, sizeof(path), "%s.%s.series", prefix, names[side]) >=
		    (int)sizeof(path))
			err = -ENAMETOOLONG;
		else
			err = dp_series_open(path, &info, &e->series[side]);
	}
	if (err) {
		sample_end(e);
		return err;
	}
	e->sample_interval_ns = interval_ns;
	e->sample_ns = dp_now_ns();
	return 0;
}

/* When a file is full, the rows that are left out are counted. */
void sample_take(struct emulator *e, uint64_t now)
{
	struct dp_link_stats stats;
	struct row row;

	for (unsigned side = 0; side < DIRECTIONS; side++) {
		const struct direction *d = &e->direction[side];

		if (!d->link)
			continue;
		dp_link_stats(d->link, &stats);
		row = (struct row){
			.time_ns = now,
			.queue_bytes = (double)dp_link_queue_bytes(d->link),
			.marked_packets = (double)(stats.marked + d->counts.marked),
		};
		dp_series_append(e->series[side], &row, 1);
	}
	e->sample_ns += ((now - e->sample_ns) / e->sample_interval_ns + 1) * e->sample_interval_ns;
}

void sample_end(struct emulator *e)
{
	for (unsigned side = 0; side < DIRECTIONS; side++) {
		if (e->series[side])
			dp_series_close(e->series[side]);
		e->series[side] = NULL;
	}
	e->sample_ns = UINT64_MAX;
}
