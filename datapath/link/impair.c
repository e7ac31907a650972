// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "link/impair/impair.h"

#include "link/impl.h"

struct row {
	const struct dp_impair *impair;
	double low, high;
	uint64_t stream;
};

static const struct row rows[DP_N_IMPAIRMENTS] = {
#define ROW(name, low, high, stream) { &dp_impair_##name, low, high, stream },
	DP_IMPAIRMENTS(ROW)
#undef ROW
};

void dp_link_impair_seed(struct dp_link *l, uint64_t seed)
{
	for (unsigned i = 0; i < DP_N_IMPAIRMENTS; i++)
		l->impaired[i].random = dp_mix64(seed ^ rows[i].stream);
}

static bool allows(const struct row *row, double value)
{
	return value == 0 || (value >= row->low && value <= row->high);
}

int dp_link_impair_configure(struct dp_link *l, const struct dp_link_config *config)
{
	const double *value = config->impairment;

	for (unsigned i = 0; i < DP_N_IMPAIRMENTS; i++)
		if (!allows(&rows[i], value[i]))
			return -EINVAL;
	l->losing = 0;
	l->delaying = 0;
	for (unsigned i = 0; i < DP_N_IMPAIRMENTS; i++) {
		l->impaired[i].value = value[i];
		if (value[i] != 0 && rows[i].impair->loses)
			l->losing |= 1u << i;
		if (value[i] != 0 && rows[i].impair->arrives)
			l->delaying |= 1u << i;
	}
	return 0;
}

bool dp_link_impair_loses(struct dp_link *l, const struct dp_frame *f, uint64_t now)
{
	for (uint32_t left = l->losing; left; left &= left - 1) {
		int i = __builtin_ctz(left);

		if (rows[i].impair->loses(&l->impaired[i], f, now))
			return true;
	}
	return false;
}

uint64_t dp_link_impair_arrives(struct dp_link *l, struct dp_frame *f, uint64_t at)
{
	for (uint32_t left = l->delaying; left; left &= left - 1) {
		int i = __builtin_ctz(left);

		at = rows[i].impair->arrives(&l->impaired[i], f, at);
	}
	return at;
}

bool dp_link_hashes(const struct dp_link_config *config)
{
	for (unsigned i = 0; i < DP_N_IMPAIRMENTS; i++)
		if (config->impairment[i] != 0 && rows[i].impair->hashes)
			return true;
	return config->aqm.kind == DP_AQM_FQ_CODEL;
}
