/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A timer wheel with numbered timers, for tests/engine/test_wheel.py. */
#include "engine/wheel.h"

#include <stdlib.h>

struct X_wheel {
	struct dp_wheel wheel;
	struct dp_timer timers[];
};

struct X_wheel *X_wheel_new(uint64_t now_ns, unsigned timers);
void X_wheel_free(struct X_wheel *w);
void X_wheel_arm(struct X_wheel *w, unsigned timer, uint64_t expires_ns);
void X_wheel_cancel(struct X_wheel *w, unsigned timer);
int X_wheel_armed(const struct X_wheel *w, unsigned timer);
uint64_t X_wheel_next(const struct X_wheel *w);
int X_wheel_pop(struct X_wheel *w, uint64_t now_ns);

struct X_wheel *X_wheel_new(uint64_t now_ns, unsigned timers)
{
	struct X_wheel *w = calloc(1, sizeof(*w) + timers * sizeof(w->timers[0]));

	if (w)
		dp_wheel_init(&w->wheel, now_ns);
	return w;
}

void X_wheel_free(struct X_wheel *w)
{
	free(w);
}

void X_wheel_arm(struct X_wheel *w, unsigned timer, uint64_t expires_ns)
{
	dp_wheel_arm(&w->wheel, &w->timers[timer], expires_ns);
}

void X_wheel_cancel(struct X_wheel *w, unsigned timer)
{
	dp_wheel_cancel(&w->wheel, &w->timers[timer]);
}

int X_wheel_armed(const struct X_wheel *w, unsigned timer)
{
	return dp_timer_armed(&w->timers[timer]);
}

uint64_t X_wheel_next(const struct X_wheel *w)
{
	return dp_wheel_next(&w->wheel);
}

/* Number of a timer that has expired, -1 when there is none. */
int X_wheel_pop(struct X_wheel *w, uint64_t now_ns)
{
	struct dp_timer *t = dp_wheel_pop(&w->wheel, now_ns);

	return t ? (int)(t - w->timers) : -1;
}
