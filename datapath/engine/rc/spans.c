// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/spans.h"

#include "engine/check.h"
#include "engine/instance.h"
#include "engine/rc/store.h"
#include "wire/random.h"

/* Spans that are kept before it is worth looking for useless ones. */
enum { SPANS_FEW = 64 };

/* ---- the treap ------------------------------------------------------------------------- */

/* Divides a tree into what begins before `from` and the rest. */
static void split(struct dp_span *t, uint64_t from, struct dp_span **left, struct dp_span **right)
{
	while (t) {
		if (t->from < from) {
			*left = t;
			left = &t->right;
			t = t->right;
		} else {
			*right = t;
			right = &t->left;
			t = t->left;
		}
	}
	*left = *right = NULL;
}

/* Makes one tree of two, of which the left one lies before the right one. */
static struct dp_span *joined(struct dp_span *left, struct dp_span *right)
{
	struct dp_span *root, **at = &root;

	while (left && right) {
		if (left->priority > right->priority) {
			*at = left;
			at = &left->right;
			left = left->right;
		} else {
			*at = right;
			at = &right->left;
			right = right->left;
		}
	}
	*at = left ? left : right;
	return root;
}

static void insert(struct dp_spans *s, struct dp_span *new)
{
	struct dp_span **at = &s->root;

	while (*at && (*at)->priority >= new->priority)
		at = new->from < (*at)->from ? &(*at)->left : &(*at)->right;
	split(*at, new->from, &new->left, &new->right);
	*at = new;
	s->n++;
}

static void remove_span(struct dp_engine *e, struct dp_spans *s, struct dp_span *old)
{
	struct dp_span **at = &s->root;

	while (*at != old)
		at = old->from < (*at)->from ? &(*at)->left : &(*at)->right;
	*at = joined(old->left, old->right);
	s->n--;
	dp_pool_put(&e->store->span, old);
}

/* The first span that ends behind `at`; *before: the last one that does not, or NULL. */
static struct dp_span *behind(const struct dp_spans *s, uint64_t at, struct dp_span **before)
{
	struct dp_span *t = s->root, *found = NULL;

	*before = NULL;
	while (t) {
		if (t->end > at) {
			found = t;
			t = t->left;
		} else {
			*before = t;
			t = t->right;
		}
	}
	return found;
}

/* Removes the spans of a tree whose PSNs all lie below `expected`. */
static struct dp_span *pruned(struct dp_engine *e, struct dp_spans *s, struct dp_span *t,
			      uint64_t expected)
{
	struct dp_span *rest;

	if (!t)
		return NULL;
	t->left = pruned(e, s, t->left, expected);
	t->right = pruned(e, s, t->right, expected);
	if (t->last >= expected)
		return t;
	rest = joined(t->left, t->right);
	s->n--;
	dp_pool_put(&e->store->span, t);
	return rest;
}

void dp_spans_clear(struct dp_engine *e, struct dp_spans *s)
{
	s->root = pruned(e, s, s->root, UINT64_MAX);
}

/* ---- who has placed what ----------------------------------------------------------------- */

/* Whether a packet of the span was placed at `at`, which lies in it; *until: up to where the answer
 * is the same. */
static bool filled(const struct dp_span *t, uint64_t at, uint64_t *until)
{
	uint64_t in = t->step ? (at - t->base) % t->step : 0;
	bool yes = in < t->body;

	*until = t->step ? at - in + (yes ? t->body : t->step) : t->end;
	if (*until > t->end)
		*until = t->end;
	return yes;
}

/* Where a span begins that has lost what lies before `from`. */
static uint64_t beginning(const struct dp_span *t, uint64_t from)
{
	uint64_t until;

	return filled(t, from, &until) ? from : until;
}

/* Whether a packet of a PSN above `psn` was placed at `at`; *until as above. */
static bool taken(const struct dp_spans *s, uint64_t psn, uint64_t at, uint64_t *until)
{
	struct dp_span *before, *t = behind(s, at, &before);

	*until = !t ? UINT64_MAX : t->from > at ? t->from : t->end;
	return t && t->from <= at && t->first > psn && filled(t, at, until);
}

uint64_t dp_spans_free(const struct dp_spans *s, uint64_t psn, uint64_t *at, uint64_t end)
{
	uint64_t stop, until;

	if (!dp_spans_above(s, psn))
		return end;
	while (taken(s, psn, *at, &until)) {
		*at = until < end ? until : end;
		if (*at == end)
			return end;
	}
	for (stop = until; stop < end && !taken(s, psn, stop, &until);)
		stop = until;
	return stop < end ? stop : end;
}

/* Takes [from, end) away from the spans that begin there.  Returns one that lies in it, if any, for
 * further use. */
static struct dp_span *cleared(struct dp_engine *e, struct dp_spans *s, struct dp_span *t,
			       uint64_t end)
{
	struct dp_span *kept = NULL, *before, *next;
	uint64_t from;

	for (; t && t->end <= end; t = next) {
		next = behind(s, t->end, &before);
		if (kept)
			remove_span(e, s, t);
		else
			kept = t;
	}
	if (!t || t->from >= end)
		return kept;
	from = beginning(t, end);
	if (from < t->end)
		t->from = from;
	else
		remove_span(e, s, t);
	return kept;
}

static struct dp_span *span_get(struct dp_engine *e)
{
	struct dp_span *t = dp_pool_get(&e->store->span);

	if (t)
		t->priority = dp_random32(&e->store->rng);
	return t;
}

/* Ends a span at `from`; what it has behind `end` becomes a span of its own. */
static void cut(struct dp_engine *e, struct dp_spans *s, struct dp_span *t, uint64_t from,
		uint64_t end, struct dp_span *rest)
{
	uint32_t priority = rest->priority;

	*rest = *t;
	rest->priority = priority;
	rest->from = beginning(t, end);
	t->end = from;
	if (rest->from < rest->end)
		insert(s, rest);
	else
		dp_pool_put(&e->store->span, rest);
}

/* A new span, and one for what a cut leaves, as far as they are needed.  False: no memory. */
static bool get(struct dp_engine *e, bool needs_new, bool cuts, struct dp_span **new,
		struct dp_span **rest)
{
	*new = needs_new ? span_get(e) : NULL;
	*rest = cuts ? span_get(e) : NULL;
	if ((*new || !needs_new) && (*rest || !cuts))
		return true;
	if (*new)
		dp_pool_put(&e->store->span, *new);
	if (*rest)
		dp_pool_put(&e->store->span, *rest);
	return false;
}

static void prune(struct dp_engine *e, struct dp_spans *s, uint64_t expected)
{
	s->root = pruned(e, s, s->root, expected);
	s->most = SPANS_FEW + 2 * s->n;
	if (!s->root)
		s->top = 0;
}

/* Whether a packet is the next one of a span that ends before it. */
static bool continues(const struct dp_span *t, const struct dp_placed *p)
{
	uint64_t latest = t->base + (t->last - t->first) * t->step, step = p->from - latest;

	return p->psn == t->last + 1 && p->end - p->from == t->body && p->whole && t->whole &&
	       t->end == latest + t->body && step >= t->whole && step <= UINT32_MAX &&
	       (!t->step || t->step == step);
}

static void extend(struct dp_engine *e, struct dp_spans *s, struct dp_span *t, struct dp_span *next,
		   const struct dp_placed *p)
{
	struct dp_span *old = cleared(e, s, next, p->end);

	if (old)
		remove_span(e, s, old);
	t->step = (uint32_t)(p->from - (t->end - t->body));
	t->end = p->end;
	t->last = p->psn;
	t->whole = p->whole;
}

bool dp_spans_take(struct dp_engine *e, struct dp_spans *s, const struct dp_placed *p,
		   uint64_t expected)
{
	struct dp_span *t, *before, *over = NULL, *new, *rest, *mine;

	if (!s->root || s->n > s->most)
		prune(e, s, expected);
	t = behind(s, p->from, &before);
	if (t && t->from < p->from) {
		over = t;
		t = behind(s, over->end, &before);
	} else if (before && continues(before, p)) {
		extend(e, s, before, t, p);
		s->top = p->psn > s->top ? p->psn : s->top;
		return true;
	}
	if (!get(e, !t || t->end > p->end, over && over->end > p->end, &new, &rest))
		return false;
	if (rest)
		cut(e, s, over, p->from, p->end, rest);
	else if (over)
		over->end = p->from;
	mine = cleared(e, s, t, p->end);
	if (!mine)
		mine = new;
	mine->from = mine->base = p->from;
	mine->end = p->end;
	mine->first = mine->last = p->psn;
	mine->step = 0;
	mine->body = (uint32_t)(p->end - p->from);
	mine->whole = p->whole;
	s->top = p->psn > s->top ? p->psn : s->top;
	if (new)
		insert(s, new);
	return true;
}

/* ---- invariants ---------------------------------------------------------------------------- */

static const char *check(const struct dp_span *t, uint64_t *behind_at, uint32_t *n, uint64_t top)
{
	const char *why;

	if (!t)
		return NULL;
	why = check(t->left, behind_at, n, top);
	if (why)
		return why;
	MUST(t->from >= *behind_at && t->from < t->end, "spans of memory overlap");
	MUST(t->first <= t->last && t->last <= top && (t->step || t->first == t->last),
	     "a span has the wrong PSNs");
	MUST(t->from >= t->base && t->end <= t->base + (t->last - t->first) * t->step + t->body,
	     "a span reaches beyond its packets");
	MUST((!t->left || t->left->priority <= t->priority) &&
		     (!t->right || t->right->priority <= t->priority),
	     "a tree of spans has no balance");
	*behind_at = t->end;
	++*n;
	return check(t->right, behind_at, n, top);
}

const char *dp_spans_check(const struct dp_spans *s)
{
	uint64_t behind_at = 0;
	uint32_t n = 0;
	const char *why = check(s->root, &behind_at, &n, s->top);

	if (!why)
		MUST(n == s->n, "spans of memory are counted wrong");
	return why;
}
