// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/granting.h"
#include "engine/multicast.h"
#include "engine/qp.h"
#include "engine/rc/store.h"
#include "wire/icrc.h"
#include "wire/random.h"
#include "wire/trim.h"

uint64_t dp_random(struct dp_engine *e)
{
	return dp_random64(&e->rng);
}

/* ---- life cycle --------------------------------------------------------------- */

static bool config_valid(const struct dp_engine_config *c)
{
	uint32_t window = dp_window_of(c->window_psns);

	if (c->path_mtu_max < 256 || c->path_mtu_max > 4096 ||
	    c->path_mtu_max & (c->path_mtu_max - 1))
		return false;
	if (c->segment_max && (c->segment_max < DP_SEGMENT_MIN || c->segment_max > DP_SEGMENT_MAX ||
			       c->segment_max & 3))
		return false;
	if (!dp_window_valid(c->window_psns) || (c->store && c->store->window_psns != window))
		return false;
	if (c->bundle && c->no_payload)
		return false;
	if (c->paths > DP_PATHS_MAX || (c->paths > 1 && c->udp_sport))
		return false;
	for (unsigned i = 0; i < ARRAY_SIZE(c->rank_of_dscp); i++)
		if (c->rank_of_dscp[i] >= DP_RANKS)
			return false;
	return c->qpn_prefix <= 0xff && c->tos >> 2 != DP_DSCP_TRIMMED;
}

int dp_engine_create(const struct dp_engine_config *c, struct dp_engine **out)
{
	struct dp_engine *e;

	if (!config_valid(c))
		return -EINVAL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->own = calloc(1, sizeof(*e->own));
	if (!e->own) {
		free(e);
		return -ENOMEM;
	}
	e->cfg = *c;
	e->cfg.window_psns = dp_window_of(c->window_psns);
	if (!e->cfg.min_rto_ns)
		e->cfg.min_rto_ns = 4000000;
	e->rng = c->seed;
	e->heard_ns = DP_NEVER;
	e->caution = DP_CAUTION_FIRST;
	e->qpn_next = (uint32_t)dp_random(e) & 0xffff;
	dp_store_init(e->own, e->cfg.window_psns, false);
	e->store = c->store ? c->store : e->own;
	e->store->engines++;
	*out = e;
	return 0;
}

void dp_engine_destroy(struct dp_engine *e)
{
	uint32_t i;

	for (i = 0; i < DP_QPN_SPACE && e->n_qps; i++)
		if (dp_find_qp(e, i))
			dp_qp_destroy(dp_find_qp(e, i));
	for (i = 0; i < DP_QPN_SPACE / DP_QP_PAGE; i++)
		free(e->qps[i]);
	for (i = 0; i < e->mr_cap; i++)
		free(e->mrs[i]);
	e->store->engines--;
	dp_store_drain(e->own);
	free(e->own);
	free(e->mrs);
	free(e->probed);
	free(e);
}

/* ---- events --------------------------------------------------------------------- */

void dp_raise(struct dp_engine *e, struct dp_event_node *n, enum dp_event_type type)
{
	bool listed = n->pending;

	n->pending |= 1u << type;
	if (listed)
		return;
	n->next = NULL;
	if (e->event_tail)
		e->event_tail->next = n;
	else
		e->event_head = n;
	e->event_tail = n;
}

void dp_unraise(struct dp_engine *e, struct dp_event_node *n)
{
	struct dp_event_node **at = &e->event_head, *prev = NULL;

	if (!n->pending)
		return;
	for (; *at != n; at = &(*at)->next)
		prev = *at;
	*at = n->next;
	if (e->event_tail == n)
		e->event_tail = prev;
	n->pending = 0;
}

bool dp_engine_event(struct dp_engine *e, struct dp_event *out)
{
	struct dp_event_node *n = e->event_head;

	if (!n)
		return false;
	out->type = (enum dp_event_type)__builtin_ctz(n->pending);
	out->cq = n->source == DP_SOURCE_CQ ? container_of(n, struct dp_cq, event) : NULL;
	out->qp = n->source == DP_SOURCE_QP ? container_of(n, struct dp_qp, event) : NULL;
	out->srq = n->source == DP_SOURCE_SRQ ? container_of(n, struct dp_srq, event) : NULL;
	if (!(n->pending & (n->pending - 1)))
		dp_unraise(e, n);
	else
		n->pending &= n->pending - 1;
	return true;
}

/* ---- the transmit list and timers ---------------------------------------------------- */

void dp_qp_wake(struct dp_qp *qp)
{
	struct dp_engine *e = qp->engine;
	struct dp_qp_list *l;

	if (qp->ready)
		return;
	qp->rank = e->cfg.rank_of_dscp[dp_qp_tos(qp) >> 2];
	l = &e->ready[qp->rank];
	qp->ready = true;
	qp->ready_next = NULL;
	if (l->head)
		l->tail->ready_next = qp;
	else
		l->head = qp;
	l->tail = qp;
	e->ready_mask |= 1u << qp->rank;
}

void dp_qp_unwake(struct dp_qp *qp)
{
	struct dp_engine *e = qp->engine;
	struct dp_qp_list *l = &e->ready[qp->rank];
	struct dp_qp **at = &l->head, *prev = NULL;

	if (!qp->ready)
		return;
	for (; *at != qp; at = &(*at)->ready_next)
		prev = *at;
	*at = qp->ready_next;
	if (l->tail == qp)
		l->tail = prev;
	if (!l->head)
		e->ready_mask &= ~(1u << qp->rank);
	qp->ready = false;
}

/* How long an overdue QP waits for the next look at it.  A time-out that has passed may wait for packets
 * that lie unread in the port.  With thousands of such QPs, a look at each of them every microsecond
 * would leave no time to read the packets.  So the looks become rarer until packets have been heard. */
static uint64_t overdue_wait_ns(struct dp_engine *e, uint64_t due_ns)
{
	if (e->heard_ns >= due_ns)
		return 1u << DP_WHEEL_SHIFT;
	if (e->unheard < DP_UNHEARD_MAX)
		e->unheard++;
	return (uint64_t)e->unheard << DP_WHEEL_SHIFT;
}

/* A timer that is armed too early only costs a look at the QP.  So a timer is moved to a later time
 * only when it fires.  A QP that is due already is in the transmit list and waits for tx(), or waits
 * for packets to be read: the timer is never armed at a time that has passed. */
void dp_qp_rearm(struct dp_qp *qp, uint64_t now)
{
	uint64_t min = qp->ops->deadline(qp, now);

	if (min == DP_NEVER)
		return;
	if (min <= now)
		min = now + overdue_wait_ns(qp->engine, min);
	if (!dp_timer_armed(&qp->timer) || qp->timer.expires_ns > min)
		dp_wheel_arm(&qp->engine->wheel, &qp->timer, min);
}

void dp_engine_clock(struct dp_engine *e, uint64_t now)
{
	e->now_ns = now;
	if (e->wheel_started)
		return;
	e->wheel_started = true;
	dp_wheel_init(&e->wheel, now);
}

uint64_t dp_engine_deadline(const struct dp_engine *e)
{
	return e->ready_mask ? 0 : dp_wheel_next(&e->wheel);
}

void dp_engine_heard(struct dp_engine *e, uint64_t heard_ns)
{
	if (e->heard_ns != heard_ns)
		e->unheard = 0;
	e->heard_ns = heard_ns;
}

void dp_engine_tick(struct dp_engine *e, uint64_t now)
{
	struct dp_timer *t;
	struct dp_qp *qp;

	dp_engine_clock(e, now);
	while ((t = dp_wheel_pop(&e->wheel, now))) {
		if (dp_granting_owns(e, t)) {
			dp_granting_tick(e, now);
			continue;
		}
		if (t->owner == DP_TIMER_OF_CQ) {
			dp_cq_tick(container_of(t, struct dp_cq, timer));
			continue;
		}
		qp = container_of(t, struct dp_qp, timer);
		qp->ops->tick(qp, now);
		dp_qp_rearm(qp, now);
	}
}

/* ---- receive -------------------------------------------------------------------------------- */

/* The QP that the packet is for; NULL: it is for a group, and not looked at any further. */
static int admit(struct dp_engine *e, const struct dp_packet *pkt, struct dp_parsed *p,
		 struct dp_qp **out)
{
	struct dp_qp *qp;
	int err = dp_packet_parse(pkt, p);

	if (err == -EOPNOTSUPP || (!err && dp_op_is_ext(p->opcode) && !e->cfg.extended)) {
		e->stats.drop_unknown_opcode++;
		return -EPROTO;
	}
	if (err || (dp_bth_pkey(pkt->data) & 0x7fff) != (DP_PKEY_DEFAULT & 0x7fff)) {
		e->stats.drop_malformed++;
		return -EPROTO;
	}
	*out = NULL;
	if (p->dest_qpn == DP_MULTICAST_QPN)
		return 0;
	qp = dp_find_qp(e, p->dest_qpn);
	if (!qp || qp->qpn != p->dest_qpn) {
		e->stats.drop_unknown_qp++;
		return -ENOENT;
	}
	if (!dp_qp_receives(qp) && !qp->refusing) {
		e->stats.drop_bad_state++;
		return -ENOTCONN;
	}
	if (qp->ops->connected == !!(p->mask & DP_HAS_DETH)) {
		e->stats.drop_other_type++;
		return -EPROTO;
	}
	if ((qp->ops->connected && memcmp(&pkt->src, &qp->attr.raddr, sizeof(pkt->src))) ||
	    memcmp(&pkt->dst, &e->cfg.addr, sizeof(pkt->dst))) {
		e->stats.drop_foreign_addr++;
		return -EACCES;
	}
	if (!e->cfg.no_payload && !p->cut && !dp_icrc_check(pkt)) {
		e->stats.drop_icrc++;
		return -EBADMSG;
	}
	*out = qp;
	return 0;
}

int dp_engine_rx(struct dp_engine *e, const struct dp_packet *pkt, uint64_t now)
{
	struct dp_parsed p;
	struct dp_qp *qp;
	int err;

	dp_engine_clock(e, now);
	e->stats.rx_packets++;
	err = admit(e, pkt, &p, &qp);
	if (err)
		return err;
	if (!qp)
		return dp_multicast_rx(e, pkt, &p, now);
	if (!p.cut) {
		qp->stats.rx_packets++;
		qp->stats.ecn_marked += (pkt->tos & DP_ECN_MASK) == DP_ECN_CE;
	}
	err = qp->ops->rx(qp, pkt, &p, now);
	if (!err)
		dp_qp_rearm(qp, now);
	return err;
}

/* ---- transmit ---------------------------------------------------------------------------------- */

int dp_engine_tx(struct dp_engine *e, struct dp_packet *out, int max, uint64_t now)
{
	struct dp_qp *qp;
	int n = 0, end, built;

	dp_engine_clock(e, now);
	while (n < max && e->ready_mask) {
		qp = e->ready[__builtin_ctz(e->ready_mask)].head;
		dp_qp_unwake(qp);
		end = max - n < DP_QP_QUANTUM ? max : n + DP_QP_QUANTUM;
		do {
			built = qp->ops->tx(qp, &out[n], end - n, now);
			n += built;
		} while (built && n < end);
		if (n == end)
			dp_qp_wake(qp);
		dp_qp_rearm(qp, now);
	}
	e->stats.tx_packets += (uint64_t)n;
	return n;
}

void dp_engine_stats(const struct dp_engine *e, struct dp_engine_stats *out)
{
	*out = e->stats;
}
