/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls into the real libibverbs, for real devices.
 *
 * Our library has the real one's name (DT_SONAME libibverbs.so.1).  A program that asks the dynamic
 * loader for this name gets our library, because it is preloaded or because it is first in
 * LD_LIBRARY_PATH.  Providers link to ours too.  We find the real file by its path, and open it
 * when the first call needs it.  So a program that never uses verbs pays nothing.
 */
#ifndef DP_VERBS_FORWARD_H
#define DP_VERBS_FORWARD_H

#include <stdbool.h>

#include "slots.h"

#define DP_PRIVATE __attribute__((visibility("hidden")))

/* Returns the real function of one of our own symbols; NULL: there is none. */
DP_PRIVATE void *dp_forward_get(unsigned slot);
/*
 * For the jumps: returns the address to jump to.  If the real library lacks the symbol, it ends the
 * process, as the dynamic loader would.
 */
DP_PRIVATE void *dp_forward_resolve(unsigned slot);

/*
 * REAL(ibv_alloc_pd)(context) calls the real function.  Use it only for objects of real devices,
 * which exist only if the real library does.
 */
#define REAL(fn) ((__typeof__(&fn))dp_forward_get(DP_SLOT_##fn))

#endif
