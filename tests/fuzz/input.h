/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bytes that a fuzzer has made, which a target reads in turn. */
#ifndef DP_TESTS_FUZZ_INPUT_H
#define DP_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

struct input {
	const uint8_t *at, *end;
};

/* The next byte; 0 at the end. */
static inline uint8_t next(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

/* The next *n bytes.  *n becomes smaller where there are fewer. */
static inline const uint8_t *take(struct input *in, uint32_t *n)
{
	const uint8_t *at = in->at;

	if (*n > (size_t)(in->end - in->at))
		*n = (uint32_t)(in->end - in->at);
	in->at += *n;
	return at;
}

#endif
