/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A QP after a reset is what it was when it was made. */
#include "remains.h"

#include <string.h>

#include "engine/rc/rc.h"

#define PART(type, member)                                                                         \
	{                                                                                          \
		offsetof(type, member), sizeof(((type *)0)->member)                                \
	}

struct part {
	size_t at, len;
};

/* What belongs to the QP and not to the connection that ended. */
static const struct part kept[] = {
	PART(struct dp_qp, event),	/* may still be read */
	PART(struct dp_qp, timer),	/* only whether it is armed counts */
	PART(struct dp_qp, rank),	/* of a list that the QP is not in */
	PART(struct dp_qp, ready_next), /* of the same list */
	PART(struct dp_qp, sport),	/* the port that reached its engine */
	PART(struct dp_qp, locals),	/* memory, emptied */
	PART(struct dp_qp, stats),	/* count on */
};
static const struct part kept_rc[] = {
	PART(struct dp_rc, sender), /* has counters that count on; begins anew with the next flow */
	PART(struct dp_rc, cc),	    /* may be set at any time */
};

static bool is_in(const struct part *parts, size_t n, size_t at)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (at - parts[i].at < parts[i].len)
			return true;
	return false;
}

size_t X_qp_bytes(const struct dp_qp *qp)
{
	return qp->ops->bytes;
}

void X_qp_copy(const struct dp_qp *qp, uint8_t *to)
{
	memcpy(to, qp, qp->ops->bytes);
}

int X_qp_remains(const struct dp_qp *qp, const uint8_t *made)
{
	const uint8_t *now = (const uint8_t *)qp;
	bool rc = qp->ops == &dp_rc_ops;
	size_t i;

	if (dp_timer_armed(&qp->timer))
		return offsetof(struct dp_qp, timer);
	for (i = 0; i < qp->ops->bytes; i++)
		if (now[i] != made[i] && !is_in(kept, ARRAY_SIZE(kept), i) &&
		    !(rc && is_in(kept_rc, ARRAY_SIZE(kept_rc), i)))
			return (int)i;
	return -1;
}
