/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The declarations that the files of the management network share.
 *
 *   manage.c  the exchange of records, the start and the end of a run
 *   meet.c    the hosts find each other and compare their clocks
 *   words.c   whole pieces to and from one peer
 */
#ifndef DP_TRAFFIC_MANAGE_H
#define DP_TRAFFIC_MANAGE_H

#include "generator.h"

enum word_kind {
	WORD_PING = 1,
	WORD_GO,
	WORD_DONE,
	WORD_ALL_DONE,
	WORD_GONE, /* value: which host */
};

struct word {
	uint64_t kind, value;
};

/* words.c */
int manage_gone(uint32_t peer);
int manage_send_whole(struct run *, uint32_t peer, const void *from, size_t bytes);
int manage_receive_whole(struct run *, uint32_t peer, void *to, size_t bytes);
int manage_say(struct run *, uint32_t peer, uint64_t kind, uint64_t value);
/* The next word; WORD_GONE is an error of its own. */
int manage_hear(struct run *, uint32_t peer, struct word *);

/* How the clocks of the hosts differ from host 0's: known there. */
struct clocks {
	int64_t *offset; /* by host */
	uint64_t longest_way_ns;
};

/* meet.c: run.peer is filled. */
int manage_meet(struct run *, struct clocks *);

#endif
