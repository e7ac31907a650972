// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * READs and atomics at the responder: each is executed once and answered in PSN order, and answered
 * again from a saved record (the responder resources of IBTA vol. 1, 9.7.7.2).
 */
#include "engine/rc/answers.h"

void dp_answers_release(struct dp_rc *rc)
{
	if (rc->resp.answers)
		dp_pool_put(&rc->qp.engine->store->answers, rc->resp.answers);
	rc->resp.answers = NULL;
}

void dp_answers_before(struct dp_rc *rc, uint32_t psn)
{
	struct dp_answers *q = rc->resp.answers;
	uint32_t i, kept = q ? q->head : 0;
	const struct dp_answer *a;

	for (i = kept; q && i != q->tail; i++) {
		a = &q->ring[i % DP_READ_QUEUE];
		if (dp_psn_diff(dp_psn_add(a->psn, a->n_psn), psn) <= 0)
			q->ring[kept++ % DP_READ_QUEUE] = *a;
	}
	if (q)
		q->tail = kept;
}

uint32_t dp_read_psns(uint32_t len, uint32_t segment)
{
	return len ? (len + segment - 1) / segment : 1;
}

/* Makes room for the records of so many requests; those that are there stay. */
static bool make_room(struct dp_rc *rc, uint8_t room)
{
	struct dp_responder *r = &rc->resp;
	uint32_t i, held = r->accepted_room;
	struct dp_accepted *ring;

	if (room <= held)
		return true;
	ring = calloc(room, sizeof(*ring));
	if (!ring)
		return false;
	for (i = 0; i < held; i++) /* the oldest first */
		ring[i] = r->accepted[(r->accepted_next + i) % held];
	free(r->accepted);
	r->accepted = ring;
	r->accepted_room = room;
	r->accepted_next = (uint8_t)held;
	return true;
}

/* Makes room for one more answer and for the record of its request.  Most connections never need
 * either. */
static bool may_answer(struct dp_rc *rc)
{
	struct dp_answers *q = rc->resp.answers;

	if (!make_room(rc, rc->qp.attr.max_dest_rd_atomic))
		return false;
	if (!q) {
		q = dp_pool_get(&rc->qp.engine->store->answers);
		if (!q)
			return false;
		q->head = q->tail = 0;
		rc->resp.answers = q;
	}
	return q->tail - q->head < DP_READ_QUEUE;
}

/* A standard requester takes answers in PSN order.  A repeated request goes in front of those that
 * wait, or takes the place of the waiting one that holds its PSN: a requester that goes back has
 * received everything before this PSN.  If the answer behind it has begun, it begins anew. */
static struct dp_answer *insert(struct dp_answers *q, uint32_t psn)
{
	struct dp_answer *a;
	uint32_t at = q->tail, i;

	for (; at != q->head; at--) {
		a = &q->ring[(at - 1) % DP_READ_QUEUE];
		if (dp_psn_diff(psn, a->psn) >= (int32_t)a->n_psn)
			break;
	}
	a = &q->ring[at % DP_READ_QUEUE];
	if (at != q->tail && dp_psn_diff(psn, a->psn) >= 0)
		return a;
	for (i = q->tail++; i != at; i--) {
		q->ring[i % DP_READ_QUEUE] = q->ring[(i - 1) % DP_READ_QUEUE];
		q->ring[i % DP_READ_QUEUE].done = 0;
	}
	return a;
}

static struct dp_answer *new_answer(struct dp_rc *rc, uint32_t psn, bool extended)
{
	struct dp_answers *q;

	if (!may_answer(rc))
		return NULL;
	q = rc->resp.answers;
	return extended ? &q->ring[q->tail++ % DP_READ_QUEUE] : insert(q, psn);
}

/* ---- requests that were accepted ----------------------------------------------------- */

static uint32_t segment_of(const struct dp_rc *rc, const struct dp_held *h, bool extended)
{
	return extended ? h->segment : rc->qp.attr.path_mtu;
}

/* A PSN near the expected one, as a 64-bit number that does not wrap. */
static uint64_t unwrapped(const struct dp_responder *r, uint32_t psn)
{
	return r->expected + (uint64_t)(int64_t)dp_psn_diff(psn, r->epsn);
}

/* Whether `read` may be the part of READ `e` that begins `bytes` behind the start of `e`. */
static bool continues(const struct dp_accepted *e, const struct dp_accepted *read, uint64_t bytes)
{
	return !e->atomic && read->rkey == e->rkey && read->segment == e->segment &&
	       read->start == e->start && read->va == e->va + bytes;
}

/* Records a request.  In extended mode a long READ comes in parts, which count as one READ. */
static void accept(struct dp_rc *rc, const struct dp_accepted *new)
{
	struct dp_responder *r = &rc->resp;
	uint32_t room = r->accepted_room, next = r->accepted_next;
	struct dp_accepted *last = &r->accepted[(next + room - 1) % room];
	uint64_t psns = new->at - last->at, bytes = psns *new->segment;

	if (!new->atomic && last->n_psn &&new->at >= last->at &&psns <= last->n_psn &&bytes <=
				    last->len &&continues(last, new, bytes)) {
		last->n_psn = psns + new->n_psn;
		last->len = bytes + new->len;
		return;
	}
	r->accepted[next] = *new;
	r->accepted_next = (uint8_t)((next + 1) % room);
}

static struct dp_accepted read_as_accepted(const struct dp_rc *rc, const struct dp_held *h,
					   uint32_t psn, bool extended)
{
	uint32_t segment = segment_of(rc, h, extended);

	return (struct dp_accepted){ .at = unwrapped(&rc->resp, psn),
				     .n_psn = dp_read_psns(h->len, segment),
				     .va = h->va,
				     .len = h->len,
				     .start = extended ? h->va - h->offset : 0,
				     .rkey = h->rkey,
				     .segment = segment };
}

static bool covers(const struct dp_accepted *e, const struct dp_accepted *read)
{
	uint64_t bytes = (read->at - e->at) * read->segment;

	return read->at >= e->at && read->at + read->n_psn <= e->at + e->n_psn &&
	       bytes + read->len <= e->len && continues(e, read, bytes);
}

static bool was_accepted(const struct dp_rc *rc, const struct dp_accepted *read)
{
	uint32_t i;

	for (i = 0; i < rc->resp.accepted_room; i++)
		if (covers(&rc->resp.accepted[i], read))
			return true;
	return false;
}

bool dp_was_accepted(const struct dp_rc *rc, const struct dp_held *h, uint32_t psn, uint32_t n_psn)
{
	struct dp_accepted part = read_as_accepted(rc, h, psn, true);

	if (part.n_psn > n_psn) {
		part.n_psn = n_psn;
		part.len = (uint64_t)n_psn * part.segment;
	}
	return was_accepted(rc, &part);
}

/* ---- READs and atomics -------------------------------------------------------------- */

static int answer_read(struct dp_rc *rc, const struct dp_held *h, uint32_t psn, bool extended,
		       bool replayed)
{
	uint32_t segment = segment_of(rc, h, extended);
	struct dp_answer *a;

	if (!(rc->qp.attr.access & DP_ACCESS_REMOTE_READ) || !rc->qp.attr.max_dest_rd_atomic ||
	    h->len > DP_MSG_MAX)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (!dp_remote_reach(&rc->qp, h->rkey, h->va, h->len, DP_ACCESS_REMOTE_READ))
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	a = new_answer(rc, psn, extended);
	if (!a)
		return -EAGAIN;
	*a = (struct dp_answer){
		.va = h->va,
		.rkey = h->rkey,
		.psn = psn,
		.n_psn = dp_read_psns(h->len, segment),
		.segment = segment,
		.len = h->len,
		.offset = h->offset,
		.ts_ns = h->ts_ns,
		.arrived_ns = h->arrived_ns,
		.extended = extended,
		.replayed = replayed,
	};
	dp_qp_wake(&rc->qp);
	return 0;
}

int dp_execute_read(struct dp_rc *rc, const struct dp_held *h, uint32_t psn, bool extended)
{
	struct dp_accepted read = read_as_accepted(rc, h, psn, extended);
	int err = answer_read(rc, h, psn, extended, false);

	if (!err)
		accept(rc, &read);
	return err;
}

static int answer_once(struct dp_rc *rc, const struct dp_accepted *e, const struct dp_held *h,
		       uint32_t psn, bool extended)
{
	struct dp_answer *a = new_answer(rc, psn, extended);

	if (!a)
		return -EAGAIN;
	*a = (struct dp_answer){
		.psn = psn,
		.n_psn = 1,
		.value = e->value,
		.ts_ns = h->ts_ns,
		.arrived_ns = h->arrived_ns,
		.atomic = !e->confirmed,
		.extended = extended,
	};
	dp_qp_wake(&rc->qp);
	return 0;
}

/* Whether all of a FLUSH is allowed: 0, or the syndrome of a NAK.  No memory here outlives the
 * machine, so no region grants persistence. */
static int check_flush(const struct dp_rc *rc, const struct dp_held *h)
{
	bool global = h->placement == DP_FETH_GLOBAL, allowed;

	if (!h->placement || h->selectivity > DP_FETH_MR)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (h->selectivity == DP_FETH_MR)
		allowed = dp_remote_allows(&rc->qp, h->rkey, DP_ACCESS_FLUSH_GLOBAL);
	else
		allowed = dp_remote_reach(&rc->qp, h->rkey, h->va, h->len, DP_ACCESS_FLUSH_GLOBAL);
	return global && allowed ? 0 : DP_NAK(DP_NAK_REMOTE_ACCESS);
}

/* The eight bytes that a request is about.  0, or the syndrome of a NAK. */
static int reach_word(const struct dp_rc *rc, const struct dp_held *h, uint32_t access,
		      uint64_t **out)
{
	uint8_t *at;

	if (!(rc->qp.attr.access & access) || h->va & 7)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	at = dp_remote_reach(&rc->qp, h->rkey, h->va, 8, access);
	if (!at)
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	if ((uintptr_t)at & 7)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	*out = (uint64_t *)(void *)at;
	return 0;
}

static int check_once(const struct dp_rc *rc, const struct dp_held *h, uint64_t **at)
{
	switch (h->opcode & ~DP_OP_EXT) {
	case DP_OP_FLUSH:
		return check_flush(rc, h);
	case DP_OP_ATOMIC_WRITE:
		return h->whole ? reach_word(rc, h, DP_ACCESS_REMOTE_WRITE, at) :
				  DP_NAK(DP_NAK_INVALID_REQUEST);
	default:
		return reach_word(rc, h, DP_ACCESS_REMOTE_ATOMIC, at);
	}
}

/* Returns the value that the answer tells. */
static uint64_t perform(const struct dp_held *h, uint64_t *at)
{
	uint64_t value = h->compare;

	switch (h->opcode & ~DP_OP_EXT) {
	case DP_OP_FLUSH:
		__sync_synchronize(); /* ThreadSanitizer knows no __atomic_thread_fence() */
		return 0;
	case DP_OP_ATOMIC_WRITE:
		__atomic_store_n(at, h->swap_add, __ATOMIC_SEQ_CST);
		return 0;
	case DP_OP_FETCH_ADD:
		return __atomic_fetch_add(at, h->swap_add, __ATOMIC_SEQ_CST);
	default:
		__atomic_compare_exchange_n(at, &value, h->swap_add, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		return value;
	}
}

int dp_execute_once(struct dp_rc *rc, const struct dp_held *h, uint32_t psn, bool extended)
{
	struct dp_accepted once = {
		.n_psn = 1,
		.atomic = true,
		.confirmed = !(dp_opcodes[h->opcode].mask & DP_HAS_ATOMIC_ETH),
	};
	uint64_t *at = NULL;
	int err;

	err = rc->qp.attr.max_dest_rd_atomic ? check_once(rc, h, &at) :
					       DP_NAK(DP_NAK_INVALID_REQUEST);
	if (err)
		return err;
	if (!may_answer(rc))
		return -EAGAIN;
	if (!rc->qp.engine->cfg.no_payload)
		once.value = perform(h, at);
	once.at = unwrapped(&rc->resp, psn);
	accept(rc, &once);
	return answer_once(rc, &once, h, psn, extended);
}

/* Answers from the record: an atomic is never executed twice. */
static void replay_once(struct dp_rc *rc, const struct dp_held *h, uint32_t psn, bool extended)
{
	const struct dp_accepted *e = rc->resp.accepted;
	uint64_t at = unwrapped(&rc->resp, psn);
	uint32_t i;

	for (i = 0; i < rc->resp.accepted_room; i++)
		if (e[i].atomic && e[i].at == at) {
			answer_once(rc, &e[i], h, psn, extended);
			return;
		}
}

/* A repeated request may be forged, so an error here does not end the connection.  A requester that
 * still waits for the answer learns from the NAK that the memory is gone. */
void dp_refuse_replay(struct dp_rc *rc, uint32_t psn, uint8_t syndrome)
{
	struct dp_responder *r = &rc->resp;

	if ((r->syndrome & DP_AETH_TYPE_MASK) != DP_AETH_ACK)
		return;
	r->syndrome = syndrome;
	r->nak_psn = psn;
	dp_ack_soon(rc);
}

static void replay_read(struct dp_rc *rc, const struct dp_held *h, uint32_t psn, bool extended)
{
	struct dp_accepted read = read_as_accepted(rc, h, psn, extended);
	int err;

	if (!was_accepted(rc, &read))
		return;
	err = answer_read(rc, h, psn, extended, true);
	if (err > 0)
		dp_refuse_replay(rc, psn, (uint8_t)err);
}

void dp_replay(struct dp_rc *rc, const struct dp_held *h, uint32_t psn, bool extended)
{
	if (dp_opcodes[h->opcode].mask & DP_IS_READ)
		replay_read(rc, h, psn, extended);
	else
		replay_once(rc, h, psn, extended);
}
