// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "link/impl.h"

/* Credit for a byte, in bit times 10^-9. */
#define CREDIT_PER_BYTE 8000000000ull

int dp_link_police_configure(struct dp_link *l, const struct dp_policer *config)
{
	struct dp_link_policer *p = &l->policer;
	bool fresh = !p->rate_bps;

	if (config->rate_bps &&
	    (!config->burst_bytes || config->burst_bytes > DP_POLICER_BURST_MAX))
		return -EINVAL;
	p->rate_bps = config->rate_bps;
	p->burst_bytes = config->burst_bytes;
	p->full = config->burst_bytes * CREDIT_PER_BYTE;
	if (fresh || p->credit > p->full)
		p->credit = p->full;
	l->guarded |= p->rate_bps != 0;
	return 0;
}

void dp_link_refill(struct dp_link *l, uint64_t now)
{
	struct dp_link_policer *p = &l->policer;
	dp_u128 credit;

	if (now <= p->at_ns)
		return;
	credit = (dp_u128)p->rate_bps * (now - p->at_ns) + p->credit;
	p->credit = credit < p->full ? (uint64_t)credit : p->full;
	p->at_ns = now;
}

bool dp_link_conforms(struct dp_link *l, const struct dp_frame *f, uint64_t now)
{
	struct dp_link_policer *p = &l->policer;

	if (!p->rate_bps)
		return true;
	dp_link_refill(l, now);
	if (f->bytes > p->burst_bytes || f->bytes * CREDIT_PER_BYTE > p->credit)
		return false;
	p->credit -= f->bytes * CREDIT_PER_BYTE;
	return true;
}
