/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A file of samples over time, written while they are taken.
 *
 *   struct dp_series_header
 *   n_columns names of DP_SERIES_NAME_MAX bytes, padded with zeros
 *   rows: u64 time_ns (CLOCK_MONOTONIC), u64 id, n_columns doubles (NaN: not known)
 *
 * All numbers are little-endian, as on this machine.  Rows are only appended, and only whole ones.
 * So the file of a process that was killed is valid up to its last whole row. datapath/series.py
 * reads the file and names the columns.
 */
#ifndef DP_IO_SERIES_H
#define DP_IO_SERIES_H

#include <stdint.h>

#define DP_SERIES_MAGIC "dpseries"

enum {
	DP_SERIES_VERSION = 1,
	DP_SERIES_NAME_MAX = 24,
};

enum dp_series_kind {
	DP_SERIES_FLOWS,  /* id: QPN */
	DP_SERIES_LINK,	  /* id: 0; the header names the link */
	DP_SERIES_TUNNEL, /* likewise: a tunnel of a virtual card, or a class in it */
};

struct dp_series_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes; /* names of columns included */
	uint32_t row_bytes;
	uint32_t kind; /* enum dp_series_kind */
	uint32_t n_columns;
	uint32_t flows_left_out; /* flows that were never sampled: more than were asked for */
	uint64_t rows_left_out;	 /* the file was full, or its writer had no room */
	uint64_t interval_ns;
	uint64_t started_mono_ns; /* the same moment on both clocks */
	uint64_t started_real_ns;
	char name[64]; /* of the device, link or tunnel */
};

struct dp_series_info {
	enum dp_series_kind kind;
	const char *name;
	const char *const *columns;
	uint32_t n_columns;
	uint64_t interval_ns;
	uint64_t max_bytes; /* size of the file at most */
};

/* X(name): columns of DP_SERIES_FLOWS, as datapath/series.py names them. */
#define DP_FLOW_COLUMNS(X)                                                                         \
	X(cwnd_bytes)                                                                              \
	X(pacing_rate_bps)                                                                         \
	X(rtt_ns)                                                                                  \
	X(min_rtt_ns)                                                                              \
	X(host_ns)                                                                                 \
	X(inflight_bytes)                                                                          \
	X(delivered_bytes)                                                                         \
	X(marked_packets)                                                                          \
	X(retransmitted_packets)                                                                   \
	X(sent_packets)

struct dp_flow_row {
	uint64_t time_ns, id;
#define X(name) double name;
	DP_FLOW_COLUMNS(X)
#undef X
};

extern const char *const dp_flow_columns[];
enum { DP_FLOW_N_COLUMNS = (sizeof(struct dp_flow_row) - 16) / sizeof(double) };

struct dp_series;

/* Makes the file, which must not exist yet.  0 or -errno. */
int dp_series_open(const char *path, const struct dp_series_info *, struct dp_series **out);
/* Appends rows.  Rows for which file or disk have no room are counted.  0, or -errno of the write
 * that failed; after an error nothing more is written. */
int dp_series_append(struct dp_series *, const void *rows, uint32_t n);
void dp_series_flows_left_out(struct dp_series *, uint32_t n);
/* Counts rows that the caller had no room to keep. */
void dp_series_rows_left_out(struct dp_series *, uint32_t n);
void dp_series_close(struct dp_series *);

#endif
