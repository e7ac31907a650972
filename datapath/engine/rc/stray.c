// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/stray.h"

/* No packet is under way for longer; less than half of 2^32 ns. */
#define LIFETIME_NS 2000000000ull
#define BEGAN_SHIFT 16 /* a time of 32 bits comes again after three days */

void dp_stray_start(struct dp_rc *rc, uint64_t now)
{
	rc->began = (uint32_t)(now >> BEGAN_SHIFT);
	rc->young = true;
}

static bool is_young(struct dp_rc *rc, uint64_t now)
{
	if (rc->young && (uint32_t)(now >> BEGAN_SHIFT) - rc->began > LIFETIME_NS >> BEGAN_SHIFT)
		rc->young = false;
	return rc->young;
}

/* Once data has come, or the peer has replied and so may send some, a HELLO may overtake data. */
void dp_stray_hello(struct dp_rc *rc, uint32_t ts_ns)
{
	bool later = (int32_t)(ts_ns - rc->peer_began) > 0;

	if (rc->resp.ts_at_ns || (rc->peer_dated && (rc->hello_heard || !later)))
		return;
	rc->peer_began = ts_ns;
	rc->peer_dated = true;
}

bool dp_is_stray_request(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	struct dp_xdh xdh;

	if (!rc->hello_done)
		return true;
	if (!rc->peer_dated || !is_young(rc, now))
		return false;
	dp_xdh_get(p->xdh, &xdh);
	return (int32_t)(xdh.ts_ns - rc->peer_began) < 0;
}

bool dp_is_stray_echo(struct dp_rc *rc, uint32_t echo_ns, uint64_t now)
{
	uint32_t began = rc->began << BEGAN_SHIFT;

	return is_young(rc, now) && echo_ns - began > (uint32_t)now - began + DP_ECHO_AHEAD_NS;
}

bool dp_is_stray_answer(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	struct dp_xdh xdh;
	struct dp_xah xah;

	if (!is_young(rc, now))
		return false;
	if (p->xdh) {
		dp_xdh_get(p->xdh, &xdh);
		return dp_is_stray_echo(rc, xdh.ts_ns, now);
	}
	if (!p->xah)
		return false;
	dp_xah_get(p->xah, &xah);
	if (xah.ack_delay_ns != UINT32_MAX)
		return dp_is_stray_echo(rc, xah.ts_echo_ns, now);
	/* The peer has received nothing extended, so it acknowledges nothing extended. */
	return rc->extended && !xah.n_trimmed;
}
