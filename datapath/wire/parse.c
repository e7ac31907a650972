/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The extension headers stand in one fixed order in every packet, so a walk
 * over the opcode's mask finds them all.
 */
#include "wire/parse.h"
#include "wire/trim.h"

#include <errno.h>

static const uint8_t *take(const uint8_t **p, uint32_t mask, uint32_t flag, uint32_t len)
{
	const uint8_t *h = *p;

	if (!(mask & flag))
		return NULL;
	*p += len;
	return h;
}

static void find_headers(const uint8_t *bth, struct dp_parsed *out)
{
	const uint8_t *p = bth + DP_BTH_LEN;
	uint32_t mask = out->mask, room;
	struct dp_xah xah;

	out->hello = take(&p, mask, DP_HAS_HELLO, DP_HELLO_LEN);
	out->demand = take(&p, mask, DP_HAS_DEMAND, DP_DEMAND_LEN);
	out->grant = take(&p, mask, DP_HAS_GRANT, DP_GRANT_LEN);
	out->credit = take(&p, mask, DP_HAS_CREDIT, DP_CREDIT_LEN);
	out->xdh = take(&p, mask, DP_HAS_XDH, DP_XDH_LEN);
	out->deth = take(&p, mask, DP_HAS_DETH, DP_DETH_LEN);
	room = mask & DP_IS_REQUEST && out->xdh ? dp_room_len(dp_xdh_records(out->xdh)) : 0;
	out->room = room ? p : NULL;
	p += room;
	out->feth = take(&p, mask, DP_HAS_FETH, DP_FETH_LEN);
	out->reth = take(&p, mask, DP_HAS_RETH, DP_RETH_LEN);
	out->atomic = take(&p, mask, DP_HAS_ATOMIC_ETH, DP_ATOMIC_ETH_LEN);
	out->aeth = take(&p, mask, DP_HAS_AETH, DP_AETH_LEN);
	out->atomic_ack = take(&p, mask, DP_HAS_ATOMIC_ACK_ETH, DP_ATOMIC_ACK_ETH_LEN);
	out->imm = take(&p, mask, DP_HAS_IMM, DP_IMM_LEN);
	out->ieth = take(&p, mask, DP_HAS_IETH, DP_IETH_LEN);
	out->xah = take(&p, mask, DP_HAS_XAH, DP_XAH_LEN);
	out->sack = out->trimmed = out->marked = out->hops = NULL;
	if (!out->xah)
		return;
	dp_xah_get(out->xah, &xah);
	out->sack = p;
	out->trimmed = out->sack + 4 * xah.words;
	out->marked = out->trimmed + 4 * xah.n_trimmed;
	out->hops = out->marked + 4 * xah.n_marked;
}

/* Bytes that follow an XAH, or -EBADMSG. */
static int announced_length(const uint8_t *h)
{
	struct dp_xah xah;

	dp_xah_get(h, &xah);
	if (xah.words > DP_SACK_WORDS_MAX || xah.n_trimmed > DP_LIST_MAX ||
	    xah.n_marked > DP_LIST_MAX || xah.n_hops > DP_HOPS_MAX)
		return -EBADMSG;
	return 4 * (xah.words + xah.n_trimmed + xah.n_marked) + DP_HOP_LEN * xah.n_hops;
}

/* Length of all headers, with what an XDH or XAH announces, or -EBADMSG. */
static int header_length(const struct dp_packet *pkt, const struct dp_opcode_info *info)
{
	uint32_t len = info->hdr_len, records;
	int more = 0;

	if (pkt->len < len)
		return -EBADMSG;
	if (info->mask & DP_HAS_XAH) {
		more = announced_length(pkt->data + len - DP_XAH_LEN);
	} else if (info->mask & DP_HAS_XDH && info->mask & DP_IS_REQUEST) {
		records = dp_xdh_records(pkt->data + DP_BTH_LEN);
		more = records > DP_HOPS_MAX ? -EBADMSG : (int)dp_room_len(records);
	}
	if (more < 0 || pkt->len - len < (uint32_t)more)
		return -EBADMSG;
	return (int)len + more;
}

/* Bytes of payload, or -EBADMSG. */
static int64_t payload_length(const struct dp_packet *pkt, uint32_t mask, uint32_t hdr_len)
{
	uint32_t pad = dp_bth_pad(pkt->data);
	int64_t len;

	if (dp_is_trimmed(pkt)) /* some of the payload may be left */
		return 0;
	if (pkt->flags & DP_PKT_NO_PAYLOAD)
		len = pkt->len == hdr_len ? (int64_t)pkt->pay_len : -1;
	else
		len = (int64_t)pkt->len + pkt->frag_len - hdr_len - pad - DP_ICRC_LEN;
	if (len < 0 || ((len + pad) & 3))
		return -EBADMSG;
	if (!(mask & DP_HAS_PAYLOAD) && len + pad != 0)
		return -EBADMSG;
	return len;
}

static void find_payload(const struct dp_packet *pkt, uint32_t hdr_len, uint32_t len,
			 struct dp_parsed *out)
{
	uint32_t here = pkt->len - hdr_len;

	out->payload = NULL;
	out->payload2 = NULL;
	out->payload_len = len;
	out->payload2_len = 0;
	if (out->cut || pkt->flags & DP_PKT_NO_PAYLOAD)
		return;
	out->payload = pkt->data + hdr_len;
	if (len > here) {
		out->payload_len = here;
		out->payload2 = pkt->frag;
		out->payload2_len = len - here;
	}
}

int dp_packet_parse(const struct dp_packet *pkt, struct dp_parsed *out)
{
	const uint8_t *bth = pkt->data;
	const struct dp_opcode_info *info;
	int64_t len;
	int hdr_len;

	if (pkt->len < DP_BTH_LEN || dp_bth_tver(bth) != 0)
		return -EBADMSG;
	info = &dp_opcodes[dp_bth_opcode(bth)];
	if (!info->name)
		return -EOPNOTSUPP;
	hdr_len = header_length(pkt, info);
	if (hdr_len < 0)
		return hdr_len;
	len = payload_length(pkt, info->mask, (uint32_t)hdr_len);
	if (len < 0)
		return (int)len;

	out->opcode = dp_bth_opcode(bth);
	out->ack_req = dp_bth_ack_req(bth);
	out->solicited = dp_bth_solicited(bth);
	out->becn = dp_bth_becn(bth);
	out->cut = dp_is_trimmed(pkt);
	out->mask = info->mask;
	out->psn = dp_bth_psn(bth);
	out->dest_qpn = dp_bth_dest_qpn(bth);
	out->handed_on = pkt->flags & DP_PKT_HANDED_ON;
	out->arrived_ns = pkt->arrived_ns > pkt->late_ns ? pkt->arrived_ns - pkt->late_ns : 0;
	find_headers(bth, out);
	if (out->aeth && !dp_syndrome_known(dp_aeth_syndrome(out->aeth)))
		return -EBADMSG;
	find_payload(pkt, (uint32_t)hdr_len, (uint32_t)len, out);
	return 0;
}
