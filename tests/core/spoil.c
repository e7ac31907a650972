/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Planted faults: what dp_engine_check() has to see. */
#include "spoil.h"

#include "core/internal.h"

static struct dp_rec *oldest(struct dp_qp *qp)
{
	return &qp->req.block->rec[qp->req.snd_una & (qp->window - 1)];
}

const char *X_spoil(struct dp_qp *qp, int number, int by)
{
	uint32_t step = (uint32_t)by;

	switch (number) {
	case 0:
		qp->rq_ci += step;
		return "receives";
	case 1:
		qp->sq_tx -= 100 * step;
		return "being sent";
	case 2:
		qp->req.post_psn += step;
		return "next PSN to be posted";
	case 3:
		qp->req.rd_outstanding += step;
		return "counted wrong";
	case 4:
		qp->flow.inflight_bytes += (uint64_t)(int64_t)by;
		return "bytes in flight";
	case 5:
		oldest(qp)->state = by > 0 ? DP_REC_LOST : DP_REC_FLIGHT;
		return "wrong list";
	case 6:
		oldest(qp)->wqe += step;
		return "does not hold its PSN";
	case 7:
		qp->window = by > 0 ? qp->window / 64 : qp->window * 64;
		return "window";
	case 8:
		qp->resp.expected += (uint64_t)(int64_t)by;
		return "expected PSN";
	case 9:
		qp->resp.block->count += step;
		return "packets ahead";
	case 10:
		qp->resp.block->bits[0] ^= 1ull << 63;
		return "packets ahead";
	case 11:
		qp->engine->n_qps += step;
		return "by its number";
	case 12:
		qp->ready = !qp->ready;
		return "transmit list";
	case 13:
		qp->req.timer_ns = by > 0 ? 0 : 1;
		return "time-out";
	case 14:
		qp->req.snd_una -= step;
		return "unacknowledged PSN";
	default:
		return NULL;
	}
}
