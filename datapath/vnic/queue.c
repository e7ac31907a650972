// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Frames wait in lines until it is their turn (share.h): each pipe has a line for each class of
 * each tenant.  A line is ready while its pipe takes more frames, and blocked otherwise.  A QP gets
 * only a few frames that it cannot send at once, so a frame of another tenant never waits behind
 * many.
 *
 * A line has no limit of its own: HELD_MAX limits what one guest has in all lines.
 */
#include <errno.h>
#include <stdlib.h>

#include "posix/clock.h"
#include "vnic/card.h"

static bool has_room(const struct pipe *p)
{
	return p->plain || tunnel_has_room(p);
}

/* ---- ready lines -------------------------------------------------------------------- */

static void make_ready(struct line *l)
{
	struct leaf *leaf = l->leaf;
	bool first = !leaf->ready;

	l->next = NULL;
	if (first)
		leaf->ready = l;
	else
		leaf->ready_last->next = l;
	leaf->ready_last = l;
	share_ready(&leaf->share);
	if (first)
		share_ready(&leaf->tenant->share);
}

static void unready(struct line *l)
{
	struct leaf *leaf = l->leaf;
	struct line **at = &leaf->ready, *before = NULL;

	for (; *at != l; at = &(*at)->next)
		before = *at;
	*at = l->next;
	if (leaf->ready_last == l)
		leaf->ready_last = before;
	share_unready(&leaf->share);
	if (!leaf->ready)
		share_unready(&leaf->tenant->share);
}

static void block(struct card *card, struct line *l)
{
	l->blocked = true;
	card->n_blocked++;
}

static void unblock(struct card *card, struct line *l)
{
	l->blocked = false;
	card->n_blocked--;
}

static void unblock_pipe(struct card *card, struct pipe *p)
{
	if (!has_room(p))
		return;
	for (uint32_t i = 0; i < card->n_leaves; i++) {
		if (p->line[i].blocked) {
			unblock(card, &p->line[i]);
			make_ready(&p->line[i]);
		}
	}
}

static void unblock_all(struct card *card)
{
	for (uint32_t i = 0; i < card->n_hosts; i++)
		for (uint32_t k = 0; card->n_blocked && card->host[i].up && k < card->n_pipes; k++)
			unblock_pipe(card, &card->host[i].pipe[k]);
}

/* ---- frames ---------------------------------------------------------------------------- */

static uint32_t take_first(struct card *card, struct line *l)
{
	uint32_t first = l->first;

	l->first = card->chunk[first].behind;
	l->queued--;
	l->leaf->queued--;
	l->leaf->tenant->queued--;
	l->traffic->queued_frames--;
	l->traffic->queued_bytes -= card->chunk[first].raw.total;
	return first;
}

struct line *queue_line(const struct card *card, const struct guest *g, uint8_t class,
			struct pipe *p)
{
	return &p->line[g->tenant * card->n_classes + class];
}

struct traffic *queue_traffic(const struct card *card, uint16_t host, uint32_t leaf)
{
	return &card->traffic[host * card->n_leaves + leaf];
}

void queue_put(struct card *card, struct line *l, uint32_t first)
{
	card->chunk[first].behind = DP_NO_CHUNK;
	card->chunk[first].line = l;
	l->traffic->queued_frames++;
	l->traffic->queued_bytes += card->chunk[first].raw.total;
	if (l->queued)
		card->chunk[l->last].behind = first;
	else
		l->first = first;
	l->last = first;
	l->leaf->tenant->queued++;
	if (!l->leaf->queued++) {
		l->leaf->woke_bytes = card->tx_bytes;
		l->leaf->woke_ns = dp_now_ns();
	}
	if (l->queued++)
		return;
	if (has_room(l->pipe))
		make_ready(l);
	else
		block(card, l);
}

static void note_due(struct card *card, uint32_t bytes)
{
	uint64_t weights = 0;

	for (uint32_t i = 0; i < card->n_tenants; i++)
		if (card->tenant[i].queued)
			weights += card->tenant[i].share.weight;
	for (uint32_t i = 0; i < card->n_tenants; i++)
		if (card->tenant[i].queued)
			card->tenant[i].due_bytes +=
				(double)bytes * card->tenant[i].share.weight / (double)weights;
}

/* To be called while the frame still counts as queued. */
static void note_sent(struct card *card, struct leaf *leaf, uint32_t bytes, uint64_t now)
{
	uint64_t others = card->tx_bytes - leaf->woke_bytes, waited;

	if (leaf->woke_ns) {
		waited = now > leaf->woke_ns ? now - leaf->woke_ns : 0;
		if (others > leaf->first_wait_bytes)
			leaf->first_wait_bytes = others;
		if (waited > leaf->first_wait_ns)
			leaf->first_wait_ns = waited;
	}
	leaf->woke_ns = 0;
	leaf->tx_frames++;
	leaf->tx_bytes += bytes;
	leaf->tenant->tx_bytes += bytes;
	card->tx_bytes += bytes;
	note_due(card, bytes);
}

static void note_traffic(struct traffic *t, const struct chunk *c, uint64_t now)
{
	double waited = now > c->came_ns ? (double)(now - c->came_ns) : 0;

	t->wait_ns += t->tx_frames ? (waited - t->wait_ns) / SMOOTHED : waited;
	t->tx_frames++;
	t->tx_bytes += c->raw.total;
}

static void send_one(struct card *card, struct leaf *leaf, uint64_t now)
{
	struct tenant *t = leaf->tenant;
	struct line *l = leaf->ready;
	uint32_t first, bytes;

	unready(l);
	if (!has_room(l->pipe)) {
		block(card, l);
		return;
	}
	bytes = card->chunk[l->first].raw.total;
	note_sent(card, leaf, bytes, now);
	first = take_first(card, l);
	note_traffic(l->traffic, &card->chunk[first], now);
	share_spend(&t->classes, &leaf->share, bytes, now);
	share_spend(&card->tenants, &t->share, bytes, now);
	rate_spend(&card->rate, bytes, now);
	if (l->pipe->plain)
		vxlan_send_queued(card, l->pipe->host, first);
	else
		tunnel_send(card, l->pipe, first);
	if (l->queued)
		make_ready(l);
}

static uint64_t when(const struct rate *r)
{
	return r->bps ? r->next_ns : 0;
}

static uint64_t tenant_deadline(const struct card *card, const struct tenant *t)
{
	uint64_t at = DP_NEVER;

	for (uint32_t k = 0; k < card->n_classes; k++)
		if (t->leaf[k].share.ready && when(&t->leaf[k].share.most) < at)
			at = when(&t->leaf[k].share.most);
	return when(&t->share.most) > at ? when(&t->share.most) : at;
}

/* The earliest time at which a ready line may send. */
static uint64_t deadline(const struct card *card)
{
	uint64_t at = DP_NEVER;

	for (uint32_t i = 0; i < card->n_tenants; i++)
		if (card->tenant[i].share.ready && tenant_deadline(card, &card->tenant[i]) < at)
			at = tenant_deadline(card, &card->tenant[i]);
	return at != DP_NEVER && when(&card->rate) > at ? when(&card->rate) : at;
}

uint64_t queue_run(struct card *card)
{
	uint64_t now = dp_now_ns();
	struct share *tenant;

	if (card->n_blocked)
		unblock_all(card);
	while (rate_allows(&card->rate, now)) {
		tenant = share_turn(&card->tenants, now);
		if (!tenant)
			break;
		send_one(card, (struct leaf *)share_turn(&((struct tenant *)tenant)->classes, now),
			 now);
	}
	return deadline(card);
}

void queue_drop(struct card *card, struct pipe *p)
{
	for (uint32_t i = 0; i < card->n_leaves; i++) {
		struct line *l = &p->line[i];

		if (!l->queued)
			continue;
		if (l->blocked)
			unblock(card, l);
		else
			unready(l);
		while (l->queued) {
			card->host[p->host].counters.aborted++;
			l->traffic->aborted++;
			frame_let_go(card, take_first(card, l));
		}
	}
}

void queue_clear(struct card *card)
{
	for (uint32_t i = 0; i < card->n_tenants; i++) {
		struct tenant *t = &card->tenant[i];

		t->tx_bytes = 0;
		t->due_bytes = 0;
		for (uint32_t k = 0; k < card->n_classes; k++) {
			struct leaf *leaf = &t->leaf[k];

			leaf->tx_frames = leaf->tx_bytes = 0;
			leaf->first_wait_bytes = leaf->first_wait_ns = 0;
		}
	}
	for (uint32_t i = 0; i < card->n_hosts * card->n_leaves; i++) {
		struct traffic *t = &card->traffic[i], kept = {};

		kept.queued_frames = t->queued_frames;
		kept.queued_bytes = t->queued_bytes;
		kept.inflight_frames = t->inflight_frames;
		kept.inflight_bytes = t->inflight_bytes;
		*t = kept;
	}
}

/* ---- starting ----------------------------------------------------------------------------- */

static bool has_turn(const struct share *s, uint64_t now)
{
	return share_turn(&((const struct tenant *)s)->classes, now) != NULL;
}

static void open_tenant(struct card *card, struct tenant *t)
{
	t->classes = (struct shares){ t->leaf, sizeof(t->leaf[0]), card->n_classes, 0, NULL };
	for (uint32_t k = 0; k < card->n_classes; k++) {
		t->leaf[k].tenant = t;
		t->leaf[k].share = card->class[k].share;
	}
}

static void open_pipe(struct card *card, struct pipe *p, uint16_t host, struct line *lines)
{
	p->host = host;
	p->line = lines;
	for (uint32_t i = 0; i < card->n_leaves; i++) {
		struct tenant *t = &card->tenant[i / card->n_classes];

		lines[i].leaf = &t->leaf[i % card->n_classes];
		lines[i].traffic = queue_traffic(card, host, i);
		lines[i].pipe = p;
	}
}

int queue_open(struct card *card)
{
	struct line *next;

	card->n_leaves = card->n_tenants * card->n_classes;
	card->tenants = (struct shares){ card->tenant, sizeof(card->tenant[0]), card->n_tenants, 0,
					 has_turn };
	for (uint32_t i = 0; i < card->n_tenants; i++)
		open_tenant(card, &card->tenant[i]);
	next = calloc((size_t)card->n_hosts * (card->n_pipes + 1) * card->n_leaves + 1,
		      sizeof(*card->line));
	card->traffic = calloc((size_t)card->n_hosts * card->n_leaves + 1, sizeof(*card->traffic));
	if (!next || !card->traffic) {
		free(next);
		return -ENOMEM;
	}
	card->line = next;
	for (uint32_t i = 0; i < card->n_hosts; i++) {
		for (uint32_t k = 0; k < card->n_pipes; k++, next += card->n_leaves)
			open_pipe(card, &card->host[i].pipe[k], (uint16_t)i, next);
		open_pipe(card, &card->host[i].plain, (uint16_t)i, next);
		card->host[i].plain.plain = true;
		next += card->n_leaves;
	}
	return 0;
}
