// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "core/internal.h"

#include <assert.h>

#include "wire/trim.h"

/* splitmix64 (Steele, Lea and Flood, OOPSLA 2014) */
uint64_t dp_random(struct dp_engine *e)
{
	uint64_t z = e->rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* ---- pools ------------------------------------------------------------------ */

int dp_pool_grow(struct dp_pool *p)
{
	void *b;

	if (p->on_demand)
		return 0;
	b = malloc(p->size);
	if (!b)
		return -ENOMEM;
	dp_pool_put(p, b);
	return 0;
}

/* Takes back what dp_pool_grow() put in for a QP that has given back its block. */
void dp_pool_shrink(struct dp_pool *p)
{
	if (!p->on_demand)
		free(dp_pool_get(p));
}

void dp_pool_drain(struct dp_pool *p)
{
	void *b;

	p->on_demand = false;
	while ((b = dp_pool_get(p)))
		free(b);
}

static bool window_valid(uint32_t w)
{
	return !w || (w >= 64 && w <= 2048 && !(w & (w - 1)));
}

static void store_init(struct dp_store *s, uint32_t window_psns, bool on_demand)
{
	uint32_t window = window_psns ? window_psns : 2048;

	s->window_psns = window;
	s->tx.size = sizeof(struct dp_tx_block) + window * sizeof(struct dp_rec);
	s->rx.size = sizeof(struct dp_rx_block) + window * sizeof(struct dp_held);
	s->answers.size = sizeof(struct dp_answers);
	s->tx.on_demand = s->rx.on_demand = s->answers.on_demand = on_demand;
}

static void store_drain(struct dp_store *s)
{
	dp_pool_drain(&s->tx);
	dp_pool_drain(&s->rx);
	dp_pool_drain(&s->answers);
}

int dp_store_create(uint32_t window_psns, struct dp_store **out)
{
	struct dp_store *s;

	if (!window_valid(window_psns))
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	store_init(s, window_psns, true);
	*out = s;
	return 0;
}

void dp_store_destroy(struct dp_store *s)
{
	assert(!s->engines);
	store_drain(s);
	free(s);
}

/* ---- life cycle --------------------------------------------------------------- */

static bool config_valid(const struct dp_engine_config *c)
{
	uint32_t window = c->window_psns ? c->window_psns : 2048;

	if (c->path_mtu_max < 256 || c->path_mtu_max > 4096 ||
	    c->path_mtu_max & (c->path_mtu_max - 1))
		return false;
	if (c->segment_max && (c->segment_max < DP_SEGMENT_MIN || c->segment_max > DP_SEGMENT_MAX ||
			       c->segment_max & 3))
		return false;
	if (!window_valid(c->window_psns) || (c->store && c->store->window_psns != window))
		return false;
	if (c->paths > DP_PATHS_MAX || (c->paths > 1 && c->udp_sport))
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
	e->cfg = *c;
	if (!e->cfg.window_psns)
		e->cfg.window_psns = 2048;
	if (!e->cfg.min_rto_ns)
		e->cfg.min_rto_ns = 4000000;
	e->rng = c->seed;
	e->qpn_next = (uint32_t)dp_random(e) & 0xffff;
	store_init(&e->own, e->cfg.window_psns, false);
	e->store = c->store ? c->store : &e->own;
	e->store->engines++;
	*out = e;
	return 0;
}

void dp_engine_destroy(struct dp_engine *e)
{
	uint32_t i;

	for (i = 0; i < DP_MAX_QPS && e->n_qps; i++)
		if (dp_find_qp(e, i))
			dp_qp_destroy(dp_find_qp(e, i));
	for (i = 0; i < DP_MAX_QPS / DP_QP_PAGE; i++)
		free(e->qps[i]);
	for (i = 0; i < e->mr_cap; i++)
		free(e->mrs[i]);
	e->store->engines--;
	store_drain(&e->own);
	free(e->mrs);
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
	out->cq = n->is_cq ? container_of(n, struct dp_cq, event) : NULL;
	out->qp = n->is_cq ? NULL : container_of(n, struct dp_qp, event);
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

	if (qp->ready)
		return;
	qp->ready = true;
	qp->ready_next = NULL;
	if (e->ready_tail)
		e->ready_tail->ready_next = qp;
	else
		e->ready_head = qp;
	e->ready_tail = qp;
}

void dp_qp_unwake(struct dp_qp *qp)
{
	struct dp_engine *e = qp->engine;
	struct dp_qp **at = &e->ready_head, *prev = NULL;

	if (!qp->ready)
		return;
	for (; *at != qp; at = &(*at)->ready_next)
		prev = *at;
	*at = qp->ready_next;
	if (e->ready_tail == qp)
		e->ready_tail = prev;
	qp->ready = false;
}

static void earlier(uint64_t *min, uint64_t t)
{
	if (t && t < *min)
		*min = t;
}

/* A timer that is armed too early only costs a look at the QP, so moving it to
 * a later time waits until it fires.  What is due already waits for tx(), not
 * for the clock: the timer is never armed at a time that has come. */
void dp_qp_rearm(struct dp_qp *qp, uint64_t now)
{
	const struct dp_requester *r = &qp->req;
	uint64_t min = DP_NEVER;

	if (r->rnr_until_ns) {
		earlier(&min, r->rnr_until_ns);
	} else {
		earlier(&min, r->timer_ns);
		earlier(&min, r->tlp_ns);
		earlier(&min, r->reorder_ns);
	}
	earlier(&min, qp->resp.ack_ns);
	if (qp->hello_ns > now)
		earlier(&min, qp->hello_ns);
	if (qp->flow.paced)
		earlier(&min, qp->flow.next_tx_ns);
	if (min == DP_NEVER)
		return;
	if (min <= now)
		min = now + (1u << DP_WHEEL_SHIFT);
	if (!dp_timer_armed(&qp->timer) || qp->timer.expires_ns > min)
		dp_wheel_arm(&qp->engine->wheel, &qp->timer, min);
}

static void start_clock(struct dp_engine *e, uint64_t now)
{
	if (e->wheel_started)
		return;
	e->wheel_started = true;
	dp_wheel_init(&e->wheel, now);
}

uint64_t dp_engine_deadline(const struct dp_engine *e)
{
	return e->ready_head ? 0 : dp_wheel_next(&e->wheel);
}

void dp_engine_tick(struct dp_engine *e, uint64_t now)
{
	struct dp_timer *t;
	struct dp_qp *qp;

	start_clock(e, now);
	while ((t = dp_wheel_pop(&e->wheel, now))) {
		qp = container_of(t, struct dp_qp, timer);
		dp_responder_tick(qp, now);
		dp_requester_tick(qp, now);
		dp_flow_turn(qp, now);
		if (qp->hello_ns && now >= qp->hello_ns)
			dp_qp_wake(qp);
		dp_requester_wake(qp);
		dp_qp_rearm(qp, now);
	}
}

/* ---- negotiation of the extended mode --------------------------------------------------- */

static uint32_t room_len(const struct dp_qp *qp)
{
	return qp->telemetry ? dp_room_len(DP_HOPS_MAX) : 0;
}

/* Packets longer than the path MTU are used when the path has carried one there
 * and one back; only with room for telemetry by a QP whose program chose a smaller
 * MTU than it had to. */
static void start_probe(struct dp_qp *qp, uint32_t peer_segment, uint64_t now)
{
	uint32_t segment = dp_segment_limit(qp);

	if (segment > peer_segment)
		segment = peer_segment & ~3u;
	if (qp->attr.path_mtu < qp->engine->cfg.path_mtu_max &&
	    segment > qp->attr.path_mtu + room_len(qp))
		segment = qp->attr.path_mtu + room_len(qp);
	if (segment <= qp->attr.path_mtu)
		return;
	qp->probe = (uint16_t)segment;
	qp->probing = true;
	qp->hello_tries = DP_PROBE_TRIES;
	qp->hello_ns = now;
}

static void end_probe(struct dp_qp *qp, bool carried)
{
	uint32_t segment = qp->probe - room_len(qp);

	if (!carried)
		qp->telemetry = false;
	else if (segment > qp->attr.path_mtu)
		qp->segment = segment;
	qp->probing = false;
	qp->hello_ns = 0;
}

static void hello_rx(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	struct dp_hello hello;

	dp_hello_get(p->hello, &hello);
	if (hello.version != DP_EXT_VERSION || hello.qpn != qp->attr.dest_qpn ||
	    hello.window_psns < 64)
		return;
	if (p->opcode == DP_OP_HELLO)
		qp->hello_reply = true;
	dp_qp_wake(qp);
	if (qp->hello_done)
		return;
	/* The requester changes mode only after this, so nothing is in flight by the window. */
	while (qp->window > hello.window_psns)
		qp->window >>= 1;
	qp->hello_done = qp->peer_extended = true;
	qp->peer_paths = hello.features & DP_FEATURE_PATHS;
	qp->telemetry = hello.features & dp_features(qp) & DP_FEATURE_TELEMETRY;
	qp->hello_ns = 0;
	start_probe(qp, hello.segment, now);
}

void dp_peer_is_extended(struct dp_qp *qp, uint64_t now)
{
	qp->peer_extended = true;
	if (qp->hello_done || qp->hello_ns)
		return;
	qp->hello_tries = DP_HELLO_TRIES;
	qp->hello_ns = now;
	dp_qp_wake(qp);
}

static void probe_rx(struct dp_qp *qp, const struct dp_parsed *p)
{
	uint32_t len = p->payload_len + p->payload2_len;
	uint32_t segment = len - DP_PROBE_EXTRA;

	if (len <= DP_PROBE_EXTRA || segment & 3 || segment > dp_segment_limit(qp))
		return;
	if (p->opcode == DP_OP_PROBE) {
		qp->probe_reply = (uint16_t)segment;
	} else if (segment == qp->probe) {
		end_probe(qp, true);
	}
	dp_qp_wake(qp);
}

static int reply_tx(struct dp_qp *qp, struct dp_packet *pkt)
{
	if (qp->hello_reply) {
		qp->hello_reply = false;
		dp_build_hello(qp, DP_OP_HELLO_REPLY, pkt);
		return 1;
	}
	if (!qp->probe_reply)
		return 0;
	dp_build_probe(qp, DP_OP_PROBE_REPLY, qp->probe_reply, pkt);
	qp->probe_reply = 0;
	return 1;
}

/* An offer or a probe that is due. */
static int hello_tx(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	uint32_t tries = qp->probing ? DP_PROBE_TRIES : DP_HELLO_TRIES;
	uint64_t wait;

	if (!qp->hello_ns || now < qp->hello_ns)
		return 0;
	if (!qp->hello_tries) { /* nobody answered */
		qp->hello_ns = 0;
		if (qp->probing)
			end_probe(qp, false);
		return 0;
	}
	wait = DP_HELLO_FIRST_NS << (tries - qp->hello_tries);
	qp->hello_tries--;
	qp->hello_ns = now + (wait < DP_HELLO_LONGEST_NS ? wait : DP_HELLO_LONGEST_NS);
	if (qp->probing)
		dp_build_probe(qp, DP_OP_PROBE, qp->probe, pkt);
	else
		dp_build_hello(qp, DP_OP_HELLO, pkt);
	return 1;
}

/* ---- receive -------------------------------------------------------------------------------- */

static bool can_receive(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_RTR || qp->state == DP_QPS_RTS || qp->state == DP_QPS_SQD;
}

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
	qp = dp_find_qp(e, p->dest_qpn);
	if (!qp || qp->qpn != p->dest_qpn) {
		e->stats.drop_unknown_qp++;
		return -ENOENT;
	}
	if (!can_receive(qp) && !(qp->state == DP_QPS_ERR && qp->resp.fatal)) {
		e->stats.drop_bad_state++;
		return -ENOTCONN;
	}
	if (memcmp(&pkt->src, &qp->attr.raddr, sizeof(pkt->src)) ||
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

static void dispatch(struct dp_qp *qp, const struct dp_packet *pkt, const struct dp_parsed *p,
		     uint64_t now)
{
	if (qp->state == DP_QPS_ERR) {
		if (p->mask & DP_IS_REQUEST) {
			qp->resp.ack_now = true;
			dp_qp_wake(qp);
		}
		return;
	}
	if (qp->state == DP_QPS_RTR && !qp->comm_est && p->mask & DP_IS_REQUEST) {
		qp->comm_est = true;
		dp_raise(qp->engine, &qp->event, DP_EVENT_COMM_EST);
	}
	if (p->hello)
		hello_rx(qp, p, now);
	else if (p->mask & DP_IS_PROBE)
		probe_rx(qp, p);
	else if (p->mask & DP_IS_CNP)
		qp->stats.cnp_rx++;
	else if (p->mask & DP_IS_REQUEST && p->xdh)
		dp_reorder_rx(qp, pkt, p, now);
	else if (p->mask & DP_IS_REQUEST)
		dp_responder_rx(qp, pkt, p, now);
	else
		dp_requester_rx(qp, p, now);
}

/* Nothing of it is proven, so no more follows than that the PSN is sent again. */
static int trimmed_rx(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	if (!qp->peer_extended || qp->state == DP_QPS_ERR)
		return -EPROTO;
	qp->stats.trimmed++;
	if (p->mask & DP_IS_REQUEST)
		dp_reorder_trimmed(qp, p);
	else if (qp->extended)
		dp_ext_trimmed(qp, p->psn, now);
	dp_qp_rearm(qp, now);
	return 0;
}

int dp_engine_rx(struct dp_engine *e, const struct dp_packet *pkt, uint64_t now)
{
	struct dp_parsed p;
	struct dp_qp *qp;
	int err;

	start_clock(e, now);
	e->stats.rx_packets++;
	err = admit(e, pkt, &p, &qp);
	if (err)
		return err;
	if (p.cut)
		return trimmed_rx(qp, &p, now);
	qp->stats.rx_packets++;
	if ((pkt->tos & DP_ECN_MASK) == DP_ECN_CE)
		qp->stats.ecn_marked++;
	dispatch(qp, pkt, &p, now);
	dp_qp_rearm(qp, now);
	return 0;
}

/* ---- transmit ---------------------------------------------------------------------------------- */

static int qp_tx(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	if (!can_receive(qp) && !qp->resp.fatal)
		return 0;
	if (dp_responder_tx(qp, pkt, now))
		return 1;
	if (!can_receive(qp))
		return 0;
	return reply_tx(qp, pkt) || hello_tx(qp, pkt, now) || dp_requester_tx(qp, pkt, now);
}

int dp_engine_tx(struct dp_engine *e, struct dp_packet *out, int max, uint64_t now)
{
	struct dp_qp *qp;
	int n = 0, quota;

	start_clock(e, now);
	while (n < max && (qp = e->ready_head)) {
		dp_qp_unwake(qp);
		for (quota = DP_QP_QUANTUM; quota && n < max; quota--) {
			if (!qp_tx(qp, &out[n], now))
				break;
			n++;
		}
		if (!quota || n == max)
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
