// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/place.h"

#include <string.h>

typedef uint16_t __attribute__((may_alias)) half_word;
typedef uint32_t __attribute__((may_alias)) word;
typedef uint64_t __attribute__((may_alias)) double_word;

/* A release store comes after all stores before it, those of memcpy() too, on any CPU; the compiler
 * neither repeats nor merges it. */
static void store_double_word(uint8_t *to, const uint8_t *from)
{
	double_word value;

	memcpy(&value, from, sizeof(value));
	__atomic_store_n((double_word *)to, value, __ATOMIC_RELEASE);
}

/* Stores the largest aligned piece of less than a double word, of `len` bytes at most.  Returns its
 * bytes. */
static size_t store_piece(uint8_t *to, const uint8_t *from, size_t len)
{
	half_word half;
	word whole;

	if (len >= sizeof(whole) && !((uintptr_t)to % sizeof(whole))) {
		memcpy(&whole, from, sizeof(whole));
		__atomic_store_n((word *)to, whole, __ATOMIC_RELEASE);
		return sizeof(whole);
	}
	if (len >= sizeof(half) && !((uintptr_t)to % sizeof(half))) {
		memcpy(&half, from, sizeof(half));
		__atomic_store_n((half_word *)to, half, __ATOMIC_RELEASE);
		return sizeof(half);
	}
	__atomic_store_n(to, *from, __ATOMIC_RELEASE);
	return 1;
}

static void in_order(uint8_t *to, const uint8_t *from, size_t len)
{
	size_t n;

	for (; len && (uintptr_t)to % sizeof(double_word); to += n, from += n, len -= n)
		n = store_piece(to, from, len);
	n = sizeof(double_word);
	for (; len >= n; to += n, from += n, len -= n)
		store_double_word(to, from);
	for (; len; to += n, from += n, len -= n)
		n = store_piece(to, from, len);
}

void dp_place(uint8_t *to, const uint8_t *from, size_t len)
{
	size_t bulk = len > DP_PLACE_ORDERED ? len - DP_PLACE_ORDERED : 0;

	if (bulk)
		memcpy(to, from, bulk);
	in_order(to + bulk, from + bulk, len - bulk);
}
