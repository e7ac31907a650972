// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which texts are numbers. */
#undef NDEBUG
#include <assert.h>
#include <stddef.h>

#include "posix/number.h"

static const char *const not_numbers[] = {
	"", " 1", "1 ", "+1", "-1", "0x10", "1e3", "1.5", "18446744073709551616", "one"
};
static const char *const not_finite[] = { "", "1 ", "1.5x", "nan", "inf", "-inf", "1e999" };

int main(void)
{
	uint64_t n = 7;
	uint32_t small = 7;
	double real = 7;

	assert(!dp_read_number("18446744073709551615", 0, UINT64_MAX, &n) && n == UINT64_MAX);
	assert(!dp_read_number("010", 10, 10, &n) && n == 10);
	assert(dp_read_number("9", 10, 11, &n) && dp_read_number("12", 10, 11, &n) && n == 10);
	for (size_t i = 0; i < sizeof(not_numbers) / sizeof(*not_numbers); i++)
		assert(dp_read_number(not_numbers[i], 0, UINT64_MAX, &n) == -EINVAL && n == 10);

	assert(!dp_read_u32("4294967295", 1, UINT32_MAX, &small) && small == UINT32_MAX);
	assert(dp_read_u32("4294967296", 1, UINT32_MAX, &small) == -EINVAL);
	assert(dp_read_u32("0", 1, UINT32_MAX, &small) == -EINVAL && small == UINT32_MAX);

	assert(!dp_read_real("-2.5e-1", &real) && real == -0.25);
	for (size_t i = 0; i < sizeof(not_finite) / sizeof(*not_finite); i++)
		assert(dp_read_real(not_finite[i], &real) == -EINVAL && real == -0.25);
	return 0;
}
