// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/probed.h"

#include "wire/random.h"

enum {
	PEERS = 256,	     /* that an engine remembers; a power of two */
	VAIN_BEFORE_BAD = 3, /* QPs in a row that asked in vain: of two the PROBEs may be lost */
};
/* A path may change, so what was learnt holds for QPs that connect soon after. */
#define PROBED_AGE_NS 1000000000ull
/* The QP that asks repeats its PROBE at until_ns.  Those that wait look a little later. */
#define SLACK_NS 100000ull

struct dp_probed_path {
	struct dp_addr peer;
	uint16_t carried; /* longest that was answered; 0: none */
	uint16_t vain;	  /* shortest that was not */
	uint32_t n_vain;  /* QPs in a row that had no answer */
	uint32_t asker;	  /* QPN that waits for an answer */
	uint64_t until_ns, carried_ns, vain_ns;
};

static struct dp_probed_path *slot_of(struct dp_probed_path *all, const struct dp_addr *peer)
{
	uint64_t half[2];

	memcpy(half, peer->b, sizeof(half));
	return &all[dp_mix64(half[0] ^ dp_mix64(half[1])) & (PEERS - 1)];
}

static bool is_of(const struct dp_probed_path *p, const struct dp_rc *rc)
{
	return !memcmp(&p->peer, &rc->qp.attr.raddr, sizeof(p->peer));
}

/* NULL: nothing is known. */
static const struct dp_probed_path *find(const struct dp_rc *rc)
{
	struct dp_probed_path *all = rc->qp.engine->probed, *at;

	if (!all)
		return NULL;
	at = slot_of(all, &rc->qp.attr.raddr);
	return is_of(at, rc) ? at : NULL;
}

/* Without memory each QP asks for itself. */
static struct dp_probed_path *find_or_make(struct dp_rc *rc)
{
	struct dp_engine *e = rc->qp.engine;
	struct dp_probed_path *at;

	if (!e->probed)
		e->probed = calloc(PEERS, sizeof(*e->probed));
	if (!e->probed)
		return NULL;
	at = slot_of(e->probed, &rc->qp.attr.raddr);
	if (!is_of(at, rc))
		*at = (struct dp_probed_path){ .peer = rc->qp.attr.raddr };
	return at;
}

static bool recent(uint64_t at_ns, uint64_t now)
{
	return now - at_ns < PROBED_AGE_NS;
}

enum dp_probed_answer dp_probed(const struct dp_rc *rc, uint64_t now)
{
	const struct dp_probed_path *p = find(rc);

	if (!p)
		return DP_PROBED_NOT;
	if (p->carried >= rc->probe && recent(p->carried_ns, now))
		return DP_PROBED_GOOD;
	if (p->n_vain >= VAIN_BEFORE_BAD && p->vain <= rc->probe && recent(p->vain_ns, now))
		return DP_PROBED_BAD;
	return p->asker == rc->qp.qpn || now >= p->until_ns + SLACK_NS ? DP_PROBED_NOT :
									 DP_PROBED_BY_OTHER;
}

void dp_probed_asks(struct dp_rc *rc, uint64_t until_ns)
{
	struct dp_probed_path *p = find_or_make(rc);

	if (!p)
		return;
	p->asker = rc->qp.qpn;
	p->until_ns = until_ns;
}

void dp_probed_learns(struct dp_rc *rc, bool carried, uint64_t now)
{
	struct dp_probed_path *p = find_or_make(rc);

	if (!p)
		return;
	if (carried) {
		if (p->carried < rc->probe || !recent(p->carried_ns, now))
			p->carried = rc->probe;
		p->carried_ns = now;
		p->n_vain = 0;
	} else {
		if (!p->n_vain || p->vain > rc->probe)
			p->vain = rc->probe;
		p->n_vain++;
		p->vain_ns = now;
	}
	if (p->asker == rc->qp.qpn)
		p->until_ns = 0;
}
