/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DATAPATH_SERIES=PREFIX[;interval_us=N][;qps=N][;max_bytes=N]: writes samples of each QP of a
 * device to PREFIX.<pid>.<device>-<n>.series (io/series.h).  n counts how often the process has
 * opened a device.
 *
 * A thread of its own takes the samples, and sleeps in between.  It holds the device's lock only
 * while it copies the numbers, and writes them without the lock.  QPs beyond the first `qps` are
 * not sampled.  A QP that is destroyed gets a last row.
 *
 * Locks: a thread holds `tick` during a whole sample; `tick` covers `rows`.  The device's lock is
 * taken inside `tick`, and covers `qps`, `late` and `late_left_out`.
 */
#include "verbs/front.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "io/series.h"
#include "posix/number.h"
#include "posix/thread.h"

enum {
	INTERVAL_US = 10000,
	INTERVAL_US_MIN = 100,
	QPS = 16,
	QPS_MAX = 4096,
	MAX_BYTES = 64 << 20,
	MAX_BYTES_MIN = 4096,
	LOCK_MS = 200, /* longest wait for the device's lock; after it, no sample */
	FLUSH_MS = 1000,
	FILES_MAX = 1000, /* of earlier processes */
};

struct settings {
	char prefix[PATH_MAX];
	uint32_t interval_us, qps, max_bytes;
};

struct front_series {
	struct dp_device *dev;
	struct dp_series *file;
	uint64_t interval_ns;
	pthread_t thread;
	pthread_mutex_t tick;
	pthread_cond_t ended;
	bool stop;
	uint32_t max_qps, n_qps, n_late;
	uint32_t left_out, told_left_out; /* number of QPs, as in the file's header */
	struct front_qp **qps;
	struct dp_flow_row *late; /* last rows of QPs destroyed since the last sample... */
	uint32_t late_left_out;	  /* ...and how many found no room there */
	struct dp_flow_row *rows; /* of one sample: max_qps from each of `late` and `qps` */
};

/* ---- settings --------------------------------------------------------------- */

static bool read_setting(struct settings *s, const char *word)
{
	if (!strncmp(word, "interval_us=", 12))
		return !dp_read_u32(word + 12, INTERVAL_US_MIN, UINT32_MAX, &s->interval_us);
	if (!strncmp(word, "qps=", 4))
		return !dp_read_u32(word + 4, 1, QPS_MAX, &s->qps);
	if (!strncmp(word, "max_bytes=", 10))
		return !dp_read_u32(word + 10, MAX_BYTES_MIN, UINT32_MAX, &s->max_bytes);
	return false;
}

/*
 * Returns false if no series are asked for, or if a setting is wrong, which it reports on stderr.
 */
static bool read_settings(struct settings *s)
{
	const char *text = secure_getenv("DATAPATH_SERIES");
	char *at, *word;

	if (!text || !*text)
		return false;
	if (strlen(text) >= sizeof(s->prefix)) {
		fprintf(stderr, "libdpverbs: DATAPATH_SERIES is too long\n");
		return false;
	}
	*s = (struct settings){ .interval_us = INTERVAL_US, .qps = QPS, .max_bytes = MAX_BYTES };
	strcpy(s->prefix, text);
	at = s->prefix;
	strsep(&at, ";");
	while ((word = strsep(&at, ";"))) {
		if (!*word || read_setting(s, word))
			continue;
		fprintf(stderr,
			"libdpverbs: DATAPATH_SERIES: '%s' is not interval_us=N (%d or more), "
			"qps=N (1 to %d) or max_bytes=N (%d or more)\n",
			word, INTERVAL_US_MIN, QPS_MAX, MAX_BYTES_MIN);
		return false;
	}
	return true;
}

/* ---- samples ------------------------------------------------------------------ */

static double known(double value)
{
	return value > 0 ? value : NAN;
}

/* Returns false if the QP is not connected.  Call with the device locked. */
static bool sample_qp(const struct front_qp *qp, uint64_t now, struct dp_flow_row *out)
{
	const struct dp_cc_flow *flow = dp_qp_flow(qp->qp);
	struct dp_qp_stats counters;

	if (!flow)
		return false;
	dp_qp_stats(qp->qp, &counters);
	*out = (struct dp_flow_row){
		.time_ns = now,
		.id = dp_qp_qpn(qp->qp),
		.cwnd_bytes = flow->cwnd_bytes,
		.pacing_rate_bps = flow->pacing_rate_bps,
		.rtt_ns = known(flow->srtt_ns),
		.min_rtt_ns = known(flow->min_rtt_ns),
		.host_ns = flow->srtt_ns > 0 ? flow->host_ns : NAN,
		.inflight_bytes = flow->inflight_bytes,
		.delivered_bytes = flow->delivered_bytes,
		.marked_packets = (double)counters.ecn_marked,
		.retransmitted_packets = (double)counters.retransmits,
		.sent_packets = (double)counters.tx_packets,
	};
	return true;
}

/* Copies the rows of `late`, and samples all QPs.  Call with the device locked. */
static uint32_t sample_all(struct front_series *s)
{
	uint64_t now = dp_device_now_ns();
	uint32_t i, n = s->n_late;

	memcpy(s->rows, s->late, n * sizeof(*s->rows));
	s->n_late = 0;
	for (i = 0; i < s->n_qps; i++)
		n += sample_qp(s->qps[i], now, &s->rows[n]);
	return n;
}

/* Call with `tick` held. */
static void sample(struct front_series *s)
{
	uint32_t n, left_out, late_left_out;
	int err;

	if (dp_device_lock_within(s->dev, LOCK_MS))
		return;
	n = sample_all(s);
	left_out = s->left_out;
	late_left_out = s->late_left_out;
	s->late_left_out = 0;
	dp_device_unlock(s->dev);
	err = n ? dp_series_append(s->file, s->rows, n) : 0;
	if (err)
		fprintf(stderr, "libdpverbs: DATAPATH_SERIES: cannot write: %s\n", strerror(-err));
	if (late_left_out)
		dp_series_rows_left_out(s->file, late_left_out);
	if (left_out != s->told_left_out)
		dp_series_flows_left_out(s->file, left_out);
	s->told_left_out = left_out;
}

static void *run(void *arg)
{
	struct front_series *s = arg;
	uint64_t next = dp_device_now_ns(), now;
	struct timespec ts;

	prctl(PR_SET_NAME, "dp:series");
	pthread_mutex_lock(&s->tick);
	while (!s->stop) {
		now = dp_device_now_ns();
		if (now >= next) {
			sample(s);
			/* Skip the samples whose time has passed. */
			next += s->interval_ns * ((now - next) / s->interval_ns + 1);
		}
		ts.tv_sec = (time_t)(next / 1000000000);
		ts.tv_nsec = (long)(next % 1000000000);
		pthread_cond_timedwait(&s->ended, &s->tick, &ts);
	}
	pthread_mutex_unlock(&s->tick);
	return NULL;
}

/* ---- QPs: call both with the device locked -------------------------------------- */

void front_series_add_qp(struct front_series *s, struct front_qp *qp)
{
	if (!front_has_cc(qp)) /* it has no flow to sample */
		return;
	if (s->n_qps < s->max_qps)
		s->qps[s->n_qps++] = qp;
	else
		s->left_out++;
}

void front_series_remove_qp(struct front_series *s, const struct front_qp *qp)
{
	struct dp_flow_row row;
	uint32_t i;

	for (i = 0; i < s->n_qps && s->qps[i] != qp; i++)
		;
	if (i == s->n_qps)
		return;
	if (sample_qp(qp, dp_device_now_ns(), &row)) {
		if (s->n_late < s->max_qps)
			s->late[s->n_late++] = row;
		else
			s->late_left_out++;
	}
	memmove(&s->qps[i], &s->qps[i + 1], (--s->n_qps - i) * sizeof(*s->qps));
}

/* ---- life -------------------------------------------------------------------------- */

static int open_file(struct front_series *s, const struct settings *settings, const char *device)
{
	static atomic_uint opens;
	const struct dp_series_info info = {
		.kind = DP_SERIES_FLOWS,
		.name = device,
		.columns = dp_flow_columns,
		.n_columns = DP_FLOW_N_COLUMNS,
		.interval_ns = s->interval_ns,
		.max_bytes = settings->max_bytes,
	};
	char path[PATH_MAX];
	int tries = 0, err;

	/* An earlier process of this number may have left files. */
	do {
		if (snprintf(path, sizeof(path), "%s.%d.%s-%u.series", settings->prefix,
			     (int)getpid(), device, opens++) >= (int)sizeof(path))
			return -ENAMETOOLONG;
		err = dp_series_open(path, &info, &s->file);
	} while (err == -EEXIST && ++tries < FILES_MAX);
	return err;
}

static int start_thread(struct front_series *s)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&s->tick, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->ended, &attr);
	pthread_condattr_destroy(&attr);
	return dp_thread_start(&s->thread, run, s);
}

static void release(struct front_series *s)
{
	if (s->file)
		dp_series_close(s->file);
	free(s->qps);
	free(s->late);
	free(s->rows);
	free(s);
}

struct front_series *front_series_start(struct dp_device *dev, const char *device)
{
	struct front_series *s;
	struct settings settings;
	int err = -ENOMEM;

	if (!read_settings(&settings))
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->dev = dev;
	s->interval_ns = settings.interval_us * UINT64_C(1000);
	s->max_qps = settings.qps;
	s->qps = calloc(s->max_qps, sizeof(*s->qps));
	s->late = calloc(s->max_qps, sizeof(*s->late));
	s->rows = calloc(s->max_qps, 2 * sizeof(*s->rows));
	if (s->qps && s->late && s->rows)
		err = open_file(s, &settings, device);
	if (!err)
		err = start_thread(s);
	if (!err)
		return s;
	fprintf(stderr, "libdpverbs: DATAPATH_SERIES: no series of %s: %s\n", device,
		strerror(-err));
	release(s);
	return NULL;
}

void front_series_flush(struct front_series *s)
{
	if (!front_lock_within(&s->tick, FLUSH_MS))
		return;
	sample(s);
	pthread_mutex_unlock(&s->tick);
}

void front_series_stop(struct front_series *s)
{
	pthread_mutex_lock(&s->tick);
	s->stop = true;
	sample(s);
	pthread_cond_signal(&s->ended);
	pthread_mutex_unlock(&s->tick);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->ended);
	pthread_mutex_destroy(&s->tick);
	release(s);
}
