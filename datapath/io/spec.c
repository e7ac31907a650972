// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/spec.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/addr.h"
#include "posix/number.h"

int dp_fail(struct dp_error *error, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (error->len)
		vsnprintf(error->text, error->len, format, args);
	va_end(args);
	if (err == -EMFILE && error->len)
		strncat(error->text, ": raise ulimit -n", error->len - strlen(error->text) - 1);
	return err;
}

int dp_check_descriptors(uint32_t n, struct dp_error *error)
{
	int fds[DP_DESCRIPTORS_MAX], err = 0;
	uint32_t made = 0;

	assert(n <= DP_DESCRIPTORS_MAX);
	while (!err && made < n) {
		fds[made] = eventfd(0, EFD_CLOEXEC);
		err = fds[made] < 0 ? -errno : 0;
		made += !err;
	}
	while (made)
		close(fds[--made]);
	return err ? dp_fail(error, err, "opening a port takes %u more descriptors: %s", n,
			     strerror(-err)) :
		     0;
}

int dp_spec_parse(const char *spec, struct dp_spec *out, struct dp_error *error)
{
	char *s, *next;

	memset(out, 0, sizeof(*out));
	if (strlen(spec) >= sizeof(out->text))
		return dp_fail(error, -EINVAL, "port specification is longer than %d bytes",
			       DP_SPEC_TEXT - 1);
	strcpy(out->text, spec);
	out->kind = out->text;
	s = strchr(out->text, ':');
	if (!s || s == out->text || !s[1] || s[1] == ',')
		return dp_fail(error, -EINVAL,
			       "port '%s': expected KIND:WHERE[,key=value...], such as "
			       "afxdp:eth1 or udp:10.0.0.1",
			       spec);
	*s++ = 0;
	out->where = s;
	for (s = strchr(s, ','); s; s = next) {
		char *value;

		*s++ = 0;
		next = strchr(s, ',');
		if (next)
			*next = 0;
		value = strchr(s, '=');
		if (!value || value == s || !value[1])
			return dp_fail(error, -EINVAL, "port '%s': '%s' is not key=value", spec, s);
		if (out->n_options == DP_SPEC_OPTIONS_MAX)
			return dp_fail(error, -EINVAL, "port '%s': too many options", spec);
		*value = 0;
		out->option[out->n_options].key = s;
		out->option[out->n_options++].value = value + 1;
	}
	return 0;
}

static int apply_number(const struct dp_option *o, const char *value, void *to,
			struct dp_error *error)
{
	const char *word = "", * or = "";

	for (uint32_t i = 0; o->choices && o->choices[i]; i++) {
		if (!strcmp(o->choices[i], value)) {
			*(uint32_t *)to = o->max + 1 + i;
			return 0;
		}
		or = " or ";
		word = o->choices[i];
	}
	if (dp_read_u32(value, o->min, o->max, to))
		return dp_fail(error, -EINVAL, "%s=%s: expected a number from %u to %u%s%s", o->key,
			       value, o->min, o->max, or, word);
	return 0;
}

static int apply_choice(const struct dp_option *o, const char *value, void *to,
			struct dp_error *error)
{
	char known[DP_SPEC_TEXT] = "";

	for (uint32_t i = 0; o->choices[i]; i++) {
		if (!strcmp(o->choices[i], value)) {
			*(uint32_t *)to = i;
			return 0;
		}
		if (i)
			strncat(known, ", ", sizeof(known) - strlen(known) - 1);
		strncat(known, o->choices[i], sizeof(known) - strlen(known) - 1);
	}
	return dp_fail(error, -EINVAL, "%s=%s: expected one of %s", o->key, value, known);
}

static int apply_one(const struct dp_option *o, const char *value, void *base,
		     struct dp_error *error)
{
	void *to = (char *)base + o->offset;

	switch (o->type) {
	case DP_OPT_NUMBER:
		return apply_number(o, value, to, error);
	case DP_OPT_CHOICE:
		return apply_choice(o, value, to, error);
	case DP_OPT_ADDR:
		if (dp_addr_parse(value, to))
			return dp_fail(error, -EINVAL, "%s=%s: not an IP address", o->key, value);
		return 0;
	}
	return -EINVAL;
}

int dp_spec_apply(const struct dp_spec *spec, const struct dp_option *table, int n, void *base,
		  struct dp_error *error)
{
	char known[DP_SPEC_TEXT] = "";

	for (int k = 0; k < n; k++) {
		if (k)
			strncat(known, ", ", sizeof(known) - strlen(known) - 1);
		strncat(known, table[k].key, sizeof(known) - strlen(known) - 1);
	}
	for (int i = 0; i < spec->n_options; i++) {
		int k = 0, err;

		while (k < n && strcmp(table[k].key, spec->option[i].key))
			k++;
		if (k == n)
			return dp_fail(error, -EINVAL, "%s port has no option '%s' (it has: %s)",
				       spec->kind, spec->option[i].key, known);
		err = apply_one(&table[k], spec->option[i].value, base, error);
		if (err)
			return err;
	}
	return 0;
}
