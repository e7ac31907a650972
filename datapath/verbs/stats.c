/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DATAPATH_STATS=PREFIX: writes the counters of a device and its QPs, as JSON, to
 * PREFIX.<pid>.<device>.json when the device is closed and when the program ends.  A QP that is
 * destroyed leaves its last counters here.  So does a device that is closed: when the program opens it
 * again, the file has the counters of both openings.
 */
#include "verbs/front.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/addr.h"

enum {
	KEPT_MAX = 4096, /* QPs: bounds the memory of a server that makes QPs without end */
	LOCK_MS = 1000,	 /* longest wait for the lock, which threads that poll seldom release */
};

struct qp_record {
	uint32_t qpn, dest_qpn, path_mtu, segment;
	int extended;
	uint32_t cc_changes;
	char cc[64]; /* a copy: the algorithm may be unloaded before the file is written */
	struct dp_qp_stats counters;
};

/* A QP in the order in which they were made. */
struct entry {
	struct front_qp *live;	/* NULL: the QP was destroyed */
	struct qp_record *last; /* what it left; NULL: there was no memory for it */
};

struct totals {
	struct dp_port_stats port;
	struct dp_engine_stats engine;
	struct dp_sleeps sleeps;
};

struct front_stats {
	const struct front_device *device;
	struct entry *qps;
	size_t n, room, forgotten;
	struct totals before; /* the device was opened anew */
};

struct front_stats *front_stats_create(const struct front_device *device)
{
	struct front_stats *s = calloc(1, sizeof(*s));

	if (s)
		s->device = device;
	return s;
}

/* Adds what the open device has counted.  Call with it locked. */
static void add_device(struct totals *t, struct dp_device *dev)
{
	const struct dp_sleeps *sleeps = dp_device_sleeps(dev);
	struct dp_engine_stats engine;
	struct dp_port_stats port;

	dp_device_port_stats(dev, &port);
	dp_engine_stats(dp_device_engine(dev), &engine);
#define X(name) t->port.name += port.name;
	DP_PORT_COUNTERS(X)
#undef X
#define X(name) t->engine.name += engine.name;
	DP_ENGINE_COUNTERS(X)
#undef X
	dp_late_merge(&t->sleeps.packet, &sleeps->packet);
	dp_late_merge(&t->sleeps.timer, &sleeps->timer);
	t->sleeps.wakes += sleeps->wakes;
	t->sleeps.awake_ns += sleeps->awake_ns;
}

void front_stats_keep(struct front_stats *s, struct dp_device *dev)
{
	if (dp_device_lock(dev))
		return;
	add_device(&s->before, dev);
	dp_device_unlock(dev);
}

/*
 * If there is no memory, or there are too many QPs, the file does not list this QP but counts it.
 */
void front_stats_add_qp(struct front_stats *s, struct front_qp *qp)
{
	struct entry *qps;
	size_t room;

	if (s->n == s->room) {
		room = s->room ? 2 * s->room : 16;
		qps = room <= KEPT_MAX ? reallocarray(s->qps, room, sizeof(*qps)) : NULL;
		if (!qps) {
			s->forgotten++;
			return;
		}
		s->qps = qps;
		s->room = room;
	}
	s->qps[s->n++] = (struct entry){ .live = qp };
}

static void take(const struct front_qp *qp, struct qp_record *r)
{
	struct dp_qp_attr attr;

	dp_qp_query(qp->qp, &attr);
	r->qpn = dp_qp_qpn(qp->qp);
	r->dest_qpn = attr.dest_qpn;
	r->path_mtu = attr.path_mtu;
	r->segment = dp_qp_segment(qp->qp);
	r->extended = dp_qp_extended(qp->qp);
	r->cc_changes = qp->cc_changes;
	snprintf(r->cc, sizeof(r->cc), "%s", front_has_cc(qp) ? front_cc_name(qp->cc) : "none");
	dp_qp_stats(qp->qp, &r->counters);
}

void front_stats_remove_qp(struct front_stats *s, struct front_qp *qp)
{
	size_t i;

	for (i = s->n; i-- > 0;) {
		if (s->qps[i].live != qp)
			continue;
		s->qps[i].last = malloc(sizeof(*s->qps[i].last));
		if (s->qps[i].last)
			take(qp, s->qps[i].last);
		else
			s->forgotten++;
		s->qps[i].live = NULL;
		return;
	}
}

void front_put_string(FILE *f, const char *key, const char *value)
{
	fprintf(f, "\"%s\": \"", key);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		if ((unsigned char)*value >= ' ')
			fputc(*value, f);
	}
	fputs("\"", f);
}

static void put_port(FILE *f, const struct dp_port_info *info)
{
	char addr[DP_ADDR_TEXT];

	fputs("  \"port\": {", f);
	front_put_string(f, "kind", info->kind);
	fputs(", ", f);
	front_put_string(f, "netdev", info->netdev);
	fprintf(f, ", \"ifindex\": %u, \"mac\": \"%02x:%02x:%02x:%02x:%02x:%02x\", ", info->ifindex,
		info->mac[0], info->mac[1], info->mac[2], info->mac[3], info->mac[4], info->mac[5]);
	front_put_string(f, "addr", dp_addr_text(&info->addr, addr));
	fprintf(f, ", \"netdev_mtu\": %u, \"path_mtu\": %u, ", info->netdev_mtu, info->path_mtu);
	front_put_string(f, "path_mtu_reason", info->path_mtu_reason);
	fputs(", ", f);
	front_put_string(f, "mode", info->mode);
	fputs(", ", f);
	front_put_string(f, "mode_reason", info->mode_reason);
	fprintf(f,
		", \"queues\": %u, \"udp_sport\": %u, \"qpn_prefix\": %u, \"line_rate_bps\": %llu},\n",
		info->n_queues, info->udp_sport, info->qpn_prefix,
		(unsigned long long)info->line_rate_bps);
}

static void put_counters(FILE *f, const struct dp_port_stats *port,
			 const struct dp_engine_stats *engine)
{
	const char *comma = "";

	fputs("  \"port_stats\": {", f);
#define X(name)                                                                                    \
	fprintf(f, "%s\"" #name "\": %llu", comma, (unsigned long long)port->name);                \
	comma = ", ";
	DP_PORT_COUNTERS(X)
#undef X
	fputs("},\n  \"engine\": {", f);
	comma = "";
#define X(name)                                                                                    \
	fprintf(f, "%s\"" #name "\": %llu", comma, (unsigned long long)engine->name);              \
	comma = ", ";
	DP_ENGINE_COUNTERS(X)
#undef X
	fputs("},\n", f);
}

static void put_sleeps(FILE *f, const struct dp_sleeps *sleeps)
{
	fputs("  \"sleeps\": {\"packet\": ", f);
	dp_late_write(&sleeps->packet, f);
	fputs(",\n    \"timer\": ", f);
	dp_late_write(&sleeps->timer, f);
	fprintf(f, ",\n    \"wakes\": %llu, \"awake_ns\": %llu},\n",
		(unsigned long long)sleeps->wakes, (unsigned long long)sleeps->awake_ns);
}

static void put_qp(FILE *f, const struct qp_record *r)
{
	fprintf(f,
		"    {\"qpn\": %u, \"dest_qpn\": %u, \"extended\": %d, \"path_mtu\": %u, \"segment\": %u, ",
		r->qpn, r->dest_qpn, r->extended, r->path_mtu, r->segment);
	front_put_string(f, "cc", r->cc);
	fprintf(f, ", \"cc_changes\": %u", r->cc_changes);
#define X(name) fprintf(f, ", \"" #name "\": %llu", (unsigned long long)r->counters.name);
	DP_QP_COUNTERS(X)
	DP_QP_PEAKS(X)
#undef X
	fputs("}", f);
}

static void put_qps(FILE *f, const struct front_stats *s)
{
	const char *before = "\n";
	struct qp_record now;

	for (size_t i = 0; i < s->n; i++) {
		const struct qp_record *r = s->qps[i].last;

		if (s->qps[i].live) {
			take(s->qps[i].live, &now);
			r = &now;
		}
		if (!r)
			continue;
		fputs(before, f);
		put_qp(f, r);
		before = ",\n";
	}
}

static void put_device(FILE *f, struct front_device *d)
{
	struct front_stats *s = d->stats;
	struct totals t = s->before;

	add_device(&t, d->dev);
	fputs("{\n  ", f);
	front_put_string(f, "device", d->config.name);
	fputs(",\n", f);
	put_port(f, dp_device_port(d->dev));
	put_counters(f, &t.port, &t.engine);
	fputs("  \"cm\": ", f);
	ucm_put_counters(f, d);
	fputs(",\n", f);
	put_sleeps(f, &t.sleeps);
	fprintf(f, "  \"qps_forgotten\": %zu,\n  \"qps\": [", s->forgotten);
	put_qps(f, s);
	fputs("]\n}\n", f);
}

/* Removes an existing file or link first, and follows no link. */
static FILE *create(const char *path)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = open(path, flags, 0644);
	FILE *f;

	if (fd < 0 && errno == EEXIST && !unlink(path))
		fd = open(path, flags, 0644);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f && fd >= 0)
		close(fd);
	return f;
}

void front_stats_write(struct front_device *d)
{
	const char *prefix = secure_getenv("DATAPATH_STATS");
	char path[PATH_MAX], fresh[PATH_MAX];
	bool whole = false;
	FILE *f;

	if (!prefix || !*prefix)
		return;
	if (snprintf(path, sizeof(path), "%s.%d.%s.json", prefix, (int)getpid(), d->config.name) >=
		    (int)sizeof(path) ||
	    snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
		return;
	f = create(fresh);
	if (!f) {
		fprintf(stderr, "libdpverbs: DATAPATH_STATS: cannot write %s: %m\n", fresh);
		return;
	}
	if (!dp_device_lock_within(d->dev, LOCK_MS)) {
		put_device(f, d);
		dp_device_unlock(d->dev);
		whole = !ferror(f);
	}
	if (fclose(f) || !whole || rename(fresh, path)) {
		fprintf(stderr, "libdpverbs: DATAPATH_STATS: cannot write %s: %m\n", path);
		unlink(fresh);
	}
}
