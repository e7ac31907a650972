/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "adversary.h"

#include "channel.h"

void X_adversary_init(struct X_adversary *a, const struct X_soak *p, uint64_t seed)
{
	*a = (struct X_adversary){
		.rng = seed,
		.aims = p->aims,
		.burst = p->burst,
		.dark_ns = p->blackout_ns,
	};
}

/* One more of this kind may go, if as many in a row as this time was drawn have not. */
static bool hit(struct X_adversary *a, unsigned aim)
{
	if (!a->in_row[aim])
		a->patience[aim] = (uint32_t)(X_random(&a->rng) % (a->burst + 1));
	if (a->in_row[aim] >= a->patience[aim]) {
		a->in_row[aim] = 0;
		return false;
	}
	a->in_row[aim]++;
	return true;
}

/* The same packet, or acknowledgements, as often in a row as all aims together may. */
static bool enough(struct X_adversary *a, bool request, uint32_t psn)
{
	uint8_t *in_row = request ? &a->copies[psn % ARRAY_SIZE(a->copies)] : &a->answers;

	if (*in_row < a->burst) {
		++*in_row;
		return false;
	}
	*in_row = 0;
	return true;
}

static bool is_dark(struct X_adversary *a, uint64_t now)
{
	uint64_t length;

	while (now >= a->until_ns) {
		a->dark = !a->dark;
		length = a->dark ? a->dark_ns : 3 * a->dark_ns;
		a->until_ns += 1 + X_random(&a->rng) % (2 * length);
	}
	return a->dark;
}

static bool seen_before(struct X_adversary *a, uint32_t psn)
{
	if (a->begun && dp_psn_diff(psn, a->highest) < 0)
		return true;
	a->begun = true;
	a->highest = dp_psn_add(psn, 1);
	return false;
}

bool X_adversary_drops(struct X_adversary *a, const struct dp_packet *p, const struct dp_qp *sender,
		       uint64_t now)
{
	uint8_t opcode = dp_bth_opcode(p->data);
	uint32_t psn = dp_bth_psn(p->data), mask = dp_opcodes[opcode].mask;
	bool request = mask & DP_IS_REQUEST, again, drop = false, chance = false;

	if (!a->aims || !dp_op_is_ext(opcode))
		return false;
	again = request && seen_before(a, psn);
	if (a->aims & X_AT_BLACKOUT)
		chance |= is_dark(a, now);
	if (a->aims & X_AT_RANDOM)
		chance |= X_random(&a->rng) % 10 < 3;
	if (a->aims & X_AT_HEAD && request && psn == dp_rc_of_const(sender)->req.snd_una)
		drop |= hit(a, 0);
	if (a->aims & X_AT_AGAIN && again)
		drop |= hit(a, 1);
	if (a->aims & X_AT_ACK && !request)
		drop |= hit(a, 2);
	if (a->aims & X_AT_TAIL && request && mask & DP_IS_LAST)
		drop |= hit(a, 3);
	return chance || (drop && !enough(a, request, psn));
}

/* ---- what one end believes of the other ---------------------------------------------------- */

static bool has_arrived(const struct dp_rc *receiver, uint32_t psn)
{
	const struct dp_responder *r = &receiver->resp;
	uint32_t i = psn & (receiver->qp.engine->cfg.window_psns - 1);
	const struct dp_rx_page *page;

	if (dp_psn_diff(psn, r->epsn) < 0)
		return true;
	page = r->block ? r->block->page[i / DP_PAGE_PSNS] : NULL;
	return page && page->bits[i % DP_PAGE_PSNS / 64] >> (i % 64) & 1;
}

const char *X_agree(const struct dp_qp *from, const struct dp_qp *to)
{
	const struct dp_rc *sender = dp_rc_of_const(from), *receiver = dp_rc_of_const(to);
	const struct dp_requester *r = &sender->req;
	const struct dp_rec *rec;
	uint32_t psn;

	if (!sender->extended || !r->block || to->state == DP_QPS_ERR)
		return NULL;
	if (dp_psn_diff(r->snd_una, receiver->resp.epsn) > 0)
		return "the sender takes PSNs for acknowledged that the receiver still expects";
	for (psn = r->snd_una; psn != r->snd_nxt; psn = dp_psn_add(psn, 1)) {
		rec = dp_rec(r->block, psn & (sender->window - 1));
		if (rec->state == DP_REC_DONE && !has_arrived(receiver, psn))
			return "the sender takes a packet for delivered that has not arrived";
	}
	return NULL;
}

/* ---- a plain algorithm ------------------------------------------------------------------------ */

struct aimd {
	struct dp_cc_flow head;
	double ssthresh, recovery_bytes;
};

static void begin(void *flow)
{
	struct aimd *f = flow;

	f->head.cwnd_bytes = 10 * f->head.mss_bytes;
	f->ssthresh = 1e15;
}

static void grow(void *flow, const struct dp_cc_ack *ack)
{
	struct aimd *f = flow;
	double share = f->head.cwnd_bytes < f->ssthresh ? 1 :
							  f->head.mss_bytes / f->head.cwnd_bytes;

	f->head.cwnd_bytes += share * ack->acked_bytes;
}

static void halve(void *flow, const struct dp_cc_loss *loss)
{
	struct aimd *f = flow;

	if (loss->prior_delivered_bytes < f->recovery_bytes)
		return;
	f->recovery_bytes = f->head.delivered_bytes + f->head.inflight_bytes;
	f->head.cwnd_bytes /= 2;
	if (f->head.cwnd_bytes < f->head.mss_bytes)
		f->head.cwnd_bytes = f->head.mss_bytes;
	f->ssthresh = f->head.cwnd_bytes;
}

static void collapse(void *flow, double now_ns)
{
	struct aimd *f = flow;

	(void)now_ns;
	f->ssthresh = f->head.cwnd_bytes / 2;
	f->head.cwnd_bytes = f->head.mss_bytes;
}

static const struct aimd aimd_flow;

const struct dp_cc_algo X_aimd = {
	.abi = DP_CC_ABI,
	.name = "aimd",
	.flow_bytes = sizeof(struct aimd),
	.initial = &aimd_flow,
	.on_init = begin,
	.on_ack = grow,
	.on_loss = halve,
	.on_timeout = collapse,
};
