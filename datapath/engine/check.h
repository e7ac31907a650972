/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How an invariant is written: a function of checks returns the words of the first that does
 * not hold, or NULL. */
#ifndef DP_ENGINE_CHECK_H
#define DP_ENGINE_CHECK_H

#define MUST(condition, words)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return words;                                                              \
	} while (0)

#endif
