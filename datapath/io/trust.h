/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Compiled code that a program loads: whose files it may come from, and what it must have. */
#ifndef DP_IO_TRUST_H
#define DP_IO_TRUST_H

#include <stddef.h>

#include "engine/cc.h"

/* 0 when nobody but root and this process's user can change the file at an absolute path
 * without links; otherwise -errno, and `error` says who can. */
int dp_trust_check(const char *path, char *error, size_t error_len);

/* The algorithm of a library from dlopen(), `path` being its file's name for the user.  0, or
 * -errno with one line in `error`. */
int dp_trust_algorithm(void *library, const char *path, const struct dp_cc_algo **out, char *error,
		       size_t error_len);

#endif
