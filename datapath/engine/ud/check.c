// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The invariants of unreliable datagrams; see engine/check.c. */
#include "engine/check.h"
#include "engine/ud/ud.h"

const char *dp_ud_check(const struct dp_qp *qp)
{
	const struct dp_ud *ud = container_of(qp, const struct dp_ud, qp);
	uint32_t i;

	MUST(qp->sq_tx == qp->sq_ci, "a datagram was sent and is not completed");
	MUST(ud->ah_ci == qp->sq_ci, "a request that is done holds its address handle");
	MUST(!qp->rd_outstanding && !qp->refusing,
	     "a datagram QP waits for an answer or gives one");
	for (i = ud->ah_ci; i != qp->sq_pi; i++)
		MUST(dp_sq(qp, i)->ah->users && dp_sq(qp, i)->ah->pd == qp->pd,
		     "a request does not count in its address handle");
	return NULL;
}
