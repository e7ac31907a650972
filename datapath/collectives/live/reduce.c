// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Sums and the like.  Types of half precision are combined as float, and rounded to the nearest.
 */
#include "collectives/live/coll.h"

size_t dpcoll_type_bytes(enum dpcoll_type type)
{
	static const uint8_t bytes[DPCOLL_TYPES] = {
		[DPCOLL_INT8] = 1,    [DPCOLL_INT32] = 4,    [DPCOLL_INT64] = 8,
		[DPCOLL_FLOAT16] = 2, [DPCOLL_BFLOAT16] = 2, [DPCOLL_FLOAT32] = 4,
		[DPCOLL_FLOAT64] = 8, [DPCOLL_UINT8] = 1,
	};

	return (unsigned)type < DPCOLL_TYPES ? bytes[type] : 0;
}

static float from_bfloat(uint16_t value)
{
	uint32_t bits = (uint32_t)value << 16;
	float out;

	memcpy(&out, &bits, sizeof(out));
	return out;
}

static uint16_t to_bfloat(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if (value != value)
		return (uint16_t)(bits >> 16 | 0x40); /* a quiet NaN */
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_half(_Float16 value)
{
	return (float)value;
}

static _Float16 to_half(float value)
{
	return (_Float16)value;
}

#define SAME(x) (x)
#define ADD(a, b) ((a) + (b))
#define TIMES(a, b) ((a) * (b))
/* A NaN stays, whichever side it is on. */
#define LEAST(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MOST(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#define KERNEL(name, kind, wide, widen, narrow, combine)                                           \
	static void name(void *restrict to, const void *restrict from, size_t bytes)               \
	{                                                                                          \
		kind *a = to;                                                                      \
		const kind *b = from;                                                              \
		size_t n = bytes / sizeof(kind);                                                   \
                                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			wide x = widen(a[i]), y = widen(b[i]);                                     \
                                                                                                   \
			a[i] = narrow((wide)combine(x, y));                                        \
		}                                                                                  \
	}

#define KERNELS(name, kind, wide, widen, narrow)                                                   \
	KERNEL(name##_sum, kind, wide, widen, narrow, ADD)                                         \
	KERNEL(name##_product, kind, wide, widen, narrow, TIMES)                                   \
	KERNEL(name##_min, kind, wide, widen, narrow, LEAST)                                       \
	KERNEL(name##_max, kind, wide, widen, narrow, MOST)

/* Integers wrap around, which only unsigned ones may in C. */
#define TO_INT8(x) ((int8_t)(x))
#define TO_UINT8(x) ((uint8_t)(x))
#define TO_INT32(x) ((int32_t)(x))
#define TO_INT64(x) ((int64_t)(x))

KERNELS(int8, int8_t, int, SAME, TO_INT8)
KERNELS(uint8, uint8_t, int, SAME, TO_UINT8)
KERNELS(int32, int32_t, int64_t, SAME, TO_INT32)
KERNEL(int64_sum, uint64_t, uint64_t, SAME, SAME, ADD)
KERNEL(int64_product, uint64_t, uint64_t, SAME, SAME, TIMES)
KERNEL(int64_min, int64_t, int64_t, SAME, TO_INT64, LEAST)
KERNEL(int64_max, int64_t, int64_t, SAME, TO_INT64, MOST)
KERNELS(float16, _Float16, float, from_half, to_half)
KERNELS(bfloat16, uint16_t, float, from_bfloat, to_bfloat)
KERNELS(float32, float, float, SAME, SAME)
KERNELS(float64, double, double, SAME, SAME)

#define ROW(name)                                                                                  \
	{                                                                                          \
		[DPCOLL_SUM] = name##_sum, [DPCOLL_PRODUCT] = name##_product,                      \
		[DPCOLL_MIN] = name##_min, [DPCOLL_MAX] = name##_max,                              \
	}

void coll_combine(enum dpcoll_type type, enum dpcoll_op op, void *to, const void *from,
		  size_t bytes)
{
	static void (*const kernel[DPCOLL_TYPES][DPCOLL_OPS])(void *, const void *, size_t) = {
		[DPCOLL_INT8] = ROW(int8),	   [DPCOLL_INT32] = ROW(int32),
		[DPCOLL_INT64] = ROW(int64),	   [DPCOLL_FLOAT16] = ROW(float16),
		[DPCOLL_BFLOAT16] = ROW(bfloat16), [DPCOLL_FLOAT32] = ROW(float32),
		[DPCOLL_FLOAT64] = ROW(float64),   [DPCOLL_UINT8] = ROW(uint8),
	};

	kernel[type][op](to, from, bytes);
}
