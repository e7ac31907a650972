/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How checks are written: a function returns the first invariant that does not hold, in words, or
 * NULL. */
#ifndef DP_ENGINE_CHECK_H
#define DP_ENGINE_CHECK_H

#define MUST(condition, words)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return words;                                                              \
	} while (0)

#endif
