/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The states of Gilbert-Elliott loss in continuous time: good and bad periods with exponentially
 * distributed lengths (a two-state Markov chain; Gilbert, 1960; Elliott, 1963).  The length of a
 * period is drawn when the period begins.  So the periods do not depend on how many packets ask for
 * the state.
 *
 * After a silence of DP_GE_TIME_SILENCE mean cycles the chain has forgotten its state (the
 * correlation is less than e^-64), and the state is drawn anew from the long-run shares.  So a
 * packet costs few steps, however long the silence was.
 *
 * All arithmetic is on whole numbers, which give the same results on every machine.  BPF programs
 * include this header.
 */
#ifndef DP_LINK_GE_TIME_H
#define DP_LINK_GE_TIME_H

#include "wire/random.h"

#define DP_GE_TIME_INLINE static inline __attribute__((always_inline))
#define DP_GE_TIME_SILENCE 16
/* Steps for one packet: a bound for the BPF verifier, which walks all of them.  It is not reached in
 * practice: the silence above has 32 periods on average. */
#define DP_GE_TIME_STEPS 128
/* Longest mean time of a state, ns: one hour. */
#define DP_GE_TIME_MEAN_MAX 3600000000000ull
#define DP_GE_TIME_LN2_Q32 2977044472ull

struct dp_ge_time {
	unsigned long long good_ns, bad_ns; /* mean times; 0: not this model */
};

struct dp_ge_time_state {
	unsigned long long rng; /* splitmix64 */
	unsigned long long until_ns;
	unsigned int bad, begun;
};

/* A function and not only the macro: with the macro at each call, clang 14 makes code that the
 * kernel's verifier finds too long to check. */
DP_GE_TIME_INLINE unsigned long long dp_ge_time_draw(unsigned long long *rng)
{
	return dp_random64(rng);
}

/* -log2(draw / 2^64) with 24 bits of fraction, rounded up; draw is not 0. */
DP_GE_TIME_INLINE unsigned long long dp_ge_time_neg_log2(unsigned long long draw)
{
	unsigned long long zeros = 0, x, bit, fraction = 0;

	for (unsigned int width = 32; width; width >>= 1) {
		bit = !(draw >> (64 - width));
		draw <<= bit * width;
		zeros += bit * width;
	}
	/* log2 of x / 2^31, which is in [1, 2): each squaring gives a bit. */
	x = draw >> 32;
	for (unsigned int i = 0; i < 24; i++) {
		x = x * x >> 31;
		bit = x >> 32;
		x >>= bit;
		fraction = fraction << 1 | bit;
	}
	return ((zeros + 1) << 24) - fraction;
}

/* A time that is exponentially distributed with this mean. */
DP_GE_TIME_INLINE unsigned long long dp_ge_time_period(unsigned long long mean_ns,
						       unsigned long long *rng)
{
	unsigned long long e = dp_ge_time_neg_log2(dp_ge_time_draw(rng) | 1) * DP_GE_TIME_LN2_Q32 >>
			       32;

	return (mean_ns >> 24) * e + ((mean_ns & 0xffffff) * e >> 24);
}

DP_GE_TIME_INLINE void dp_ge_time_begin(const struct dp_ge_time *c, struct dp_ge_time_state *s,
					unsigned long long now_ns)
{
	s->begun = 1;
	s->bad = dp_ge_time_draw(&s->rng) % (c->good_ns + c->bad_ns) < c->bad_ns;
	s->until_ns = now_ns + dp_ge_time_period(s->bad ? c->bad_ns : c->good_ns, &s->rng);
}

/* Whether the state is bad now.  If the clock goes back a little, the state at its latest time is
 * returned. */
DP_GE_TIME_INLINE unsigned int
dp_ge_time_is_bad(const struct dp_ge_time *c, struct dp_ge_time_state *s, unsigned long long now_ns)
{
	unsigned long long silence = DP_GE_TIME_SILENCE * (c->good_ns + c->bad_ns);

	if (!s->begun || (now_ns > s->until_ns && now_ns - s->until_ns > silence))
		dp_ge_time_begin(c, s, now_ns);
	for (unsigned int i = 0; i < DP_GE_TIME_STEPS && now_ns >= s->until_ns; i++) {
		s->bad ^= 1; /* no branch: the verifier would walk both ways in each step */
		s->until_ns += dp_ge_time_period(s->bad ? c->bad_ns : c->good_ns, &s->rng);
	}
	return s->bad;
}

#endif
