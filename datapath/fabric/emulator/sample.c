// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The queues over time: a file of series (io/series.h) for each link.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fabric/emulator/emulator.h"
#include "io/series.h"

static const char *const columns[] = { "queue_bytes", "marked_packets" };

struct row {
	uint64_t time_ns, id;
	double queue_bytes, marked_packets;
};

/* Whether a link is one of those that are asked for. */
static bool is_named(const char *names, const char *name)
{
	size_t len = strlen(name), n;

	for (; names; names = names[n] ? names + n + 1 : NULL) {
		n = strcspn(names, "\t");
		if (n == len && !strncmp(names, name, n))
			return true;
	}
	return false;
}

static int open_series(struct wire *w, const char *prefix, struct dp_series_info info)
{
	char path[PATH_MAX];

	info.name = w->name;
	if (snprintf(path, sizeof(path), "%s.%s.series", prefix, w->name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return dp_series_open(path, &info, &w->series);
}

int sample_begin(struct emulator *e, const char *prefix, uint64_t interval_ns, uint64_t max_bytes,
		 char *names)
{
	struct dp_series_info info = {
		.kind = DP_SERIES_LINK,
		.columns = columns,
		.n_columns = sizeof(columns) / sizeof(*columns),
		.interval_ns = interval_ns,
		.max_bytes = max_bytes,
	};
	int err = 0;

	sample_end(e);
	for (uint32_t i = 0; !err && i < e->n_wires; i++)
		if (!names || is_named(names, e->wire[i].name))
			err = open_series(&e->wire[i], prefix, info);
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

	for (uint32_t i = 0; i < e->n_wires; i++) {
		const struct wire *w = &e->wire[i];

		if (!w->link || !w->series)
			continue;
		dp_link_stats(w->link, now, &stats);
		row = (struct row){
			.time_ns = now,
			.queue_bytes = (double)dp_link_queue_bytes(w->link),
			.marked_packets = (double)(stats.marked + w->counts.marked),
		};
		dp_series_append(w->series, &row, 1);
	}
	e->sample_ns += ((now - e->sample_ns) / e->sample_interval_ns + 1) * e->sample_interval_ns;
}

void sample_end(struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_wires; i++) {
		if (e->wire[i].series)
			dp_series_close(e->wire[i].series);
		e->wire[i].series = NULL;
	}
	e->sample_ns = UINT64_MAX;
}
