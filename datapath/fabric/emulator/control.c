// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Commands on standard input.  A command is a line of words that tabs separate, and has one line as
 * its answer.  LINK is the name of a link:
 *
 *   configure LINK <key>=<value> ...                 ok, or: error <why>
 *   change LINK <at_ns> <key>=<value> ...            the same
 *   routes <seed>                                    the same
 *   route LINK <at_ns> <0|1>                         the same
 *   buffer NODE <total> <alpha> <classes> <xoff> <xon> <headroom>   the same
 *   early <ns>                                       the same
 *   forget                                           ok; changes and routes to come are none
 *   counters                                         a JSON object
 *   sample <interval_ns> <max_bytes> <prefix> [LINK ...]   ok, or: error <why>
 *   sample                                           ok; ends the sampling
 *
 * configure makes a new link: frames in the old one are lost, and counters begin at 0.  change gives
 * the link other settings at a time (CLOCK_MONOTONIC), all of them; its frames stay.  routes lets
 * routes lead along all links, and gives the seed of the choices; route has them lead along a link
 * (1) or around it (0) from a time on.  buffer has the links that leave a node share a buffer, with PFC
 * for a mask of classes (struct dp_buffer_config; of 0 bytes: no buffer), and closes the node's
 * links: configure them next.  early has dated frames leave up to so long before they reach their last
 * link's end; 0, as at first: none does.  sample takes the named links, or all of them.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/emulator/emulator.h"
#include "posix/number.h"
#include "xdp/steer.h"

struct settings {
	struct dp_link_config link;
	double ecn_mark;
	char *trace;   /* milliseconds, separated by commas */
	char *jitter;  /* nanoseconds, separated by commas */
	char *classes; /* WEIGHT:LIMIT_BYTES:RATE_BPS:JITTER of each class, separated by commas */
	char *dscp;    /* the classes of the 64 DSCPs and of CREDITs, separated by commas */
	struct class_map map;
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
	KEY("classes", LIST, classes),
	KEY("class_of_dscp", LIST, dscp),
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

static int read_rate_trace(struct arrays *a, struct settings *s)
{
	uint32_t n = count(s->trace);

	a->trace = calloc(n, sizeof(*a->trace));
	if (!a->trace)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (dp_read_u32(strsep(&s->trace, ","), 0, UINT32_MAX, &a->trace[i]))
			return -EINVAL;
	s->link.trace.ms = a->trace;
	s->link.trace.n = n;
	return 0;
}

static int read_jitter_trace(struct arrays *a, struct settings *s)
{
	uint32_t n = count(s->jitter);

	a->jitter = calloc(n, sizeof(*a->jitter));
	if (!a->jitter)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (dp_read_real(strsep(&s->jitter, ","), &a->jitter[i]))
			return -EINVAL;
	s->link.jitter.sample = a->jitter;
	s->link.jitter.n_samples = n;
	return 0;
}

static int read_class(struct dp_class_config *c, char *text)
{
	const char *weight = strsep(&text, ":"), *limit = strsep(&text, ":");
	const char *rate = strsep(&text, ":");

	if (!rate || !text || dp_read_u32(weight, 0, DP_LINK_WEIGHT_MAX, &c->weight) ||
	    dp_read_number(limit, 0, UINT64_MAX, &c->limit_bytes) ||
	    dp_read_number(rate, 0, UINT64_MAX, &c->rate_bps))
		return -EINVAL;
	return dp_read_real(text, &c->jitter);
}

static int read_classes(struct settings *s)
{
	uint32_t n = s->classes ? count(s->classes) : 0, class = 0;
	int err = n > DP_LINK_CLASSES || !n != !s->dscp ? -EINVAL : 0;

	s->link.n_classes = n ? n : s->link.trim ? 2 : 1;
	for (uint32_t i = 0; i < n && !err; i++)
		err = read_class(&s->link.class[i], strsep(&s->classes, ","));
	for (uint32_t i = 0; s->dscp && i <= 64 && !err; i++) {
		err = dp_read_u32(strsep(&s->dscp, ","), 0, DP_LINK_CLASSES, &class);
		if (!err && class >= n && (i < 64 || class != DP_LINK_CLASSES))
			err = -EINVAL;
		if (i < 64)
			s->map.of_dscp[i] = (uint8_t) class;
		else
			s->map.credits = (uint8_t) class;
		if (!err && !s->dscp && i < 64)
			err = -EINVAL;
	}
	return err;
}

/* Arrays that the link's configuration points to live as long as the link. */
static int read_traces(struct arrays *a, struct settings *s)
{
	int err = read_classes(s);

	if (!err && s->trace)
		err = read_rate_trace(a, s);

	return !err && s->jitter ? read_jitter_trace(a, s) : err;
}

/* ---- a link --------------------------------------------------------------------- */

void wire_close(struct wire *w)
{
	if (w->link)
		dp_link_destroy(w->link);
	w->link = NULL;
	free(w->arrays.trace);
	free(w->arrays.jitter);
	w->arrays = (struct arrays){};
	changes_drop(w);
	pauses_drop(w);
}

void wire_set(struct wire *w, const struct dp_link_config *link, double ecn_mark)
{
	struct emulator *e = w->emulator;

	w->hashes = dp_link_hashes(link);
	w->delay_ns = link->jitter.kind == DP_JITTER_NONE ? link->delay_ns : 0;
	w->ecn_mark = (uint64_t)(ecn_mark * 0x1p32 + 0.5);
	e->trims = e->hashes = false;
	for (uint32_t i = 0; i < e->n_wires; i++) {
		e->trims |= e->wire[i].trims;
		e->hashes |= e->wire[i].hashes;
	}
}

static int apply(struct wire *w, struct settings *s)
{
	int err;

	wire_close(w);
	w->trims = s->link.trim;
	w->has_classes = s->classes;
	err = read_traces(&w->arrays, s);
	w->map = s->map;
	if (!err)
		err = dp_link_create(&s->link, &forward_ops, w, &w->link);
	if (!err)
		err = buffer_share(w, &s->link);
	forward_look(w);
	if (err)
		return err;
	wire_set(w, &s->link, s->ecn_mark);
	/* A sequence that the link's own streams do not have. */
	w->mark_rng = ~s->link.seed;
	memset(&w->counts, 0, sizeof(w->counts));
	memset(&w->late, 0, sizeof(w->late));
	memset(&w->emulator->turn_late, 0, sizeof(w->emulator->turn_late));
	return 0;
}

static void reset_ports(const struct wire *w)
{
	struct emulator *e = w->emulator;

	for (uint32_t i = 0; i < e->n_ports; i++) {
		struct port *p = &e->port[i];

		if (p->first != w)
			continue;
		p->ring_drops = dp_raw_drops(&p->raw) + p->raw.dropped;
		p->unstamped = dp_raw_unstamped(&p->raw);
	}
	e->began_ns = dp_now_ns();
	e->busy_ns = 0;
}

/* The rest of a line; says itself which word is wrong. */
static int read_settings(struct settings *s, char *words)
{
	char *word;

	while ((word = strsep(&words, "\t"))) {
		if (!read_word(s, word))
			continue;
		printf("error %s: not a key, or not its kind of value\n", word);
		return -EINVAL;
	}
	return 0;
}

static void answer(int err)
{
	if (err)
		printf("error %s\n", strerror(-err));
	else
		printf("ok\n");
}

/* ---- commands ------------------------------------------------------------------- */

static void configure(struct wire *w, char *words)
{
	struct settings s = {};
	int err;

	if (read_settings(&s, words))
		return;
	err = apply(w, &s);
	reset_ports(w);
	answer(err);
}

static void change(struct wire *w, char *words)
{
	struct settings s = {};
	const char *at = words ? strsep(&words, "\t") : "";
	struct change *c = calloc(1, sizeof(*c));
	int err = c ? dp_read_number(at, 0, UINT64_MAX, &c->at_ns) : -ENOMEM;

	if (!err && read_settings(&s, words)) {
		change_free(c);
		return;
	}
	if (!err)
		err = read_traces(&c->arrays, &s);
	if (!err) {
		c->link = s.link;
		c->ecn_mark = s.ecn_mark;
		err = change_add(w, c);
	}
	if (err)
		change_free(c);
	answer(err);
}

static void change_route(struct wire *w, char *words)
{
	const char *at = words ? strsep(&words, "\t") : "";
	struct change *c = calloc(1, sizeof(*c));
	uint64_t used = 0;
	int err = c ? dp_read_number(at, 0, UINT64_MAX, &c->at_ns) : -ENOMEM;

	if (!err)
		err = dp_read_number(words ? words : "", 0, 1, &used);
	if (!err) {
		c->of_routes = true;
		c->used = used;
		err = change_add(w, c);
	}
	if (err)
		change_free(c);
	answer(err);
}

static void routes(struct emulator *e, const char *words)
{
	uint64_t seed;
	int err = dp_read_number(words ? words : "", 0, UINT64_MAX, &seed);

	answer(err ? err : layout_reset(e, seed));
}

static void set_early(struct emulator *e, const char *words)
{
	if (!words || dp_read_number(words, 0, DP_DATE_EARLY_NS - 1, &e->early_ns))
		printf("error early: not a number of ns below %u\n", DP_DATE_EARLY_NS);
	else
		printf("ok\n");
}

static void set_buffer(struct emulator *e, char *words)
{
	struct dp_buffer_config c = {};
	const char *node = words ? strsep(&words, "\t") : "";
	uint64_t *numbers[] = { &c.total_bytes, NULL,	      NULL,
				&c.xoff_bytes,	&c.xon_bytes, &c.headroom_bytes };
	int err = 0;

	for (int i = 0; i < 6 && !err; i++) {
		const char *word = words ? strsep(&words, "\t") : "";

		if (i == 1)
			err = dp_read_real(word, &c.alpha);
		else if (i == 2)
			err = dp_read_u32(word, 0, (1u << DP_LINK_CLASSES) - 1, &c.pfc_classes);
		else
			err = dp_read_number(word, 0, UINT64_MAX, numbers[i]);
	}
	answer(err ? err : buffer_open(e, node, &c));
}

static void forget(struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_wires; i++)
		changes_drop(&e->wire[i]);
	answer(0);
}

static void sample(struct emulator *e, char *words)
{
	char *interval = strsep(&words, "\t"), *max_bytes = strsep(&words, "\t");
	const char *prefix = strsep(&words, "\t");
	uint64_t interval_ns, most;
	int err = 0;

	if (!interval)
		sample_end(e);
	else if (!prefix || dp_read_number(interval, 1, UINT64_MAX, &interval_ns) ||
		 dp_read_number(max_bytes, 0, UINT64_MAX, &most))
		err = -EINVAL;
	else
		err = sample_begin(e, prefix, interval_ns, most, words);
	answer(err);
}

/* The commands about a link. */
static const struct {
	const char *name;
	void (*obey)(struct wire *, char *words);
} of_link[] = {
	{ "configure", configure },
	{ "change", change },
	{ "route", change_route },
};

static void obey_of_link(struct emulator *e, const char *name, char *words)
{
	const char *link = words ? strsep(&words, "\t") : "";
	struct wire *w = layout_find(e, link);

	for (size_t i = 0; w && i < sizeof(of_link) / sizeof(of_link[0]); i++) {
		if (strcmp(name, of_link[i].name))
			continue;
		of_link[i].obey(w, words);
		return;
	}
	printf("error %s %s: no such command, or no such link\n", name, link);
}

static void command(void *user, char *line)
{
	struct emulator *e = user;
	char *words = line;
	const char *name = strsep(&words, "\t");

	if (!strcmp(name, "counters"))
		report_counters(e, stdout);
	else if (!strcmp(name, "forget"))
		forget(e);
	else if (!strcmp(name, "routes"))
		routes(e, words);
	else if (!strcmp(name, "buffer"))
		set_buffer(e, words);
	else if (!strcmp(name, "early"))
		set_early(e, words);
	else if (!strcmp(name, "sample"))
		sample(e, words);
	else
		obey_of_link(e, name, words);
	fflush(stdout);
}

void control_read(struct emulator *e)
{
	if (!dp_lines_read(&e->lines, STDIN_FILENO, command, e))
		e->quit = true;
}
