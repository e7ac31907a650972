// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "wire/crc32.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <string.h>

#include "wire/headers.h"

enum {
	SLICES = 8,
	REACH = 5, /* words after the present one that it is moved to */
	TRIAL_BYTES = 1024,
	TRIALS = 4,
};

typedef uint32_t (*crc32_fn)(uint32_t crc, const uint8_t *data, size_t len);

/* tables[k][b]: the change of the register by byte b when k more bytes follow it. */
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

static uint64_t load(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return le64toh(word);
}

/* Eight bytes at a time (Kounavis and Berry, ISCC 2005). */
static uint32_t by_tables(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t word;
	int k;

	crc = ~crc;
	for (; len >= SLICES; len -= SLICES, p += SLICES) {
		word = load(p) ^ crc;
		crc = 0;
		for (k = 0; k < SLICES; k++)
			crc ^= tables[SLICES - 1 - k][word >> 8 * k & 0xff];
	}
	while (len--)
		crc = crc >> 8 ^ tables[0][(crc ^ *p++) & 0xff];
	return ~crc;
}

/*
 * Without a table (Russell, "Chorba", arXiv:2412.16398).  The polynomial divides
 * x^300 + x^155 + x^117 + x^89 + 1, so a bit may be taken away where those 145,
 * 183, 211 and 300 places later are flipped.  One word after the other is moved
 * on like that until what is left is short.
 */
static uint32_t by_shifts(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t next[REACH] = { (uint32_t)~crc }, word;
	uint8_t tail[8 * (REACH + 1)];
	int k;

	if (len < sizeof(tail))
		return by_tables(crc, p, len);
#pragma GCC unroll 4
	for (; len >= sizeof(tail); len -= 8, p += 8) {
		word = load(p) ^ next[0];
		next[0] = next[1];
		next[1] = next[2] ^ word << 17 ^ word << 55;
		next[2] = next[3] ^ word >> 47 ^ word >> 9 ^ word << 19;
		next[3] = next[4] ^ word >> 45 ^ word << 44;
		next[4] = word >> 20;
	}
	memcpy(tail, p, len);
	for (k = 0; k < REACH; k++) {
		word = htole64(load(tail + 8 * k) ^ next[k]);
		memcpy(tail + 8 * k, &word, sizeof(word));
	}
	return by_tables(~0u, tail, len);
}

/*
 * ISA-L 2.31 returns from its AVX-512 code without clearing the upper halves of
 * the vector registers.  That slows down the SSE code
 * behind it and each switch of the CPU: 64-byte messages between two namespaces
 * took 6.6 us instead of 4.7.
 */
static inline void clear_upper_halves(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroupper" ::: "memory");
#endif
}

static uint32_t by_isal(uint32_t crc, const uint8_t *data, size_t len)
{
	crc = crc32_gzip_refl(crc, data, len);
	clear_upper_halves();
	return crc;
}

static crc32_fn chosen = by_isal;

uint32_t dp_crc32(uint32_t crc, const uint8_t *data, size_t len)
{
	return chosen(crc, data, len);
}

/* The shortest of a few trials, because a disturbed trial takes longer. */
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
	chosen = trial_ns(by_shifts, now_ns) < trial_ns(by_isal, now_ns) ? by_shifts : by_isal;
	return chosen == by_isal ? "ISA-L" : "shifts";
}
