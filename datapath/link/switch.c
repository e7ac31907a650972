// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "link/impl.h"

#define ALPHA_SHIFT 16
#define ALPHA_MAX 1024

/* Bytes that wait of one ingress port and class, with PFC. */
struct ingress {
	uint64_t bytes;	   /* in the shared part of the buffer */
	uint64_t headroom; /* in the headroom */
	bool paused;
};

struct dp_buffer {
	uint64_t shared_bytes; /* total_bytes without all headroom */
	uint64_t used;	       /* bytes used of the shared part */
	uint64_t headroom_used;
	uint64_t alpha; /* times 2^ALPHA_SHIFT; 0: no threshold */
	uint32_t n_ports;
	uint32_t pfc_classes;
	uint64_t xoff_bytes, xon_bytes, headroom_bytes;
	uint64_t synced_ns; /* when the links were last brought up to date */
	dp_pfc_fn *pfc;
	void *user;
	struct dp_link **link;
	uint32_t n_links, cap_links;
	struct ingress ingress[]; /* port * DP_LINK_CLASSES + class */
};

static bool is_sane(const struct dp_buffer_config *c, dp_pfc_fn *pfc)
{
	uint32_t lossless = (uint32_t)__builtin_popcount(c->pfc_classes);

	if (!(c->alpha >= 0 && c->alpha <= ALPHA_MAX) || c->pfc_classes >> DP_LINK_CLASSES)
		return false;
	if (c->n_ports > DP_NO_INGRESS || c->total_bytes >> 40 || c->headroom_bytes >> 40)
		return false;
	if (lossless && (!pfc || c->xon_bytes > c->xoff_bytes))
		return false;
	return c->headroom_bytes * lossless * c->n_ports <= c->total_bytes;
}

int dp_buffer_create(const struct dp_buffer_config *config, dp_pfc_fn *pfc, void *user,
		     struct dp_buffer **out)
{
	uint32_t lossless = (uint32_t)__builtin_popcount(config->pfc_classes);
	struct dp_buffer *b;
	size_t cells;

	if (!is_sane(config, pfc))
		return -EINVAL;
	cells = lossless ? (size_t)config->n_ports * DP_LINK_CLASSES : 0;
	b = calloc(1, sizeof(*b) + cells * sizeof(b->ingress[0]));
	if (!b)
		return -ENOMEM;
	b->shared_bytes = config->total_bytes - config->headroom_bytes * lossless * config->n_ports;
	b->alpha = (uint64_t)(config->alpha * (1 << ALPHA_SHIFT) + 0.5);
	b->n_ports = lossless ? config->n_ports : 0;
	b->pfc_classes = config->pfc_classes;
	b->xoff_bytes = config->xoff_bytes;
	b->xon_bytes = config->xon_bytes;
	b->headroom_bytes = config->headroom_bytes;
	b->pfc = pfc;
	b->user = user;
	*out = b;
	return 0;
}

void dp_buffer_destroy(struct dp_buffer *b)
{
	free(b->link);
	free(b);
}

bool dp_buffer_has_pfc(const struct dp_buffer *b)
{
	return b->pfc_classes;
}

uint64_t dp_buffer_used_bytes(const struct dp_buffer *b)
{
	return b->used + b->headroom_used;
}

static struct ingress *ingress_of(struct dp_buffer *b, uint32_t port, uint32_t class)
{
	if (!(b->pfc_classes >> class & 1) || port >= b->n_ports)
		return NULL;
	return &b->ingress[port * DP_LINK_CLASSES + class];
}

uint64_t dp_buffer_ingress_bytes(const struct dp_buffer *b, uint32_t port, uint32_t class)
{
	const struct ingress *in;

	if (!(b->pfc_classes >> class & 1) || port >= b->n_ports)
		return 0;
	in = &b->ingress[port * DP_LINK_CLASSES + class];
	return in->bytes + in->headroom;
}

/* ---- its links ------------------------------------------------------------------- */

int dp_buffer_join(struct dp_buffer *b, struct dp_link *l)
{
	uint32_t cap = b->cap_links ? 2 * b->cap_links : 8;
	struct dp_link **link;

	if (b->n_links == b->cap_links) {
		link = realloc(b->link, cap * sizeof(struct dp_link *));
		if (!link)
			return -ENOMEM;
		b->link = link;
		b->cap_links = cap;
	}
	b->link[b->n_links++] = l;
	return 0;
}

void dp_buffer_leave(struct dp_buffer *b, struct dp_link *l)
{
	for (uint32_t i = 0; i < b->n_links; i++) {
		if (b->link[i] == l) {
			b->link[i] = b->link[--b->n_links];
			return;
		}
	}
}

/* Brings the links up to date.  They are often behind with their turns, so `used` may be too high,
 * never too low. */
static void sync(struct dp_buffer *b, uint64_t now)
{
	if (b->synced_ns == now)
		return;
	b->synced_ns = now;
	for (uint32_t i = 0; i < b->n_links; i++)
		dp_link_advance(b->link[i], now);
}

/* ---- room ------------------------------------------------------------------------- */

static bool has_room(const struct dp_buffer *b, uint64_t bytes)
{
	return b->used + bytes <= b->shared_bytes;
}

static bool below_threshold(const struct dp_buffer *b, uint64_t queued, uint64_t bytes)
{
	uint64_t unused = b->shared_bytes - b->used;

	return !b->alpha || queued + bytes <= (unused * b->alpha) >> ALPHA_SHIFT;
}

/* A trimmed frame is small, and nothing recovers it if it is dropped.  So only the total limits
 * it. */
static bool take_lossy(struct dp_buffer *b, const struct dp_link *l, const struct dp_frame *f)
{
	if (!has_room(b, f->bytes))
		return false;
	if (!(f->flags & DP_FRAME_TRIMMED) &&
	    !below_threshold(b, l->queue[f->class].bytes, f->bytes))
		return false;
	b->used += f->bytes;
	return true;
}

static bool take_lossless(struct dp_buffer *b, struct ingress *in, const struct dp_frame *f,
			  uint64_t now)
{
	if (!in->headroom && in->bytes + f->bytes <= b->xoff_bytes && has_room(b, f->bytes)) {
		in->bytes += f->bytes;
		b->used += f->bytes;
		return true;
	}
	/* Also for a frame that will be dropped, but not if nothing of the port waits: the port goes
	 * on when what waits leaves. */
	if (!in->paused && (in->bytes + in->headroom || f->bytes <= b->headroom_bytes)) {
		in->paused = true;
		b->pfc(b->user, f->ingress, f->class, true, now);
	}
	if (in->headroom + f->bytes > b->headroom_bytes)
		return false;
	in->headroom += f->bytes;
	b->headroom_used += f->bytes;
	return true;
}

bool dp_buffer_take(struct dp_buffer *b, struct dp_link *l, const struct dp_frame *f, uint64_t now)
{
	struct ingress *in = ingress_of(b, f->ingress, f->class);

	if (in)
		return take_lossless(b, in, f, now);
	if (take_lossy(b, l, f))
		return true;
	sync(b, now);
	return take_lossy(b, l, f);
}

/* Takes the bytes off the headroom first. */
static void give_lossless(struct dp_buffer *b, struct ingress *in, const struct dp_frame *f,
			  uint64_t now)
{
	uint64_t from_headroom = f->bytes < in->headroom ? f->bytes : in->headroom;
	uint64_t rest = f->bytes - from_headroom;

	in->headroom -= from_headroom;
	b->headroom_used -= from_headroom;
	in->bytes -= rest;
	b->used -= rest;
	if (in->paused && !in->headroom && in->bytes <= b->xon_bytes) {
		in->paused = false;
		b->pfc(b->user, f->ingress, f->class, false, now);
	}
}

void dp_buffer_give(struct dp_buffer *b, const struct dp_frame *f, uint64_t now)
{
	struct ingress *in = ingress_of(b, f->ingress, f->class);

	if (in)
		give_lossless(b, in, f, now);
	else
		b->used -= f->bytes;
}

/* ---- equal paths ------------------------------------------------------------------ */

uint32_t dp_flow_hash(const struct dp_addr *src, const struct dp_addr *dst, uint16_t sport,
		      uint16_t dport)
{
	uint64_t word[4], h = 0;

	memcpy(word, src->b, sizeof(src->b));
	memcpy(word + 2, dst->b, sizeof(dst->b));
	for (unsigned i = 0; i < 4; i++)
		h = dp_mix64(h + DP_RANDOM_STEP + word[i]);
	h = dp_mix64(h + DP_RANDOM_STEP + ((uint64_t)sport << 16 | dport));
	return (uint32_t)(h >> 32);
}

uint32_t dp_ecmp(uint32_t flow_hash, uint64_t seed, uint32_t n)
{
	uint64_t h = dp_mix64(dp_mix64(seed + DP_RANDOM_STEP) + flow_hash);

	return (uint32_t)((h >> 32) * n >> 32);
}
