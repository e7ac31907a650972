/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a CRC leaves behind in the vector registers, as the CPU tells it. */
#include "wire/crc32.h"

#ifdef __x86_64__
#include <cpuid.h>

enum {
	XGETBV_1 = 1 << 2,		/* of EAX, leaf 0xd, subleaf 1 */
	UPPER_HALVES = 1 << 2 | 1 << 6, /* of XINUSE: bits 128 to 255, and 256 to 511 */
};

static int tells_state(void)
{
	unsigned a, b, c, d;

	return __builtin_cpu_supports("avx") && __get_cpuid_count(0xd, 1, &a, &b, &c, &d) &&
	       a & XGETBV_1;
}
#endif

/* The parts of the state that are in use after a CRC of `len` bytes; -1 when the CPU cannot tell. */
int X_state_after_crc(const uint8_t *data, size_t len);
int X_state_after_crc(const uint8_t *data, size_t len)
{
#ifdef __x86_64__
	unsigned low, high;

	if (!tells_state())
		return -1;
	__asm__ volatile("vzeroupper" ::: "memory");
	dp_crc32(0, data, len);
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
	return (int)(low & UPPER_HALVES);
#else
	(void)data;
	(void)len;
	return -1;
#endif
}
