/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Planted faults: what dp_engine_check() has to see. */
#include "spoil.h"

#include "engine/rc/received.h"
#include "engine/rc/scoreboard.h"
#include "engine/ud/ud.h"

static struct dp_rec *oldest(struct dp_rc *rc)
{
	return dp_rec(rc->req.block, rc->req.snd_una & (rc->window - 1));
}

static struct dp_rx_page *first_page(const struct dp_rc *rc)
{
	uint32_t i = 0;

	while (!rc->resp.block->page[i])
		i++;
	return rc->resp.block->page[i];
}

static struct dp_held *first_held(const struct dp_rc *rc)
{
	struct dp_rx_page *page = first_page(rc);
	uint32_t i = 0;

	while (!page->bits[i])
		i++;
	return &page->held[64 * i + (uint32_t)__builtin_ctzll(page->bits[i])];
}

const char *X_spoil(struct dp_qp *qp, int number, int by)
{
	struct dp_rc *rc = dp_rc_of(qp);
	uint32_t step = (uint32_t)by;

	switch (number) {
	case 0:
		qp->rq.ci += step;
		return "receives";
	case 1:
		qp->sq_tx -= 100 * step;
		return "being sent";
	case 2:
		rc->req.post_psn += step;
		return "next PSN to be posted";
	case 3:
		qp->rd_outstanding += step;
		return "counted wrong";
	case 4:
		rc->flow->inflight_bytes += (uint64_t)(int64_t)by;
		return "bytes in flight";
	case 5:
		oldest(rc)->state = by > 0 ? DP_REC_LOST : DP_REC_FLIGHT;
		return "wrong list";
	case 6:
		oldest(rc)->wqe += step;
		return "does not hold its PSN";
	case 7:
		rc->window = by > 0 ? rc->window / 64 : rc->window * 64;
		return "window";
	case 8:
		rc->resp.expected += (uint64_t)(int64_t)by;
		return "expected PSN";
	case 9:
		rc->resp.block->count += step;
		return "packets ahead";
	case 10:
		first_page(rc)->bits[0] ^= 1ull << 63;
		return "packets ahead";
	case 11:
		qp->engine->n_qps += step;
		return "by its number";
	case 12:
		qp->ready = !qp->ready;
		return "transmit list";
	case 13:
		rc->req.timer_ns = by > 0 ? 0 : 1;
		return "time-out";
	case 14:
		rc->req.snd_una -= step;
		return "unacknowledged PSN";
	case 15:
		rc->resp.highest -= 100 * step;
		return "highest PSN";
	case 16:
		first_held(rc)->kind = by > 0 ? DP_HELD_REST : DP_HELD_LAST;
		return "without the READ";
	case 17:
		rc->resp.block->spans.n += step;
		return "spans of memory are counted wrong";
	case 18:
		rc->resp.block->spans.top -= (uint64_t)(int64_t)(100 * by);
		return "a span has the wrong PSNs";
	default:
		return NULL;
	}
}

const char *X_spoil_datagram(struct dp_qp *qp, int number, int by)
{
	struct dp_ud *ud = dp_ud_of(qp);
	uint32_t step = (uint32_t)by;

	switch (number) {
	case 0:
		qp->sq_tx += step;
		return "not completed";
	case 1:
		ud->ah_ci += step;
		return "holds its address handle";
	case 2:
		dp_sq(qp, qp->sq_ci)->ah->users -= step;
		return "does not count";
	case 3:
		qp->rd_outstanding += step;
		return "waits for an answer";
	default:
		return NULL;
	}
}
