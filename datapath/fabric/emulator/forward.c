// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <string.h>

#include "fabric/emulator/emulator.h"
#include "xdp/steer.h"

enum {
	MAC_LEN = 6,
	/* Frames that are closer to each other leave together anyway, when the emulator is late: a host
	 * would only be busy to hold them. */
	SPACED_NS = 20000,
};

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static uint32_t first_of(const struct emulator *e, const struct dp_frame *f)
{
	return (uint32_t)(container_of(f, struct chunk, frame) - e->chunk);
}

/* ---- the link's user ------------------------------------------------------------ */

static void on_drop(void *user, struct dp_frame *f, enum dp_drop why)
{
	const struct wire *w = user;

	(void)why;
	dp_raw_put(&w->emulator->raw, first_of(w->emulator, f));
}

/* Copies a frame into chunks of its own; NULL: too few chunks are free. */
static struct dp_frame *on_clone(void *user, const struct dp_frame *f)
{
	struct wire *w = user;
	struct emulator *e = w->emulator;
	uint32_t from = first_of(e, f), to, head = DP_NO_CHUNK, last = DP_NO_CHUNK;

	for (; from != DP_NO_CHUNK; from = e->chunk[from].raw.next) {
		to = dp_raw_get(&e->raw);
		if (to == DP_NO_CHUNK) {
			dp_raw_put(&e->raw, head);
			w->counts.starved++;
			return NULL;
		}
		e->chunk[to] = e->chunk[from];
		e->chunk[to].raw.addr =
			(uint64_t)to * DP_CHUNK + e->chunk[from].raw.addr % DP_CHUNK;
		e->chunk[to].raw.next = DP_NO_CHUNK;
		e->chunk[to].frame.hop = e->chunk[to].hop;
		memcpy(dp_raw_bytes(&e->raw, to), dp_raw_bytes(&e->raw, from),
		       e->chunk[from].raw.len);
		if (last == DP_NO_CHUNK)
			head = to;
		else
			e->chunk[last].raw.next = to;
		last = to;
	}
	return &e->chunk[head].frame;
}

const struct dp_link_ops forward_ops = { .drop = on_drop, .clone = on_clone };

/* ---- out ------------------------------------------------------------------------ */

/* Hands the frame to the device, or drops it. */
static bool transmit(struct emulator *e, struct port *p, uint32_t first)
{
	if (dp_raw_send(&e->raw, &p->raw, first))
		return true;
	dp_raw_put(&e->raw, first);
	return false;
}

/* Applies what the links decided about a frame to its bytes. */
static void finish(struct wire *w, struct dp_frame *f, uint32_t first)
{
	struct emulator *e = w->emulator;
	struct chunk *c = &e->chunk[first];

	if (f->n_hops && c->bth)
		stamp_telemetry(dp_raw_bytes(&e->raw, first), c);
	if (f->flags & DP_FRAME_TRIMMED) {
		trim_payload(dp_raw_bytes(&e->raw, first), c);
		dp_raw_put(&e->raw, c->raw.next);
		c->raw.next = DP_NO_CHUNK;
	}
	if (f->ecn == DP_ECN_CE)
		mark_ce(dp_raw_bytes(&e->raw, first), c);
	if (f->flags & DP_FRAME_CORRUPT)
		flip_bit(e, first, dp_random32(&w->mark_rng));
}

/* A frame that is handed over early is not late. */
static uint64_t late_ns(const struct sent *s, uint64_t now)
{
	return now > s->at_ns ? now - s->at_ns : 0;
}

/* Tells the kernel of the frames that were sent, and counts how late that is. */
static void flush(struct emulator *e)
{
	uint64_t now;

	if (!e->n_sent)
		return;
	kick_ports(e);
	now = dp_now_ns();
	if (e->woke)
		dp_late_add(&e->turn_late, late_ns(&e->sent[0], now));
	e->woke = false;
	for (uint32_t i = 0; i < e->n_sent; i++)
		dp_late_add(&e->sent[i].wire->late, late_ns(&e->sent[i], now));
	e->n_sent = 0;
}

/* A frame has reached the node of its port. */
static void leave(struct wire *w, struct dp_frame *f, uint32_t first)
{
	struct emulator *e = w->emulator;
	struct port *p = &e->port[e->chunk[first].out];
	const uint32_t date = (uint32_t)f->at_ns;

	e->sent[e->n_sent++] = (struct sent){ w, f->at_ns };
	w->left_ns = f->at_ns;
	finish(w, f, first);
	if (p->dated && e->chunk[first].bth) /* a frame without room stays as it is */
		dp_raw_append(&e->raw, first, &date, DP_DATE_LEN);
	if (!transmit(e, p, first))
		w->counts.starved++;
	if (e->n_sent == BATCH)
		flush(e);
}

/* ---- from link to link ------------------------------------------------------------ */

void forward_look(struct wire *w)
{
	struct emulator *e = w->emulator;

	e->due_ns[w - e->wire] = w->link ? dp_link_deadline(w->link) : UINT64_MAX;
}

static void mark_at_random(struct wire *w, struct dp_frame *f)
{
	bool capable = f->ecn == DP_ECN_ECT0 || f->ecn == DP_ECN_ECT1;

	if (!w->ecn_mark || !capable || dp_random32(&w->mark_rng) >= w->ecn_mark)
		return;
	f->ecn = DP_ECN_CE;
	w->counts.marked++;
}

/* The link by which a frame goes on from a node. */
static struct wire *next_wire(struct emulator *e, uint32_t node, const struct chunk *c)
{
	uint32_t leaf = e->port[c->out].node;

	return &e->wire[dp_routes_next(&e->routes, node, leaf, c->frame.flow_hash)];
}

static uint8_t class_of(const struct wire *w, const struct dp_frame *f)
{
	const struct chunk *c = container_of(f, struct chunk, frame);

	if (!w->has_classes) /* trimmed frames overtake whole ones */
		return w->trims && !(f->flags & DP_FRAME_TRIMMED);
	if (c->credit && w->map.credits < DP_LINK_CLASSES)
		return w->map.credits;
	return w->map.of_dscp[c->dscp];
}

static void offer(struct wire *w, struct dp_frame *f, uint64_t at)
{
	f->class = class_of(w, f);
	mark_at_random(w, f);
	if (at < w->last_ns)
		at = w->last_ns;
	w->last_ns = at;
	if (!w->link) { /* it is being made anew */
		w->counts.starved++;
		dp_raw_put(&w->emulator->raw, first_of(w->emulator, f));
		return;
	}
	dp_link_offer(w->link, f, at);
	forward_look(w);
}

/* A frame has crossed a link. */
static void arrive(struct wire *w, struct dp_frame *f)
{
	struct emulator *e = w->emulator;
	uint32_t first = first_of(e, f);
	const struct chunk *c = &e->chunk[first];

	f->ingress = w->ingress;
	if (w->to == e->port[c->out].node)
		leave(w, f, first);
	else
		offer(next_wire(e, w->to, c), f, f->at_ns);
}

/* The link whose deadline is the first. */
static struct wire *first_due(struct emulator *e)
{
	uint32_t first = 0;

	for (uint32_t i = 1; i < e->n_wires; i++)
		if (e->due_ns[i] < e->due_ns[first])
			first = i;
	return &e->wire[first];
}

/* Lets the links work up to a time, in the order of their deadlines: what leaves one link is
 * offered to the next one when it arrives there. */
static void advance(struct emulator *e, uint64_t until)
{
	struct wire *w;
	struct dp_frame *f;
	uint64_t at;

	while ((at = e->due_ns[(w = first_due(e)) - e->wire]) <= until || e->pause_ns <= until) {
		if (e->pause_ns <= at) {
			pauses_make(e);
			continue;
		}
		while ((f = dp_link_take(w->link, at)))
			arrive(w, f);
		forward_look(w);
	}
}

/* Whether the host of a port holds the frame until its date, and that spares a wake-up. */
static bool may_be_early(const struct emulator *e, const struct wire *w, const struct dp_frame *f)
{
	const struct chunk *c = &e->chunk[first_of(e, f)];
	const struct port *p = &e->port[c->out];

	return w->to == p->node && p->dated && c->bth && f->at_ns >= w->left_ns + SPACED_NS;
}

/* Hands over what is near its last link's end, in one go with what has reached it: so the emulator and
 * the host wake up once for several frames. */
static void send_early(struct emulator *e, uint64_t now)
{
	const struct dp_frame *f;
	uint64_t until;

	for (uint32_t i = 0; i < e->n_wires; i++) {
		struct wire *w = &e->wire[i];

		until = now + (w->delay_ns < e->early_ns ? w->delay_ns : e->early_ns);
		if (e->due_ns[i] > until)
			continue;
		while ((f = dp_link_coming(w->link, now)) && f->at_ns <= until &&
		       may_be_early(e, w, f))
			arrive(w, dp_link_take_coming(w->link));
		forward_look(w);
	}
}

void forward_send(struct emulator *e, uint64_t now)
{
	advance(e, now);
	if (e->early_ns)
		send_early(e, now);
	flush(e);
}

/* ---- in -------------------------------------------------------------------------- */

/* The port that a frame leaves by; NO_PORT: unknown.  With two ports it needs no address: frames of
 * one leave by the other. */
static uint16_t port_of(const struct emulator *e, const struct port *from, const uint8_t *mac)
{
	if (e->n_ports == 2)
		return from == e->port;
	for (uint32_t i = 0; i < e->n_ports; i++)
		if (e->port[i].has_mac && !memcmp(e->port[i].mac, mac, MAC_LEN))
			return (uint16_t)i;
	return NO_PORT;
}

static void send_now(struct emulator *e, struct wire *w, uint16_t out, uint32_t first)
{
	if (!transmit(e, &e->port[out], first))
		w->counts.starved++;
}

/* Fills in what links need to know of a frame. */
static void describe(const struct emulator *e, struct chunk *c, const uint8_t *bytes)
{
	uint32_t left = e->trims ? trimmed_len(bytes, c) : 0;

	c->frame.bytes = c->raw.total + DP_LINK_HEADROOM;
	c->frame.header_bytes = left ? (uint16_t)(left + DP_LINK_HEADROOM) : 0;
	if (e->hashes || e->chooses)
		c->frame.flow_hash = hash_flow(bytes, c);
	c->frame.flags = 0;
	c->frame.n_hops = 0;
	c->frame.ingress = DP_NO_INGRESS;
	c->frame.hop = c->hop;
}

static void route(struct emulator *e, struct port *p, uint32_t first, uint64_t at)
{
	struct chunk *c = &e->chunk[first];
	const uint8_t *bytes = dp_raw_bytes(&e->raw, first);
	struct wire *w = p->first;

	c->out = port_of(e, p, bytes);
	if (c->out == NO_PORT) {
		w->counts.unrouted++;
		dp_raw_put(&e->raw, first);
	} else if (e->port[c->out].node == p->node) { /* no link is between them */
		send_now(e, w, c->out, first);
	} else if (!parse_frame(bytes, c) || !w->link) {
		w->counts.exempt++;
		send_now(e, w, c->out, first);
	} else {
		describe(e, c, bytes);
		offer(next_wire(e, p->node, c), &c->frame, at);
	}
}

static void take(void *user, uint32_t first, uint64_t arrived_ns)
{
	struct port *p = user;
	struct emulator *e = p->first->emulator;
	struct dp_frame *f = &e->chunk[first].frame;

	f->next = NULL;
	f->at_ns = arrived_ns;
	if (p->arrived)
		p->newest->next = f;
	else
		p->arrived = f;
	p->newest = f;
}

/* The port at which the first of the frames arrived that nobody has looked at; NULL: none. */
static struct port *first_arrival(struct emulator *e)
{
	struct port *first = NULL;

	for (uint32_t i = 0; i < e->n_ports; i++) {
		struct port *p = &e->port[i];

		if (p->arrived && (!first || p->arrived->at_ns < first->arrived->at_ns))
			first = p;
	}
	return first;
}

void forward_receive(struct emulator *e)
{
	struct dp_frame *f;
	struct port *p;

	e->drained_ns = dp_now_ns();
	for (uint32_t i = 0; i < e->n_ports; i++)
		dp_raw_receive(&e->raw, &e->port[i].raw, UINT32_MAX, dp_now_ns(), take,
			       &e->port[i]);
	while ((p = first_arrival(e))) {
		f = p->arrived;
		p->arrived = f->next;
		advance(e, f->at_ns);
		route(e, p, first_of(e, f), f->at_ns);
	}
	kick_ports(e);
}
