/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fuzz target: any messages into two connection managers that are at work.
 *
 * An input is a program of small steps; each begins with a byte that names the step and the end
 * that it is for (enum step).  Forged messages get a right header and, if the step says so, the
 * ids and the transaction of a connection that is there, since no mutation would ever guess
 * them.  Every message lies in a heap buffer of just its size.
 *
 * Checked beside what the sanitizers see: all invariants after each step, that no program is told
 * of a connection that it has given up, and that nothing is left once all have been given up.
 */
#include "cm.h"
#include "input.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm.h"
#include "wire/headers.h"

enum step {
	STEP_RAW,      /* n, n bytes: a message as it is */
	STEP_FORGED,   /* attribute, connection, place, n, n bytes that are put there */
	STEP_EXCHANGE, /* bits: messages reach the other end but those whose bit is set */
	STEP_TIME,     /* n: 2^n ns pass */
	STEP_VERB,     /* verb, connection */
	STEP_MASK = 7,
	STEP_B = 8,	    /* for end B */
	STEP_STRANGER = 16, /* the message comes from somebody else */
	STEP_FITTING = 32,  /* ids and transaction are those of the connection */
	STEP_SERVICE = 64,  /* the second service */
};

enum verb {
	VERB_LISTEN,
	VERB_UNLISTEN,
	VERB_CONNECT,
	VERB_RESOLVE,
	VERB_ACCEPT,
	VERB_REJECT,
	VERB_READY,
	VERB_DISCONNECT,
	VERB_RELEASE,
	VERBS,
};

enum { CONNS = 12, SERVICES = 2, EXCHANGED = 8, BACKLOG = 4, MESSAGES = 64 };

struct seen {
	uint32_t local_id, remote_id; /* as the receiver has them */
	uint64_t tid;
};

struct end {
	struct dp_cm *cm;
	struct dp_addr addr;
	struct dp_cm_service *services[SERVICES];
	struct dp_cm_conn *conns[CONNS];
	struct seen seen; /* of the last message that came from the other end */
};

static void verify(const struct end *e)
{
	const char *why = dp_cm_check(e->cm);

	if (!why)
		return;
	fprintf(stderr, "%s\n", why);
	abort();
}

/* ---- programs ---------------------------------------------------------------------- */

static struct dp_cm_conn **place_of(struct end *e, const struct dp_cm_conn *c)
{
	int i;

	for (i = 0; i < CONNS; i++)
		if (e->conns[i] == c)
			return &e->conns[i];
	return NULL;
}

static void on_event(struct end *e, const struct dp_cm_event *event, uint64_t now)
{
	struct dp_cm_conn **at;

	if (event->type != DP_CM_REQUESTED) {
		assert(place_of(e, event->conn));
		return;
	}
	assert(event->service && !place_of(e, event->conn));
	at = place_of(e, NULL);
	if (at)
		*at = event->conn;
	else
		dp_cm_release(event->conn, now);
}

static void connect_to(struct end *e, const struct end *peer, int service, bool datagram,
		       struct dp_cm_conn **at, uint64_t now)
{
	struct dp_cm_request r = {
		.to = peer->addr,
		.service_id = (uint64_t)service,
		.datagram = datagram,
		.param = { .qpn = 17 + (uint32_t)(at - e->conns),
			   .path_mtu = 3,
			   .ack_timeout = 14 },
	};

	if (dp_cm_connect(e->cm, &r, NULL, now, at))
		*at = NULL;
}

static void call(struct end *e, const struct end *peer, uint8_t step, struct input *in,
		 uint64_t now)
{
	enum verb verb = next(in) % VERBS;
	struct dp_cm_conn **at = &e->conns[next(in) % CONNS];
	struct dp_cm_param param = { .qpn = 99 };
	int service = !!(step & STEP_SERVICE);
	struct dp_cm_service **s = &e->services[service];

	if (verb == VERB_LISTEN && !*s && dp_cm_listen(e->cm, (uint64_t)service, BACKLOG, NULL, s))
		*s = NULL;
	if (verb == VERB_UNLISTEN && *s) {
		/* Its requests get users first, as the front gives them. */
		for (int i = 0; i < CONNS; i++)
			if (e->conns[i])
				dp_cm_conn_set_user(e->conns[i], e);
		dp_cm_unlisten(*s, now);
		*s = NULL;
	}
	if ((verb == VERB_CONNECT || verb == VERB_RESOLVE) && !*at)
		connect_to(e, peer, service, verb == VERB_RESOLVE, at, now);
	if (!*at)
		return;
	if (verb == VERB_ACCEPT)
		dp_cm_accept(*at, &param, "yes", 3, now);
	if (verb == VERB_REJECT)
		dp_cm_reject(*at, DP_REJ_CONSUMER, "no", 2, now);
	if (verb == VERB_READY)
		dp_cm_ready(*at, now);
	if (verb == VERB_DISCONNECT)
		dp_cm_disconnect(*at, now);
	if (verb == VERB_RELEASE) {
		dp_cm_release(*at, now);
		*at = NULL;
	}
}

/* ---- messages -------------------------------------------------------------------------- */

static void give(struct end *e, const struct dp_addr *from, const uint8_t *data, uint32_t len,
		 uint64_t now)
{
	uint8_t *mad = malloc(len ? len : 1);
	struct dp_cm_event event;

	memcpy(mad, data, len);
	if (dp_cm_rx(e->cm, mad, len, from, now, &event))
		on_event(e, &event, now);
	free(mad);
	verify(e);
}

static void forge(struct end *e, const struct end *peer, const struct dp_addr *from, uint8_t step,
		  struct input *in, uint64_t now)
{
	uint8_t attribute = (uint8_t)(DP_CM_REQ + next(in) % 9), mad[DP_MAD_LEN];
	uint32_t at = DP_MAD_HEADER_LEN + next(in) % (DP_MAD_LEN - DP_MAD_HEADER_LEN);
	uint32_t n = next(in);
	const uint8_t *bytes = take(in, &n);

	dp_mad_start(mad, attribute, step & STEP_FITTING ? e->seen.tid : 1);
	if (attribute == DP_CM_REQ) {
		memcpy(mad + DP_MAD_HEADER_LEN + DP_REQ_LOCAL_GID_AT, peer->addr.b, 16);
		memcpy(mad + DP_MAD_HEADER_LEN + DP_REQ_REMOTE_GID_AT, e->addr.b, 16);
		dp_cm_set(mad, DP_CM_LOCAL_ID, 5);
		dp_cm_set(mad, DP_REQ_QPN, 17);
		dp_cm_set(mad, DP_REQ_PATH_MTU, 3);
	} else if (step & STEP_FITTING) {
		dp_cm_set(mad, DP_CM_REMOTE_ID, e->seen.local_id);
		dp_cm_set(mad, DP_CM_LOCAL_ID, e->seen.remote_id);
	}
	if (n > DP_MAD_LEN - at)
		n = DP_MAD_LEN - at;
	memcpy(mad + at, bytes, n);
	give(e, from, mad, DP_MAD_LEN, now);
}

static void exchange(struct end *e, struct end *peer, uint8_t lost, uint64_t now)
{
	struct dp_cm_mad mad;
	int i;

	for (i = 0; dp_cm_tx(e->cm, &mad); i++) {
		assert(i < MESSAGES);
		if (memcmp(&mad.to, &peer->addr, sizeof(mad.to)) ||
		    (i < EXCHANGED && lost >> i & 1))
			continue;
		peer->seen.remote_id = (uint32_t)dp_cm_get(mad.data, DP_CM_LOCAL_ID);
		peer->seen.local_id = (uint32_t)dp_cm_get(mad.data, DP_CM_REMOTE_ID);
		peer->seen.tid = dp_get64(mad.data + DP_MAD_TID_AT);
		give(peer, &e->addr, mad.data, DP_MAD_LEN, now);
	}
}

static void tick(struct end *e, uint64_t now)
{
	struct dp_cm_event event;
	struct dp_cm_mad mad;

	while (dp_cm_tick(e->cm, now, &event)) {
		if (event.type)
			on_event(e, &event, now);
		verify(e);
	}
	/* A caller sends what there is each time. */
	while (dp_cm_tx(e->cm, &mad))
		;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void step_of(struct end ends[2], uint8_t step, struct input *in, uint64_t *now)
{
	static const struct dp_addr stranger = { { 9 } };
	struct end *e = &ends[!!(step & STEP_B)], *peer = &ends[!(step & STEP_B)];
	const struct dp_addr *from = step & STEP_STRANGER ? &stranger : &peer->addr;
	const uint8_t *bytes;
	uint32_t n;

	switch (step & STEP_MASK) {
	case STEP_RAW:
		n = next(in);
		bytes = take(in, &n);
		give(e, from, bytes, n, *now);
		break;
	case STEP_FORGED:
		forge(e, peer, from, step, in, *now);
		break;
	case STEP_EXCHANGE:
		exchange(e, peer, next(in), *now);
		break;
	case STEP_TIME:
		*now += UINT64_C(1) << (next(in) % 36);
		tick(e, *now);
		tick(peer, *now);
		break;
	default:
		call(e, peer, step, in, *now);
	}
}

/* Everything is given up; what lives on ends by itself. */
static void end_all(struct end *e, uint64_t now)
{
	uint64_t due;
	int i;

	for (i = 0; i < CONNS; i++)
		if (e->conns[i])
			dp_cm_release(e->conns[i], now);
	memset(e->conns, 0, sizeof(e->conns));
	for (i = 0; i < SERVICES; i++)
		if (e->services[i])
			dp_cm_unlisten(e->services[i], now);
	while ((due = dp_cm_deadline(e->cm)) != DP_NEVER) {
		tick(e, due);
		verify(e);
	}
	assert(!dp_cm_conns(e->cm));
	dp_cm_destroy(e->cm);
}

int X_fuzz_cm(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	struct end ends[2] = {};
	uint64_t now = 1;
	int i;

	for (i = 0; i < 2; i++) {
		struct dp_cm_config config = { .path_mtu = 5, .seed = (uint64_t)i + 1 };

		ends[i].addr.b[15] = (uint8_t)(i + 1);
		config.addr = ends[i].addr;
		if (dp_cm_create(&config, &ends[i].cm))
			abort();
	}
	while (in.at < in.end) {
		step_of(ends, next(&in), &in, &now);
		verify(&ends[0]);
		verify(&ends[1]);
	}
	end_all(&ends[0], now);
	end_all(&ends[1], now);
	return 0;
}
