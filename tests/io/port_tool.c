// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Drives one port with bounded traffic, for tests and measurements:
 *
 *   port_tool SPEC hold                      until end of input
 *   port_tool SPEC send PEER [options]       as fast as it goes
 *   port_tool SPEC receive [options]         count and check
 *   port_tool SPEC ping PEER [options]       closed loop of `window` packets
 *   port_tool SPEC echo [options]            send everything back
 *   port_tool SPEC resolve PEER
 *   port_tool SPEC peers FIRST [options]     resolve `count` peers, one after another
 *
 * Prints "ready" when the port is open, and at the end one line of JSON: what
 * the port is (info), its counters (stats) and what happened (result).  Exit
 * code 1: the port could not be opened; 2: usage.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/addr.h"
#include "io/port.h"
#include "posix/clock.h"
#include "wire/headers.h"
#include "wire/icrc.h"

enum { SAMPLES_MAX = 1 << 20, RESOLVE_MS = 2000 };

struct options {
	uint64_t count;	   /* packets to send, or to receive (default: no end) */
	uint32_t size;	   /* payload bytes */
	uint32_t batch;	   /* packets per commit */
	uint32_t window;   /* packets in flight */
	uint32_t seconds;  /* give up after */
	uint32_t idle_ms;  /* receive: end when nothing came for so long */
	uint32_t rate_pps; /* send: 0 is as fast as it goes */
	uint32_t qpn, tos, opcode;
	bool check; /* pattern and ICRC of each packet */
	bool sleep; /* poll() while there is nothing, instead of spinning */
	bool wait;  /* receive: read nothing before the end of input */
};

struct result {
	uint64_t sent, received, in_order, bad_pattern, bad_icrc, in_two_pieces, ip_id_nonzero;
	uint64_t marked, first_ns, last_ns, lost_echoes;
	uint64_t untimed, arrived_first_ns, arrived_last_ns; /* as the port tells */
	uint64_t late_most_ns;				     /* likewise */
	uint64_t early;					     /* packets read before they arrived */
	uint64_t read_ns;				     /* when reading began */
	int error;
	uint64_t rtt_min_ns, rtt_p50_ns, rtt_p99_ns, rtt_mean_ns;
};

struct tool {
	struct dp_port *port;
	struct dp_port_info info;
	struct options o;
	struct result r;
	struct dp_addr peer;
	uint32_t next_psn; /* behind all that was received in order */
	uint32_t path;
	uint32_t *samples;
	uint64_t n_samples;
	uint64_t sent_ns[65536];
};

/* Byte i of the payload of packet psn; the payload begins behind the BTH. */
static inline uint8_t pattern(uint32_t psn, uint32_t i)
{
	return (uint8_t)(psn * 31 + i + (i >> 8) * 7);
}

static void write_packet(struct tool *t, struct dp_packet *p, uint32_t psn)
{
	dp_bth_set(p->data, (uint8_t)t->o.opcode, 0, 0, t->o.qpn, 0, psn);
	p->src = t->info.addr;
	p->dst = t->peer;
	p->sport = t->info.udp_sport ? t->info.udp_sport : 0xc000 + (t->o.qpn & 0x3fff);
	p->tos = (uint8_t)t->o.tos;
	p->flags = 0;
	p->ip_id = 0;
	p->path_id = t->path;
	p->frag = NULL;
	p->frag_len = 0;
	p->len = DP_BTH_LEN + t->o.size;
	if (t->o.check) {
		for (uint32_t i = 0; i < t->o.size; i++)
			p->data[DP_BTH_LEN + i] = pattern(psn, i);
		dp_icrc_append(p);
	} else {
		p->len += DP_ICRC_LEN;
	}
}

static void check_packet(struct tool *t, const struct dp_packet *p)
{
	uint32_t psn = dp_bth_psn(p->data), total = p->len + p->frag_len;

	t->r.in_two_pieces += p->frag_len != 0;
	t->r.ip_id_nonzero += p->ip_id != 0;
	t->r.marked += (p->tos & DP_ECN_MASK) == DP_ECN_CE;
	if (!t->o.check)
		return;
	for (uint32_t i = DP_BTH_LEN; i + DP_ICRC_LEN < total; i++) {
		uint8_t byte = i < p->len ? p->data[i] : p->frag[i - p->len];

		if (byte != pattern(psn, i - DP_BTH_LEN)) {
			t->r.bad_pattern++;
			break;
		}
	}
	t->r.bad_icrc += !dp_icrc_check(p);
}

static void wait_for_port(struct tool *t)
{
	struct pollfd p = { .fd = dp_port_fd(t->port), .events = POLLIN };

	if (t->o.sleep)
		poll(&p, 1, 10);
}

static void count_arrival(struct tool *t, uint64_t arrived_ns)
{
	if (!arrived_ns)
		t->r.untimed++;
	else if (!t->r.arrived_first_ns || arrived_ns < t->r.arrived_first_ns)
		t->r.arrived_first_ns = arrived_ns;
	if (arrived_ns > t->r.arrived_last_ns)
		t->r.arrived_last_ns = arrived_ns;
}

static void count_received(struct tool *t, const struct dp_packet *p, uint64_t now)
{
	if (dp_psn_diff(dp_bth_psn(p->data), t->next_psn) >= 0) {
		t->r.in_order++;
		t->next_psn = dp_psn_add(dp_bth_psn(p->data), 1);
	}
	if (!t->r.received)
		t->r.first_ns = now;
	t->r.last_ns = now;
	t->r.received++;
	t->r.early += p->arrived_ns > dp_now_ns();
	count_arrival(t, p->arrived_ns);
	if (p->late_ns > t->r.late_most_ns)
		t->r.late_most_ns = p->late_ns;
	check_packet(t, p);
}

static void hold(void)
{
	char c;

	while (read(0, &c, 1) > 0)
		;
}

static void receive(struct tool *t)
{
	struct dp_packet p[DP_PORT_BATCH];
	uint64_t end, now, last;

	if (t->o.wait)
		hold();
	now = last = t->r.read_ns = dp_now_ns();
	end = now + t->o.seconds * 1000000000ull;
	while (now < end && t->r.received < t->o.count) {
		int n = dp_port_rx(t->port, p, DP_PORT_BATCH);

		now = dp_now_ns();
		for (int i = 0; i < n; i++)
			count_received(t, &p[i], now);
		dp_port_rx_release(t->port, p, n);
		if (n)
			last = now;
		else if (t->r.received && now - last > t->o.idle_ms * 1000000ull)
			return;
		else
			wait_for_port(t);
	}
}

static void send_all(struct tool *t)
{
	uint64_t start = dp_now_ns(), end = start + t->o.seconds * 1000000000ull, now = start;
	struct dp_packet p[DP_PORT_BATCH];

	while (now < end && t->r.sent < t->o.count) {
		uint64_t want = t->o.count - t->r.sent;
		int n;

		now = dp_now_ns();
		if (t->o.rate_pps && t->r.sent > (now - start) * t->o.rate_pps / 1000000000u)
			continue;
		n = dp_port_tx_reserve(t->port, p, want < t->o.batch ? (int)want : (int)t->o.batch);
		for (int i = 0; i < n; i++)
			write_packet(t, &p[i], (uint32_t)t->r.sent++);
		dp_port_tx_commit(t->port, p, n, n);
	}
	t->r.first_ns = start;
	t->r.last_ns = dp_now_ns();
	/* what waits for the device goes out while we read nothing */
	for (int i = 0; i < 100; i++) {
		int n = dp_port_rx(t->port, p, DP_PORT_BATCH);

		dp_port_rx_release(t->port, p, n);
	}
}

/* Sends received packets back to the path; returns how many. */
static int echo_batch(struct tool *t, const struct dp_packet *in, int n)
{
	struct dp_packet out[DP_PORT_BATCH];
	int room = dp_port_tx_reserve(t->port, out, n);

	for (int i = 0; i < room; i++) {
		memcpy(out[i].data, in[i].data, in[i].len);
		if (in[i].frag_len)
			memcpy(out[i].data + in[i].len, in[i].frag, in[i].frag_len);
		out[i].len = in[i].len + in[i].frag_len - DP_ICRC_LEN;
		out[i].src = t->info.addr;
		out[i].dst = in[i].src;
		out[i].sport = t->info.udp_sport ? t->info.udp_sport : in[i].sport;
		out[i].tos = in[i].tos;
		out[i].flags = 0;
		out[i].ip_id = 0;
		out[i].path_id = t->path;
		if (t->o.check)
			dp_icrc_append(&out[i]);
		else
			out[i].len += DP_ICRC_LEN;
	}
	dp_port_tx_commit(t->port, out, room, room);
	return room;
}

static int resolve(struct tool *t, const struct dp_addr *peer)
{
	uint64_t end = dp_now_ns() + RESOLVE_MS * 1000000ull;
	int err;

	while ((err = dp_port_resolve(t->port, peer, &t->path)) == -EAGAIN && dp_now_ns() < end)
		usleep(1000);
	return err;
}

static void echo(struct tool *t)
{
	uint64_t end = dp_now_ns() + t->o.seconds * 1000000000ull, now = dp_now_ns(), last = now;
	struct dp_packet p[DP_PORT_BATCH];

	while (now < end && t->r.sent < t->o.count) {
		int n = dp_port_rx(t->port, p, DP_PORT_BATCH);

		now = dp_now_ns();
		if (n && !t->r.received)
			t->r.error = resolve(t, &p[0].src);
		for (int i = 0; i < n; i++)
			count_received(t, &p[i], now);
		if (n && !t->r.error)
			t->r.sent += (uint64_t)echo_batch(t, p, n);
		dp_port_rx_release(t->port, p, n);
		if (n)
			last = now;
		else if (t->r.received && now - last > t->o.idle_ms * 1000000ull)
			return;
		else
			wait_for_port(t);
	}
}

static void ping_send(struct tool *t)
{
	struct dp_packet p[DP_PORT_BATCH];
	uint64_t flying = t->r.sent - t->r.received - t->r.lost_echoes;
	uint64_t want = t->o.window - flying;
	int n;

	if (want > t->o.count - t->r.sent)
		want = t->o.count - t->r.sent;
	if (want > t->o.batch)
		want = t->o.batch;
	if (!want)
		return;
	n = dp_port_tx_reserve(t->port, p, (int)want);
	for (int i = 0; i < n; i++) {
		t->sent_ns[t->r.sent & 0xffff] = dp_now_ns();
		write_packet(t, &p[i], (uint32_t)t->r.sent++);
	}
	dp_port_tx_commit(t->port, p, n, n);
}

static int compare_samples(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void ping_statistics(struct tool *t)
{
	uint64_t n = t->n_samples, sum = 0;

	if (!n)
		return;
	qsort(t->samples, n, sizeof(*t->samples), compare_samples);
	for (uint64_t i = 0; i < n; i++)
		sum += t->samples[i];
	t->r.rtt_min_ns = t->samples[0];
	t->r.rtt_p50_ns = t->samples[n / 2];
	t->r.rtt_p99_ns = t->samples[n * 99 / 100];
	t->r.rtt_mean_ns = sum / n;
}

/* A packet that has not come back after idle_ms is taken for lost. */
static void ping(struct tool *t)
{
	uint64_t end = dp_now_ns() + t->o.seconds * 1000000000ull, now = dp_now_ns(), last = now;
	struct dp_packet p[DP_PORT_BATCH];

	while (now < end && t->r.received + t->r.lost_echoes < t->o.count) {
		int n;

		ping_send(t);
		n = dp_port_rx(t->port, p, DP_PORT_BATCH);
		now = dp_now_ns();
		for (int i = 0; i < n; i++) {
			uint64_t rtt = now - t->sent_ns[dp_bth_psn(p[i].data) & 0xffff];

			count_received(t, &p[i], now);
			if (t->n_samples < SAMPLES_MAX)
				t->samples[t->n_samples++] = (uint32_t)rtt;
		}
		dp_port_rx_release(t->port, p, n);
		if (n) {
			last = now;
		} else if (now - last > t->o.idle_ms * 1000000ull) {
			t->r.lost_echoes = t->r.sent - t->r.received;
			last = now;
		} else {
			wait_for_port(t);
		}
	}
	ping_statistics(t);
}

static void print_json(struct tool *t)
{
	const struct dp_port_info *i = &t->info;
	const struct result *r = &t->r;
	struct dp_port_stats s;
	char addr[DP_ADDR_TEXT];

	dp_port_stats(t->port, &s);
	dp_port_info(t->port, &t->info);
	printf("{\"info\": {\"kind\": \"%s\", \"netdev\": \"%s\", \"ifindex\": %u, "
	       "\"addr\": \"%s\", \"netdev_mtu\": %u, \"path_mtu\": %u, "
	       "\"path_mtu_reason\": \"%s\", \"mode\": \"%s\", \"mode_reason\": \"%s\", \"queues\": %u, "
	       "\"udp_sport\": %u, \"qpn_prefix\": %u, \"line_rate_bps\": %" PRIu64 "}, ",
	       i->kind, i->netdev, i->ifindex, dp_addr_text(&i->addr, addr), i->netdev_mtu,
	       i->path_mtu, i->path_mtu_reason, i->mode, i->mode_reason, i->n_queues, i->udp_sport,
	       i->qpn_prefix, i->line_rate_bps);
	printf("\"stats\": {");
#define X(name) printf("\"" #name "\": %" PRIu64 ", ", s.name);
	DP_PORT_COUNTERS(X)
#undef X
	printf("\"port_fd\": %d}, \"result\": {", dp_port_fd(t->port));
#define FIELD(name) printf("\"" #name "\": %" PRIu64 ", ", r->name)
	FIELD(sent);
	FIELD(received);
	FIELD(in_order);
	FIELD(bad_pattern);
	FIELD(bad_icrc);
	FIELD(in_two_pieces);
	FIELD(ip_id_nonzero);
	FIELD(marked);
	FIELD(lost_echoes);
	FIELD(untimed);
	FIELD(arrived_first_ns);
	FIELD(arrived_last_ns);
	FIELD(late_most_ns);
	FIELD(early);
	FIELD(read_ns);
	FIELD(rtt_min_ns);
	FIELD(rtt_p50_ns);
	FIELD(rtt_p99_ns);
	FIELD(rtt_mean_ns);
#undef FIELD
	printf("\"duration_ns\": %" PRIu64 ", \"error\": %d, \"error_text\": \"%s\"}}\n",
	       r->last_ns - r->first_ns, r->error, r->error ? strerror(-r->error) : "");
}

static void usage(void)
{
	fprintf(stderr, "usage: port_tool SPEC hold|receive|echo | send|ping|resolve PEER\n"
			"  --count N --size BYTES --batch N --window N --seconds N --idle-ms N\n"
			"  --rate-pps N --qpn N --tos N --opcode N --check --sleep --wait\n");
	exit(2);
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option table[] = {
		{ "count", 1, NULL, 'c' },    { "size", 1, NULL, 's' },
		{ "batch", 1, NULL, 'b' },    { "window", 1, NULL, 'w' },
		{ "seconds", 1, NULL, 't' },  { "idle-ms", 1, NULL, 'i' },
		{ "rate-pps", 1, NULL, 'r' }, { "qpn", 1, NULL, 'q' },
		{ "tos", 1, NULL, 'T' },      { "opcode", 1, NULL, 'o' },
		{ "check", 0, NULL, 'C' },    { "sleep", 0, NULL, 'S' },
		{ "wait", 0, NULL, 'W' },     { NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		uint64_t value = optarg ? strtoull(optarg, NULL, 0) : 1;

		switch (c) {
		case 'c':
			o->count = value;
			break;
		case 's':
			o->size = (uint32_t)value;
			break;
		case 'b':
			o->batch = (uint32_t)value;
			break;
		case 'w':
			o->window = (uint32_t)value;
			break;
		case 't':
			o->seconds = (uint32_t)value;
			break;
		case 'i':
			o->idle_ms = (uint32_t)value;
			break;
		case 'r':
			o->rate_pps = (uint32_t)value;
			break;
		case 'q':
			o->qpn = (uint32_t)value;
			break;
		case 'T':
			o->tos = (uint32_t)value;
			break;
		case 'o':
			o->opcode = (uint32_t)value;
			break;
		case 'C':
			o->check = true;
			break;
		case 'S':
			o->sleep = true;
			break;
		case 'W':
			o->wait = true;
			break;
		default:
			usage();
		}
	}
	if (!o->batch || o->batch > DP_PORT_BATCH || o->size > 4096 || o->window > 65536)
		usage();
}

/* The addresses from the peer's on; each is given back before the next. */
static void see_peers(struct tool *t)
{
	uint32_t last;

	memcpy(&last, t->peer.b + 12, sizeof(last));
	while (!t->r.error && t->r.sent < t->o.count) {
		dp_port_release(t->port, t->path);
		last = htonl(ntohl(last) + 1);
		memcpy(t->peer.b + 12, &last, sizeof(last));
		t->r.error = resolve(t, &t->peer);
		t->r.sent++;
	}
}

static int run(struct tool *t, const char *what, const char *peer)
{
	if (peer) {
		if (dp_addr_parse(peer, &t->peer))
			usage();
		t->r.error = resolve(t, &t->peer);
		if (t->r.error)
			return 0;
	}
	if (!strcmp(what, "hold"))
		hold();
	else if (!strcmp(what, "receive"))
		receive(t);
	else if (!strcmp(what, "echo"))
		echo(t);
	else if (!strcmp(what, "send") && peer)
		send_all(t);
	else if (!strcmp(what, "ping") && peer)
		ping(t);
	else if (!strcmp(what, "peers") && peer)
		see_peers(t);
	else if (strcmp(what, "resolve") || !peer)
		usage();
	return 0;
}

int main(int argc, char **argv)
{
	static struct tool t = {
		.o = { .size = 64,
		       .batch = 32,
		       .window = 1,
		       .seconds = 10,
		       .idle_ms = 500,
		       .qpn = 0x11,
		       .opcode = DP_OP_EXT | DP_OP_SEND_ONLY },
	};
	char error[512];

	parse(&t.o, argc, argv);
	if (argc - optind < 2)
		usage();
	if (!t.o.count)
		t.o.count = argc - optind > 2 ? 1000 : UINT64_MAX;
	t.samples = calloc(SAMPLES_MAX, sizeof(*t.samples));
	if (dp_port_open(argv[optind], &t.port, error, sizeof(error))) {
		fprintf(stderr, "%s\n", error);
		free(t.samples);
		return 1;
	}
	dp_port_info(t.port, &t.info);
	printf("ready\n");
	fflush(stdout);
	run(&t, argv[optind + 1], argc - optind > 2 ? argv[optind + 2] : NULL);
	print_json(&t);
	dp_port_close(t.port);
	free(t.samples);
	return 0;
}
