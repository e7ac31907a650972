// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Builds packets from work requests and answers.  Buffers come from the port; the ICRC is appended
 * last.
 */
#include "engine/rc/packets.h"

#include "engine/build.h"
#include "engine/rc/received.h"

enum position { ONLY, FIRST, MIDDLE, LAST };

static const uint8_t opcodes[][4] = {
	[DP_WR_RDMA_WRITE] = { DP_OP_WRITE_ONLY, DP_OP_WRITE_FIRST, DP_OP_WRITE_MIDDLE,
			       DP_OP_WRITE_LAST },
	[DP_WR_RDMA_WRITE_WITH_IMM] = { DP_OP_WRITE_ONLY_IMM, DP_OP_WRITE_FIRST, DP_OP_WRITE_MIDDLE,
					DP_OP_WRITE_LAST_IMM },
	[DP_WR_SEND] = { DP_OP_SEND_ONLY, DP_OP_SEND_FIRST, DP_OP_SEND_MIDDLE, DP_OP_SEND_LAST },
	[DP_WR_SEND_WITH_IMM] = { DP_OP_SEND_ONLY_IMM, DP_OP_SEND_FIRST, DP_OP_SEND_MIDDLE,
				  DP_OP_SEND_LAST_IMM },
	[DP_WR_SEND_WITH_INV] = { DP_OP_SEND_ONLY_INV, DP_OP_SEND_FIRST, DP_OP_SEND_MIDDLE,
				  DP_OP_SEND_LAST_INV },
	[DP_WR_RDMA_READ] = { DP_OP_READ_REQUEST },
	[DP_WR_ATOMIC_CMP_AND_SWP] = { DP_OP_COMPARE_SWAP },
	[DP_WR_ATOMIC_FETCH_AND_ADD] = { DP_OP_FETCH_ADD },
	[DP_WR_FLUSH] = { DP_OP_FLUSH },
	[DP_WR_ATOMIC_WRITE] = { DP_OP_ATOMIC_WRITE },
};

static const uint8_t read_responses[] = { DP_OP_READ_RESP_ONLY, DP_OP_READ_RESP_FIRST,
					  DP_OP_READ_RESP_MIDDLE, DP_OP_READ_RESP_LAST };

/* The position of [offset, offset + len) in a message of `total` bytes. */
static enum position position(uint32_t offset, uint32_t len, uint32_t total)
{
	bool last = offset + len == total;

	if (!offset)
		return last ? ONLY : FIRST;
	return last ? LAST : MIDDLE;
}

void dp_build_start(struct dp_rc *rc, struct dp_packet *pkt, uint8_t opcode, unsigned pad,
		    unsigned solicited, unsigned ack_req, uint32_t psn)
{
	dp_packet_start(&rc->qp, pkt, &rc->qp.attr.raddr, rc->qp.attr.path_id);
	dp_bth_set(dp_packet_push(pkt, DP_BTH_LEN), opcode, solicited, pad, rc->qp.attr.dest_qpn,
		   ack_req, psn);
}

static void push_zeros(struct dp_packet *pkt, uint32_t len)
{
	if (len)
		memset(dp_packet_push(pkt, len), 0, len);
}

/* The UDP source port identifies the path.  It stays in the range of RoCE. */
static uint16_t path_sport(const struct dp_rc *rc)
{
	if (!rc->req.path)
		return rc->qp.sport;
	return dp_roce_sport(rc->qp.sport + rc->req.path);
}

/* How long a packet has been held, as far as 32 bits tell. */
static uint32_t held_ns(uint64_t arrived_ns, uint64_t now)
{
	uint64_t held = now - arrived_ns;

	return held < UINT32_MAX ? (uint32_t)held : UINT32_MAX;
}

/* A request leaves: it is the program's reply if it follows a message soon. */
static void note_reply(struct dp_responder *r, uint64_t now)
{
	if (!r->reply_due)
		return;
	r->reply_due = false;
	if (now - r->ts_at_ns > DP_REPLY_NS)
		dp_unreplied(r);
	else if (r->replies < DP_REPLIES_MAX)
		r->replies++;
}

bool dp_ack_fits_request(const struct dp_rc *rc)
{
	const struct dp_responder *r = &rc->resp;

	return !r->block && r->told_marked == r->marked && r->told_duplicates == r->duplicates &&
	       !(rc->echo && rc->echo->fresh);
}

/* A waiting acknowledgement goes with a request, unless it carries more than a PSN. */
static void carry_ack(const struct dp_rc *rc, struct dp_xdh *xdh, uint64_t now)
{
	const struct dp_responder *r = &rc->resp;

	if (!r->ack_ns || r->ack_now || !dp_ack_fits_request(rc))
		return;
	xdh->ack = true;
	xdh->ack_psn = dp_psn_add(r->epsn, DP_PSN_MASK);
	xdh->ack_ts_ns = r->ts_ns + (uint32_t)(now - r->ts_at_ns);
}

/* An extended request is complete, and leaves: only now its acknowledgement counts as sent. */
static void request_leaves(struct dp_rc *rc, const struct dp_packet *pkt, uint64_t now)
{
	struct dp_responder *r = &rc->resp;

	note_reply(r, now);
	if (!dp_xdh_has_ack(pkt->data + DP_BTH_LEN))
		return;
	r->ack_ns = 0;
	r->unacked = 0;
	rc->qp.stats.acks_tx++;
}

/* The headers between BTH (and XDH) and payload that the opcode calls for. */
static void push_request_headers(struct dp_packet *pkt, const struct dp_swqe *wqe, uint32_t mask,
				 uint32_t offset, uint32_t dma_len)
{
	if (mask & DP_HAS_FETH)
		dp_feth_set(dp_packet_push(pkt, DP_FETH_LEN), wqe->flush.placement,
			    wqe->flush.selectivity);
	if (mask & DP_HAS_RETH)
		dp_reth_set(dp_packet_push(pkt, DP_RETH_LEN), wqe->remote_addr + offset, wqe->rkey,
			    dma_len);
	if (mask & DP_HAS_ATOMIC_ETH) {
		bool swap = wqe->opcode == DP_WR_ATOMIC_CMP_AND_SWP;

		dp_atomic_set(dp_packet_push(pkt, DP_ATOMIC_ETH_LEN), wqe->remote_addr, wqe->rkey,
			      swap ? wqe->swap : wqe->compare_add, swap ? wqe->compare_add : 0);
	}
	if (mask & DP_HAS_IMM)
		memcpy(dp_packet_push(pkt, DP_IMM_LEN), &wqe->imm, 4);
	if (mask & DP_HAS_IETH)
		dp_put32(dp_packet_push(pkt, DP_IETH_LEN), wqe->invalidate_rkey);
}

/* The length in the RETH; bytes: bytes of a READ that this packet asks for. */
static uint32_t dma_length(const struct dp_swqe *wqe, uint32_t bytes)
{
	if (wqe->opcode == DP_WR_FLUSH)
		return wqe->flush.len;
	return wqe->opcode == DP_WR_RDMA_READ ? bytes : wqe->len;
}

/* Appends the XDH of a request, whose timestamp and flags it sets, and the room for telemetry. */
static void push_xdh(struct dp_rc *rc, struct dp_xdh *xdh, struct dp_packet *pkt, uint64_t now)
{
	pkt->sport = path_sport(rc);
	carry_ack(rc, xdh, now);
	xdh->ts_ns = (uint32_t)now;
	xdh->thin = rc->flow->thinning.level;
	xdh->records = rc->telemetry ? DP_HOPS_MAX : 0;
	dp_xdh_set(dp_packet_push(pkt, DP_XDH_LEN), xdh);
	push_zeros(pkt, dp_room_len(xdh->records));
}

void dp_build_bundle(struct dp_rc *rc, const struct dp_swqe *first, uint32_t psn,
		     struct dp_packet *pkt, uint64_t now)
{
	struct dp_xdh xdh = { .rq_seq = first->rq_seq };

	dp_build_start(rc, pkt,
		       first->opcode == DP_WR_SEND ? DP_OP_SEND_BUNDLE : DP_OP_WRITE_BUNDLE, 0, 0,
		       0, psn);
	push_xdh(rc, &xdh, pkt, now);
}

void dp_build_bundle_end(struct dp_rc *rc, uint32_t parts, struct dp_packet *pkt, uint64_t now)
{
	dp_xdh_set_parts(pkt->data + DP_BTH_LEN, parts);
	request_leaves(rc, pkt, now);
	dp_packet_end(&rc->qp, pkt);
}

int dp_build_request(struct dp_rc *rc, const struct dp_swqe *wqe, uint32_t psn, uint32_t n_psn,
		     bool ack_req, struct dp_packet *pkt, uint64_t now)
{
	uint32_t offset = dp_offset_of(rc, wqe, psn), segment = rc->req.segment;
	uint32_t len = 0, bytes = wqe->len - offset, mask;
	bool answered = dp_is_answered(wqe->opcode), ext = rc->extended, consumes;
	uint8_t opcode, *at;

	if (bytes > n_psn * segment)
		bytes = n_psn * segment;
	if (!answered || wqe->opcode == DP_WR_ATOMIC_WRITE)
		len = bytes;
	opcode = opcodes[wqe->opcode][answered ? ONLY : position(offset, len, wqe->len)];
	if (ext)
		opcode |= DP_OP_EXT;
	mask = dp_opcodes[opcode].mask;
	/* Only a packet that completes a receive can solicit an event (IBTA vol. 1, 9.2.3). */
	consumes = mask & DP_IS_LAST && mask & (DP_IS_SEND | DP_HAS_IMM);
	dp_build_start(rc, pkt, opcode, -len & 3, consumes && wqe->flags & DP_SEND_SOLICITED,
		       ack_req, psn);
	if (ext) {
		struct dp_xdh xdh = { .rq_seq = wqe->rq_seq, .offset = offset };

		if (wqe->opcode == DP_WR_RDMA_READ)
			xdh.segment = segment;
		push_xdh(rc, &xdh, pkt, now);
	}
	push_request_headers(pkt, wqe, mask, offset, dma_length(wqe, bytes));
	if (len) {
		at = dp_packet_push_payload(pkt, len);
		if (at && dp_gather(&rc->qp, wqe, offset, at, len))
			return -EFAULT;
	}
	if (ext)
		request_leaves(rc, pkt, now);
	dp_packet_end(&rc->qp, pkt);
	return 0;
}

static int build_atomic_answer(struct dp_rc *rc, const struct dp_answer *a, struct dp_packet *pkt)
{
	uint8_t ext = a->extended ? DP_OP_EXT : 0;

	dp_build_start(rc, pkt, DP_OP_ATOMIC_ACK | ext, 0, 0, 0, a->psn);
	dp_aeth_set(dp_packet_push(pkt, DP_AETH_LEN), DP_AETH_ACK | DP_AETH_CREDIT_INVALID,
		    rc->resp.msn);
	dp_put64(dp_packet_push(pkt, DP_ATOMIC_ACK_ETH_LEN), a->value);
	dp_packet_end(&rc->qp, pkt);
	return 0;
}

int dp_build_answer(struct dp_rc *rc, struct dp_answer *a, struct dp_packet *pkt, uint64_t now)
{
	uint32_t offset = a->done * a->segment, len = a->len - offset;
	enum position pos;
	const uint8_t *from;
	uint8_t *at;

	if (a->atomic)
		return build_atomic_answer(rc, a, pkt);
	if (len > a->segment)
		len = a->segment;
	pos = position(offset, len, a->len);
	from = dp_remote_reach(&rc->qp, a->rkey, a->va + offset, len, DP_ACCESS_REMOTE_READ);
	if (!from)
		return -EFAULT;
	dp_build_start(rc, pkt, read_responses[pos] | (a->extended ? DP_OP_EXT : 0), -len & 3, 0, 0,
		       dp_psn_add(a->psn, a->done));
	if (a->extended)
		dp_xdh_set(dp_packet_push(pkt, DP_XDH_LEN),
			   &(struct dp_xdh){ .ts_ns = a->ts_ns,
					     .held_ns = held_ns(a->arrived_ns, now),
					     .offset = a->offset + offset });
	else if (pos != MIDDLE)
		dp_aeth_set(dp_packet_push(pkt, DP_AETH_LEN), DP_AETH_ACK | DP_AETH_CREDIT_INVALID,
			    rc->resp.msn);
	at = len ? dp_packet_push_payload(pkt, len) : NULL;
	if (at)
		memcpy(at, from, len);
	dp_packet_end(&rc->qp, pkt);
	return 0;
}

static uint8_t push_list(struct dp_packet *pkt, const struct dp_psn_list *l)
{
	uint32_t i;

	for (i = 0; i < l->n; i++)
		dp_put32(dp_packet_push(pkt, 4), l->psn[i]);
	return (uint8_t)l->n;
}

/* Echoes the newest telemetry once; returns the number of records. */
static uint32_t push_hops(struct dp_echo *e, struct dp_packet *pkt)
{
	if (!e || !e->fresh)
		return 0;
	memcpy(dp_packet_push(pkt, e->n * DP_HOP_LEN), e->record, e->n * DP_HOP_LEN);
	e->fresh = false;
	return e->n;
}

void dp_build_ack(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	struct dp_responder *r = &rc->resp;
	bool nak = (r->syndrome & DP_AETH_TYPE_MASK) != DP_AETH_ACK;
	struct dp_xah xah;
	uint32_t psn;
	uint8_t *at;

	/* rxe mistakes a standard ACK with the PSN of a READ or atomic for its answer. */
	psn = nak ? r->nak_psn : rc->hello_done ? dp_psn_add(r->epsn, DP_PSN_MASK) : r->newest;
	dp_build_start(rc, pkt, DP_OP_ACK | (rc->hello_done ? DP_OP_EXT : 0), 0, 0, 0, psn);
	dp_aeth_set(dp_packet_push(pkt, DP_AETH_LEN), r->syndrome, r->msn);
	if (rc->hello_done) {
		at = dp_packet_push(pkt, DP_XAH_LEN);
		xah = (struct dp_xah){
			.ts_echo_ns = r->ts_ns,
			.ack_delay_ns = r->ts_at_ns ? held_ns(r->ts_at_ns, now) : UINT32_MAX,
			.marked = r->marked,
			.duplicates = r->duplicates,
			.arrived_ns = (uint32_t)r->ts_at_ns,
		};
		r->told_marked = r->marked;
		r->told_duplicates = r->duplicates;
		xah.words = (uint8_t)dp_reorder_sack(rc, &xah.sack_base, at + DP_XAH_LEN);
		dp_packet_push(pkt, 4u * xah.words);
		if (r->block) {
			xah.n_trimmed = push_list(pkt, &r->block->trimmed);
			xah.n_marked = push_list(pkt, &r->block->marked);
			dp_reorder_told(rc);
		}
		xah.n_hops = (uint8_t)push_hops(rc->echo, pkt);
		dp_xah_set(at, &xah);
	}
	dp_packet_end(&rc->qp, pkt);
}

void dp_build_hello(struct dp_rc *rc, uint8_t opcode, const struct dp_hello *hello,
		    struct dp_packet *pkt)
{
	dp_build_start(rc, pkt, opcode, 0, 0, 0, 0);
	dp_hello_set(dp_packet_push(pkt, DP_HELLO_LEN), hello);
	dp_packet_end(&rc->qp, pkt);
}

void dp_build_probe(struct dp_rc *rc, uint8_t opcode, uint32_t len, struct dp_packet *pkt)
{
	uint8_t *at;

	dp_build_start(rc, pkt, opcode, 0, 0, 0, 0);
	len += DP_PROBE_EXTRA;
	at = dp_packet_push_payload(pkt, len);
	if (at)
		memset(at, 0, len);
	dp_packet_end(&rc->qp, pkt);
}
