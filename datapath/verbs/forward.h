/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way to the real libibverbs, for what concerns real devices.
 *
 * We carry its name (DT_SONAME libibverbs.so.1), so whoever asks the loader
 * for it gets us, preloaded or found first on LD_LIBRARY_PATH, and providers
 * link to us.  The real file is found by its path and opened when the first
 * call needs it: a program that never uses verbs pays nothing.
 */
#ifndef DP_VERBS_FORWARD_H
#define DP_VERBS_FORWARD_H

#include <stdbool.h>

#include "slots.h"

#define DP_PRIVATE __attribute__((visibility("hidden")))

/* The real function behind one of our own symbols; NULL: there is none. */
DP_PRIVATE void *dp_forward_get(unsigned slot);
/* For the jumps: the address to go to; ends the process, as the loader would,
 * when the real library lacks the symbol. */
DP_PRIVATE void *dp_forward_resolve(unsigned slot);

/* REAL(ibv_alloc_pd)(context): call the real function.  Only for objects of
 * real devices, which exist only when the real library does. */
#define REAL(fn) ((__typeof__(&fn))dp_forward_get(DP_SLOT_##fn))

#endif
