// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "cm/cm.h"

#include "cm/impl.h"
#include "wire/random.h"

/* ---- life cycle ---------------------------------------------------------------- */

int dp_cm_create(const struct dp_cm_config *config, struct dp_cm **out)
{
	struct dp_cm *cm = calloc(1, sizeof(*cm));

	if (!cm)
		return -ENOMEM;
	cm->cfg = *config;
	cm->rng = config->seed;
	cm->next_slot = (uint32_t)cm_random(cm) % DP_CM_CONNS_MAX;
	*out = cm;
	return 0;
}

void dp_cm_destroy(struct dp_cm *cm)
{
	struct dp_cm_service *s;
	uint32_t i;

	for (i = 0; i < cm->n_slots; i++)
		free(cm->slots[i].conn);
	while ((s = cm->services)) {
		cm->services = s->next;
		free(s);
	}
	free(cm->slots);
	free(cm->heap);
	free(cm->tx);
	free(cm);
}

void dp_cm_stats(const struct dp_cm *cm, struct dp_cm_stats *out)
{
	*out = cm->stats;
}

void cm_count(struct dp_cm *cm, const uint8_t *mad, bool received, int by)
{
	struct dp_cm_stats *s = &cm->stats;

	switch (dp_mad_attribute(mad)) {
#define X(name, attribute)                                                                         \
	case DP_CM_##attribute:                                                                    \
		*(received ? &s->rx_##name : &s->tx_##name) += (uint64_t)by;                       \
		break;
		DP_CM_MESSAGES(X)
#undef X
	}
}

uint32_t dp_cm_conns(const struct dp_cm *cm)
{
	return cm->n_conns;
}

uint32_t dp_cm_farewells(const struct dp_cm *cm, uint64_t now)
{
	const struct dp_cm_conn *c;
	uint32_t i, n = 0;

	for (i = 0; i < cm->n_heap; i++) {
		c = cm->heap[i];
		n += (!c->held && c->state == CONN_DREQ_SENT) ||
		     (c->parted_ns && now < c->parted_ns + cm_time_ns(CM_PARTING));
	}
	return n;
}

uint64_t cm_random(struct dp_cm *cm)
{
	return dp_random64(&cm->rng);
}

/* ---- communication ids ------------------------------------------------------------ */

/* An id is prefix, generation and slot; the generation is never 0, and so no id is. */
enum { SLOT_BITS = 16, GENERATION_BITS = 8 };

static bool grow_slots(struct dp_cm *cm)
{
	uint32_t n = cm->n_slots ? 2 * cm->n_slots : 64, i;
	struct slot *slots = realloc(cm->slots, n * sizeof(*slots));

	if (!slots)
		return false;
	for (i = cm->n_slots; i < n; i++)
		slots[i] = (struct slot){ .generation = (uint8_t)cm_random(cm) };
	cm->slots = slots;
	cm->n_slots = n;
	return true;
}

/* The heap has room for all connections, so that arming a timer cannot fail. */
static bool grow_heap(struct dp_cm *cm)
{
	uint32_t cap = cm->heap_cap ? 2 * cm->heap_cap : 64;
	struct dp_cm_conn **heap = realloc(cm->heap, cap * sizeof(*heap));

	if (!heap)
		return false;
	cm->heap = heap;
	cm->heap_cap = cap;
	return true;
}

int cm_conn_create(struct dp_cm *cm, struct dp_cm_conn **out)
{
	struct dp_cm_conn *c;
	struct slot *slot;

	if (cm->n_conns == DP_CM_CONNS_MAX)
		return -ENOBUFS;
	if (cm->n_conns * 2 >= cm->n_slots && cm->n_slots < DP_CM_CONNS_MAX && !grow_slots(cm))
		return -ENOMEM;
	if (cm->n_conns == cm->heap_cap && !grow_heap(cm))
		return -ENOMEM;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	do
		slot = &cm->slots[cm->next_slot++ % cm->n_slots];
	while (slot->conn);
	if (!++slot->generation)
		slot->generation = 1;
	slot->conn = c;
	c->cm = cm;
	c->id = cm->cfg.id_prefix << (SLOT_BITS + GENERATION_BITS) |
		(uint32_t)slot->generation << SLOT_BITS | (uint32_t)(slot - cm->slots);
	c->due_ns = DP_NEVER;
	c->local.psn = (uint32_t)cm_random(cm) & DP_PSN_MASK;
	cm->n_conns++;
	*out = c;
	return 0;
}

struct dp_cm_conn *cm_find(struct dp_cm *cm, uint32_t id)
{
	uint32_t i = id & ((1u << SLOT_BITS) - 1);
	struct dp_cm_conn *c = i < cm->n_slots ? cm->slots[i].conn : NULL;

	return c && c->id == id ? c : NULL;
}

/* The bucket of a peer's communication id, or of its QPN. */
static struct dp_cm_conn **bucket(struct dp_cm_conn **buckets, const struct dp_addr *peer,
				  uint32_t number)
{
	uint64_t hash = dp_mix64(dp_get64(peer->b) ^ number);

	return &buckets[dp_mix64(hash ^ dp_get64(peer->b + 8)) % CM_BUCKETS];
}

static bool is_of(const struct dp_cm_conn *c, const struct dp_addr *peer)
{
	return !memcmp(&c->peer, peer, sizeof(*peer));
}

struct dp_cm_conn *cm_find_remote(struct dp_cm *cm, const struct dp_addr *peer, uint32_t remote_id,
				  bool datagram)
{
	struct dp_cm_conn *c = *bucket(cm->by_id, peer, remote_id);

	while (c && (c->remote_id != remote_id || c->datagram != datagram || !is_of(c, peer)))
		c = c->next_id;
	return c;
}

struct dp_cm_conn *cm_find_qp(struct dp_cm *cm, const struct dp_addr *peer, uint32_t qpn)
{
	struct dp_cm_conn *c = *bucket(cm->by_qp, peer, qpn);

	while (c && (c->remote.qpn != qpn || c->state != CONN_ESTABLISHED || !is_of(c, peer)))
		c = c->next_qp;
	return c;
}

void cm_set_remote(struct dp_cm_conn *c, uint32_t remote_id)
{
	struct dp_cm_conn **by_id = bucket(c->cm->by_id, &c->peer, remote_id);
	struct dp_cm_conn **by_qp = bucket(c->cm->by_qp, &c->peer, c->remote.qpn);

	c->remote_id = remote_id;
	c->known = true;
	c->next_id = *by_id;
	*by_id = c;
	c->next_qp = *by_qp;
	*by_qp = c;
}

static void forget_remote(struct dp_cm_conn *c)
{
	struct dp_cm_conn **at;

	for (at = bucket(c->cm->by_id, &c->peer, c->remote_id); *at != c; at = &(*at)->next_id)
		;
	*at = c->next_id;
	for (at = bucket(c->cm->by_qp, &c->peer, c->remote.qpn); *at != c; at = &(*at)->next_qp)
		;
	*at = c->next_qp;
}

void cm_conn_free(struct dp_cm_conn *c)
{
	struct dp_cm *cm = c->cm;

	cm_leave_backlog(c);
	cm_due(c, DP_NEVER);
	cm->n_unserved -= c->state == CONN_UNSERVED;
	if (c->known)
		forget_remote(c);
	cm->slots[c->id & ((1u << SLOT_BITS) - 1)].conn = NULL;
	cm->n_conns--;
	free(c);
}

/* ---- services ------------------------------------------------------------------------ */

struct dp_cm_service *cm_find_service(struct dp_cm *cm, uint64_t service_id)
{
	struct dp_cm_service *s;

	for (s = cm->services; s && s->service_id != service_id; s = s->next)
		;
	return s;
}

/* Look at requests that came before their service. */
static void serve_waiting(struct dp_cm *cm, uint64_t service_id)
{
	struct dp_cm_conn *c;
	uint32_t i;

	for (i = 0; i < cm->n_slots && cm->n_unserved; i++) {
		c = cm->slots[i].conn;
		if (c && c->state == CONN_UNSERVED && c->service_id == service_id)
			cm_due(c, 0);
	}
}

int dp_cm_listen(struct dp_cm *cm, uint64_t service_id, uint32_t backlog, void *user,
		 struct dp_cm_service **out)
{
	struct dp_cm_service *s;

	if (cm_find_service(cm, service_id))
		return -EADDRINUSE;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->cm = cm;
	s->user = user;
	s->service_id = service_id;
	s->backlog = backlog && backlog < DP_CM_BACKLOG_MAX ? backlog : DP_CM_BACKLOG_MAX;
	s->next = cm->services;
	cm->services = s;
	serve_waiting(cm, service_id);
	*out = s;
	return 0;
}

void dp_cm_unlisten(struct dp_cm_service *s, uint64_t now)
{
	struct dp_cm_service **at;
	struct dp_cm_conn *c;
	uint32_t i;

	for (i = 0; i < s->cm->n_slots && s->waiting; i++) {
		c = s->cm->slots[i].conn;
		if (!c || c->service != s)
			continue;
		cm_leave_backlog(c);
		if (!c->user)
			dp_cm_release(c, now);
	}
	for (at = &s->cm->services; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	free(s);
}

void *dp_cm_service_user(const struct dp_cm_service *s)
{
	return s->user;
}

void cm_leave_backlog(struct dp_cm_conn *c)
{
	if (c->service)
		c->service->waiting--;
	c->service = NULL;
}

void dp_cm_conn_seen(struct dp_cm_conn *c)
{
	cm_leave_backlog(c);
}

/* ---- timers: a heap ---------------------------------------------------------------------- */

static void place(struct dp_cm *cm, struct dp_cm_conn *c, uint32_t at)
{
	cm->heap[at] = c;
	c->heap_at = at;
}

static void move_up(struct dp_cm *cm, struct dp_cm_conn *c, uint32_t at)
{
	for (; at && cm->heap[(at - 1) / 2]->due_ns > c->due_ns; at = (at - 1) / 2)
		place(cm, cm->heap[(at - 1) / 2], at);
	place(cm, c, at);
}

static void move_down(struct dp_cm *cm, struct dp_cm_conn *c, uint32_t at)
{
	uint32_t child;

	while ((child = 2 * at + 1) < cm->n_heap) {
		if (child + 1 < cm->n_heap && cm->heap[child + 1]->due_ns < cm->heap[child]->due_ns)
			child++;
		if (cm->heap[child]->due_ns >= c->due_ns)
			break;
		place(cm, cm->heap[child], at);
		at = child;
	}
	place(cm, c, at);
}

static void remove_due(struct dp_cm_conn *c)
{
	struct dp_cm *cm = c->cm;
	struct dp_cm_conn *last = cm->heap[--cm->n_heap];

	if (last == c)
		return;
	if (last->due_ns < c->due_ns)
		move_up(cm, last, c->heap_at);
	else
		move_down(cm, last, c->heap_at);
}

void cm_due(struct dp_cm_conn *c, uint64_t due_ns)
{
	if (c->due_ns != DP_NEVER)
		remove_due(c);
	c->due_ns = DP_NEVER;
	if (due_ns == DP_NEVER)
		return;
	c->due_ns = due_ns;
	move_up(c->cm, c, c->cm->n_heap++);
}

uint64_t dp_cm_deadline(const struct dp_cm *cm)
{
	return cm->n_heap ? cm->heap[0]->due_ns : DP_NEVER;
}

/* ---- messages that wait to be sent ------------------------------------------------------- */

static bool grow_tx(struct dp_cm *cm)
{
	uint32_t cap = cm->tx_cap ? 2 * cm->tx_cap : 16, i;
	struct dp_cm_mad *tx;

	if (cap > CM_TX_MAX)
		return false;
	tx = malloc(cap * sizeof(*tx));
	if (!tx)
		return false;
	for (i = 0; i < cm->tx_count; i++)
		tx[i] = cm->tx[(cm->tx_head + i) % cm->tx_cap];
	free(cm->tx);
	cm->tx = tx;
	cm->tx_cap = cap;
	cm->tx_head = 0;
	return true;
}

void cm_queue(struct dp_cm *cm, const struct dp_addr *to, const uint8_t *mad)
{
	struct dp_cm_mad *at;

	/* A message that finds no room is lost, as on the wire. */
	if (cm->tx_count == cm->tx_cap && !grow_tx(cm)) {
		cm->stats.tx_no_room++;
		return;
	}
	at = &cm->tx[(cm->tx_head + cm->tx_count++) % cm->tx_cap];
	at->to = *to;
	memcpy(at->data, mad, DP_MAD_LEN);
}

bool dp_cm_tx(struct dp_cm *cm, struct dp_cm_mad *out)
{
	if (!cm->tx_count)
		return false;
	*out = cm->tx[cm->tx_head];
	cm->tx_head = (cm->tx_head + 1) % cm->tx_cap;
	cm->tx_count--;
	cm->stats.tx_mads++;
	cm_count(cm, out->data, false, 1);
	return true;
}

void dp_cm_unsent(struct dp_cm *cm, const struct dp_cm_mad *mad)
{
	cm->stats.tx_mads--;
	cm_count(cm, mad->data, false, -1);
	cm->stats.tx_unsent++;
}

/* ---- invariants --------------------------------------------------------------------------- */

#define MUST(condition, text)                                                                      \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return text;                                                               \
	} while (0)

static const char *check_conn(struct dp_cm *cm, struct dp_cm_conn *c)
{
	bool repeats = c->state == CONN_REQ_SENT || c->state == CONN_REP_SENT ||
		       c->state == CONN_DREQ_SENT || c->state == CONN_SIDR_SENT;
	bool ends = c->state == CONN_TIMEWAIT || c->state == CONN_REJECTED ||
		    c->state == CONN_SIDR_ANSWERED || c->state == CONN_UNSERVED;
	struct dp_cm_conn *other;

	MUST(cm_find(cm, c->id) == c, "a connection is not found by its id");
	MUST((c->due_ns != DP_NEVER) == (repeats || ends || c->leaving),
	     "a connection has a timer and no use for it, or the other way round");
	MUST(c->held || c->state == CONN_DREQ_SENT || ends, "a connection is nobody's");
	MUST(!c->service || c->state == CONN_REQUESTED || c->state == CONN_SIDR_REQUESTED,
	     "a connection counts in a backlog, and its program has decided");
	MUST(c->due_ns == DP_NEVER || cm->heap[c->heap_at] == c, "a timer is not in its place");
	if (!c->known)
		return NULL;
	for (other = *bucket(cm->by_id, &c->peer, c->remote_id); other != c; other = other->next_id)
		MUST(other, "a connection is not found by its peer's id");
	return NULL;
}

const char *dp_cm_check(const struct dp_cm *cm)
{
	struct dp_cm *mut = (struct dp_cm *)cm;
	uint32_t i, n = 0, waiting = 0, unserved = 0;
	struct dp_cm_service *s;
	const char *broken;

	for (i = 0; i < cm->n_slots; i++) {
		if (!cm->slots[i].conn)
			continue;
		n++;
		waiting += cm->slots[i].conn->service != NULL;
		unserved += cm->slots[i].conn->state == CONN_UNSERVED;
		broken = check_conn(mut, cm->slots[i].conn);
		if (broken)
			return broken;
	}
	MUST(n == cm->n_conns && unserved == cm->n_unserved && unserved <= CM_UNSERVED_MAX,
	     "connections are counted wrongly");
	for (i = 1; i < cm->n_heap; i++)
		MUST(cm->heap[(i - 1) / 2]->due_ns <= cm->heap[i]->due_ns, "the heap is no heap");
	for (s = cm->services; s; s = s->next) {
		MUST(s->waiting <= s->backlog, "more wait for a program than its backlog");
		waiting -= s->waiting;
	}
	MUST(!waiting, "a backlog is counted wrongly");
	return NULL;
}
