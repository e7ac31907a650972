/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lanes/keeper/keeper.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "xdp/waits.h"
/* The generated header needs these headers. */
#include "waits.skel.h"

static struct waits *skel;
static struct cpu_time before;

static void add(pid_t tid, const struct cpu_time *time, void *arg)
{
	struct cpu_time *sum = arg;

	(void)tid;
	sum->ran_ns += time->ran_ns;
	sum->waited_ns += time->waited_ns;
}

/* Of living and of ended threads.  One that ends meanwhile is missed, not counted
 * twice. */
static struct cpu_time sum(void)
{
	struct cpu_time sum = {
		.ran_ns = __atomic_load_n(&skel->bss->waits.ran_ns, __ATOMIC_RELAXED),
		.waited_ns = __atomic_load_n(&skel->bss->waits.waited_ns, __ATOMIC_RELAXED),
	};

	threads_visit(add, &sum);
	return sum;
}

static int silent(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level, (void)format, (void)arguments;
	return 0;
}

int waits_begin(char *why, size_t room)
{
	struct stat ns;
	int err;

	libbpf_set_print(silent);
	skel = stat("/proc/self/ns/pid", &ns) ? NULL : waits__open();
	if (!skel) {
		err = -errno;
		snprintf(why, room, "the PID namespace cannot be told: %s", strerror(-err));
		return err;
	}
	skel->rodata->waits_dev = ns.st_dev;
	skel->rodata->waits_ino = ns.st_ino;
	err = waits__load(skel);
	if (!err)
		err = waits__attach(skel);
	if (err) {
		snprintf(why, room, "the kernel does not take the BPF program that counts it: %s",
			 strerror(-err));
		waits_end();
		return err;
	}
	before = sum();
	return 0;
}

struct cpu_time waits_total(void)
{
	struct cpu_time now = sum();

	now.ran_ns -= before.ran_ns;
	now.waited_ns -= before.waited_ns;
	return now;
}

void waits_end(void)
{
	waits__destroy(skel);
	skel = NULL;
}
