/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Port specifications "KIND:WHERE[,key=value...]", and error messages.
 */
#ifndef DP_IO_SPEC_H
#define DP_IO_SPEC_H

#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h"

/* A buffer for the one line that the user reads. */
struct dp_error {
	char *text;
	size_t len;
};

/* Writes the line and returns `err` (a -errno), so that callers can write: return dp_fail(...).  For
 * -EMFILE the line says what to do. */
int dp_fail(struct dp_error *, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

enum { DP_DESCRIPTORS_MAX = 160 };

/* Whether `n` more descriptors can be opened.  To be asked before libbpf and libxdp open some: these
 * report other errors when one cannot be opened, and what failed so is not tried again later. */
int dp_check_descriptors(uint32_t n, struct dp_error *);

enum { DP_SPEC_OPTIONS_MAX = 16, DP_SPEC_TEXT = 256 };

struct dp_spec {
	char text[DP_SPEC_TEXT]; /* the text that the strings below point into */
	const char *kind;
	const char *where;
	struct {
		const char *key;
		const char *value;
	} option[DP_SPEC_OPTIONS_MAX];
	int n_options;
};

int dp_spec_parse(const char *spec, struct dp_spec *out, struct dp_error *);

/* What a key takes: a number in [min, max], one of `choices` (its index), or
 * an IP address.  The result goes to base + offset: uint32_t or dp_addr.  `choices` of a number are
 * words in its place: max + 1 and so on. */
enum dp_option_type { DP_OPT_NUMBER, DP_OPT_CHOICE, DP_OPT_ADDR };

struct dp_option {
	const char *key;
	enum dp_option_type type;
	size_t offset;
	uint32_t min, max;
	const char *const *choices; /* NULL-terminated */
};

/* Sets the fields that the specification names; other fields stay as they are. */
int dp_spec_apply(const struct dp_spec *, const struct dp_option *table, int n, void *base,
		  struct dp_error *);

#endif
