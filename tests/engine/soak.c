/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "soak.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "engine/engine.h"
#include "to_rts.h"

enum {
	GUARD = 32,
	SGES = 4,
	INLINE = 128,
	STUCK = 200000, /* turns of the loop without time passing */
};

#define GUARD_BYTE 0xa5
#define ACCESS                                                                                     \
	(DP_ACCESS_LOCAL_WRITE | DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_READ |                  \
	 DP_ACCESS_REMOTE_ATOMIC)

struct op {
	uint8_t opcode, flags;
	bool inspected; /* WRITE: seen whole at the target */
	uint32_t len, imm;
	uint64_t original; /* atomic: the value it must return */
};

/* Registered memory of `slots` slots, each with a guard behind it. */
struct area {
	uint8_t *mem;
	uint64_t iova;
	uint32_t slots, room;
	struct dp_mr *mr;
};

struct side {
	struct soak *s;
	struct dp_engine *engine;
	struct dp_pd *pd;
	struct dp_cq *send_cq, *recv_cq;
	struct dp_qp *qp;
	struct side *peer;
	int index;
	struct area local, target, source, recvs, counter;
	struct op *ops;
	uint32_t *receiving; /* op numbers of the messages that consume a receive */
	uint32_t n_ops, posted, completed, signaled;
	uint32_t n_receiving;
	uint32_t recvs_posted, recvs_done;
	uint64_t counter_model; /* what the peer's counter will be */
	uint64_t post_at, repost_at;
	bool failed, flushing;
};

struct soak {
	struct X_soak *p;
	uint64_t rng, now;
	struct X_channel channel;
	struct side side[2];
	uint64_t turns;
	bool broken;
};

__attribute__((format(printf, 2, 3))) static void fail(struct soak *s, const char *format, ...)
{
	va_list args;

	if (s->broken)
		return;
	s->broken = true;
	va_start(args, format);
	vsnprintf(s->p->failure, sizeof(s->p->failure), format, args);
	va_end(args);
}

static uint64_t roll(struct soak *s, uint64_t below)
{
	return below ? X_random(&s->rng) % below : 0;
}

static bool chance(struct soak *s, uint32_t ppm)
{
	return roll(s, 1000000) < ppm;
}

/* ---- memory ----------------------------------------------------------------- */

static uint32_t stride(const struct area *a)
{
	return a->room + GUARD;
}

static uint8_t *slot(const struct area *a, uint32_t i)
{
	return a->mem + (size_t)(i % a->slots) * stride(a);
}

static uint64_t slot_va(const struct area *a, uint32_t i)
{
	return a->iova + (uint64_t)(i % a->slots) * stride(a);
}

static int area_make(struct side *x, struct area *a, uint64_t iova, uint32_t slots, uint32_t room)
{
	size_t size;

	*a = (struct area){ .iova = iova, .slots = slots, .room = room };
	size = (size_t)slots * stride(a);
	a->mem = malloc(size);
	if (!a->mem)
		return -1;
	memset(a->mem, GUARD_BYTE, size);
	return dp_mr_create(x->pd, a->mem, size, iova, ACCESS, &a->mr);
}

/* Byte j of message i from side x. */
static uint8_t content(const struct side *x, uint32_t i, uint32_t j)
{
	uint64_t v = (x->s->p->seed + 1) * 0x9e3779b97f4a7c15 + (uint64_t)x->index * 0x51ed27 + i;

	v ^= v >> 29;
	v = (v + (j >> 3)) * 0xbf58476d1ce4e5b9;
	v ^= v >> 32;
	return (uint8_t)(v >> (8 * (j & 7)));
}

/* What is there before it comes: no byte of it is right already. */
static uint8_t vacant(const struct side *x, uint32_t i, uint32_t j)
{
	return content(x, i, j) ^ 0xff;
}

static void fill(const struct side *x, uint32_t i, uint8_t *to, uint32_t room, bool vacate)
{
	uint32_t j;

	for (j = 0; j < room; j++)
		to[j] = vacate ? vacant(x, i, j) : content(x, i, j);
}

static bool arrived(const struct side *x, uint32_t i, const uint8_t *at, uint32_t len)
{
	uint32_t j;

	for (j = 0; j < len; j++)
		if (at[j] != content(x, i, j))
			return false;
	return true;
}

/* The message, what was behind it before, and the guard. */
static void expect_slot(struct side *x, uint32_t i, const struct area *a, uint32_t at_slot,
			const char *what)
{
	const uint8_t *at = slot(a, at_slot);
	uint32_t len = x->ops[i].len, j;

	if (!arrived(x, i, at, len))
		fail(x->s, "side %d: %s %u of %u bytes is not what was sent", x->index, what, i,
		     len);
	for (j = len; j < a->room; j++)
		if (at[j] != vacant(x, i, j))
			fail(x->s, "side %d: %s %u changed byte %u behind its %u bytes", x->index,
			     what, i, j, len);
	for (j = 0; j < GUARD; j++)
		if (at[a->room + j] != GUARD_BYTE)
			fail(x->s, "side %d: %s %u overwrote a guard", x->index, what, i);
}

static uint64_t load64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

/* ---- requests ------------------------------------------------------------------ */

static bool is_write(uint8_t opcode)
{
	return opcode == DP_WR_RDMA_WRITE || opcode == DP_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(uint8_t opcode)
{
	return opcode == DP_WR_ATOMIC_CMP_AND_SWP || opcode == DP_WR_ATOMIC_FETCH_AND_ADD;
}

static bool consumes_receive(uint8_t opcode)
{
	return opcode == DP_WR_SEND || opcode == DP_WR_SEND_WITH_IMM ||
	       opcode == DP_WR_RDMA_WRITE_WITH_IMM;
}

static uint32_t random_len(struct soak *s)
{
	uint32_t mtu = s->p->path_mtu, max = s->p->max_len;
	uint64_t len;

	switch (roll(s, 6)) {
	case 0:
		len = roll(s, 3);
		break;
	case 1:
		len = roll(s, 64);
		break;
	case 2:
		len = mtu * roll(s, 5) + roll(s, 3);
		break;
	case 3:
		len = mtu * (1 + roll(s, max / mtu + 1)) - roll(s, 3);
		break;
	default:
		len = roll(s, (uint64_t)max + 1);
	}
	return (uint32_t)(len < max ? len : max);
}

static uint8_t random_opcode(struct soak *s)
{
	uint8_t opcode;

	do
		opcode = (uint8_t)roll(s, DP_WR_ATOMIC_FETCH_AND_ADD + 1);
	while (!(s->p->ops >> opcode & 1));
	return opcode;
}

/* SGEs from `base` on; a single one or a random division. */
static uint32_t split(struct soak *s, const struct area *a, uint64_t base, uint32_t len,
		      struct dp_sge *sge)
{
	uint32_t n = 0, at = 0, piece;

	while (at < len) {
		piece = n == SGES - 1 || roll(s, 2) ? len - at : (uint32_t)roll(s, len - at + 1);
		sge[n++] = (struct dp_sge){ base + at, piece, dp_mr_key(a->mr) };
		at += piece;
	}
	return n;
}

static void prepare_atomic(struct side *x, struct op *op, struct dp_send_wr *wr)
{
	uint64_t value = X_random(&x->s->rng);

	op->original = x->counter_model;
	op->len = 8;
	wr->remote_addr = x->peer->counter.iova;
	wr->rkey = dp_mr_key(x->peer->counter.mr);
	if (op->opcode == DP_WR_ATOMIC_FETCH_AND_ADD) {
		wr->compare_add = value;
		x->counter_model += value;
	} else {
		wr->compare_add = roll(x->s, 2) ? x->counter_model : value;
		wr->swap = ~value;
		if (wr->compare_add == x->counter_model)
			x->counter_model = wr->swap;
	}
}

static void prepare_data(struct side *x, uint32_t i, struct op *op, struct dp_send_wr *wr)
{
	bool reads = op->opcode == DP_WR_RDMA_READ;
	struct area *there = reads ? &x->peer->source : &x->peer->target;

	op->len = random_len(x->s);
	fill(x, i, slot(&x->local, i), x->local.room, reads);
	if (reads)
		fill(x, i, slot(there, i), there->room, false);
	else if (is_write(op->opcode))
		fill(x, i, slot(there, i), there->room, true);
	wr->remote_addr = slot_va(there, i);
	wr->rkey = dp_mr_key(there->mr);
	wr->imm = op->imm = (uint32_t)X_random(&x->s->rng);
	if (!reads && op->len <= INLINE && roll(x->s, 2))
		wr->flags |= DP_SEND_INLINE;
}

static void post_send(struct side *x)
{
	struct soak *s = x->s;
	uint32_t i = x->posted;
	struct op *op = &x->ops[i];
	struct dp_sge sge[SGES];
	struct dp_send_wr wr = { .wr_id = i, .sge = sge };
	uint64_t base;
	int err;

	*op = (struct op){ .opcode = random_opcode(s) };
	wr.opcode = op->opcode;
	if (is_atomic(op->opcode))
		prepare_atomic(x, op, &wr);
	else
		prepare_data(x, i, op, &wr);
	/* The last of a full queue is signaled, or nothing would come back. */
	if (roll(s, 10) < 7 || s->p->may_fail || i + 1 == x->n_ops || (i + 1) % s->p->depth == 0)
		wr.flags |= DP_SEND_SIGNALED;
	if (roll(s, 8) == 0)
		wr.flags |= DP_SEND_FENCE;
	op->flags = (uint8_t)wr.flags;
	/* Inline data is read by its address in this process. */
	base = wr.flags & DP_SEND_INLINE ? (uintptr_t)slot(&x->local, i) : slot_va(&x->local, i);
	wr.num_sge = split(s, &x->local, base, op->len, sge);
	err = dp_qp_post_send(x->qp, &wr);
	if (err)
		fail(s, "side %d: posting request %u: errno %d", x->index, i, -err);
	if (wr.flags & DP_SEND_INLINE)
		memset(slot(&x->local, i), 0, x->local.room);
	if (consumes_receive(op->opcode))
		x->receiving[x->n_receiving++] = i;
	x->posted++;
}

static void post_recv(struct side *x)
{
	uint32_t k = x->recvs_posted++;
	struct dp_sge sge[SGES];
	struct dp_recv_wr wr = { .wr_id = k, .sge = sge };
	int err;

	memset(slot(&x->recvs, k), GUARD_BYTE, x->recvs.room);
	wr.num_sge = split(x->s, &x->recvs, slot_va(&x->recvs, k), x->recvs.room, sge);
	err = dp_qp_post_recv(x->qp, &wr);
	if (err)
		fail(x->s, "side %d: posting receive %u: errno %d", x->index, k, -err);
}

static bool may_post(const struct side *x)
{
	return !x->s->side[0].failed && !x->s->side[1].failed && x->posted < x->n_ops &&
	       x->posted - x->completed < x->s->p->depth && x->post_at <= x->s->now;
}

static void post_all(struct side *x)
{
	struct soak *s = x->s;

	while (may_post(x) && !s->broken) {
		post_send(x);
		if (roll(s, 16) == 0) /* think for a while */
			x->post_at = s->now + roll(s, 4 * s->p->latency_ns + 1);
	}
	if (x->repost_at > s->now || x->failed)
		return;
	while (x->recvs_posted - x->recvs_done < s->p->recv_depth && !s->broken) {
		post_recv(x);
		if (chance(s, s->p->slow_recv_ppm)) {
			x->repost_at = s->now + roll(s, 2000000);
			break;
		}
	}
}

/* ---- completions ----------------------------------------------------------------- */

static void check_done(struct side *x, uint32_t i)
{
	struct op *op = &x->ops[i];
	uint64_t value;

	if (is_atomic(op->opcode)) {
		value = load64(slot(&x->local, i));
		if (value != op->original)
			fail(x->s, "side %d: atomic %u returned %#llx, not %#llx", x->index, i,
			     (unsigned long long)value, (unsigned long long)op->original);
	} else if (op->opcode == DP_WR_RDMA_READ) {
		expect_slot(x, i, &x->local, i, "read");
	} else if (is_write(op->opcode)) {
		expect_slot(x, i, &x->peer->target, i, "write");
	}
}

static bool allowed_failure(const struct side *x, const struct dp_wc *wc)
{
	if (!x->s->p->may_fail)
		return false;
	if (x->failed)
		return wc->status == DP_WC_WR_FLUSH_ERR;
	return wc->status == DP_WC_RETRY_EXC_ERR || wc->status == DP_WC_RNR_RETRY_EXC_ERR ||
	       (x->peer->failed && wc->status == DP_WC_WR_FLUSH_ERR);
}

static void send_completed(struct side *x, const struct dp_wc *wc)
{
	static const uint8_t expected[] = {
		[DP_WR_RDMA_WRITE] = DP_WC_RDMA_WRITE,
		[DP_WR_RDMA_WRITE_WITH_IMM] = DP_WC_RDMA_WRITE,
		[DP_WR_SEND] = DP_WC_SEND,
		[DP_WR_SEND_WITH_IMM] = DP_WC_SEND,
		[DP_WR_RDMA_READ] = DP_WC_RDMA_READ,
		[DP_WR_ATOMIC_CMP_AND_SWP] = DP_WC_COMP_SWAP,
		[DP_WR_ATOMIC_FETCH_AND_ADD] = DP_WC_FETCH_ADD,
	};
	uint32_t i = (uint32_t)wc->wr_id;

	if (i < x->completed || i >= x->posted) {
		fail(x->s, "side %d: completion %u came after %u", x->index, i, x->completed);
		return;
	}
	if (wc->status != DP_WC_SUCCESS) {
		if (!allowed_failure(x, wc))
			fail(x->s, "side %d: request %u (opcode %u) failed, status %u", x->index, i,
			     x->ops[i].opcode, wc->status);
		x->failed = true;
		x->completed = i + 1;
		return;
	}
	if (x->failed || wc->opcode != expected[x->ops[i].opcode] ||
	    !(x->ops[i].flags & DP_SEND_SIGNALED))
		fail(x->s, "side %d: completion %u, opcode %u, is out of place", x->index, i,
		     wc->opcode);
	for (; x->completed <= i; x->completed++) {
		if (x->completed < i && (x->ops[x->completed].flags & DP_SEND_SIGNALED))
			fail(x->s, "side %d: no completion for request %u", x->index, x->completed);
		check_done(x, x->completed);
	}
}

static void received(struct side *x, const struct dp_wc *wc)
{
	struct side *from = x->peer;
	uint32_t k = x->recvs_done, i;
	const struct op *op;
	bool has_imm;

	if (x->failed && wc->status == DP_WC_WR_FLUSH_ERR) {
		x->recvs_done++;
		return;
	}
	if (wc->status != DP_WC_SUCCESS || wc->wr_id != k || k >= from->n_receiving) {
		fail(x->s, "side %d: receive %u (of %u sent) ended as %llu, status %u", x->index, k,
		     from->n_receiving, (unsigned long long)wc->wr_id, wc->status);
		return;
	}
	i = from->receiving[k];
	op = &from->ops[i];
	has_imm = op->opcode != DP_WR_SEND;
	if (wc->byte_len != op->len || !!(wc->flags & DP_WC_WITH_IMM) != has_imm ||
	    (has_imm && wc->imm != op->imm))
		fail(x->s, "side %d: receive %u: %u bytes, not %u, or wrong immediate", x->index, k,
		     wc->byte_len, op->len);
	if (op->opcode == DP_WR_RDMA_WRITE_WITH_IMM) {
		expect_slot(from, i, &x->target, i, "write");
	} else if (!arrived(from, i, slot(&x->recvs, k), op->len)) {
		fail(x->s, "side %d: message %u in receive %u is not what was sent", x->index, i,
		     k);
	}
	for (i = op->opcode == DP_WR_RDMA_WRITE_WITH_IMM ? 0 : op->len; i < stride(&x->recvs); i++)
		if (slot(&x->recvs, k)[i] != GUARD_BYTE)
			fail(x->s, "side %d: receive %u wrote behind its message", x->index, k);
	x->recvs_done++;
}

static void poll(struct side *x, struct dp_cq *cq,
		 void (*take)(struct side *, const struct dp_wc *))
{
	struct dp_wc wc[16];
	int n, i;

	while ((n = dp_cq_poll(cq, 16, wc)) > 0)
		for (i = 0; i < n; i++)
			take(x, &wc[i]);
}

static void poll_all(struct side *x)
{
	struct dp_qp_attr attr;

	/* Receives were consumed before the acknowledgements came that complete
	 * requests; but what put the QP into error is the first thing to tell. */
	dp_qp_query(x->qp, &attr);
	if (attr.state == DP_QPS_ERR)
		poll(x, x->send_cq, send_completed);
	poll(x, x->recv_cq, received);
	poll(x, x->send_cq, send_completed);
}

/* What the peer's writes have made of our memory: the last byte comes last. */
static void inspect(struct side *x)
{
	struct side *from = x->peer;
	uint32_t i;

	for (i = from->completed; i < from->posted; i++) {
		struct op *op = &from->ops[i];
		const uint8_t *at = slot(&x->target, i);

		if (!is_write(op->opcode) || op->inspected || !op->len ||
		    at[op->len - 1] != content(from, i, op->len - 1))
			continue;
		op->inspected = true;
		if (!arrived(from, i, at, op->len))
			fail(x->s, "side %d: the last byte of write %u came before the rest",
			     x->index, i);
	}
}

/* ---- set-up ------------------------------------------------------------------------ */

static int side_memory(struct side *x)
{
	const struct X_soak *p = x->s->p;
	uint64_t base = 0x100000000000 * (uint64_t)(x->index + 1);
	int err = 0;

	err |= area_make(x, &x->local, base, p->depth, p->max_len > 8 ? p->max_len : 8);
	err |= area_make(x, &x->target, base + (1ull << 32), p->depth, p->max_len);
	err |= area_make(x, &x->source, base + (2ull << 32), p->depth, p->max_len);
	err |= area_make(x, &x->recvs, base + (3ull << 32), p->recv_depth, p->max_len);
	err |= area_make(x, &x->counter, base + (4ull << 32), 1, 8);
	if (!err)
		memset(x->counter.mem, 0, 8);
	return err;
}

static int side_make(struct soak *s, int index)
{
	struct side *x = &s->side[index];
	const struct X_soak *p = s->p;
	struct dp_engine_config config = {
		.path_mtu_max = p->segment_max[index] ? p->path_mtu : 4096,
		.segment_max = p->segment_max[index],
		.telemetry = (uint8_t)p->telemetry,
		.bundle = (uint8_t)p->bundle,
		.paths = (uint8_t)p->paths,
		.extended = p->extended >> index & 1,
		.ecn = 1,
		.window_psns = p->window_psns,
		.seed = p->seed * 2 + (uint64_t)index + 1,
	};
	struct dp_qp_config qp = {
		.max_send_wr = p->depth,
		.max_recv_wr = p->recv_depth,
		.max_send_sge = SGES,
		.max_recv_sge = SGES,
		.max_inline = INLINE,
	};
	int err;

	x->s = s;
	x->index = index;
	x->peer = &s->side[!index];
	x->n_ops = p->messages[index];
	x->ops = calloc(x->n_ops + 1, sizeof(*x->ops));
	x->receiving = calloc(x->n_ops + 1, sizeof(*x->receiving));
	config.addr = X_address(p->ipv6, index);
	err = dp_engine_create(&config, &x->engine);
	if (err || !x->ops || !x->receiving)
		return -1;
	err |= dp_pd_create(x->engine, &x->pd);
	err |= dp_cq_create(x->engine, p->depth + 1, NULL, &x->send_cq);
	err |= dp_cq_create(x->engine, p->recv_depth + 1, NULL, &x->recv_cq);
	if (err || side_memory(x))
		return -1;
	qp.pd = x->pd;
	qp.send_cq = x->send_cq;
	qp.recv_cq = x->recv_cq;
	return dp_qp_create(x->engine, &qp, &x->qp);
}

static int side_connect(struct side *x)
{
	const struct X_soak *p = x->s->p;
	struct dp_qp_attr attr = {
		.access = ACCESS,
		.raddr = X_address(p->ipv6, !x->index),
		.path_mtu = p->path_mtu,
		.dest_qpn = dp_qp_qpn(x->peer->qp),
		.rq_psn = p->psn[!x->index],
		.sq_psn = p->psn[x->index],
		.timeout = (uint8_t)p->timeout,
		.retry_cnt = (uint8_t)p->retry_cnt,
		.rnr_retry = (uint8_t)p->rnr_retry,
		.min_rnr_timer = 5,
		.max_rd_atomic = (uint8_t)p->rd_atomic,
		.max_dest_rd_atomic =
			(uint8_t)(p->dest_rd_atomic ? p->dest_rd_atomic : p->rd_atomic),
	};
	int err = p->aimd ? dp_qp_set_cc(x->qp, &X_aimd, x->s->now) : 0;

	err |= bring_to_rts(x->qp, attr, x->s->now);
	return err;
}

static void side_free(struct side *x)
{
	struct area *areas[] = { &x->local, &x->target, &x->source, &x->recvs, &x->counter };
	int err = 0;
	size_t i;

	if (x->qp)
		err |= dp_qp_destroy(x->qp);
	for (i = 0; i < sizeof(areas) / sizeof(areas[0]); i++) {
		if (areas[i]->mr)
			err |= dp_mr_destroy(areas[i]->mr);
		free(areas[i]->mem);
	}
	if (x->send_cq)
		err |= dp_cq_destroy(x->send_cq);
	if (x->recv_cq)
		err |= dp_cq_destroy(x->recv_cq);
	if (x->pd)
		err |= dp_pd_destroy(x->pd);
	if (x->engine)
		dp_engine_destroy(x->engine);
	free(x->ops);
	free(x->receiving);
	if (err)
		fail(x->s, "side %d: something could not be destroyed: %d", x->index, err);
}

/* ---- the run -------------------------------------------------------------------------- */

static bool side_done(const struct side *x)
{
	const struct soak *s = x->s;

	if (s->side[0].failed || s->side[1].failed)
		return x->completed == x->posted;
	return x->completed == x->n_ops && x->recvs_done == x->peer->n_receiving &&
	       x->peer->posted == x->peer->n_ops;
}

static uint64_t next_event(const struct soak *s)
{
	uint64_t next = X_channel_next(&s->channel), t;
	int i;

	for (i = 0; i < 2; i++) {
		const struct side *x = &s->side[i];

		t = dp_engine_deadline(x->engine);
		next = t < next ? t : next;
		if (x->post_at > s->now && x->posted < x->n_ops && x->post_at < next)
			next = x->post_at;
		if (x->repost_at > s->now && !x->failed && x->repost_at < next)
			next = x->repost_at;
	}
	return next;
}

static void deliver(struct soak *s)
{
	struct X_flight *f;

	while ((f = X_channel_take(&s->channel, s->now))) {
		struct side *x = &s->side[f->to];

		X_flight_give(f, x->engine, s->now);
		free(f);
		inspect(x);
		poll_all(x);
	}
}

/* The engines' invariants; not at every turn, since that takes time. */
static void verify(struct soak *s)
{
	const char *why;
	int i;

	for (i = 0; i < 2 && !(s->turns & 15); i++) {
		why = dp_engine_check(s->side[i].engine);
		if (!why)
			why = X_agree(s->side[i].qp, s->side[!i].qp);
		if (why)
			fail(s, "side %d: %s", i, why);
	}
	s->turns++;
}

/* Until `done`, or until all is quiet. */
static void turn(struct soak *s, bool until_quiet)
{
	uint64_t next, end = s->now + s->p->limit_ns;
	int i, still = 0;

	while (!s->broken) {
		for (i = 0; i < 2; i++)
			post_all(&s->side[i]);
		for (i = 0; i < 2; i++)
			X_channel_collect(&s->channel, s->side[i].engine, s->side[i].qp, !i,
					  s->now);
		for (i = 0; i < 2; i++)
			poll_all(&s->side[i]);
		if (!until_quiet && side_done(&s->side[0]) && side_done(&s->side[1]))
			return;
		next = next_event(s);
		if (next == DP_NEVER) {
			if (!until_quiet)
				fail(s, "both wait for ever: %u and %u requests not completed",
				     s->side[0].posted - s->side[0].completed,
				     s->side[1].posted - s->side[1].completed);
			return;
		}
		still = next > s->now ? 0 : still + 1;
		s->now = next > s->now ? next : s->now;
		if (still > STUCK || s->now > end) {
			fail(s, "%s: %u and %u requests not completed at %llu ns",
			     still > STUCK ? "endless loop" : "time limit",
			     s->side[0].posted - s->side[0].completed,
			     s->side[1].posted - s->side[1].completed, (unsigned long long)s->now);
			return;
		}
		deliver(s);
		for (i = 0; i < 2; i++)
			dp_engine_tick(s->side[i].engine, s->now);
		verify(s);
	}
}

static void check_end(struct side *x)
{
	struct X_soak *p = x->s->p;
	struct dp_qp_attr attr;
	struct dp_qp_stats stats;

	dp_qp_query(x->qp, &attr);
	if (attr.state != (x->failed ? DP_QPS_ERR : DP_QPS_RTS))
		fail(x->s, "side %d: ended in state %u", x->index, attr.state);
	if (!x->failed && !x->peer->failed && load64(x->peer->counter.mem) != x->counter_model)
		fail(x->s, "side %d: the peer's counter is not what the atomics make of it",
		     x->index);
	dp_qp_stats(x->qp, &stats);
	p->agreed |= (uint32_t)dp_qp_extended(x->qp) << x->index;
	p->failed |= (uint32_t)x->failed << x->index;
	p->segment[x->index] = dp_qp_segment(x->qp);
	p->retransmits += stats.retransmits;
	p->timeouts += stats.timeouts;
	p->rnr_naks += stats.rnr_tx;
	p->out_of_order += stats.out_of_order;
	p->spurious += stats.spurious;
	p->trimmed += stats.trimmed;
}

int X_soak_run(struct X_soak *p)
{
	struct soak *s = calloc(1, sizeof(*s));
	int i;

	if (!s)
		return -1;
	s->p = p;
	s->rng = p->seed;
	s->now = 1000000;
	X_channel_init(&s->channel, p);
	for (i = 0; i < 2; i++)
		if (side_make(s, i))
			fail(s, "side %d could not be made", i);
	for (i = 0; i < 2 && !s->broken; i++)
		if (side_connect(&s->side[i]))
			fail(s, "side %d could not be connected", i);
	turn(s, false);
	p->end_ns = s->now;
	turn(s, true);
	for (i = 0; i < 2 && !s->broken; i++)
		check_end(&s->side[i]);
	p->trace = s->channel.trace;
	p->packets = s->channel.packets;
	p->lost = s->channel.lost;
	X_channel_free(&s->channel);
	for (i = 0; i < 2; i++)
		side_free(&s->side[i]);
	i = s->broken ? -1 : 0;
	free(s);
	return i;
}
