/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "verbs/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "posix/number.h"
#include "wire/ext.h"

/* Its assertions need the headers above. */
#include "device_keys.h"

/* One word of the text, from `start` up to and without `end`. */
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
	char text[16];

	return copy(text, sizeof(text) - 1, s) && !dp_read_u32(text, 0, UINT32_MAX, out);
}

enum key_kind {
	DP_KEY_SWITCH, /* bool: off or on */
	DP_KEY_NUMBER, /* uint32_t */
	DP_KEY_PATH,   /* char[DP_PATH_MAX + 1] */
};

/* The rows come from device_keys.py, which describes each key. */
static const struct key {
	const char *name, *expected;
	size_t member; /* offset in struct dp_device_config */
	enum key_kind kind;
	const char *off, *on;
	uint32_t low, high, multiple;
	bool power_of_two;
} keys[] = { DP_DEVICE_KEYS };

static bool set_number(const struct key *key, uint32_t *member, struct span v)
{
	return number(v, member) && *member >= key->low && *member <= key->high &&
	       *member % key->multiple == 0 && !(key->power_of_two && *member & (*member - 1));
}

static bool set_switch(const struct key *key, bool *member, struct span v)
{
	*member = is(v, key->on);
	return *member || is(v, key->off);
}

static bool set_key(const struct key *key, struct dp_device_config *c, struct span v)
{
	void *member = (char *)c + key->member;

	switch (key->kind) {
	case DP_KEY_SWITCH:
		return set_switch(key, member, v);
	case DP_KEY_NUMBER:
		return set_number(key, member, v);
	default:
		return v.len && v.start[0] == '/' && copy(member, DP_PATH_MAX, v);
	}
}

static int set_option(struct dp_device_config *c, struct span opt, char *error, size_t error_len)
{
	struct span key = until(opt.start, opt.start + opt.len, '='), value;
	size_t i;

	if (key.len == opt.len) {
		snprintf(error, error_len, "%s: '%.*s' is not key=value", c->name, (int)opt.len,
			 opt.start);
		return -EINVAL;
	}
	value = (struct span){ key.start + key.len + 1, opt.len - key.len - 1 };
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!is(key, keys[i].name))
			continue;
		if (set_key(&keys[i], c, value))
			return 0;
		snprintf(error, error_len, "%s: %s='%.*s' is not %s", c->name, keys[i].name,
			 (int)value.len, value.start, keys[i].expected);
		return -EINVAL;
	}
	snprintf(error, error_len, "%s: unknown key '%.*s' (known: " DP_DEVICE_KEY_NAMES ")",
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
