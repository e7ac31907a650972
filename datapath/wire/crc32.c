// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "wire/crc32.h"

#include <isa-l/crc.h>
#include <string.h>

#include "wire/headers.h"

enum {
	SLICES = 16,
	TRIAL_BYTES = 1024,
	TRIALS = 4,
};

typedef uint32_t (*crc32_fn)(uint32_t crc, const uint8_t *data, size_t len);

/* tables[k][b]: what byte b does to the register when k more bytes follow it. */
static uint32_t tables[SLICES][256];

static void make_tables(void)
{
	uint32_t crc;
	int b, k;

	for (b = 0; b < 256; b++) {
		crc = (uint32_t)b;
		for (k = 0; k < 8; k++)
			crc = crc >> 1 ^ (0xedb88320 & -(crc & 1));
		tables[0][b] = crc;
	}
	for (k = 1; k < SLICES; k++)
		for (b = 0; b < 256; b++)
			tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 0xff];
}

/* Sixteen bytes at a time (Kounavis and Berry, ISCC 2005). */
static uint32_t by_tables(uint32_t crc, const uint8_t *p, size_t len)
{
	uint32_t next;
	int k;

	crc = ~crc;
	for (; len >= SLICES; len -= SLICES, p += SLICES) {
		next = tables[15][p[0] ^ (crc & 0xff)] ^ tables[14][p[1] ^ (crc >> 8 & 0xff)] ^
		       tables[13][p[2] ^ (crc >> 16 & 0xff)] ^ tables[12][p[3] ^ crc >> 24];
		for (k = 4; k < SLICES; k++)
			next ^= tables[SLICES - 1 - k][p[k]];
		crc = next;
	}
	while (len--)
		crc = crc >> 8 ^ tables[0][(crc ^ *p++) & 0xff];
	return ~crc;
}

static uint32_t by_isal(uint32_t crc, const uint8_t *data, size_t len)
{
	return crc32_gzip_refl(crc, data, len);
}

static crc32_fn chosen = by_isal;

uint32_t dp_crc32(uint32_t crc, const uint8_t *data, size_t len)
{
	return chosen(crc, data, len);
}

/* The shortest of a few trials: what disturbs one makes it longer. */
static uint64_t trial_ns(crc32_fn fn, uint64_t (*now_ns)(void))
{
	static uint8_t data[TRIAL_BYTES];
	uint64_t best = UINT64_MAX, start, took;
	int i;

	for (i = 0; i < TRIALS; i++) {
		start = now_ns();
		data[i] = (uint8_t)fn(0, data, sizeof(data));
		took = now_ns() - start;
		if (took < best)
			best = took;
	}
	return best;
}

const char *dp_crc32_choose(uint64_t (*now_ns)(void))
{
	make_tables();
	chosen = trial_ns(by_tables, now_ns) < trial_ns(by_isal, now_ns) ? by_tables : by_isal;
	return chosen == by_isal ? "ISA-L" : "tables";
}
