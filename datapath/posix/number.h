/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers from text: arguments, commands and settings.  The whole text has to be one. */
#ifndef DP_POSIX_NUMBER_H
#define DP_POSIX_NUMBER_H

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* Decimal digits alone (no sign, no space), min to max: 0, otherwise -EINVAL. */
static inline int dp_read_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	unsigned long long value;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end || errno || value < min || value > max)
		return -EINVAL;
	*out = value;
	return 0;
}

/* The same for a number of 32 bits. */
static inline int dp_read_u32(const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
	uint64_t value;

	if (dp_read_number(text, min, max, &value))
		return -EINVAL;
	*out = (uint32_t)value;
	return 0;
}

/* A finite number: 0, otherwise -EINVAL. */
static inline int dp_read_real(const char *text, double *out)
{
	double value;
	char *end;

	value = strtod(text, &end);
	if (end == text || *end || !isfinite(value))
		return -EINVAL;
	*out = value;
	return 0;
}

#endif
