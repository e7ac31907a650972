/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "io/series.h"
#include "posix/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const dp_flow_columns[] = {
#define X(name) #name,
	DP_FLOW_COLUMNS(X)
#undef X
};

struct dp_series {
	int fd;
	uint64_t size, max_bytes;
	struct dp_series_header header;
};

/* Writes all of it: 0 or -errno. */
static int put(int fd, const void *data, size_t len, uint64_t at)
{
	ssize_t n = pwrite(fd, data, len, (off_t)at);

	if (n == (ssize_t)len)
		return 0;
	return n < 0 ? -errno : -ENOSPC;
}

static int put_head(struct dp_series *s, const struct dp_series_info *info)
{
	char name[DP_SERIES_NAME_MAX];
	uint64_t at = sizeof(s->header);
	uint32_t i;
	int err;

	err = put(s->fd, &s->header, sizeof(s->header), 0);
	for (i = 0; !err && i < info->n_columns; i++, at += sizeof(name)) {
		memset(name, 0, sizeof(name));
		strncpy(name, info->columns[i], sizeof(name) - 1);
		err = put(s->fd, name, sizeof(name), at);
	}
	s->size = at;
	return err;
}

int dp_series_open(const char *path, const struct dp_series_info *info, struct dp_series **out)
{
	struct dp_series *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->max_bytes = info->max_bytes;
	s->header = (struct dp_series_header){
		.magic = DP_SERIES_MAGIC,
		.version = DP_SERIES_VERSION,
		.header_bytes = (uint32_t)sizeof(s->header) + info->n_columns * DP_SERIES_NAME_MAX,
		.row_bytes = 16 + 8 * info->n_columns,
		.kind = info->kind,
		.n_columns = info->n_columns,
		.interval_ns = info->interval_ns,
		.started_mono_ns = dp_now_ns(),
		.started_real_ns = dp_clock_ns(CLOCK_REALTIME),
	};
	strncpy(s->header.name, info->name, sizeof(s->header.name) - 1);
	s->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (s->fd < 0) {
		err = -errno;
		goto free_series;
	}
	err = put_head(s, info);
	if (err)
		goto remove_file;
	*out = s;
	return 0;

remove_file:
	close(s->fd);
	unlink(path);
free_series:
	free(s);
	return err;
}

/* Writes a counter of the header.  If that fails, an error was told before. */
static void put_count(struct dp_series *s, const void *count, size_t len)
{
	put(s->fd, count, len, (uint64_t)((const char *)count - (const char *)&s->header));
}

int dp_series_append(struct dp_series *s, const void *rows, uint32_t n)
{
	uint64_t room = s->max_bytes > s->size ? s->max_bytes - s->size : 0;
	uint32_t fit = room / s->header.row_bytes < n ? (uint32_t)(room / s->header.row_bytes) : n;
	size_t len = (size_t)fit * s->header.row_bytes;
	int err = fit ? put(s->fd, rows, len, s->size) : 0;

	if (err) {
		/* Cut off a row that was written only in part. */
		if (ftruncate(s->fd, (off_t)s->size) < 0) {
			/* The reader stops at the last whole row. */
		}
		s->max_bytes = 0;
		fit = 0;
	}
	s->size += (uint64_t)fit * s->header.row_bytes;
	if (fit < n)
		dp_series_rows_left_out(s, n - fit);
	return err;
}

void dp_series_rows_left_out(struct dp_series *s, uint32_t n)
{
	s->header.rows_left_out += n;
	put_count(s, &s->header.rows_left_out, sizeof(s->header.rows_left_out));
}

void dp_series_flows_left_out(struct dp_series *s, uint32_t n)
{
	s->header.flows_left_out = n;
	put_count(s, &s->header.flows_left_out, sizeof(s->header.flows_left_out));
}

void dp_series_close(struct dp_series *s)
{
	close(s->fd);
	free(s);
}
