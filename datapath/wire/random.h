/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * splitmix64 (Steele, Lea and Flood, OOPSLA 2014): all random numbers of the C
 * programs, and hashes of flows.  No other header: BPF programs include this one.
 */
#ifndef DP_WIRE_RANDOM_H
#define DP_WIRE_RANDOM_H

#define DP_RANDOM_INLINE static inline __attribute__((always_inline))
#define DP_RANDOM_STEP 0x9e3779b97f4a7c15ull

/* The finaliser: each bit of z changes half of the bits of the result. */
DP_RANDOM_INLINE unsigned long long dp_mix64(unsigned long long z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* The next number of a stream whose seed `*state` was. */
#define dp_random64(state) dp_mix64(*(state) += DP_RANDOM_STEP)
/* The upper half of it, for comparison with probabilities in units of 2^-32. */
#define dp_random32(state) ((unsigned int)(dp_random64(state) >> 32))

#endif
