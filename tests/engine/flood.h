/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef DP_TESTS_FLOOD_H
#define DP_TESTS_FLOOD_H

#include "engine/engine.h"

/* Gives an engine without payload `count` copies of a packet, which it overwrites, with
 * PSNs that go up by one.  0, or what dp_engine_rx() said to the first that it refused. */
int X_give_many(struct dp_engine *e, const struct dp_packet *first, uint32_t count, uint64_t now);

#endif
