// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/paths.h"

/* The first path of a set behind `path`, in turn. */
static unsigned behind(uint64_t set, unsigned path)
{
	uint64_t above = set & (~1ull << path);

	return (unsigned)__builtin_ctzll(above ? above : set);
}

void dp_path_choose(struct dp_rc *rc)
{
	uint32_t paths = dp_paths(rc);
	struct dp_tx_block *b = rc->req.block;
	double chosen;

	if (paths == 1) {
		rc->req.path = 0;
		return;
	}
	chosen = dp_flow_next_path(rc->flow);
	if (!(chosen >= 0 && chosen < paths)) {
		b->owing = 0;
		b->owed_all = 0;
		rc->req.path = (uint8_t)((rc->req.path + 1u) % paths);
	} else if (b->owing) {
		rc->req.path = (uint8_t)behind(b->owing, rc->req.path);
	} else {
		rc->req.path = (uint8_t)chosen;
	}
}

void dp_path_sent(struct dp_tx_block *b, unsigned path)
{
	uint64_t bit = 1ull << path;

	if (!(b->owing & bit))
		return;
	b->owed_all--;
	if (!--b->owed[path])
		b->owing &= ~bit;
}

void dp_path_delivered(struct dp_tx_block *b, const struct dp_rec *rec)
{
	struct dp_path_news *news = &b->news[rec->path];
	uint64_t bit = 1ull << rec->path;

	if (!(b->delivered & bit))
		*news = (struct dp_path_news){ 0 };
	b->delivered |= bit;
	news->packets++;
	news->acked += rec->len;
	news->marked += rec->marked ? rec->len : 0;
	if (rec->delivered > news->prior)
		news->prior = rec->delivered;
}

/* After a call for `n` packets: the path that it chose is owed as many, as far as the window lets
 * them out.  untold_bytes: delivered on paths that the algorithm has not been told of yet. */
static void owe(struct dp_rc *rc, uint32_t n, double untold_bytes)
{
	double chosen = dp_flow_next_path(rc->flow), room;
	struct dp_tx_block *b = rc->req.block;
	unsigned path;

	room = dp_flow_window_bytes(rc->flow) - (double)rc->flow->inflight_bytes - untold_bytes;
	room = room / rc->req.segment - b->owed_all;
	if (!(chosen >= 0 && chosen < b->paths) || room < 1)
		return;
	path = (unsigned)chosen;
	if (n > room)
		n = (uint32_t)room;
	if (!(b->owing & 1ull << path))
		b->owed[path] = 0;
	b->owing |= 1ull << path;
	b->owed[path] += n;
	b->owed_all += n;
}

static void set_news(struct dp_cc_ack *ack, unsigned path, const struct dp_path_news *news)
{
	ack->path = path;
	ack->acked_bytes = news->acked;
	ack->marked_bytes = news->marked;
	ack->prior_delivered_bytes = (double)news->prior;
}

/* Last comes the path of the newest packet, with all that belongs to that packet.  The others come
 * in turn behind it, so that none is always the first: the window may not let out a packet for each. */
void dp_paths_tell(struct dp_rc *rc, struct dp_cc_ack *newest, unsigned path, uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;
	double untold_bytes = newest->acked_bytes;
	struct dp_cc_ack ack;
	unsigned i;

	newest->path = path;
	if (!dp_flow_by_path(rc->flow)) {
		b->delivered = 0;
		dp_flow_ack(rc->flow, newest, now);
		return;
	}
	for (i = behind(b->delivered, path); i != path; i = behind(b->delivered, i)) {
		ack = *newest;
		set_news(&ack, i, &b->news[i]);
		ack.rtt_ns = ack.host_ns = ack.back_ns = ack.delivery_rate_bps = ack.n_hops = 0;
		dp_flow_ack_path(rc->flow, &ack, now);
		untold_bytes -= b->news[i].acked;
		owe(rc, b->news[i].packets, untold_bytes);
	}
	set_news(newest, path, &b->news[path]);
	dp_flow_ack(rc->flow, newest, now);
	owe(rc, b->news[path].packets, 0);
	b->delivered = 0;
}
