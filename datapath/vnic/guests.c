// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <string.h>

#include "io/addr.h"
#include "posix/clock.h"
#include "vnic/card.h"

enum { BATCH = 256 };

/* ---- to a guest ---------------------------------------------------------------------- */

/* A device that is down, or gone, sends nothing: DELIVERED keeps it from having the chunks of
 * others. */
static bool hand_over(struct card *card, struct guest *g, uint32_t first)
{
	return g->port->sending + card->frame_chunks <= DELIVERED &&
	       dp_raw_send(&card->raw, g->port, first);
}

static void deliver(struct card *card, struct guest *g, uint32_t first)
{
	uint32_t len = card->chunk[first].raw.total;

	if (!hand_over(card, g, first)) {
		dp_raw_kick(g->port);
		dp_raw_reap(&card->raw, g->port);
		if (!hand_over(card, g, first)) {
			g->counters.overrun++;
			dp_raw_put(&card->raw, first);
			return;
		}
	}
	g->counters.tx_frames++;
	g->counters.tx_bytes += len;
}

void guests_flush(struct card *card)
{
	for (uint32_t i = 0; i < card->n_local; i++) {
		dp_raw_kick(&card->port[i]);
		dp_raw_reap(&card->raw, &card->port[i]);
		dp_raw_refill(&card->raw, &card->port[i]);
	}
}

/* ---- questions ----------------------------------------------------------------------- */

/* Turns the frame into the answer to its question; false: it asks for nobody of the tenant. */
static bool answer(struct card *card, uint32_t vni, uint32_t first, const struct header *h,
		   const struct question *q)
{
	uint16_t target = table_addr(card, vni, &q->target);
	struct chunk *c = &card->chunk[first];
	uint8_t *bytes = dp_raw_bytes(&card->raw, first);

	if (target == NOBODY)
		return false;
	dp_raw_put(&card->raw, c->raw.next);
	c->raw.next = DP_NO_CHUNK;
	c->raw.len = c->raw.total = answer_write(bytes, h, q, card->guest[target].mac);
	return true;
}

/* ---- from a guest -------------------------------------------------------------------- */

static bool is_recovered(const struct card *card, const struct header *h)
{
	const uint8_t *ports = h->protocol == PROTO_UDP ? card->udp_recovered : card->tcp_recovered;

	if (!h->has_ports)
		return false;
	return (ports[h->dport / 8] >> h->dport % 8 | ports[h->sport / 8] >> h->sport % 8) & 1;
}

static uint8_t class_of(const struct card *card, const struct header *h)
{
	const uint8_t *of = h->protocol == PROTO_UDP ? card->udp_class : card->tcp_class;

	if (!h->has_ports)
		return 0;
	return of[h->dport] ? of[h->dport] : of[h->sport];
}

static void wait_for_turn(struct card *card, struct guest *g, struct line *l,
			  const struct header *h, uint32_t first)
{
	frame_hold(card, g, first);
	card->chunk[first].hash = header_hash(h);
	/* Frames wait here in place of a switch's queue, so marks are set here. */
	if (l->queued + l->pipe->posted >= MARKED &&
	    header_mark_ce(dp_raw_bytes(&card->raw, first), h))
		g->counters.marked++;
	queue_put(card, l, first);
}

static void send_away(struct card *card, struct guest *g, const struct guest *to,
		      const struct header *h, uint32_t first)
{
	struct host *host = &card->host[to->host];
	bool recovered = is_recovered(card, h);
	struct pipe *p = recovered ? tunnel_pipe(card, host, header_hash(h)) : &host->plain;
	struct line *l = queue_line(card, g, class_of(card, h), p);

	if (recovered && !host->up) {
		g->counters.no_tunnel++;
		dp_raw_put(&card->raw, first);
	} else if (!recovered && l->queued >= PLAIN_MAX) {
		g->counters.crowded++;
		dp_raw_put(&card->raw, first);
	} else {
		g->counters.recovered += recovered;
		if (recovered && h->protocol == PROTO_TCP) {
			header_fit_mss(dp_raw_bytes(&card->raw, first), card->chunk[first].raw.len,
				       h, tunnel_packet(p));
			frame_fill(card, first, tunnel_packet(p));
		}
		wait_for_turn(card, g, l, h, first);
	}
}

/* The counter of the reason to drop the frame; NULL: it may go to *to. */
static uint64_t *refuse(struct card *card, struct guest *g, const struct header *h,
			const struct guest **to)
{
	uint16_t target;

	if (is_group_mac(h->dst_mac))
		return &g->counters.group;
	if (!h->version)
		return &g->counters.other_protocol;
	if (!guest_has(g, &h->src))
		return &g->counters.spoofed_ip;
	if (tells_of_neighbours(h))
		return &g->counters.spoofed_nd;
	target = table_mac(card, g->vni, h->dst_mac);
	if (target == NOBODY)
		return &g->counters.unknown_guest;
	*to = &card->guest[target];
	return NULL;
}

/* Like refuse(), for a guest's question. */
static uint64_t *refuse_question(struct card *card, struct guest *g, uint32_t first,
				 const struct header *h, const struct question *q)
{
	bool probes = h->ethertype == ETHERTYPE_ARP && dp_addr_is_unspecified(&q->asker);

	if (memcmp(q->asker_mac, g->mac, MAC_LEN) || (!probes && !guest_has(g, &q->asker)))
		return &g->counters.spoofed_arp;
	/* Who probes its own address and hears an answer gives it up (RFC 5227, 2.1.1). */
	if (guest_has(g, &q->target) || !answer(card, g->vni, first, h, q))
		return &g->counters.unanswered;
	return NULL;
}

static uint64_t *look(struct card *card, struct guest *g, uint32_t first, struct header *h)
{
	const struct chunk *c = &card->chunk[first];

	g->counters.rx_frames++;
	g->counters.rx_bytes += c->raw.total;
	if (c->raw.total > card->mtu + ETH_LEN)
		return &g->counters.too_long;
	if (!header_read(dp_raw_bytes(&card->raw, first), c->raw.len, h))
		return &g->counters.malformed;
	return memcmp(h->src_mac, g->mac, MAC_LEN) ? &g->counters.spoofed_mac : NULL;
}

static void from_guest(struct card *card, struct guest *g, uint32_t first)
{
	const struct chunk *c = &card->chunk[first];
	const struct guest *to = NULL;
	struct question q;
	struct header h;
	uint64_t *dropped = look(card, g, first, &h);

	if (!dropped && question_read(dp_raw_bytes(&card->raw, first), c->raw.len, &h, &q)) {
		dropped = refuse_question(card, g, first, &h, &q);
		if (!dropped) {
			g->counters.answered++;
			deliver(card, g, first);
			return;
		}
	} else if (!dropped) {
		dropped = refuse(card, g, &h, &to);
	}
	if (dropped) {
		++*dropped;
		dp_raw_put(&card->raw, first);
	} else if (to->port) {
		g->counters.neighbours++;
		deliver(card, &card->guest[to - card->guest], first);
	} else {
		send_away(card, g, to, &h, first);
	}
}

struct source {
	struct card *card;
	struct guest *guest;
};

static void take(void *user, uint32_t first, uint64_t arrived_ns)
{
	struct source *from = user;

	from->card->chunk[first].came_ns = arrived_ns;
	from_guest(from->card, from->guest, first);
}

void guests_receive(struct card *card)
{
	uint64_t now = dp_now_ns();

	for (uint32_t i = 0; i < card->n_local; i++) {
		struct source from = { card, &card->guest[card->local[i]] };
		bool full = from.guest->held > HELD_MAX;

		from.guest->counters.stopped += full && !from.guest->stopped;
		from.guest->stopped = full;
		if (!full)
			dp_raw_receive(&card->raw, &card->port[i], BATCH, now, take, &from);
	}
}

/* ---- from another host ----------------------------------------------------------------- */

/* Linux's vxlan device asks the tenant's other hosts for link addresses. */
static uint64_t *answer_host(struct card *card, struct host *host, uint32_t vni, uint32_t first,
			     const struct header *h, const struct question *q)
{
	uint16_t target = table_addr(card, vni, &q->target);
	uint16_t asker = table_addr(card, vni, &q->asker);

	if (asker == NOBODY || &card->host[card->guest[asker].host] != host ||
	    memcmp(card->guest[asker].mac, q->asker_mac, MAC_LEN))
		return &host->counters.foreign_guest;
	if (target == NOBODY || !card->guest[target].port)
		return &host->counters.unknown_guest;
	if (answer(card, vni, first, h, q))
		vxlan_send(card, host, vni, 0, first);
	dp_raw_put(&card->raw, first);
	return NULL;
}

/* Returns NULL if a guest got the frame; otherwise the counter of the reason to drop it. */
static uint64_t *pass_on(struct card *card, struct host *host, uint32_t vni, uint32_t first)
{
	const uint8_t *bytes = dp_raw_bytes(&card->raw, first);
	const struct chunk *c = &card->chunk[first];
	const struct guest *sender;
	struct question q;
	struct header h;
	uint16_t from, to;

	if (!header_read(bytes, c->raw.len, &h))
		return &host->counters.malformed;
	from = table_mac(card, vni, h.src_mac);
	if (from == NOBODY || &card->host[card->guest[from].host] != host)
		return &host->counters.foreign_guest;
	if (question_read(bytes, c->raw.len, &h, &q))
		return answer_host(card, host, vni, first, &h, &q);
	sender = &card->guest[from];
	if (!h.version || !guest_has(sender, &h.src))
		return &host->counters.spoofed_ip;
	if (tells_of_neighbours(&h))
		return &host->counters.spoofed_nd;
	to = table_mac(card, vni, h.dst_mac);
	if (to == NOBODY || !card->guest[to].port)
		return &host->counters.unknown_guest;
	deliver(card, &card->guest[to], first);
	return NULL;
}

void guests_accept(struct card *card, uint16_t from, uint32_t vni, uint32_t first, uint32_t len)
{
	uint64_t *dropped;

	frame_cut(card, first, len);
	dropped = pass_on(card, &card->host[from], vni, first);
	if (!dropped)
		return;
	++*dropped;
	dp_raw_put(&card->raw, first);
}
