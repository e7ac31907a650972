/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program that never sleeps and has real-time priority leaves to others only the few
 * per cent of its CPU that the kernel keeps for them.  The kernel counts for each thread
 * how long it ran and how long it waited to run: a thread whose sum grows as fast as
 * time has not slept.
 */
#include "lanes/keeper/keeper.h"
#include "posix/clock.h"

#include <linux/types.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	SLOTS = 4096,	 /* threads, by the low bits of their number */
	RESTLESS = 5,	 /* looks in a row at which a thread had not slept */
	AWAKE_PCT = 95,	 /* of the time between two looks, that it wanted a CPU */
	DEMOTED_MAX = 8, /* threads that are named */
};

/* sched_setattr(2), which the C library does not have everywhere. */
struct sched_attributes {
	__u32 size, policy;
	__u64 flags;
	__s32 nice;
	__u32 priority;
	__u64 runtime, deadline, period;
};

static struct {
	pid_t tid;
	unsigned looks;
	uint64_t at_ns, wanted_ns;
} seen[SLOTS];

static char demoted[DEMOTED_MAX][COMM_MAX];
static unsigned n_demoted;

static void demote(pid_t tid, uint64_t slice_ns)
{
	struct sched_attributes attr = {
		.size = sizeof(attr),
		.policy = SCHED_OTHER,
		.runtime = slice_ns,
	};

	if (syscall(SYS_sched_setattr, tid, &attr, 0))
		return;
	if (n_demoted < DEMOTED_MAX)
		thread_name(tid, demoted[n_demoted]);
	n_demoted++;
}

static void look_at(pid_t tid, const struct cpu_time *time, void *slice_ns)
{
	typeof(seen[0]) *s = &seen[tid % SLOTS];
	uint64_t now = dp_now_ns(), wanted = time->ran_ns + time->waited_ns;

	if (s->tid == tid && (wanted - s->wanted_ns) * 100 >= (now - s->at_ns) * AWAKE_PCT)
		s->looks++;
	else
		s->looks = 0;
	s->tid = tid;
	s->at_ns = now;
	s->wanted_ns = wanted;
	if (s->looks >= RESTLESS && sched_getscheduler(tid) == SCHED_RR)
		demote(tid, *(uint64_t *)slice_ns);
}

void watch_look(uint64_t slice_ns)
{
	threads_visit(look_at, &slice_ns);
}

void watch_print(FILE *f)
{
	unsigned shown = n_demoted < DEMOTED_MAX ? n_demoted : DEMOTED_MAX;

	fputc('[', f);
	for (unsigned i = 0; i < shown; i++) {
		fputs(i ? ",\"" : "\"", f);
		for (const char *c = demoted[i]; *c; c++)
			if (*c >= ' ' && *c <= '~' && *c != '"' && *c != '\\')
				fputc(*c, f);
		fputc('"', f);
	}
	fputc(']', f);
}
