/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fuzz target: any packets into two connected engines that are at work.
 *
 * An input is a program of small steps; each begins with a byte that names the
 * step and the engine it is for (enum step).  Forged packets get the right
 * addresses, QPN and ICRC, a PSN near the expected one and, if the step says
 * so, a valid key, since no mutation would ever guess them.  Every packet lies
 * in a heap buffer of just its size.
 *
 * Checked beside what the sanitizers see: guards around registered memory, and
 * that everything can be taken apart.
 */
#include "packet.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../core/channel.h"
#include "core/engine.h"
#include "wire/ext.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/trim.h"

enum step {
	STEP_RAW,      /* n, n bytes: a packet as it is */
	STEP_FORGED,   /* n, n bytes: opcode, BTH flags, PSN distance, AckReq, headers, payload */
	STEP_KEYED,    /* the same; a key and an address in our memory are put in */
	STEP_LONG,     /* the same as KEYED, with a whole MTU of payload behind */
	STEP_EXCHANGE, /* bits: the engine's packets reach the other but those whose bit is set */
	STEP_TIME,     /* n: 2^n ns pass */
	STEP_POST,     /* opcode and flags, length */
	STEP_RECEIVE,  /* length */
	STEP_MASK = 7,
	STEP_B = 8,	 /* for engine B */
	STEP_SPLIT = 16, /* the packet comes in two pieces */
	STEP_CUT = 32,	 /* it comes as a trimmed one */
};

enum {
	MTU = 256,
	MEM = 4096,
	GUARD = 64,
	SENT = 32, /* packets looked at per exchange */
	FRAME = 9216,
};

#define GUARD_BYTE 0xa5

struct end {
	struct dp_engine *engine;
	struct dp_pd *pd;
	struct dp_cq *cq;
	struct dp_qp *qp;
	struct dp_mr *mr;
	uint8_t mem[GUARD + MEM + GUARD];
	uint64_t iova;
	uint64_t wr_id;
};

struct input {
	const uint8_t *at, *end;
};

static uint8_t next(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static const uint8_t *take(struct input *in, uint32_t *n)
{
	const uint8_t *at = in->at;

	if (*n > (size_t)(in->end - in->at))
		*n = (uint32_t)(in->end - in->at);
	in->at += *n;
	return at;
}

static void must(int err)
{
	if (err)
		abort();
}

/* ---- the two ends ----------------------------------------------------------------- */

/* Registered at an address that is the same in every run. */
static uint64_t va(const struct end *e)
{
	return e->iova;
}

static void make(struct end *e, int index, bool extended)
{
	struct dp_engine_config config = {
		.addr = X_address(0, index),
		.path_mtu_max = MTU,
		.extended = extended,
		.segment_max = 2 * MTU - 4,
		.telemetry = 1,
		.paths = 3,
		.window_psns = 64,
		.seed = (uint64_t)index + 1,
	};
	struct dp_qp_config qp = {
		.max_send_wr = 16,
		.max_recv_wr = 16,
		.max_send_sge = 2,
		.max_recv_sge = 2,
		.max_inline = 64,
	};

	memset(e, 0, sizeof(*e));
	memset(e->mem, GUARD_BYTE, sizeof(e->mem));
	e->iova = 0x10000ull << index;
	must(dp_engine_create(&config, &e->engine));
	must(dp_pd_create(e->engine, &e->pd));
	must(dp_cq_create(e->engine, 64, NULL, &e->cq));
	must(dp_mr_create(e->pd, e->mem + GUARD, MEM, va(e), 15, &e->mr));
	qp.pd = e->pd;
	qp.send_cq = qp.recv_cq = e->cq;
	must(dp_qp_create(e->engine, &qp, &e->qp));
}

static void connect(struct end *e, const struct end *peer, int index, uint64_t now)
{
	struct dp_qp_attr attr = {
		.state = DP_QPS_INIT,
		.access = 15,
		.raddr = X_address(0, !index),
		.path_mtu = MTU,
		.dest_qpn = dp_qp_qpn(peer->qp),
		.rq_psn = 0xfffff8,
		.sq_psn = 0xfffff8,
		.timeout = 8,
		.retry_cnt = 3,
		.rnr_retry = 3,
		.min_rnr_timer = 1,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
	};

	must(dp_qp_modify(e->qp, &attr,
			  DP_QP_STATE | DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_ACCESS_FLAGS, now));
	attr.state = DP_QPS_RTR;
	must(dp_qp_modify(e->qp, &attr,
			  DP_QP_STATE | DP_QP_AV | DP_QP_PATH_MTU | DP_QP_DEST_QPN | DP_QP_RQ_PSN |
				  DP_QP_MAX_DEST_RD_ATOMIC | DP_QP_MIN_RNR_TIMER,
			  now));
	attr.state = DP_QPS_RTS;
	must(dp_qp_modify(e->qp, &attr,
			  DP_QP_STATE | DP_QP_TIMEOUT | DP_QP_RETRY_CNT | DP_QP_RNR_RETRY |
				  DP_QP_SQ_PSN | DP_QP_MAX_QP_RD_ATOMIC,
			  now));
}

static void take_apart(struct end *e)
{
	int i;

	for (i = 0; i < GUARD; i++)
		assert(e->mem[i] == GUARD_BYTE && e->mem[GUARD + MEM + i] == GUARD_BYTE);
	must(dp_qp_destroy(e->qp));
	must(dp_mr_destroy(e->mr));
	must(dp_cq_destroy(e->cq));
	must(dp_pd_destroy(e->pd));
	dp_engine_destroy(e->engine);
}

/* ---- steps -------------------------------------------------------------------------- */

static void give(struct end *to, int index, const uint8_t *bytes, uint32_t len, int split,
		 uint8_t tos, uint64_t now)
{
	struct dp_packet p = {
		.src = X_address(0, !index),
		.dst = X_address(0, index),
		.sport = 0xc000,
		.tos = tos,
		.len = split < (int)len ? (uint32_t)split : len,
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
}

/* A key and an address that are right, where the opcode has them. */
static void put_key(uint8_t *packet, uint32_t len, const struct end *to)
{
	const struct dp_opcode_info *info = &dp_opcodes[packet[0]];
	uint32_t at = DP_BTH_LEN + (info->mask & DP_HAS_XDH ? DP_XDH_LEN : 0);

	if (!(info->mask & (DP_HAS_RETH | DP_HAS_ATOMIC_ETH)) || len < at + DP_RETH_LEN)
		return;
	dp_put64(packet + at, va(to) + (dp_get16(packet + at + 6) % (MEM + 64)));
	dp_put32(packet + at + 8, dp_mr_key(to->mr));
}

static uint32_t near_psn(const struct end *to, uint8_t opcode, uint8_t distance)
{
	struct dp_qp_attr attr;
	bool request = dp_opcodes[opcode].mask & DP_IS_REQUEST;

	dp_qp_query(to->qp, &attr);
	return dp_psn_add(request ? attr.rq_psn : attr.sq_psn,
			  (uint32_t)(int8_t)distance & DP_PSN_MASK);
}

static void forged(struct input *in, struct end *to, int index, unsigned step, uint64_t now)
{
	uint8_t packet[FRAME] = { 0 }, opcode, flags, distance, ack;
	uint32_t n = next(in), len, pad;
	const uint8_t *body;
	struct dp_packet p = { .src = X_address(0, !index),
			       .dst = X_address(0, index),
			       .sport = 0xc000,
			       .data = packet,
			       .cap = sizeof(packet) };

	opcode = next(in);
	flags = next(in);
	distance = next(in);
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
	dp_bth_set(packet, opcode, flags >> 7, pad, dp_qp_qpn(to->qp), ack & 1,
		   near_psn(to, opcode, distance));
	if ((step & STEP_MASK) != STEP_FORGED)
		put_key(packet, len, to);
	p.len = len;
	dp_icrc_append(&p);
	give(to, index, packet, p.len, step & STEP_SPLIT ? dp_opcodes[opcode].hdr_len + 1 : FRAME,
	     step & STEP_CUT ? DP_DSCP_TRIMMED << 2 : 0, now);
}

static void exchange(struct end *from, struct end *to, int to_index, unsigned lost, uint64_t now)
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
	for (i = 0; i < n; i++)
		if (!(lost >> (i & 7) & 1))
			give(to, to_index, out[i].data, out[i].len, FRAME, out[i].tos, now);
}

static void post(struct input *in, struct end *e, const struct end *peer)
{
	uint8_t what = next(in);
	uint32_t len = next(in) * 8u, opcode = what & 15;
	bool atomic = opcode == DP_WR_ATOMIC_CMP_AND_SWP || opcode == DP_WR_ATOMIC_FETCH_AND_ADD;
	uint64_t from = what & 64 ? (uintptr_t)(e->mem + GUARD) : va(e); /* inline: ours */
	struct dp_sge sge = { from, atomic ? 8 : len, dp_mr_key(e->mr) };
	struct dp_send_wr wr = {
		.wr_id = e->wr_id++,
		.opcode = opcode,
		.flags = DP_SEND_SIGNALED | (what & 16 ? DP_SEND_FENCE : 0) |
			 (what & 32 ? DP_SEND_SOLICITED : 0) | (what & 64 ? DP_SEND_INLINE : 0),
		.num_sge = 1,
		.sge = &sge,
		.remote_addr = va(peer) + (what & 128 ? 8 : 0),
		.rkey = dp_mr_key(peer->mr),
		.compare_add = 1,
	};

	dp_qp_post_send(e->qp, &wr);
}

static void receive(struct input *in, struct end *e)
{
	struct dp_sge sge = { va(e) + MEM / 2, next(in) * 8u, dp_mr_key(e->mr) };
	struct dp_recv_wr wr = { .wr_id = e->wr_id++, .num_sge = 1, .sge = &sge };

	dp_qp_post_recv(e->qp, &wr);
}

static void raw(struct input *in, struct end *to, int index, uint64_t now)
{
	uint32_t n = next(in);
	const uint8_t *bytes = take(in, &n);

	give(to, index, bytes, n, FRAME, 0, now);
}

static void pass_time(struct end *e, uint64_t now)
{
	struct dp_wc wc[16];
	struct dp_event event;
	int i;

	for (i = 0; i < 2; i++) {
		dp_engine_tick(e[i].engine, now);
		while (dp_cq_poll(e[i].cq, 16, wc) > 0)
			;
		while (dp_engine_event(e[i].engine, &event))
			;
	}
}

static void run(struct end *e, struct input *in, uint64_t now)
{
	unsigned step, index;
	int steps;

	for (steps = 0; in->at < in->end && steps < 256; steps++) {
		step = next(in);
		index = !!(step & STEP_B);
		switch (step & STEP_MASK) {
		case STEP_RAW:
			raw(in, &e[index], (int)index, now);
			break;
		case STEP_EXCHANGE:
			exchange(&e[index], &e[!index], !index, next(in), now);
			break;
		case STEP_TIME:
			now += 1ull << (next(in) & 31);
			pass_time(e, now);
			break;
		case STEP_POST:
			post(in, &e[index], &e[!index]);
			break;
		case STEP_RECEIVE:
			receive(in, &e[index]);
			break;
		default:
			forged(in, &e[index], (int)index, step, now);
		}
	}
	for (steps = 0; steps < 8; steps++) {
		exchange(&e[0], &e[1], 1, 0, now);
		exchange(&e[1], &e[0], 0, 0, now);
		now += 1000000;
		pass_time(e, now);
	}
}

int X_fuzz_packet(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	uint64_t now = 1000000;
	struct end e[2];
	bool extended = next(&in) & 1;

	make(&e[0], 0, extended);
	make(&e[1], 1, extended);
	connect(&e[0], &e[1], 0, now);
	connect(&e[1], &e[0], 1, now);
	if (extended) { /* agree on it first */
		now += 1000;
		exchange(&e[0], &e[1], 1, 0, now);
		exchange(&e[1], &e[0], 0, 0, now);
		exchange(&e[0], &e[1], 1, 0, now);
	}
	run(e, &in, now);
	take_apart(&e[0]);
	take_apart(&e[1]);
	return 0;
}
