/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fuzz target: any packets into two engines that are at work.  Each has two
 * contexts (a PD, a CQ, memory, a memory window, a QP connected to that of the other, and a
 * QP of datagrams).
 *
 * The first byte of an input says how the engines are made (enum setting).  The
 * rest is a program of small steps; each begins with a byte that names the step,
 * the engine and the context it is for (enum step).  Forged packets get the right
 * addresses, QPN and ICRC, a PSN near the expected one and, if the step says
 * so, a valid key or Q_Key and the right time, since no mutation would ever guess them.  Every packet
 * lies in a heap buffer of just its size.
 *
 * Checked beside what the sanitizers see: all invariants of both engines after
 * each step, guards around registered memory, and that everything can be taken
 * apart.
 */
#include "input.h"
#include "packet.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/channel.h"
#include "../engine/to_rts.h"
#include "engine/engine.h"
#include "wire/ext.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/trim.h"

enum setting {
	SET_EXTENDED = 1,   /* both offer extended mode */
	SET_WINDOW_A = 2,   /* two bits: 64, 128, 512 or 2048 PSNs */
	SET_WINDOW_B = 8,   /* the same for B */
	SET_AGREED = 32,    /* they have agreed on extended mode before the first step */
	SET_PLAIN = 64,	    /* one path, no telemetry */
	SET_SEGMENTS = 128, /* packets longer than the path MTU */
};

enum step {
	STEP_RAW,      /* n, n bytes: a packet as it is */
	STEP_FORGED,   /* n, n bytes: opcode, BTH flags, PSN distance, AckReq, headers, payload */
	STEP_KEYED,    /* the same; a key, an address in our memory and the time are put in */
	STEP_LONG,     /* the same as KEYED, with a whole MTU of payload behind */
	STEP_EXCHANGE, /* bits: the engine's packets reach the other but those whose bit is set */
	STEP_TIME,     /* n: 2^n ns pass */
	STEP_POST,     /* opcode and flags, length */
	STEP_RECEIVE,  /* length */
	STEP_MASK = 7,
	STEP_B = 8,	 /* for engine B */
	STEP_SPLIT = 16, /* the packet comes in two pieces */
	STEP_CUT = 32,	 /* it comes as a trimmed one */
	STEP_OTHER = 64, /* for the second context */
	STEP_VERB = 128, /* one of these in place of the above: */
	VERB_MEMORY = 0, /* registers memory, or takes it away */
	VERB_STATE,	 /* state: SQD, RTS, ERR, or RESET and connected anew */
	VERB_CQ,	 /* entries: resizes the CQ, arms it */
};

enum {
	MTU = 256,
	MEM = 4096,
	GUARD = 64,
	SENT = 32, /* packets looked at per exchange */
	FRAME = 9216,
	QKEY = 0x12345678,
};

#define GUARD_BYTE 0xa5

struct context {
	struct dp_pd *pd;
	struct dp_cq *cq;
	struct dp_qp *qp;
	struct dp_qp *datagrams;
	struct dp_ah *ah; /* of the other engine */
	struct dp_mr *window;
	struct dp_mr *mr; /* NULL: taken away */
	uint32_t key;	  /* of it, or the last one */
	uint8_t mem[GUARD + MEM + GUARD];
	uint64_t iova;
	uint64_t wr_id;
};

struct end {
	struct dp_engine *engine;
	struct context context[2];
	int index;
};

static void must(int err)
{
	if (err)
		abort();
}

/* ---- the two ends ----------------------------------------------------------------- */

static void verify(const struct end *e)
{
	const char *why = dp_engine_check(e->engine);

	if (!why)
		return;
	fprintf(stderr, "engine %d: %s\n", e->index, why);
	abort();
}

static void register_memory(struct context *c)
{
	uint32_t access = 15 | DP_ACCESS_MW_BIND | DP_ACCESS_FLUSH_GLOBAL;

	must(dp_mr_create(c->pd, c->mem + GUARD, MEM, c->iova, access, &c->mr));
	c->key = dp_mr_key(c->mr);
}

/* From RESET to RTS. */
static void start_datagrams(struct context *c, uint64_t now)
{
	struct dp_qp_attr attr = { .state = DP_QPS_INIT, .qkey = QKEY };

	must(dp_qp_modify(c->datagrams, &attr,
			  DP_QP_STATE | DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_QKEY, now));
	attr.state = DP_QPS_RTR;
	must(dp_qp_modify(c->datagrams, &attr, DP_QP_STATE, now));
	attr.state = DP_QPS_RTS;
	must(dp_qp_modify(c->datagrams, &attr, DP_QP_STATE | DP_QP_SQ_PSN, now));
}

/* The memory's address is the same in every run. */
static void make_context(struct end *e, struct context *c)
{
	struct dp_qp_config qp = {
		.max_send_wr = 16,
		.max_recv_wr = 16,
		.max_send_sge = 2,
		.max_recv_sge = 2,
		.max_inline = 64,
	};
	struct dp_addr other = X_address(0, !e->index);

	memset(c->mem, GUARD_BYTE, sizeof(c->mem));
	c->iova = 0x10000ull << e->index << 2 * (c - e->context);
	must(dp_pd_create(e->engine, &c->pd));
	must(dp_cq_create(e->engine, 64, NULL, &c->cq));
	register_memory(c);
	qp.pd = c->pd;
	qp.send_cq = qp.recv_cq = c->cq;
	must(dp_qp_create(e->engine, &qp, &c->qp));
	qp.type = DP_QPT_UD;
	must(dp_qp_create(e->engine, &qp, &c->datagrams));
	must(dp_mw_create(c->pd, DP_MW_TYPE_2, &c->window));
	must(dp_ah_create(c->pd, &other, 0, 0, &c->ah));
}

static void make(struct end *e, int index, unsigned settings)
{
	static const uint32_t windows[] = { 64, 128, 512, DP_WINDOW_MAX };
	unsigned window = settings / (index ? SET_WINDOW_B : SET_WINDOW_A) % 4;
	struct dp_engine_config config = {
		.addr = X_address(0, index),
		.path_mtu_max = MTU,
		.extended = settings & SET_EXTENDED,
		.segment_max = settings & SET_SEGMENTS ? 2 * MTU - 4 : 0,
		.telemetry = !(settings & SET_PLAIN),
		.bundle = 1,
		.paths = settings & SET_PLAIN ? 1 : 3,
		.window_psns = windows[window],
		.seed = (uint64_t)index + 1,
	};

	memset(e, 0, sizeof(*e));
	e->index = index;
	must(dp_engine_create(&config, &e->engine));
	make_context(e, &e->context[0]);
	make_context(e, &e->context[1]);
}

static void connect(struct end *e, const struct end *peer, int context, uint64_t now)
{
	struct dp_qp *qp = e->context[context].qp;
	struct dp_qp_attr attr = {
		.access = 15,
		.raddr = X_address(0, !e->index),
		.path_mtu = MTU,
		.dest_qpn = dp_qp_qpn(peer->context[context].qp),
		.rq_psn = 0xfffff8,
		.sq_psn = 0xfffff8,
		.timeout = 8,
		.retry_cnt = 3,
		.rnr_retry = 3,
		.min_rnr_timer = 1,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
	};

	must(bring_to_rts(qp, attr, now));
}

static void take_apart(struct end *e)
{
	struct context *c;
	int i;

	for (c = e->context; c < e->context + 2; c++) {
		for (i = 0; i < GUARD; i++)
			assert(c->mem[i] == GUARD_BYTE && c->mem[GUARD + MEM + i] == GUARD_BYTE);
		must(dp_qp_destroy(c->qp));
		must(dp_qp_destroy(c->datagrams));
		must(dp_ah_destroy(c->ah));
		must(dp_mr_destroy(c->window));
		if (c->mr)
			must(dp_mr_destroy(c->mr));
		must(dp_cq_destroy(c->cq));
		must(dp_pd_destroy(c->pd));
		verify(e);
	}
	dp_engine_destroy(e->engine);
}

/* ---- steps -------------------------------------------------------------------------- */

/* Not known, a while ago, too long ago, in the future. */
static uint64_t arrival(uint32_t draw, uint64_t now)
{
	const uint64_t at[] = { 0, now - now % 4096, now / 2, now + 1 };

	return at[draw % 4];
}

static void give(struct end *to, const uint8_t *bytes, uint32_t len, int split, uint8_t tos,
		 uint64_t now)
{
	struct dp_packet p = {
		.src = X_address(0, !to->index),
		.dst = X_address(0, to->index),
		.sport = 0xc000,
		.tos = tos,
		.len = split < (int)len ? (uint32_t)split : len,
		.arrived_ns = arrival(len / 4, now),
		.late_ns = len % 3 ? 0 : len * 1000003,
	};
	uint8_t *first = malloc(p.len ? p.len : 1), *rest = NULL;

	p.data = memcpy(first, bytes, p.len);
	if (p.len < len) {
		p.frag_len = len - p.len;
		rest = malloc(p.frag_len);
		p.frag = memcpy(rest, bytes + p.len, p.frag_len);
	}
	dp_engine_rx(to->engine, &p, now);
	free(first);
	free(rest);
	verify(to);
}

/* A key and an address that are right, where the opcode has them.  An odd key stands for the
 * window's. */
static void put_key(uint8_t *packet, uint32_t len, const struct context *to)
{
	const struct dp_opcode_info *info = &dp_opcodes[packet[0]];
	uint32_t at = DP_BTH_LEN + (info->mask & DP_HAS_XDH ? DP_XDH_LEN : 0);
	bool window;

	at += info->mask & DP_HAS_FETH ? DP_FETH_LEN : 0;
	window = packet[at + 11] & 1;
	if (info->mask & DP_HAS_DETH)
		dp_put32(packet + at, QKEY);

	if (!(info->mask & (DP_HAS_RETH | DP_HAS_ATOMIC_ETH)) || len < at + DP_RETH_LEN)
		return;
	dp_put64(packet + at, to->iova + (dp_get16(packet + at + 6) % (MEM + 64)));
	dp_put32(packet + at + 8, window ? dp_mr_key(to->window) : to->key);
}

/* A time that is not of a connection before, where the opcode has one. */
static void put_time(uint8_t *packet, uint64_t now)
{
	uint32_t mask = dp_opcodes[packet[0]].mask;

	if (mask & DP_HAS_XDH)
		dp_put32(packet + DP_BTH_LEN, (uint32_t)now);
	if (mask & DP_HAS_XAH)
		dp_put32(packet + DP_BTH_LEN + DP_AETH_LEN, (uint32_t)now);
}

static uint32_t near_psn(const struct context *to, uint8_t opcode, int distance)
{
	struct dp_qp_attr attr;
	bool request = dp_opcodes[opcode].mask & DP_IS_REQUEST;

	dp_qp_query(to->qp, &attr);
	return dp_psn_add(request ? attr.rq_psn : attr.sq_psn, (uint32_t)distance & DP_PSN_MASK);
}

static void forged(struct input *in, struct end *end, struct context *to, unsigned step,
		   uint64_t now)
{
	uint8_t packet[FRAME] = { 0 }, opcode, flags, ack;
	const struct dp_qp *qp;
	uint32_t n = next(in), len, pad;
	const uint8_t *body;
	int distance;
	struct dp_packet p = { .src = X_address(0, !end->index),
			       .dst = X_address(0, end->index),
			       .sport = 0xc000,
			       .data = packet,
			       .cap = sizeof(packet) };

	opcode = next(in);
	flags = next(in);
	distance = (int8_t)next(in) * (flags & 8 ? 64 : 1);
	ack = next(in);
	body = take(in, &n);
	len = DP_BTH_LEN + n;
	if (n)
		memcpy(packet + DP_BTH_LEN, body, n);
	if ((step & STEP_MASK) == STEP_LONG)
		len = dp_opcodes[opcode].hdr_len + MTU;
	pad = flags & 4 ? flags & 3 : -len & 3;
	if (!(flags & 4))
		len += pad;
	/* 16: for the QP of the other type */
	qp = !(dp_opcodes[opcode].mask & DP_HAS_DETH) == !(flags & 16) ? to->qp : to->datagrams;
	dp_bth_set(packet, opcode, flags >> 7, pad, dp_qp_qpn(qp), ack & 1,
		   near_psn(to, opcode, distance));
	if ((step & STEP_MASK) != STEP_FORGED) {
		put_key(packet, len, to);
		put_time(packet, now);
	}
	p.len = len;
	dp_icrc_append(&p);
	give(end, packet, p.len, step & STEP_SPLIT ? dp_opcodes[opcode].hdr_len + 1 : FRAME,
	     step & STEP_CUT ? DP_DSCP_TRIMMED << 2 : 0, now);
}

static void exchange(struct end *from, struct end *to, unsigned lost, uint64_t now)
{
	static uint8_t buffers[SENT][FRAME];
	struct dp_packet out[SENT];
	int n, i;

	memset(out, 0, sizeof(out));
	for (i = 0; i < SENT; i++) {
		out[i].data = buffers[i];
		out[i].cap = FRAME;
	}
	n = dp_engine_tx(from->engine, out, SENT, now);
	verify(from);
	for (i = 0; i < n; i++)
		if (!(lost >> (i & 7) & 1))
			give(to, out[i].data, out[i].len, FRAME, out[i].tos, now);
}

static void post(struct input *in, struct context *c, const struct context *peer)
{
	uint8_t what = next(in);
	uint32_t len = next(in) * 8u, opcode = what & 15;
	bool atomic = opcode == DP_WR_ATOMIC_CMP_AND_SWP || opcode == DP_WR_ATOMIC_FETCH_AND_ADD;
	uint64_t from = what & 64 ? (uintptr_t)(c->mem + GUARD) : c->iova; /* inline: ours */
	struct dp_sge sge = { from, atomic ? 8 : len, c->key };
	struct dp_send_wr wr = {
		.wr_id = c->wr_id++,
		.opcode = opcode,
		.flags = DP_SEND_SIGNALED | (what & 16 ? DP_SEND_FENCE : 0) |
			 (what & 32 ? DP_SEND_SOLICITED : 0) | (what & 64 ? DP_SEND_INLINE : 0),
		.num_sge = 1,
		.sge = &sge,
		.remote_addr = peer->iova + (what & 128 ? 8 : 0),
		.rkey = peer->key,
		.compare_add = 1,
		.placement = DP_FETH_GLOBAL,
		.selectivity = len & 1,
		.flush_len = 64,
		.ah = c->ah,
		.remote_qpn = dp_qp_qpn(peer->datagrams),
		.remote_qkey = QKEY,
		.bind = { c->window, c->mr, c->iova + len, 64, 15, dp_mr_key(c->window) ^ 1 },
	};

	if (opcode == DP_WR_LOCAL_INV || opcode == DP_WR_BIND_MW) {
		wr.num_sge = 0;
		wr.invalidate_rkey = dp_mr_key(c->window);
	}
	dp_qp_post_send(c->qp, &wr);
	dp_qp_post_send(c->datagrams, &wr);
}

static void receive(struct input *in, struct context *c)
{
	struct dp_sge sge = { c->iova + MEM / 2, next(in) * 8u, c->key };
	struct dp_recv_wr wr = { .wr_id = c->wr_id++, .num_sge = 1, .sge = &sge };

	dp_qp_post_recv(c->qp, &wr);
	dp_qp_post_recv(c->datagrams, &wr);
}

static void raw(struct input *in, struct end *to, uint64_t now)
{
	uint32_t n = next(in);
	const uint8_t *bytes = take(in, &n);

	give(to, bytes, n, FRAME, 0, now);
}

static void come_or_go(struct context *c)
{
	if (!c->mr) {
		register_memory(c);
		return;
	}
	if (!dp_mr_destroy(c->mr)) /* else the window is bound to it */
		c->mr = NULL;
}

static void change_state(struct input *in, struct end *e, const struct end *peer, int context,
			 uint64_t now)
{
	static const uint32_t states[] = { DP_QPS_SQD, DP_QPS_RTS, DP_QPS_ERR, DP_QPS_RESET };
	uint8_t what = next(in);
	struct dp_qp_attr attr = { .state = states[what & 3], .sqd_notify = what >> 2 & 1 };
	uint32_t mask = DP_QP_STATE | (what & 8 ? DP_QP_EN_SQD_ASYNC_NOTIFY : 0);

	if (!dp_qp_modify(e->context[context].datagrams, &attr, mask, now) &&
	    attr.state == DP_QPS_RESET)
		start_datagrams(&e->context[context], now);
	if (dp_qp_modify(e->context[context].qp, &attr, mask, now) || attr.state != DP_QPS_RESET)
		return;
	connect(e, peer, context, now);
}

static void change_cq(struct input *in, struct context *c)
{
	uint8_t what = next(in);

	dp_cq_resize(c->cq, what & 63);
	dp_cq_arm(c->cq, what >> 7);
}

static void pass_time(struct end *e, uint64_t now)
{
	struct dp_wc wc[16];
	struct dp_event event;
	int i, k;

	for (i = 0; i < 2; i++) {
		dp_engine_tick(e[i].engine, now);
		for (k = 0; k < 2; k++)
			while (dp_cq_poll(e[i].context[k].cq, 16, wc) > 0)
				;
		while (dp_engine_event(e[i].engine, &event))
			;
		verify(&e[i]);
	}
}

static void verb(struct input *in, struct end *e, unsigned step, uint64_t now)
{
	int index = !!(step & STEP_B), context = !!(step & STEP_OTHER);

	switch (step & STEP_MASK) {
	case VERB_MEMORY:
		come_or_go(&e[index].context[context]);
		break;
	case VERB_STATE:
		change_state(in, &e[index], &e[!index], context, now);
		break;
	case VERB_CQ:
		change_cq(in, &e[index].context[context]);
		break;
	}
	verify(&e[index]);
}

static void run(struct end *e, struct input *in, uint64_t now)
{
	unsigned step, index;
	struct context *own, *peer;
	int steps;

	for (steps = 0; in->at < in->end && steps < 256; steps++) {
		step = next(in);
		if (step & STEP_VERB) {
			verb(in, e, step, now);
			continue;
		}
		index = !!(step & STEP_B);
		own = &e[index].context[!!(step & STEP_OTHER)];
		peer = &e[!index].context[!!(step & STEP_OTHER)];
		switch (step & STEP_MASK) {
		case STEP_RAW:
			raw(in, &e[index], now);
			break;
		case STEP_EXCHANGE:
			exchange(&e[index], &e[!index], next(in), now);
			break;
		case STEP_TIME:
			now += 1ull << (next(in) & 31);
			pass_time(e, now);
			break;
		case STEP_POST:
			post(in, own, peer);
			verify(&e[index]);
			break;
		case STEP_RECEIVE:
			receive(in, own);
			verify(&e[index]);
			break;
		default:
			forged(in, &e[index], own, step, now);
		}
	}
	for (steps = 0; steps < 8; steps++) {
		exchange(&e[0], &e[1], 0, now);
		exchange(&e[1], &e[0], 0, now);
		now += 1000000;
		pass_time(e, now);
	}
}

int X_fuzz_packet(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	unsigned settings = next(&in);
	uint64_t now = 1000000;
	struct end e[2];
	int i;

	make(&e[0], 0, settings);
	make(&e[1], 1, settings);
	for (i = 0; i < 2; i++) {
		connect(&e[0], &e[1], i, now);
		connect(&e[1], &e[0], i, now);
		start_datagrams(&e[0].context[i], now);
		start_datagrams(&e[1].context[i], now);
	}
	for (i = 0; settings & SET_AGREED && i < 3; i++) {
		now += 1000;
		exchange(&e[0], &e[1], 0, now);
		exchange(&e[1], &e[0], 0, now);
	}
	run(e, &in, now);
	take_apart(&e[0]);
	take_apart(&e[1]);
	return 0;
}
