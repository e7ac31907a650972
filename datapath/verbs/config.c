/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "verbs/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/ext.h"

/* One word of the text: from start up to, not including, end. */
struct span {
	const char *start;
	size_t len;
};

static struct span until(const char *start, const char *end, char stop)
{
	const char *at = memchr(start, stop, (size_t)(end - start));

	return (struct span){ start, (size_t)((at ? at : end) - start) };
}

static bool is(struct span s, const char *word)
{
	return s.len == strlen(word) && !memcmp(s.start, word, s.len);
}

static bool copy(char *to, size_t max, struct span s)
{
	if (s.len > max)
		return false;
	memcpy(to, s.start, s.len);
	to[s.len] = 0;
	return true;
}

static bool number(struct span s, uint32_t *out)
{
	char text[16], *end;
	unsigned long v;

	if (!s.len || !isdigit((unsigned char)s.start[0]) || !copy(text, sizeof(text) - 1, s))
		return false;
	errno = 0;
	v = strtoul(text, &end, 10);
	if (*end || errno || v > UINT32_MAX)
		return false;
	*out = (uint32_t)v;
	return true;
}

static const char *set_mode(struct dp_device_config *c, struct span v)
{
	c->standard = is(v, "standard");
	return c->standard || is(v, "auto") ? NULL : "auto or standard";
}

static const char *set_cc(struct dp_device_config *c, struct span v)
{
	return v.len && v.start[0] == '/' && copy(c->cc, DP_PATH_MAX, v) ?
		       NULL :
		       "the absolute path of a compiled algorithm";
}

static const char *set_ecn(struct dp_device_config *c, struct span v)
{
	c->ecn = is(v, "1");
	return c->ecn || is(v, "0") ? NULL : "0 or 1";
}

static const char *set_telemetry(struct dp_device_config *c, struct span v)
{
	c->telemetry = is(v, "1");
	return c->telemetry || is(v, "0") ? NULL : "0 or 1";
}

static const char *set_paths(struct dp_device_config *c, struct span v)
{
	return number(v, &c->paths) && c->paths >= 1 && c->paths <= DP_PATHS_MAX ? NULL : "1 to 64";
}

static const char *set_min_rto(struct dp_device_config *c, struct span v)
{
	return number(v, &c->min_rto_us) && c->min_rto_us > 0 ? NULL : "microseconds, 1 or more";
}

static const char *set_window(struct dp_device_config *c, struct span v)
{
	return number(v, &c->window) && c->window >= 64 && c->window <= 2048 &&
			       !(c->window & (c->window - 1)) ?
		       NULL :
		       "a power of two, 64 to 2048 PSNs";
}

static const char *set_path_mtu(struct dp_device_config *c, struct span v)
{
	return number(v, &c->path_mtu) && c->path_mtu >= 256 && c->path_mtu <= 4096 &&
			       !(c->path_mtu & (c->path_mtu - 1)) ?
		       NULL :
		       "256, 512, 1024, 2048 or 4096 bytes";
}

static const char *set_segment(struct dp_device_config *c, struct span v)
{
	return number(v, &c->segment) && c->segment >= 256 && c->segment <= DP_SEGMENT_MAX &&
			       !(c->segment & 3) ?
		       NULL :
		       "a multiple of 4, 256 to 8960 bytes";
}

/* A setter returns NULL, or in words what the value should be. */
static const struct {
	const char *key;
	const char *(*set)(struct dp_device_config *, struct span value);
} keys[] = {
	{ "mode", set_mode },	    { "cc", set_cc },
	{ "ecn", set_ecn },	    { "min_rto_us", set_min_rto },
	{ "window", set_window },   { "path_mtu", set_path_mtu },
	{ "segment", set_segment }, { "telemetry", set_telemetry },
	{ "paths", set_paths },
};

static int set_option(struct dp_device_config *c, struct span opt, char *error, size_t error_len)
{
	struct span key = until(opt.start, opt.start + opt.len, '='), value;
	const char *expected;
	size_t i;

	if (key.len == opt.len) {
		snprintf(error, error_len, "%s: '%.*s' is not key=value", c->name, (int)opt.len,
			 opt.start);
		return -EINVAL;
	}
	value = (struct span){ key.start + key.len + 1, opt.len - key.len - 1 };
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!is(key, keys[i].key))
			continue;
		expected = keys[i].set(c, value);
		if (!expected)
			return 0;
		snprintf(error, error_len, "%s: %s='%.*s' is not %s", c->name, keys[i].key,
			 (int)value.len, value.start, expected);
		return -EINVAL;
	}
	snprintf(
		error, error_len,
		"%s: unknown key '%.*s' (known: mode, cc, ecn, min_rto_us, window, path_mtu, segment, telemetry, paths)",
		c->name, (int)key.len, key.start);
	return -EINVAL;
}

static bool set_name(struct dp_device_config *c, struct span name)
{
	size_t i;

	for (i = 0; i < name.len; i++)
		if (!isalnum((unsigned char)name.start[i]) && !strchr("_.-", name.start[i]))
			return false;
	return name.len && copy(c->name, DP_NAME_MAX, name);
}

static int parse(const char *at, const char *end, struct dp_device_config *c, char *error,
		 size_t error_len)
{
	struct span name = until(at, end, '='), part;

	if (at + name.len == end) {
		snprintf(error, error_len, "'%.*s' is not NAME=PORT[;key=value...]", (int)name.len,
			 at);
		return -EINVAL;
	}
	if (!set_name(c, name)) {
		snprintf(error, error_len,
			 "'%.*s' is not a device name (letters, digits, '_.-', at most %d)",
			 (int)name.len, at, DP_NAME_MAX);
		return -EINVAL;
	}
	part = until(at + name.len + 1, end, ';');
	if (!part.len || !copy(c->spec, DP_SPEC_MAX, part)) {
		snprintf(error, error_len, "%s: '%.*s' is not a port, such as afxdp:eth1", c->name,
			 (int)part.len, part.start);
		return -EINVAL;
	}
	while (part.start + part.len < end) {
		part = until(part.start + part.len + 1, end, ';');
		if (part.len && set_option(c, part, error, error_len))
			return -EINVAL;
	}
	return 0;
}

int dp_config_next(const char **text, struct dp_device_config *out, char *error, size_t error_len)
{
	const char *at = *text, *end;

	at += strspn(at, " \t\n");
	end = at + strcspn(at, " \t\n");
	*text = end;
	if (at == end)
		return 0;
	memset(out, 0, sizeof(*out));
	return parse(at, end, out, error, error_len) ? -EINVAL : 1;
}
