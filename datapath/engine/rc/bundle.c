// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Bundles: several short messages in one packet (SCTP bundles chunks so, RFC 9260, section 6.10).
 * Each message has its own PSN and is acknowledged, lost and sent again by itself.  Copies are sent
 * alone.
 */
#include "engine/rc/bundle.h"

#include "engine/build.h"

static uint32_t head_len(bool send)
{
	return send ? DP_PART_LEN : DP_RETH_LEN;
}

static uint32_t padded(uint32_t len)
{
	return (len + 3) & ~3u;
}

static uint32_t part_len(const struct dp_swqe *wqe)
{
	return head_len(wqe->opcode == DP_WR_SEND) + padded(wqe->len);
}

/* ---- the sender ------------------------------------------------------------------------------ */

static bool is_short(const struct dp_swqe *wqe)
{
	return wqe->n_psn == 1 && !wqe->base && !(wqe->flags & DP_SEND_SOLICITED) &&
	       (wqe->opcode == DP_WR_RDMA_WRITE || wqe->opcode == DP_WR_SEND);
}

bool dp_bundle_takes(const struct dp_rc *rc, const struct dp_bundle *b, const struct dp_swqe *wqe)
{
	uint32_t most = rc->req.segment < DP_BUNDLE_BYTES ? rc->req.segment : DP_BUNDLE_BYTES;

	return b->parts < DP_BUNDLE_MAX && wqe->opcode == b->opcode && is_short(wqe) &&
	       b->bytes + part_len(wqe) <= most;
}

bool dp_bundle_begins(const struct dp_rc *rc, const struct dp_swqe *wqe, const struct dp_swqe *next)
{
	struct dp_bundle b = { .opcode = wqe->opcode };

	if (!rc->qp.engine->cfg.bundle || !dp_bundle_takes(rc, &b, wqe))
		return false;
	b.bytes = part_len(wqe);
	return dp_bundle_takes(rc, &b, next);
}

int dp_bundle_add(struct dp_rc *rc, struct dp_bundle *b, const struct dp_swqe *wqe,
		  struct dp_packet *pkt)
{
	uint32_t before = pkt->len;
	uint8_t *at;

	if (wqe->opcode == DP_WR_SEND)
		dp_put32(dp_packet_push(pkt, DP_PART_LEN), wqe->len);
	else
		dp_reth_set(dp_packet_push(pkt, DP_RETH_LEN), wqe->remote_addr, wqe->rkey,
			    wqe->len);
	at = dp_packet_push_payload(pkt, wqe->len);
	if (dp_gather(&rc->qp, wqe, 0, at, wqe->len)) {
		pkt->len = before;
		return -EFAULT;
	}
	b->parts++;
	b->bytes += part_len(wqe);
	return 0;
}

/* ---- the receiver ---------------------------------------------------------------------------- */

/* Finds the message that begins `at` bytes into the payload.  Returns where the next one begins; 0:
 * this one is cut off. */
static uint32_t find(const struct dp_parsed *bundle, uint32_t at, struct dp_parsed *out)
{
	bool send = bundle->mask & DP_IS_SEND;
	const uint8_t *head = bundle->payload + at;
	uint32_t left = bundle->payload_len - at, len;

	if (left < head_len(send))
		return 0;
	left -= head_len(send);
	len = send ? dp_get32(head) : dp_reth_len(head);
	if (len > left || padded(len) > left)
		return 0;
	out->reth = send ? NULL : head;
	out->payload = head + head_len(send);
	out->payload_len = len;
	return at + head_len(send) + padded(len);
}

/* Whether the payload consists of just the messages that the XDH announces. */
static bool is_whole(const struct dp_parsed *p, uint32_t parts)
{
	struct dp_parsed any;
	uint32_t at = 0, i;

	if (!parts || parts > DP_BUNDLE_MAX || !p->payload || p->payload2_len)
		return false;
	for (i = 0; i < parts; i++) {
		at = find(p, at, &any);
		if (!at)
			return false;
	}
	return at == p->payload_len;
}

bool dp_unbundle(struct dp_unbundling *u, const struct dp_parsed *bundle)
{
	uint8_t only = bundle->mask & DP_IS_SEND ? DP_OP_SEND_ONLY : DP_OP_WRITE_ONLY;

	u->bundle = bundle;
	u->left = dp_xdh_parts(bundle->xdh);
	u->at = 0;
	if (!is_whole(bundle, u->left))
		return false;
	dp_xdh_get(bundle->xdh, &u->fields);
	u->fields.offset = 0;
	u->part = *bundle;
	u->part.opcode = DP_OP_EXT | only;
	u->part.mask = dp_opcodes[u->part.opcode].mask;
	u->part.xdh = u->xdh;
	return true;
}

const struct dp_parsed *dp_unbundle_next(struct dp_unbundling *u)
{
	if (!u->left)
		return NULL;
	if (u->at) {
		u->part.psn = dp_psn_add(u->part.psn, 1);
		u->fields.rq_seq += !!(u->part.mask & DP_IS_SEND);
		u->fields.ack = false; /* the first message has told it */
	}
	u->at = find(u->bundle, u->at, &u->part);
	u->left--;
	u->part.ack_req = u->bundle->ack_req && !u->left;
	dp_xdh_set(u->xdh, &u->fields);
	return &u->part;
}
