/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How payload gets into a program's memory.
 *
 * A program may wait for a message by spinning on its last bytes, and answer by writing to the same
 * bytes, as soon as it sees them change.  memcpy() does not suit such a program: it writes 4, 8, 16
 * and often 32 and 64 bytes with two stores to the same place, of which the second one undoes what
 * the program wrote in between, and longer pieces in any order.  A card does neither.
 */
#ifndef DP_ENGINE_PLACE_H
#define DP_ENGINE_PLACE_H

#include <stddef.h>
#include <stdint.h>

enum { DP_PLACE_ORDERED = 64 };

/*
 * Copies len bytes.  Each of the last DP_PLACE_ORDERED bytes is stored once, in the order of their
 * addresses, after all bytes before them; aligned pieces of 2, 4 and 8 bytes are stored at once.
 */
void dp_place(uint8_t *to, const uint8_t *from, size_t len);

#endif
