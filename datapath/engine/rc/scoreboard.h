/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scoreboard of a selective-repeat requester: one record for each PSN in flight.
 *
 * A record goes NONE -> FLIGHT -> DONE.  A lost packet goes from FLIGHT to LOST, and back to FLIGHT
 * when it is sent again.  FLIGHT records are in a list by sending time, one for each struct
 * dp_class.  LOST records are in one list, in the order in which they were found lost.
 */
#ifndef DP_ENGINE_RC_SCOREBOARD_H
#define DP_ENGINE_RC_SCOREBOARD_H

#include "engine/rc/rack.h"
#include "engine/rc/rc.h"

#define DP_NIL UINT32_MAX

enum dp_rec_state { DP_REC_NONE, DP_REC_FLIGHT, DP_REC_LOST, DP_REC_DONE };

struct dp_rec {
	uint64_t sent_ns;
	uint64_t delivered, delivered_ns; /* counters of the QP when this packet was sent */
	uint64_t first_sent_ns;
	uint32_t wqe;	     /* free-running index into the send queue */
	uint32_t prev, next; /* neighbours in the list of its state */
	uint16_t len;
	uint8_t path;
	uint8_t state : 2; /* enum dp_rec_state */
	bool response : 1; /* done when its response arrives; otherwise when it is acknowledged */
	bool resent : 1;
	bool app_limited : 1;
	bool marked : 1;  /* the packet reached the peer with CE */
	bool arrived : 1; /* the request for the response reached the peer, behind a gap */
	bool prompt : 1;  /* the peer acknowledges it at once */
};

struct dp_rec_list {
	uint32_t head, tail;
};

/* A class holds packets whose answers come in the order in which the packets were sent.
 * Classes: the packets of each path that are acknowledged; READs and atomics, which are
 * answered; and READs and atomics that were asked for again, since the responder answers the
 * others only behind them. */
enum { DP_CLASSES_MAX = DP_PATHS_MAX + 2 };

struct dp_class {
	struct dp_rec_list flight; /* by sending time */
	struct dp_rack rack;	   /* of a path: also requests of READs and atomics that arrived */
};

/* What one acknowledgement delivered over one path: packets and bytes, and the counter of the QP
 * when the newest of them was sent. */
struct dp_path_news {
	uint32_t packets, acked, marked;
	uint64_t prior;
};

/* The records of a window lie in pages, which exist only where packets are in flight. */
struct dp_tx_page {
	void *pool_link;
	struct dp_rec rec[DP_PAGE_PSNS];
};

struct dp_tx_block {
	void *pool_link;
	uint32_t paths, pages;
	uint32_t listed; /* records in all lists: sent and not delivered */
	struct dp_rec_list lost;
	uint64_t xmit_ns;   /* latest sending time of a delivered packet, over all paths */
	uint64_t delivered; /* paths > 1: a bit for each entry of `news` in use */
	struct dp_path_news news[DP_PATHS_MAX];
	uint64_t owing;			       /* a bit for each entry of `owed` in use */
	uint32_t owed[DP_PATHS_MAX], owed_all; /* packets that are to take each path; in sum */
	struct dp_class class[DP_CLASSES_MAX]; /* paths; READs and atomics; those asked for again */
	struct dp_tx_page *page[];	       /* by PSN modulo window, / DP_PAGE_PSNS */
};

static inline struct dp_rec *dp_rec(const struct dp_tx_block *b, uint32_t i)
{
	return &b->page[i / DP_PAGE_PSNS]->rec[i % DP_PAGE_PSNS];
}

static inline uint32_t dp_rec_slot(const struct dp_rc *rc, uint32_t psn)
{
	return psn & (rc->window - 1);
}

static inline struct dp_rec *dp_rec_at(const struct dp_rc *rc, uint32_t psn)
{
	return dp_rec(rc->req.block, dp_rec_slot(rc, psn));
}

static inline uint32_t dp_rec_psn(const struct dp_rc *rc, uint32_t index)
{
	uint32_t una = rc->req.snd_una;

	return dp_psn_add(una, (index - una) & (rc->window - 1));
}

static inline void dp_rec_append(struct dp_tx_block *b, struct dp_rec_list *l, uint32_t i)
{
	struct dp_rec *rec = dp_rec(b, i);

	rec->prev = l->tail;
	rec->next = DP_NIL;
	if (l->tail == DP_NIL)
		l->head = i;
	else
		dp_rec(b, l->tail)->next = i;
	l->tail = i;
	b->listed++;
}

static inline void dp_rec_remove(struct dp_tx_block *b, struct dp_rec_list *l, uint32_t i)
{
	uint32_t prev = dp_rec(b, i)->prev, next = dp_rec(b, i)->next;

	if (prev == DP_NIL)
		l->head = next;
	else
		dp_rec(b, prev)->next = next;
	if (next == DP_NIL)
		l->tail = prev;
	else
		dp_rec(b, next)->prev = prev;
	b->listed--;
}

static inline unsigned dp_classes(const struct dp_tx_block *b)
{
	return b->paths + 2;
}

static inline unsigned dp_class_of(const struct dp_tx_block *b, const struct dp_rec *rec)
{
	return rec->response ? b->paths + rec->resent : rec->path;
}

static inline struct dp_rec_list *dp_rec_list_of(struct dp_tx_block *b, const struct dp_rec *rec)
{
	return rec->state == DP_REC_LOST ? &b->lost : &b->class[dp_class_of(b, rec)].flight;
}

/* Whether the PSN is in flight or lost. response: only if a response confirms it. */
static inline bool dp_is_outstanding(const struct dp_rc *rc, uint32_t psn, bool response)
{
	const struct dp_rec *rec;

	if (dp_psn_diff(psn, rc->req.snd_una) < 0 || dp_psn_diff(psn, rc->req.snd_nxt) >= 0)
		return false;
	rec = dp_rec_at(rc, psn);
	return rec->response == response &&
	       (rec->state == DP_REC_FLIGHT || rec->state == DP_REC_LOST);
}

/* False: no memory. */
bool dp_tx_block_get(struct dp_rc *);
/* Makes pages for the next n PSNs; false: no memory. */
bool dp_tx_pages_get(struct dp_rc *, uint32_t n);
/* Returns the memory for packets in flight. */
void dp_tx_release(struct dp_rc *);
void dp_tx_page_put(struct dp_rc *, uint32_t psn);

#endif
