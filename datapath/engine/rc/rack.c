// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/rack.h"

#include "wire/headers.h"

enum {
	QUARTERS_MAX = 256,
	CALM_ROUNDS =
		16, /* recoveries without a duplicate before the window shrinks, as in the RFC */
};

/* Added to the probe time-out, beside the peer's delay. */
#define SLACK_NS 50000ull

/* Whether one packet was sent after another.  Of two packets sent at the same time, the higher PSN
 * was sent later. */
static bool sent_after(uint64_t a_ns, uint32_t a_psn, uint64_t b_ns, uint32_t b_psn)
{
	return a_ns > b_ns || (a_ns == b_ns && dp_psn_diff(a_psn, b_psn) > 0);
}

void dp_rack_delivered(struct dp_rack *r, uint32_t psn, uint64_t sent_ns, uint64_t now)
{
	if (r->any && sent_after(r->xmit_ns, r->psn, sent_ns, psn))
		return;
	r->xmit_ns = sent_ns;
	r->psn = psn;
	r->rtt_ns = now - sent_ns;
	r->any = true;
}

bool dp_rack_overtook(const struct dp_rack *r, uint32_t psn, uint64_t sent_ns)
{
	return r->any && sent_after(r->xmit_ns, r->psn, sent_ns, psn);
}

uint64_t dp_rack_due(const struct dp_rack *r, uint64_t sent_ns, uint64_t window_ns)
{
	return sent_ns + r->rtt_ns + window_ns;
}

/* Where packets overtake each other, the lowest RTT says little about how far.  So the window is
 * limited by the time-out only. */
uint64_t dp_reordering_window(const struct dp_reordering *o, const struct dp_rtt *rtt)
{
	uint64_t window = rtt->min_rtt_ns / 4 * o->quarters;
	uint64_t most = rtt->srtt_ns + 4 * rtt->rttvar_ns;

	return window < most ? window : most;
}

void dp_reordering_widen(struct dp_reordering *o, const struct dp_rtt *rtt, uint64_t now)
{
	o->calm = 0;
	if (now - o->widened_ns < rtt->srtt_ns)
		return;
	o->widened_ns = now;
	if (o->quarters < QUARTERS_MAX)
		o->quarters *= 2;
}

void dp_reordering_narrow(struct dp_reordering *o, const struct dp_rtt *rtt, uint64_t now)
{
	if (now - o->round_ns < rtt->srtt_ns)
		return;
	o->round_ns = now;
	if (++o->calm < CALM_ROUNDS)
		return;
	o->calm = 0;
	if (o->quarters > 1)
		o->quarters /= 2;
}

uint64_t dp_tlp_timeout(const struct dp_rtt *rtt, uint64_t slowest_ns, uint64_t ack_delay_ns)
{
	uint64_t wait = rtt->srtt_ns;

	if (rtt->host_ns > ack_delay_ns) /* what is less is added below */
		wait += rtt->host_ns - ack_delay_ns;
	if (slowest_ns > wait)
		wait = slowest_ns;
	return 2 * wait + ack_delay_ns + SLACK_NS;
}
