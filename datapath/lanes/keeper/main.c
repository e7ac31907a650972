/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dp-cpu-keeper [--awake | --loops] [--watch SLICE_NS]
 *
 * Runs beside the programs of a live run, in their PID namespace, while they are
 * measured:
 *
 * - counts how long they wait for a CPU (waits.c);
 * - with --awake keeps the CPUs from going to sleep: idle ones poll (poll.c); where they
 *   cannot, or with --loops, a thread on each is never idle (loops.c);
 * - with --watch takes real-time priority from a program that never sleeps, which
 *   goes on at ordinary priority with slices of SLICE_NS (watch.c).
 *
 * Prints `{"awake": CPUS, "polling": BOOL, "trouble": [...]}` at first.  It ends with its
 * standard input, and prints `{"ran_ns": ..., "waited_ns": ..., "demoted": [...]}` then,
 * without the keys that could not be counted.
 */
#include "lanes/keeper/keeper.h"
#include "posix/clock.h"
#include "posix/number.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { WHY_ROOM = 200 };

struct settings {
	bool awake, loops;
	uint64_t slice_ns; /* 0: no program is watched */
};

static int parse(int argc, char **argv, struct settings *s)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--awake")) {
			s->awake = true;
		} else if (!strcmp(argv[i], "--loops")) {
			s->awake = s->loops = true;
		} else if (!strcmp(argv[i], "--watch") && i + 1 < argc) {
			if (dp_read_number(argv[++i], 1, UINT64_MAX, &s->slice_ns))
				return -EINVAL;
		} else {
			return -EINVAL;
		}
	}
	return 0;
}

/* The watching thread runs in turn with the threads that it watches.  It has the priority
 * from the start: loops_begin() leaves the ordinary threads of this session next to no
 * CPU when others want it. */
static bool take_priority(void)
{
	const struct sched_param param = { .sched_priority = 1 };

	return !sched_setscheduler(0, SCHED_RR, &param);
}

static void wait_for_the_end(const struct settings *s)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t next = dp_now_ns() + WATCH_NS, now;
	int timeout = -1;
	char word[64];

	for (;;) {
		if (s->slice_ns) {
			now = dp_now_ns();
			if (now >= next) {
				watch_look(s->slice_ns);
				next = now + WATCH_NS;
			}
			timeout = (int)((next - now) / 1000000) + 1;
		}
		if (poll(&in, 1, timeout) > 0 && read(STDIN_FILENO, word, sizeof(word)) <= 0)
			return;
	}
}

/* Returns the number of CPUs, or -errno. */
static int keep_awake(const struct settings *s, bool *polling)
{
	int cpus = s->loops ? -ENOTSUP : poll_begin();

	*polling = cpus > 0;
	return *polling ? cpus : loops_begin();
}

static void say_ready(int awake, bool polling, const char *why_not_awake,
		      const char *why_not_counted)
{
	const char *comma = *why_not_awake && *why_not_counted ? ", " : "";

	printf("{\"awake\": %d, \"polling\": %s, \"trouble\": [%s%s%s]}\n", awake,
	       polling ? "true" : "false", why_not_awake, comma, why_not_counted);
	fflush(stdout);
}

static void say_counted(bool counted)
{
	struct cpu_time total;

	printf("{");
	if (counted) {
		total = waits_total();
		printf("\"ran_ns\": %llu, \"waited_ns\": %llu, ", (unsigned long long)total.ran_ns,
		       (unsigned long long)total.waited_ns);
	}
	printf("\"demoted\": ");
	watch_print(stdout);
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char why[WHY_ROOM], not_awake[WHY_ROOM] = "", not_counted[WHY_ROOM + 2] = "";
	struct settings settings = { 0 };
	bool counted, polling = false;
	int awake;

	if (parse(argc, argv, &settings)) {
		fprintf(stderr, "usage: dp-cpu-keeper [--awake | --loops] [--watch SLICE_NS]\n");
		return 2;
	}
	take_priority();
	awake = settings.awake ? keep_awake(&settings, &polling) : 0;
	if (awake < 0)
		snprintf(not_awake, sizeof(not_awake), "\"CPUs are not kept awake: %s\"",
			 strerror(-awake));
	counted = !waits_begin(why, sizeof(why));
	if (!counted)
		snprintf(not_counted, sizeof(not_counted), "\"%s\"", why);
	say_ready(awake > 0 ? awake : 0, polling, not_awake, not_counted);
	wait_for_the_end(&settings);
	say_counted(counted);
	poll_end();
	loops_end();
	if (counted)
		waits_end();
	return 0;
}
