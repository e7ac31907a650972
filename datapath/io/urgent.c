// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/urgent.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	WINDOW_NS = 10000000,
	AWAKE_MAX_NS = 5000000,
	AWAKE_FEW_NS = 2500000,
	SHORT_SLICE_NS = 100000, /* the shortest that the kernel gives */
};

/* struct sched_attr of sched_setattr(2), which the C library has only since glibc 2.41. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

static bool set_short_slice(int32_t nice)
{
	struct attributes attr = {
		.size = sizeof(attr),
		.policy = SCHED_OTHER,
		.nice = nice,
		.runtime_ns = SHORT_SLICE_NS,
	};

	return !syscall(SYS_sched_setattr, 0, &attr, 0);
}

/* The attributes of the calling thread; false: its policy is not SCHED_OTHER. */
static bool is_ordinary(struct attributes *attr)
{
	return !syscall(SYS_sched_getattr, 0, attr, sizeof(*attr), 0) &&
	       attr->policy == SCHED_OTHER;
}

void dp_take_short_slices(void)
{
	struct attributes attr = { .size = sizeof(attr) };

	if (is_ordinary(&attr))
		set_short_slice(attr.nice);
}

/* False: the process may not. */
static bool set_urgent(struct dp_urgent *u, bool urgent)
{
	struct attributes attr = {
		.size = sizeof(attr),
		.policy = SCHED_FIFO,
		.priority = (uint32_t)sched_get_priority_min(SCHED_FIFO),
	};

	if (urgent ? syscall(SYS_sched_setattr, 0, &attr, 0) : !set_short_slice(u->nice))
		return false;
	u->now = urgent;
	return true;
}

void dp_urgent_begin(struct dp_urgent *u, uint64_t now)
{
	struct attributes attr = { .size = sizeof(attr) };

	*u = (struct dp_urgent){ .window_ns = now };
	if (!is_ordinary(&attr))
		return;
	u->nice = attr.nice;
	u->possible = set_urgent(u, true);
	set_urgent(u, false);
}

void dp_urgent_note(struct dp_urgent *u, bool wanted, uint64_t woke_ns, uint64_t now)
{
	if (!u->possible)
		return;
	u->awake_ns += now - (woke_ns > u->window_ns ? woke_ns : u->window_ns);
	if (u->awake_ns >= AWAKE_MAX_NS)
		u->busy = true;
	wanted = wanted && !u->busy;
	if (u->now != wanted)
		u->possible = set_urgent(u, wanted);
	if (now - u->window_ns < WINDOW_NS)
		return;
	if (u->awake_ns < AWAKE_FEW_NS)
		u->busy = false;
	u->window_ns = now;
	u->awake_ns = 0;
}

int dp_own_thread(void)
{
	static __thread int number;

	if (!number)
		number = (int)syscall(SYS_gettid);
	return number;
}
