// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Commands on standard input.  A command is a line of words that tabs separate, and has one line as
 * its answer:
 *
 *   configure <forward|backward> <key>=<value> ...   ok, or: error <why>
 *   counters                                         a JSON object
 *   sample <interval_ns> <max_bytes> <prefix>        ok, or: error <why>
 *   sample                                           ok; ends the sampling
 *
 * configure makes a new link: frames in the old one are lost, and counters begin at 0.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/emulator/emulator.h"
#include "posix/number.h"

struct settings {
	struct dp_link_config link;
	double ecn_mark;
	char *trace;  /* milliseconds, separated by commas */
	char *jitter; /* nanoseconds, separated by commas */
};

enum kind { U32, U64, DOUBLE, BOOL, LIST };

#define KIND(type) _Generic((type)0, uint64_t : U64, double : DOUBLE, bool : BOOL)

static const struct key {
	const char *name;
	enum kind kind;
	size_t offset;
} keys[] = {
#define KEY(name, kind, member)                                                                    \
	{                                                                                          \
		name, kind, offsetof(struct settings, member)                                      \
	}
	KEY("trace_ms", LIST, trace),
	KEY("jitter_kind", U32, link.jitter.kind),
	KEY("jitter_scale_ns", DOUBLE, link.jitter.scale_ns),
	KEY("jitter_shape", DOUBLE, link.jitter.shape),
	KEY("jitter_reorders", BOOL, link.jitter.reorders),
	KEY("jitter_samples_ns", LIST, jitter),
	KEY("loss_p", DOUBLE, link.loss.p),
	KEY("loss_r", DOUBLE, link.loss.r),
	KEY("loss_good", DOUBLE, link.loss.good),
	KEY("loss_bad", DOUBLE, link.loss.bad),
	KEY("loss_good_ns", U64, link.loss.good_ns),
	KEY("loss_bad_ns", U64, link.loss.bad_ns),
	KEY("policer_rate_bps", U64, link.policer.rate_bps),
	KEY("policer_burst_bytes", U64, link.policer.burst_bytes),
	KEY("mark_kind", U32, link.marking.kind),
	KEY("mark_kmin_bytes", U64, link.marking.kmin_bytes),
	KEY("mark_kmax_bytes", U64, link.marking.kmax_bytes),
	KEY("mark_pmax", DOUBLE, link.marking.pmax),
	KEY("aqm_kind", U32, link.aqm.kind),
	KEY("aqm_ecn", BOOL, link.aqm.ecn),
	KEY("aqm_target_ns", U64, link.aqm.target_ns),
	KEY("aqm_interval_ns", U64, link.aqm.interval_ns),
	KEY("aqm_flows", U32, link.aqm.flows),
	KEY("aqm_quantum_bytes", U32, link.aqm.quantum_bytes),
	KEY("aqm_alpha", DOUBLE, link.aqm.alpha),
	KEY("aqm_beta", DOUBLE, link.aqm.beta),
	KEY("aqm_max_burst_ns", U64, link.aqm.max_burst_ns),
	KEY("aqm_mark_max", DOUBLE, link.aqm.mark_max),
	KEY("seed", U64, link.seed),
	KEY("ecn_mark", DOUBLE, ecn_mark),
#define NUMBER(type, name) KEY(#name, KIND(type), link.name),
	DP_LINK_NUMBERS(NUMBER)
#undef NUMBER
#define IMPAIRMENT(name, ...) KEY(#name, DOUBLE, link.impairment[DP_IMPAIRMENT_##name]),
		DP_IMPAIRMENTS(IMPAIRMENT)
#undef IMPAIRMENT
#undef KEY
};

static int set(struct settings *s, const struct key *key, char *value)
{
	void *at = (char *)s + key->offset;
	uint64_t on;

	switch (key->kind) {
	case U32:
		return dp_read_u32(value, 0, UINT32_MAX, at);
	case U64:
		return dp_read_number(value, 0, UINT64_MAX, at);
	case DOUBLE:
		return dp_read_real(value, at);
	case BOOL:
		if (dp_read_number(value, 0, 1, &on))
			return -EINVAL;
		*(bool *)at = on;
		return 0;
	case LIST:
		*(char **)at = value;
		return 0;
	}
	return -EINVAL;
}

static int read_word(struct settings *s, char *word)
{
	char *value = strchr(word, '=');

	if (!value)
		return -EINVAL;
	*value++ = 0;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!strcmp(word, keys[i].name))
			return set(s, &keys[i], value);
	return -EINVAL;
}

/* ---- traces ------------------------------------------------------------------- */

static uint32_t count(const char *list)
{
	uint32_t n = 1;

	for (; *list; list++)
		n += *list == ',';
	return n;
}

static int read_rate_trace(struct direction *d, struct settings *s)
{
	uint32_t n = count(s->trace);

	d->trace = calloc(n, sizeof(*d->trace));
	if (!d->trace)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (dp_read_u32(strsep(&s->trace, ","), 0, UINT32_MAX, &d->trace[i]))
			return -EINVAL;
	s->link.trace.ms = d->trace;
	s->link.trace.n = n;
	return 0;
}

static int read_jitter_trace(struct direction *d, struct settings *s)
{
	uint32_t n = count(s->jitter);

	d->jitter = calloc(n, sizeof(*d->jitter));
	if (!d->jitter)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (dp_read_real(strsep(&s->jitter, ","), &d->jitter[i]))
			return -EINVAL;
	s->link.jitter.sample = d->jitter;
	s->link.jitter.n_samples = n;
	return 0;
}

/* Arrays that the link's configuration points to live as long as the link. */
static int read_traces(struct direction *d, struct settings *s)
{
	int err = s->trace ? read_rate_trace(d, s) : 0;

	return !err && s->jitter ? read_jitter_trace(d, s) : err;
}

/* ---- a direction ---------------------------------------------------------------- */

void direction_close(struct direction *d)
{
	if (d->link)
		dp_link_destroy(d->link);
	d->link = NULL;
	free(d->trace);
	free(d->jitter);
	d->trace = NULL;
	d->jitter = NULL;
}

static int apply(struct direction *d, struct settings *s)
{
	int err;

	direction_close(d);
	/* Trimmed frames overtake whole ones. */
	d->trims = s->link.trim;
	d->hashes = dp_link_hashes(&s->link);
	s->link.n_classes = d->trims ? 2 : 1;
	err = read_traces(d, s);
	if (!err)
		err = dp_link_create(&s->link, &forward_ops, d, &d->link);
	if (err)
		return err;
	d->delay_ns = s->link.jitter.kind == DP_JITTER_NONE ? s->link.delay_ns : 0;
	d->ecn_mark = (uint64_t)(s->ecn_mark * 0x1p32 + 0.5);
	/* A sequence that the link's own streams do not have. */
	d->mark_rng = ~s->link.seed;
	memset(&d->counts, 0, sizeof(d->counts));
	memset(&d->late, 0, sizeof(d->late));
	memset(&d->emulator->turn_late, 0, sizeof(d->emulator->turn_late));
	return 0;
}

static void reset_ports(struct emulator *e, unsigned side)
{
	for (uint32_t i = 0; i < e->n_ports; i++) {
		struct port *p = &e->port[i];

		if (p->side != side)
			continue;
		p->ring_drops = dp_raw_drops(&p->raw);
		p->unstamped = dp_raw_unstamped(&p->raw);
	}
	e->began_ns = dp_now_ns();
	e->busy_ns = 0;
}

static void configure(struct emulator *e, char *words)
{
	struct settings s = {};
	char *word = strsep(&words, "\t");
	unsigned side = word && !strcmp(word, "backward") ? BACKWARD : FORWARD;
	int err = 0;

	while (!err && (word = strsep(&words, "\t"))) {
		err = read_word(&s, word);
		if (err)
			printf("error %s: not a key, or not its kind of value\n", word);
	}
	if (err)
		return;
	err = apply(&e->direction[side], &s);
	reset_ports(e, side);
	if (err)
		printf("error %s\n", strerror(-err));
	else
		printf("ok\n");
}

static void sample(struct emulator *e, char *words)
{
	char *interval = strsep(&words, "\t"), *max_bytes = strsep(&words, "\t");
	uint64_t interval_ns, most;
	int err = 0;

	if (!interval)
		sample_end(e);
	else if (!words || dp_read_number(interval, 1, UINT64_MAX, &interval_ns) ||
		 dp_read_number(max_bytes, 0, UINT64_MAX, &most))
		err = -EINVAL;
	else
		err = sample_begin(e, words, interval_ns, most);
	if (err)
		printf("error %s\n", strerror(-err));
	else
		printf("ok\n");
}

static void command(void *user, char *line)
{
	struct emulator *e = user;
	char *words = line, *name = strsep(&words, "\t");

	if (!strcmp(name, "configure"))
		configure(e, words);
	else if (!strcmp(name, "counters"))
		report_counters(e, stdout);
	else if (!strcmp(name, "sample"))
		sample(e, words);
	else
		printf("error %s: no such command\n", name);
	fflush(stdout);
}

void control_read(struct emulator *e)
{
	if (!dp_lines_read(&e->lines, STDIN_FILENO, command, e))
		e->quit = true;
}
