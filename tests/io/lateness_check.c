// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Quantiles of a histogram: at most one bucket too large, and as JSON. */
#undef NDEBUG
#include <assert.h>
#include <string.h>

#include "io/lateness.h"

static struct dp_lateness late;

static void quantiles_are_close(void)
{
	static const double shares[] = { 0, 0.001, 0.25, 0.5, 0.9, 0.999 };
	uint64_t exact, found;

	for (uint64_t ns = 1; ns <= 100000; ns++)
		dp_late_add(&late, ns);
	for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
		exact = shares[i] > 0 ? (uint64_t)(shares[i] * 100000 + 0.5) : 1;
		found = dp_late_quantile(&late, shares[i]);
		assert(found >= exact && found <= exact + exact / 16);
	}
	assert(dp_late_quantile(&late, 1) == 100000);
}

static void any_number_has_a_bucket(void)
{
	memset(&late, 0, sizeof(late));
	assert(dp_late_quantile(&late, 0.5) == 0);
	dp_late_add(&late, 0);
	dp_late_add(&late, UINT64_MAX);
	assert(dp_late_quantile(&late, 0) == 0);
	assert(dp_late_quantile(&late, 0.9) == UINT64_MAX);
}

static void the_nearest_rank(void)
{
	memset(&late, 0, sizeof(late));
	for (unsigned i = 1; i <= 10; i++)
		dp_late_add(&late, i);
	assert(dp_late_quantile(&late, 0.5) == 5);
	assert(dp_late_quantile(&late, 0.51) == 6);
	assert(dp_late_quantile(&late, 0.9) == 9);
	assert(dp_late_quantile(&late, 1) == 10);
}

static void two_are_merged(void)
{
	struct dp_lateness more = { 0 };

	memset(&late, 0, sizeof(late));
	dp_late_add(&late, 10);
	dp_late_add(&more, 3);
	dp_late_add(&more, 1000);
	dp_late_merge(&late, &more);
	assert(late.n == 3 && late.max_ns == 1000);
	assert(dp_late_quantile(&late, 0) == 3 && dp_late_quantile(&late, 0.5) == 10);
	dp_late_merge(&more, &late);
	assert(more.n == 5 && more.max_ns == 1000);
}

static void json_has_count_and_quantiles(void)
{
	static const char begin[] = "{\"n\":1,\"quantiles_ns\":{\"0\":7,\"0.01\":7,";
	char text[512] = "";
	FILE *f = fmemopen(text, sizeof(text), "w");

	memset(&late, 0, sizeof(late));
	dp_late_add(&late, 7);
	dp_late_write(&late, f);
	fclose(f);
	assert(!strncmp(text, begin, strlen(begin)));
	assert(strstr(text, ",\"1\":7}}"));
}

int main(void)
{
	quantiles_are_close();
	any_number_has_a_bucket();
	the_nearest_rank();
	two_are_merged();
	json_has_count_and_quantiles();
	return 0;
}
