/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Measures a kernel interface without a protocol: the floor for what stands on it.
 *
 *   dp-floor SIDE PORT LOCAL PEER TEST SIZE LIMIT WAIT
 *
 *   SIDE   server or client
 *   PORT   udp, or afxdp:NETDEV
 *   LOCAL  address of this host; PEER: of the other one
 *   TEST   pingpong: the client sends a message and waits for its answer, LIMIT times
 *          flood: the client sends for LIMIT milliseconds, and the server counts what comes
 *          carry: a flood whose messages have a payload, which is copied in and out, and an ICRC
 *   SIZE   bytes of a message, which are the payload of UDP
 *   WAIT   poll: look for messages all the time; sleep: until there is one
 *
 * The client prints one line of JSON.  A message that is lost is sent again after a while in
 * pingpong, and only counted in flood.
 */
#include "floor.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "posix/clock.h"
#include "posix/number.h"

enum {
	ANSWER_MS = 100, /* no answer by then: ask again */
	TRIES = 50,
	SILENCE_MS = 20000, /* the server gives up */
	LINGER_MS = 300,    /* the server answers a repeated END */
	LIMIT_MAX = 10000000,
};

struct run {
	struct floor_socket *socket;
	bool sleeps;
	uint32_t size, limit;
	struct floor_message in[FLOOR_BATCH];
};

void floor_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("dp-floor: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(2);
}

/* ---- messages -------------------------------------------------------------------- */

static struct floor_message message(uint32_t kind, uint64_t number, uint64_t lasted_ns)
{
	return (struct floor_message){ FLOOR_MAGIC, kind, number, lasted_ns };
}

static void send_one(struct run *r, struct floor_message m)
{
	while (!r->socket->ops->send(r->socket, &m, 1))
		;
}

/* What has come in run.in; 0: nothing until until_ns. */
static int receive(struct run *r, uint64_t until_ns)
{
	struct pollfd fd = { .fd = r->socket->fd, .events = POLLIN };
	uint64_t now;
	int n;

	for (;;) {
		n = r->socket->ops->receive(r->socket, r->in);
		if (n)
			return n;
		now = dp_now_ns();
		if (now >= until_ns)
			return 0;
		if (r->sleeps)
			poll(&fd, 1, (int)((until_ns - now) / 1000000) + 1);
	}
}

/* Sends a message until it is answered; the answer is in *out. */
static void ask(struct run *r, struct floor_message m, uint32_t kind, struct floor_message *out)
{
	uint64_t until_ns;
	int n;

	for (int i = 0; i < TRIES; i++) {
		send_one(r, m);
		until_ns = dp_now_ns() + ANSWER_MS * 1000000ull;
		while ((n = receive(r, until_ns))) {
			*out = r->in[n - 1];
			if (out->kind == kind && (kind != FLOOR_PONG || out->number == m.number))
				return;
		}
	}
	floor_fail("the server does not answer");
}

/* ---- the client ------------------------------------------------------------------ */

static void ping_pong(struct run *r)
{
	uint64_t *times = calloc(r->limit, sizeof(*times)), begin;
	struct floor_message answer;

	if (!times)
		floor_fail("out of memory");
	for (uint32_t i = 0; i < r->limit; i++) {
		begin = dp_now_ns();
		ask(r, message(FLOOR_PING, i, 0), FLOOR_PONG, &answer);
		times[i] = dp_now_ns() - begin;
	}
	ask(r, message(FLOOR_END, 0, 0), FLOOR_REPORT, &answer);
	printf("{\"half_round_trips_ns\": [");
	for (uint32_t i = 0; i < r->limit; i++)
		printf("%s%.1f", i ? ", " : "", (double)times[i] / 2);
	printf("]}\n");
	free(times);
}

static void flood(struct run *r)
{
	struct floor_message batch[FLOOR_BATCH], report;
	uint64_t until_ns = dp_now_ns() + r->limit * 1000000ull, sent = 0;

	for (int i = 0; i < FLOOR_BATCH; i++)
		batch[i] = message(FLOOR_DATA, 0, 0);
	while (dp_now_ns() < until_ns)
		sent += (uint64_t)r->socket->ops->send(r->socket, batch, FLOOR_BATCH);
	ask(r, message(FLOOR_END, 0, 0), FLOOR_REPORT, &report);
	printf("{\"sent\": %llu, \"received\": %llu, \"seconds\": %.9f}\n",
	       (unsigned long long)sent, (unsigned long long)report.number,
	       (double)report.lasted_ns / 1e9);
}

/* ---- the server ------------------------------------------------------------------ */

/* Counts messages, echoes pings, and answers END until nobody asks any more. */
static void serve(struct run *r)
{
	uint64_t count = 0, first_ns = 0, last_ns = 0, now, wait_ms = SILENCE_MS;
	int n;

	for (;;) {
		n = receive(r, dp_now_ns() + wait_ms * 1000000);
		if (!n && wait_ms == SILENCE_MS)
			floor_fail("the client is silent");
		if (!n)
			return;
		now = dp_now_ns();
		for (int i = 0; i < n; i++) {
			const struct floor_message *m = &r->in[i];

			if (m->kind == FLOOR_PING)
				send_one(r, message(FLOOR_PONG, m->number, 0));
			if (m->kind == FLOOR_DATA) {
				first_ns = count++ ? first_ns : now;
				last_ns = now;
			}
			if (m->kind == FLOOR_END) {
				send_one(r, message(FLOOR_REPORT, count, last_ns - first_ns));
				wait_ms = LINGER_MS;
			}
		}
	}
}

/* ---- arguments ------------------------------------------------------------------- */

/* Whether `text` is `yes`; ends the program when it is neither `no` nor that. */
static bool one_of(const char *text, const char *no, const char *yes)
{
	if (strcmp(text, no) && strcmp(text, yes))
		floor_fail("%s: expected %s or %s", text, no, yes);
	return !strcmp(text, yes);
}

static uint32_t number(const char *text, const char *what, uint32_t min, uint32_t max)
{
	uint32_t value;

	if (dp_read_u32(text, min, max, &value))
		floor_fail("%s %s: expected a number from %u to %u", what, text, min, max);
	return value;
}

int main(int argc, char **argv)
{
	struct floor_setup setup;
	struct run r = {};
	bool client, floods, carries, xdp;

	if (argc != 9)
		floor_fail("SIDE PORT LOCAL PEER TEST SIZE LIMIT WAIT; see main.c");
	client = one_of(argv[1], "server", "client");
	xdp = !strncmp(argv[2], "afxdp:", 6);
	if (!xdp && strcmp(argv[2], "udp"))
		floor_fail("%s: expected udp or afxdp:NETDEV", argv[2]);
	carries = !strcmp(argv[5], "carry");
	floods = carries || !strcmp(argv[5], "flood");
	if (!floods && strcmp(argv[5], "pingpong"))
		floor_fail("%s: expected pingpong, flood or carry", argv[5]);
	r.size = number(argv[6], "SIZE", FLOOR_SIZE_MIN,
			xdp ? floor_xdp_ops.size_max : floor_udp_ops.size_max);
	r.limit = number(argv[7], "LIMIT", 1, LIMIT_MAX);
	r.sleeps = one_of(argv[8], "poll", "sleep");
	setup = (struct floor_setup){
		.netdev = argv[2] + strlen(xdp ? "afxdp:" : "udp"),
		.local = argv[3],
		.peer = argv[4],
		.size = r.size,
		.carries = carries,
	};
	r.socket = xdp ? floor_xdp_open(&setup) : floor_udp_open(&setup);
	fprintf(stderr, "ready\n");
	if (!client)
		serve(&r);
	else if (floods)
		flood(&r);
	else
		ping_pong(&r);
	r.socket->ops->close(r.socket);
	return 0;
}
