// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Whose code runs in the program?  Root's and its own user's alone: nobody else
 * may own the file or a folder on the way to it, or be able to write there.  Who
 * has become root by sudo is such a user as well.  A sticky folder
 * such as /tmp may be written by all, since only its owner takes an entry away, and the
 * entry is looked at as well.
 */
#include "io/trust.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "posix/number.h"

static bool is_trusted(uid_t user)
{
	const char *before = geteuid() ? NULL : secure_getenv("SUDO_UID");
	uint32_t sudoer;

	if (!user || user == geteuid())
		return true;
	return before && !dp_read_u32(before, 0, UINT32_MAX, &sudoer) && user == sudoer;
}

/* A user's own group, by the custom that gives both one number, is the user. */
static bool others_write(const struct stat *st)
{
	if (S_ISDIR(st->st_mode) && st->st_mode & S_ISVTX)
		return false;
	return st->st_mode & S_IWOTH || (st->st_mode & S_IWGRP && st->st_gid != st->st_uid);
}

static int check(const char *path, char *error, size_t error_len)
{
	struct stat st;

	if (lstat(path, &st)) {
		snprintf(error, error_len, "%s: %m", path);
		return -errno;
	}
	if (!is_trusted(st.st_uid)) {
		snprintf(error, error_len, "%s belongs to user %u, not to root or user %u", path,
			 st.st_uid, geteuid());
		return -EPERM;
	}
	if (others_write(&st)) {
		snprintf(error, error_len, "others can write to %s: chmod go-w %s", path, path);
		return -EPERM;
	}
	return 0;
}

int dp_trust_check(const char *path, char *error, size_t error_len)
{
	char part[PATH_MAX];
	const char *end = path;
	int err;

	err = check("/", error, error_len);
	while (!err && *end) {
		end += 1 + strcspn(end + 1, "/");
		if (end - path >= (int)sizeof(part))
			return -ENAMETOOLONG;
		snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
		err = check(part, error, error_len);
	}
	return err;
}

static int complain(int err, char *error, size_t error_len, const char *path, const char *what)
{
	snprintf(error, error_len, "cc=%s %s", path, what);
	return err;
}

int dp_trust_algorithm(void *library, const char *path, const struct dp_cc_algo **out, char *error,
		       size_t error_len)
{
	const struct dp_cc_algo *algo = dlsym(library, "dp_cc_algo");

	if (!algo)
		return complain(-ENOEXEC, error, error_len, path,
				"is not a compiled congestion-control algorithm");
	if (algo->abi != DP_CC_ABI)
		return complain(-EPROTONOSUPPORT, error, error_len, path,
				"is made for another version: compile it again");
	if (!algo->name || !algo->initial || !algo->on_ack || !algo->on_loss || !algo->on_timeout ||
	    algo->flow_bytes < sizeof(struct dp_cc_flow) || algo->flow_bytes > DP_CC_FLOW_BYTES_MAX)
		return complain(-ENOEXEC, error, error_len, path,
				"is not a complete congestion-control algorithm");
	*out = algo;
	return 0;
}
