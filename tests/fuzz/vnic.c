// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzz target: any frames from guests, from tunnels and in VXLAN, into a card.
 *
 * An input is a program of small steps; each begins with a byte that names the step (enum step).
 * A frame begins as one that its sender may send, and then the input puts bytes into it, since no
 * mutation would guess addresses.  The card's devices and QPs are stand-ins here: what goes to a
 * guest or into a tunnel is judged at once, and is gone.
 *
 * Checked beside what the sanitizers see: that nothing passes from a tenant to another, or in
 * another's name; that each frame is counted once; and that no chunk is lost.
 */
#include "vnic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "vnic/card.h"
#include "wire/headers.h"
#include "../vnic/frames.h"

enum step {
	STEP_GUEST,  /* guest, form, place, n, n bytes: a frame of it */
	STEP_TUNNEL, /* the same, guest of another host: by its tunnel */
	STEP_BREAK,  /* the tunnel breaks, or is there again */
	STEP_FULL,   /* n: the devices of guests take n frames more */
	STEP_ROOM,   /* n: the tunnel takes n frames more */
	STEP_TURN,   /* what waits is sent */
	STEPS,
};

/* Two tenants; guests 0 and 1 of each are on this host, 2 and 3 on the other. */
enum { TENANTS = 2, EACH = 4, CHUNKS = 600, STEPS_MAX = 500, FRAME_ROOM = 1600 };

struct input {
	const uint8_t *at, *end;
};

struct bench {
	struct card card;
	struct chunk chunk[CHUNKS];
	uint8_t area[CHUNKS * DP_CHUNK];
	const struct guest *from; /* whose frame is on its way; NULL: from the other host */
	uint32_t from_vni;
	uint32_t room;	      /* of the guests' devices */
	uint32_t tunnel_room; /* of the tunnel */
};

static struct bench *bench;

/* ---- stand-ins ------------------------------------------------------------------------ */

uint32_t dp_raw_get(struct dp_raw *raw)
{
	uint32_t i = raw->free;

	if (i != DP_NO_CHUNK) {
		raw->free = dp_raw_chunk(raw, i)->next;
		raw->n_free--;
	}
	return i;
}

void dp_raw_put(struct dp_raw *raw, uint32_t first)
{
	uint32_t next;

	for (; first != DP_NO_CHUNK; first = next) {
		next = dp_raw_chunk(raw, first)->next;
		dp_raw_chunk(raw, first)->next = raw->free;
		raw->free = first;
		raw->n_free++;
		assert(raw->n_free <= CHUNKS);
	}
}

static const struct guest *guest_of(const struct dp_raw_port *port)
{
	return &bench->card.guest[bench->card.local[port - bench->card.port]];
}

/* A frame for a guest: it comes from its own tenant, by the sender's own name. */
bool dp_raw_send(struct dp_raw *raw, struct dp_raw_port *port, uint32_t first)
{
	const struct guest *to = guest_of(port), *sender;
	const uint8_t *bytes = dp_raw_bytes(raw, first);
	uint16_t index;

	assert(to->vni == bench->from_vni);
	assert(!memcmp(bytes, to->mac, MAC_LEN));
	index = table_mac(&bench->card, to->vni, bytes + MAC_LEN);
	assert(index != NOBODY);
	sender = &bench->card.guest[index];
	/* An answer of the card goes back to the guest that asked, as from another of the tenant. */
	if (bench->from && bench->from != to)
		assert(sender == bench->from);
	else if (!bench->from)
		assert(!sender->port);
	if (!bench->room)
		return false;
	bench->room--;
	dp_raw_put(raw, first);
	return true;
}

void dp_raw_kick(struct dp_raw_port *port)
{
	(void)port;
}

void dp_raw_reap(struct dp_raw *raw, struct dp_raw_port *port)
{
	(void)raw;
	(void)port;
}

void dp_raw_refill(struct dp_raw *raw, struct dp_raw_port *port)
{
	(void)raw;
	(void)port;
}

static struct {
	struct dp_raw_port *port;
	uint32_t first;
} arrived;

uint32_t dp_raw_receive(struct dp_raw *raw, struct dp_raw_port *port, uint32_t max, uint64_t now,
			dp_raw_take *take, void *user)
{
	(void)raw;
	if (arrived.port != port || !max)
		return 0;
	arrived.port = NULL;
	take(user, arrived.first, now);
	return 1;
}

/* A frame for another host: it is from a guest of this one, in its own name, to its tenant. */
static void judge_sent(uint16_t host, uint32_t first)
{
	const struct chunk *c = &bench->card.chunk[first];
	const struct guest *g = &bench->card.guest[c->guest];
	const uint8_t *bytes = dp_raw_bytes(&bench->card.raw, first);
	uint16_t to = table_mac(&bench->card, g->vni, bytes);
	struct header h;

	assert(host == 1 && g->port && c->vni == g->vni);
	assert(!memcmp(bytes + MAC_LEN, g->mac, MAC_LEN));
	assert(to != NOBODY && bench->card.guest[to].host == host);
	assert(header_read(bytes, c->raw.len, &h) && guest_has(g, &h.src));
}

bool tunnel_has_room(const struct pipe *p)
{
	return !p->plain && bench->tunnel_room;
}

void tunnel_send(struct card *card, struct pipe *p, uint32_t first)
{
	assert(card->host[p->host].up && bench->tunnel_room--);
	judge_sent(p->host, first);
	frame_let_go(card, first);
}

struct pipe *tunnel_pipe(struct card *card, struct host *host, uint32_t hash)
{
	return &host->pipe[hash % card->n_pipes];
}

uint32_t tunnel_packet(const struct pipe *p)
{
	(void)p;
	return 1408;
}

void vxlan_send_queued(struct card *card, uint16_t host, uint32_t first)
{
	judge_sent(host, first);
	card->guest[card->chunk[first].guest].counters.plain++;
	frame_let_go(card, first);
}

/* An answer to Linux's vxlan device. */
bool vxlan_send(struct card *card, struct host *host, uint32_t vni, uint32_t hash, uint32_t first)
{
	(void)hash;
	assert(host == &card->host[1] && vni == bench->from_vni && !bench->from);
	assert(card->chunk[first].raw.total <= ANSWER_LEN);
	return true;
}

/* ---- a card ------------------------------------------------------------------------------ */

static void add_guest(struct card *card, uint32_t tenant, uint32_t number)
{
	struct guest g = { .vni = 100 + tenant, .tenant = (uint16_t)tenant };

	memcpy(g.mac, (uint8_t[]){ 2, 0, 0, 0, (uint8_t)tenant, (uint8_t)number }, MAC_LEN);
	/* Tenants have equal IP addresses. */
	g.ipv4 = (struct dp_addr){ { [10] = 0xff, 0xff, 10, 0, 0, (uint8_t)number } };
	g.ipv6 = (struct dp_addr){ { 0xfd, [15] = (uint8_t)number } };
	link_local_address(g.mac, &g.link_local);
	g.host = number / 2;
	if (!g.host) {
		g.port = &card->port[card->n_local];
		card->local[card->n_local++] = (uint16_t)card->n_guests;
	}
	assert(!table_add(card, &g));
}

static void open_card(struct card *card)
{
	card->raw = (struct dp_raw){ .area = bench->area,
				     .records = bench->chunk,
				     .stride = sizeof(bench->chunk[0]),
				     .n_chunks = CHUNKS,
				     .free = DP_NO_CHUNK };
	card->chunk = bench->chunk;
	for (uint32_t i = CHUNKS; i--;) {
		bench->chunk[i].raw.next = DP_NO_CHUNK;
		dp_raw_put(&card->raw, i);
	}
	card->mtu = 1500;
	card->frame_chunks = card->n_pipes = 1;
	card->n_hosts = 2;
	card->host[1].up = true;
	card->n_classes = 2;
	card->n_tenants = TENANTS;
	for (uint32_t k = 0; k < card->n_classes; k++)
		card->class[k].share.weight = k + 1;
	for (uint32_t t = 0; t < TENANTS; t++) {
		card->tenant[t].vni = 100 + t;
		card->tenant[t].share.weight = 1;
		for (uint32_t number = 0; number < EACH; number++)
			add_guest(card, t, number);
	}
	card->udp_recovered[4791 / 8] = 1 << 4791 % 8;
	card->udp_class[4791] = 1;
	assert(!queue_open(card));
}

/* ---- frames ------------------------------------------------------------------------------ */

static uint8_t next(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static void put_ipv4(uint8_t *frame, const struct guest *from, const struct guest *to, uint32_t len)
{
	uint8_t *ip = frame + ETH_LEN;

	dp_put16(frame + 12, ETHERTYPE_IPV4);
	ip[0] = 0x45;
	dp_put16(ip + 2, (uint16_t)(len - ETH_LEN));
	ip[8] = 64;
	ip[9] = PROTO_UDP;
	memcpy(ip + 12, from->ipv4.b + 12, 4);
	memcpy(ip + 16, to->ipv4.b + 12, 4);
	dp_put16(ip + 20, 50000);
	dp_put16(ip + 22, 4791);
}

static void put_ipv6(uint8_t *frame, const struct guest *from, const struct guest *to, uint32_t len)
{
	uint8_t *ip = frame + ETH_LEN;

	dp_put16(frame + 12, ETHERTYPE_IPV6);
	ip[0] = 0x60;
	dp_put16(ip + 4, (uint16_t)(len - ETH_LEN - IPV6_LEN));
	ip[6] = PROTO_UDP;
	memcpy(ip + 8, from->ipv6.b, 16);
	memcpy(ip + 24, to->ipv6.b, 16);
}

static void put_arp(uint8_t *frame, const struct guest *from, const struct guest *to)
{
	static const uint8_t request[8] = { 0, 1, 8, 0, 6, 4, 0, 1 };
	uint8_t *arp = frame + ETH_LEN;

	memset(frame, 0xff, MAC_LEN);
	dp_put16(frame + 12, ETHERTYPE_ARP);
	memcpy(arp, request, sizeof(request));
	memcpy(arp + 8, from->mac, MAC_LEN);
	memcpy(arp + 14, from->ipv4.b + 12, 4);
	memcpy(arp + 24, to->ipv4.b + 12, 4);
}

/* form: 2 bits of the kind, 2 of the receiver, then of the length. */
static uint32_t make(struct input *in, uint8_t *frame, const struct guest *from,
		     const struct guest *tenant)
{
	uint8_t form = next(in), at = next(in), n = next(in);
	const struct guest *to = &tenant[form >> 2 & 3];
	uint32_t len = 60 + (uint32_t)(form >> 4) * 100;

	memset(frame, 0, FRAME_ROOM);
	memcpy(frame, to->mac, MAC_LEN);
	memcpy(frame + MAC_LEN, from->mac, MAC_LEN);
	if ((form & 3) == 0)
		put_ipv4(frame, from, to, len);
	else if ((form & 3) == 1)
		put_ipv6(frame, from, to, len);
	else if ((form & 3) == 2)
		put_arp(frame, from, to);
	else
		len = n; /* short, and as the input has it */
	for (; n && in->at < in->end; n--)
		frame[at++ % 128] = next(in);
	return len;
}

/* The frame in a chunk of its own; also alone, in a buffer of just its size. */
static uint32_t place(struct card *card, const uint8_t *frame, uint32_t len)
{
	uint32_t first = dp_raw_get(&card->raw);
	struct X_vnic_frame found;

	X_vnic_read(frame, len, &found);
	if (first == DP_NO_CHUNK)
		return first;
	card->chunk[first].raw.addr = (uint64_t)first * DP_CHUNK;
	card->chunk[first].raw.next = DP_NO_CHUNK;
	memcpy(dp_raw_bytes(&card->raw, first), frame, len);
	frame_cut(card, first, len);
	return first;
}

static void check(const struct card *card)
{
	uint32_t held = 0;

	for (uint32_t i = 0; i < card->n_local; i++) {
		const struct guest *g = &card->guest[card->local[i]];
		const struct guest_counters *c = &g->counters;
		uint64_t sum = c->recovered + c->plain + c->neighbours + c->answered;
		uint64_t waiting = g->held;

#define X(name) sum += c->name;
		GUEST_DROPS(X)
#undef X
		/* A recovered frame that waits is counted already, a plain one is not. */
		assert(sum <= c->rx_frames && c->rx_frames <= sum + waiting);
		held += g->held;
	}
	assert(card->raw.n_free + held == CHUNKS);
}

static void step_of(struct bench *b, struct input *in)
{
	struct card *card = &b->card;
	uint8_t step = next(in) % STEPS, who = next(in), frame[FRAME_ROOM];
	const struct guest *tenant = &card->guest[(who >> 2 & 1) * EACH];
	const struct guest *from = &tenant[who & 3];
	uint32_t len;

	if (step == STEP_BREAK) {
		card->host[1].up = who & 1;
		if (!card->host[1].up)
			queue_drop(card, &card->host[1].pipe[0]);
	} else if (step == STEP_FULL) {
		b->room = who;
	} else if (step == STEP_ROOM) {
		b->tunnel_room = who;
	} else if (step == STEP_TURN) {
		queue_run(card);
	} else {
		len = make(in, frame, from, tenant);
		b->from = step == STEP_GUEST && from->port ? from : NULL;
		b->from_vni = from->vni;
		arrived.first = place(card, frame, len);
		if (arrived.first == DP_NO_CHUNK)
			return;
		if (b->from) {
			arrived.port = from->port;
			guests_receive(card);
			if (arrived.port) /* it has too many frames on their way */
				dp_raw_put(&card->raw, arrived.first);
			arrived.port = NULL;
		} else if (len >= FRAME_MIN) {
			guests_accept(card, 1, from->vni, arrived.first, len);
		} else {
			dp_raw_put(&card->raw, arrived.first);
		}
	}
}

int X_fuzz_vnic(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };

	bench = calloc(1, sizeof(*bench));
	assert(bench);
	open_card(&bench->card);
	bench->room = bench->tunnel_room = UINT32_MAX;
	for (int i = 0; in.at < in.end && i < STEPS_MAX; i++) {
		step_of(bench, &in);
		check(&bench->card);
	}
	bench->tunnel_room = UINT32_MAX;
	queue_run(&bench->card);
	check(&bench->card);
	for (uint32_t i = 0; i < bench->card.n_local; i++)
		assert(!bench->card.guest[bench->card.local[i]].held);
	free(bench->card.line);
	free(bench->card.traffic);
	free(bench);
	return 0;
}
