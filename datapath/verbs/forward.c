/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "verbs/forward.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern void *dp_forward_slots[DP_SLOT_COUNT] DP_PRIVATE;

/* Providers read it.  The real library sets it from the environment. */
bool verbs_allow_disassociate_destroy;

static const struct {
	const char *name;
	const char *version;
} symbols[DP_SLOT_COUNT] = {
#define X(name, version) { name, version },
	DP_SLOTS(X)
#undef X
};

static const char *const standard_dirs[] = {
#if defined(__x86_64__)
	"/usr/lib/x86_64-linux-gnu",
	"/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
	"/usr/lib/aarch64-linux-gnu",
	"/lib/aarch64-linux-gnu",
#endif
	"/usr/lib64",
	"/lib64",
	"/usr/local/lib",
	"/usr/lib",
	"/lib",
};

static bool is_this_library(const struct stat *st)
{
	struct stat own;
	Dl_info info;

	if (!dladdr(&verbs_allow_disassociate_destroy, &info) || stat(info.dli_fname, &own))
		return false;
	return own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

static void *try_dir(const char *dir, size_t len)
{
	char path[PATH_MAX];
	struct stat st;

	/*
	 * The dynamic loader opens a name with a slash as a file, and compares it with no soname.
	 */
	snprintf(path, sizeof(path), "%.*s/libibverbs.so.1", (int)len, dir);
	if (!len || !strchr(path, '/') || stat(path, &st) || is_this_library(&st))
		return NULL;
	return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

static void *open_real(void)
{
	const char *dirs = getenv("LD_LIBRARY_PATH");
	void *handle = NULL;
	size_t i, len;

	for (; dirs && *dirs && !handle; dirs += len + (dirs[len] != 0)) {
		len = strcspn(dirs, ":;");
		handle = try_dir(dirs, len);
	}
	for (i = 0; i < sizeof(standard_dirs) / sizeof(standard_dirs[0]) && !handle; i++)
		handle = try_dir(standard_dirs[i], strlen(standard_dirs[i]));
	return handle;
}

/*
 * Returns NULL if there is no real library.  If two threads call this at once, both open the same
 * file, which the dynamic loader loads once.
 */
static void *real_library(void)
{
	static void *known; /* NULL: not yet looked for; &known: none found */
	void *handle = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
	bool *flag;

	if (!handle) {
		handle = open_real();
		flag = handle ? dlsym(handle, "verbs_allow_disassociate_destroy") : NULL;
		if (flag)
			verbs_allow_disassociate_destroy = *flag;
		__atomic_store_n(&known, handle ? handle : (void *)&known, __ATOMIC_RELEASE);
	}
	return handle == (void *)&known ? NULL : handle;
}

static void *find(unsigned slot)
{
	void *handle = real_library();

	return handle ? dlvsym(handle, symbols[slot].name, symbols[slot].version) : NULL;
}

void *dp_forward_get(unsigned slot)
{
	void *fn = __atomic_load_n(&dp_forward_slots[slot], __ATOMIC_RELAXED);

	if (!fn) {
		fn = find(slot);
		__atomic_store_n(&dp_forward_slots[slot], fn, __ATOMIC_RELAXED);
	}
	return fn;
}

void *dp_forward_resolve(unsigned slot)
{
	int saved = errno;
	void *fn = find(slot);

	if (!fn) {
		fprintf(stderr, "libdpverbs: %s@%s is not in the system's libibverbs.so.1%s\n",
			symbols[slot].name, symbols[slot].version,
			real_library() ? "" : ", which is not installed");
		_exit(127);
	}
	__atomic_store_n(&dp_forward_slots[slot], fn, __ATOMIC_RELAXED);
	errno = saved;
	return fn;
}
