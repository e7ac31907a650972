// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Tunnels and classes over time: a file of series (io/series.h) for each.
 *
 * A file is named by the tunnel's other host ("card1"), or by that host, tenant and class
 * ("card1/100/rdma").  A file is made when its tunnel is up, or when its class has its first frame:
 * most classes of most tenants send nothing to most hosts.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/series.h"
#include "posix/clock.h"
#include "vnic/card.h"

#define COLUMNS(X)                                                                                 \
	X(cwnd_bytes)                                                                              \
	X(pacing_rate_bps)                                                                         \
	X(rtt_ns)                                                                                  \
	X(inflight_bytes)                                                                          \
	X(delivered_bytes)                                                                         \
	X(queue_bytes)                                                                             \
	X(wait_ns)                                                                                 \
	X(retransmitted_packets)                                                                   \
	X(sent_packets)

struct row {
	uint64_t time_ns, id;
#define X(name) double name;
	COLUMNS(X)
#undef X
};

static const char *const columns[] = {
#define X(name) #name,
	COLUMNS(X)
#undef X
};

enum { N_COLUMNS = sizeof(columns) / sizeof(*columns) };

struct record {
	struct dp_series *file;
	bool left_out; /* options.most files existed already */
};

struct sampler {
	struct sample_options options;
	char prefix[PATH_MAX - 64];
	uint64_t next_ns;
	uint32_t n_files, n_left_out;
	struct dp_series *first;
	struct record *record; /* for each host: the tunnel, then each leaf */
};

static size_t n_records(const struct card *card)
{
	return (size_t)card->n_hosts * (card->n_leaves + 1);
}

static struct record *record_of(const struct card *card, uint16_t host, uint32_t which)
{
	return &card->sampler->record[host * (card->n_leaves + 1) + which];
}

/* ---- files ------------------------------------------------------------------------------ */

static int open_file(struct sampler *s, const char *name, struct dp_series **out)
{
	struct dp_series_info info = {
		.kind = DP_SERIES_TUNNEL,
		.name = name,
		.columns = columns,
		.n_columns = N_COLUMNS,
		.interval_ns = s->options.interval_ns,
		.max_bytes = s->options.max_bytes,
	};
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s.%u.series", s->prefix, s->n_files);
	return dp_series_open(path, &info, out);
}

static int begin_record(struct sampler *s, struct record *r, const char *name)
{
	int err;

	if (s->n_files == s->options.most) {
		r->left_out = true;
		dp_series_flows_left_out(s->first, ++s->n_left_out);
		return 0;
	}
	err = open_file(s, name, &r->file);
	if (err)
		return err;
	if (!s->n_files++)
		s->first = r->file;
	return 0;
}

static int append(struct sampler *s, struct record *r, const char *name, const struct row *row)
{
	int err = r->file || r->left_out ? 0 : begin_record(s, r, name);

	return err || r->left_out ? err : dp_series_append(r->file, row, 1);
}

/* ---- rows ------------------------------------------------------------------------------- */

static double known(double value)
{
	return value > 0 ? value : NAN;
}

static uint64_t bytes_waiting(const struct card *card, uint16_t host)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < card->n_leaves; i++)
		sum += queue_traffic(card, host, i)->queued_bytes;
	return sum;
}

static int take_tunnel(struct card *card, uint16_t host, uint64_t now)
{
	const struct host *h = &card->host[host];
	struct pipes_sum sum;
	struct row row;

	report_pipes(card, h, &sum);
	row = (struct row){
		.time_ns = now,
		.cwnd_bytes = sum.cwnd_bytes,
		.pacing_rate_bps = sum.pacing_rate_bps,
		.rtt_ns = known(sum.rtt_ns),
		.inflight_bytes = sum.inflight_bytes,
		.delivered_bytes = sum.delivered_bytes,
		.queue_bytes = (double)bytes_waiting(card, host),
		.wait_ns = NAN,
		.retransmitted_packets = (double)sum.retransmits,
		.sent_packets = (double)sum.packets,
	};
	return append(card->sampler, record_of(card, host, 0), h->name, &row);
}

static int take_class(struct card *card, uint16_t host, uint32_t leaf, uint64_t now)
{
	const struct traffic *t = queue_traffic(card, host, leaf);
	const struct tenant *tenant = &card->tenant[leaf / card->n_classes];
	const struct host *h = &card->host[host];
	struct record *record = record_of(card, host, leaf + 1);
	char name[2 * NAME_MAX_LEN + 16];
	struct row row;

	if (!record->file && !t->tx_frames && !t->queued_frames)
		return 0;
	snprintf(name, sizeof(name), "%s/%u/%s", h->name, tenant->vni,
		 card->class[leaf % card->n_classes].name);
	row = (struct row){
		.time_ns = now,
		.cwnd_bytes = report_window(card, h, leaf),
		.pacing_rate_bps = NAN,
		.rtt_ns = known(t->rtt_ns),
		.inflight_bytes = (double)t->inflight_bytes,
		.delivered_bytes = (double)t->delivered_bytes,
		.queue_bytes = (double)t->queued_bytes,
		.wait_ns = t->wait_ns,
		.retransmitted_packets = (double)t->retransmits,
		.sent_packets = (double)t->packets,
	};
	return append(card->sampler, record, name, &row);
}

/* 0, or the error of the file that failed; the others have their rows. */
static int take_all(struct card *card, uint64_t now)
{
	int first = 0, err;

	for (uint32_t i = 0; i < card->n_hosts; i++) {
		if (i == card->self)
			continue;
		err = card->host[i].up ? take_tunnel(card, (uint16_t)i, now) : 0;
		first = first ? first : err;
		for (uint32_t k = 0; k < card->n_leaves; k++) {
			err = take_class(card, (uint16_t)i, k, now);
			first = first ? first : err;
		}
	}
	return first;
}

/* ---- life ------------------------------------------------------------------------------- */

static int begin(struct card *card, struct sampler *s, const struct sample_options *options)
{
	int err;

	if (strlen(options->prefix) >= sizeof(s->prefix))
		return -ENAMETOOLONG;
	s->record = calloc(n_records(card), sizeof(*s->record));
	if (!s->record)
		return -ENOMEM;
	s->options = *options;
	strcpy(s->prefix, options->prefix);
	s->next_ns = dp_now_ns();
	err = take_all(card, s->next_ns);
	s->next_ns += options->interval_ns;
	return err;
}

int sample_begin(struct card *card, const struct sample_options *options)
{
	int err;

	sample_end(card);
	card->sampler = calloc(1, sizeof(*card->sampler));
	if (!card->sampler)
		return -ENOMEM;
	err = begin(card, card->sampler, options);
	if (err)
		sample_end(card);
	return err;
}

/* When the disk is full, samples are lost, and the card goes on. */
uint64_t sample_take(struct card *card, uint64_t now)
{
	struct sampler *s = card->sampler;

	if (!s)
		return DP_NEVER;
	if (now >= s->next_ns) {
		take_all(card, now);
		/* Samples whose time has passed are left out. */
		s->next_ns +=
			((now - s->next_ns) / s->options.interval_ns + 1) * s->options.interval_ns;
	}
	return s->next_ns;
}

void sample_end(struct card *card)
{
	struct sampler *s = card->sampler;

	if (!s)
		return;
	if (s->first)
		take_all(card, dp_now_ns());
	for (size_t i = 0; s->record && i < n_records(card); i++)
		if (s->record[i].file)
			dp_series_close(s->record[i].file);
	free(s->record);
	free(s);
	card->sampler = NULL;
}
