// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Payload that tells where it belongs: each 8 bytes are splitmix64 of the
 * connection, the message's number and their place in it.
 */
#include <string.h>

#include "generator.h"
#include "wire/random.h"

static uint64_t word_at(uint32_t conn, uint64_t number, uint64_t place)
{
	return dp_mix64(((uint64_t)conn << 40) + number * DP_RANDOM_STEP + place);
}

/* How many bytes of the word at `offset` lie in it and within `bytes`; they go to *out. */
static size_t piece(uint32_t conn, uint64_t number, uint64_t offset, size_t bytes, uint8_t out[8])
{
	uint64_t word = word_at(conn, number, offset / 8);
	size_t skip = offset % 8, n = 8 - skip;

	if (n > bytes)
		n = bytes;
	memcpy(out, (uint8_t *)&word + skip, n);
	return n;
}

void pattern_fill(void *to, uint32_t conn, uint64_t number, uint64_t offset, size_t bytes)
{
	uint8_t *at = to, some[8];

	while (bytes) {
		size_t n = piece(conn, number, offset, bytes, some);

		memcpy(at, some, n);
		at += n;
		offset += n;
		bytes -= n;
	}
}

int64_t pattern_compare(const void *at, uint32_t conn, uint64_t number, uint64_t offset,
			size_t bytes)
{
	const uint8_t *from = at;
	uint8_t some[8];

	while (bytes) {
		size_t n = piece(conn, number, offset, bytes, some);

		for (size_t i = 0; i < n; i++) {
			if (from[i] != some[i])
				return (int64_t)(offset + i);
		}
		from += n;
		offset += n;
		bytes -= n;
	}
	return -1;
}
