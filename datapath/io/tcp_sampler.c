/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program for hosts: writes what the kernel knows of its TCP connections into
 * a file of series (io/series.h), again and again, until it is killed.
 *
 *   dp-tcp-sampler FILE INTERVAL_NS FLOWS MAX_BYTES ADDRESS...
 *
 * It asks sock_diag(7) for the tcp_info of connections from one of its addresses,
 * as `ss -ti` does.  A list of all of them walks through the kernel's whole hash
 * table, which takes hundreds of microseconds even when there are none; so lists
 * are taken now and then, to find new connections, and each sample asks for the
 * known ones by name.
 *
 * A connection is a flow once it has delivered FLOW_BYTES: those over which
 * programs talk before they measure never are.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "io/series.h"
#include "posix/clock.h"
#include "posix/number.h"

enum {
	FLOW_BYTES = 65536,
	FLOWS_MAX = 4096,
	BATCH = 16, /* requests at once: their answers fit the socket's buffer */
	LIST_NS = 50000000,
	ANSWER_BYTES = 1 << 16,
};

/* States of the kernel's net/tcp_states.h: established, and those of closing. */
#define STATES (1u << 1 | 1u << 4 | 1u << 5 | 1u << 8 | 1u << 9 | 1u << 11)

struct flow {
	struct inet_diag_sockid id;
	uint8_t family;
	bool gone;
};

/* Connections by the kernel's cookie. */
struct known {
	uint64_t *cookies;
	uint32_t n;
};

struct sampler {
	struct dp_series *file;
	int netlink;
	uint32_t (*sources)[4]; /* as struct inet_diag_sockid has them */
	uint32_t n_sources, n_rows;
	struct flow *flows;
	uint32_t n_flows, max_flows;
	struct known others; /* connections for which there was no room */
	struct known old;    /* connections that existed at the start: of an earlier run */
	bool starting;
	uint32_t seq;		  /* number of the first of the last requests */
	uint64_t list_ns;	  /* when to look for new connections next */
	struct dp_flow_row *rows; /* rows of the current sample */
	char answer[ANSWER_BYTES];
};

struct request {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "dp-tcp-sampler: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- asking ---------------------------------------------------------------------- */

static struct request request_for(uint8_t family, uint16_t flags)
{
	return (struct request){
		.head = {
			.nlmsg_len = sizeof(struct request),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | flags,
		},
		.body = {
			.sdiag_family = family,
			.sdiag_protocol = IPPROTO_TCP,
			.idiag_ext = 1 << (INET_DIAG_INFO - 1),
			.idiag_states = STATES,
		},
	};
}

/* Numbers the requests, so that late answers to earlier requests are recognised. */
static void ask(struct sampler *s, struct request *requests, uint32_t n)
{
	uint32_t i;

	s->seq += BATCH;
	for (i = 0; i < n; i++)
		requests[i].head.nlmsg_seq = s->seq + i;
	if (send(s->netlink, requests, n * sizeof(*requests), 0) < 0)
		fail("sock_diag");
}

/* Returns the bytes of the answers; 0: no answer came in time. */
static int read_answers(struct sampler *s)
{
	ssize_t got = recv(s->netlink, s->answer, sizeof(s->answer), 0);

	if (got < 0 && errno != EAGAIN)
		fail("sock_diag");
	return got > 0 ? (int)got : 0;
}

/* False: the kernel tells nothing of the connection, for example because it is closed. */
static bool read_info(const struct nlmsghdr *nlh, struct tcp_info *out)
{
	const struct inet_diag_msg *msg = NLMSG_DATA(nlh);
	const char *at = (const char *)(msg + 1), *end = (const char *)nlh + nlh->nlmsg_len;
	const struct nlattr *attr;
	size_t len;

	memset(out, 0, sizeof(*out)); /* an older kernel fills fewer fields */
	for (; at + sizeof(*attr) <= end; at += NLA_ALIGN(attr->nla_len)) {
		attr = (const struct nlattr *)at;
		if (attr->nla_len < sizeof(*attr) || at + attr->nla_len > end)
			return false;
		if (attr->nla_type != INET_DIAG_INFO)
			continue;
		len = attr->nla_len - sizeof(*attr);
		memcpy(out, attr + 1, len < sizeof(*out) ? len : sizeof(*out));
		return true;
	}
	return false;
}

/* ---- new connections -------------------------------------------------------------- */

static uint64_t cookie_of(const struct inet_diag_sockid *id)
{
	return (uint64_t)id->idiag_cookie[1] << 32 | id->idiag_cookie[0];
}

static bool is_ours(const struct sampler *s, const struct inet_diag_sockid *id)
{
	uint32_t i;

	for (i = 0; i < s->n_sources; i++)
		if (!memcmp(s->sources[i], id->idiag_src, sizeof(s->sources[i])))
			return true;
	return false;
}

static bool knows(const struct known *k, uint64_t cookie)
{
	uint32_t i;

	for (i = 0; i < k->n; i++)
		if (k->cookies[i] == cookie)
			return true;
	return false;
}

static void add(struct known *k, uint64_t cookie)
{
	if (k->n < FLOWS_MAX)
		k->cookies[k->n++] = cookie;
}

static void leave_out(struct sampler *s, uint64_t cookie)
{
	if (knows(&s->others, cookie))
		return;
	add(&s->others, cookie);
	dp_series_flows_left_out(s->file, s->others.n);
}

static void learn(struct sampler *s, const struct nlmsghdr *nlh)
{
	const struct inet_diag_msg *msg = NLMSG_DATA(nlh);
	uint64_t cookie = cookie_of(&msg->id);
	struct tcp_info info;
	uint32_t i;

	if (nlh->nlmsg_len < NLMSG_LENGTH(sizeof(*msg)) || !is_ours(s, &msg->id))
		return;
	if (s->starting) {
		add(&s->old, cookie);
		return;
	}
	if (knows(&s->old, cookie) || !read_info(nlh, &info) || info.tcpi_bytes_acked < FLOW_BYTES)
		return;
	for (i = 0; i < s->n_flows; i++)
		if (cookie_of(&s->flows[i].id) == cookie)
			return;
	if (s->n_flows == s->max_flows)
		leave_out(s, cookie);
	else
		s->flows[s->n_flows++] = (struct flow){ msg->id, msg->idiag_family, false };
}

/* True: more answers follow. */
static bool read_list(struct sampler *s)
{
	const struct nlmsghdr *nlh = (const struct nlmsghdr *)s->answer;
	int left = read_answers(s);
	bool more = left > 0;

	for (; NLMSG_OK(nlh, left); nlh = NLMSG_NEXT(nlh, left)) {
		if (nlh->nlmsg_seq != s->seq)
			continue;
		if (nlh->nlmsg_type != SOCK_DIAG_BY_FAMILY)
			return false;
		learn(s, nlh);
	}
	return more;
}

static void list(struct sampler *s)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	struct request request;
	int i;

	for (i = 0; i < 2; i++) {
		request = request_for(families[i], NLM_F_DUMP);
		ask(s, &request, 1);
		while (read_list(s))
			;
	}
}

/* ---- one sample ------------------------------------------------------------------- */

static double in_flight(const struct tcp_info *t)
{
	int64_t packets =
		(int64_t)t->tcpi_unacked - t->tcpi_sacked - t->tcpi_lost + t->tcpi_retrans;

	return packets > 0 ? (double)packets * t->tcpi_snd_mss : 0;
}

static void add_row(struct sampler *s, const struct flow *f, const struct tcp_info *t, uint64_t now)
{
	s->rows[s->n_rows++] = (struct dp_flow_row){
		.time_ns = now,
		.id = ntohs(f->id.idiag_sport),
		.cwnd_bytes = (double)t->tcpi_snd_cwnd * t->tcpi_snd_mss,
		.pacing_rate_bps =
			t->tcpi_pacing_rate == UINT64_MAX ? 0 : (double)t->tcpi_pacing_rate * 8,
		.rtt_ns = t->tcpi_rtt ? t->tcpi_rtt * 1e3 : NAN,
		.min_rtt_ns = t->tcpi_min_rtt && t->tcpi_min_rtt != UINT32_MAX ?
				      t->tcpi_min_rtt * 1e3 :
				      NAN,
		.host_ns = NAN, /* part of rtt_ns */
		.inflight_bytes = in_flight(t),
		.delivered_bytes = (double)t->tcpi_bytes_acked,
		.marked_packets = t->tcpi_delivered_ce,
		.retransmitted_packets = t->tcpi_total_retrans,
		.sent_packets = t->tcpi_data_segs_out,
	};
}

/* Each request has one answer, with its number.  Returns how many of the n answers have come. */
static uint32_t read_flows(struct sampler *s, uint32_t from, uint32_t n, uint64_t now)
{
	const struct nlmsghdr *nlh = (const struct nlmsghdr *)s->answer;
	uint32_t index, came = 0;
	int left = read_answers(s);
	struct tcp_info info;
	struct flow *f;

	if (!left)
		return n;
	for (; NLMSG_OK(nlh, left); nlh = NLMSG_NEXT(nlh, left)) {
		index = nlh->nlmsg_seq - s->seq;
		if (index >= n)
			continue;
		f = &s->flows[from + index];
		came++;
		if (nlh->nlmsg_type == SOCK_DIAG_BY_FAMILY && read_info(nlh, &info))
			add_row(s, f, &info, now);
		else
			f->gone = true;
	}
	return came;
}

static void ask_for_flows(struct sampler *s, uint32_t from, uint32_t n)
{
	struct request requests[BATCH];
	uint64_t now = dp_now_ns();
	uint32_t i;

	for (i = 0; i < n; i++) {
		requests[i] = request_for(s->flows[from + i].family, 0);
		requests[i].body.id = s->flows[from + i].id;
	}
	ask(s, requests, n);
	for (i = 0; i < n; i += read_flows(s, from, n, now))
		;
}

static void forget_gone(struct sampler *s)
{
	uint32_t i, kept = 0;

	for (i = 0; i < s->n_flows; i++)
		if (!s->flows[i].gone)
			s->flows[kept++] = s->flows[i];
	s->n_flows = kept;
}

static void sample(struct sampler *s, uint64_t now)
{
	uint32_t i, n;
	int err;

	if (now >= s->list_ns) {
		list(s);
		s->list_ns = now + LIST_NS;
	}
	s->n_rows = 0;
	for (i = 0; i < s->n_flows; i += n) {
		n = s->n_flows - i < BATCH ? s->n_flows - i : BATCH;
		ask_for_flows(s, i, n);
	}
	forget_gone(s);
	err = s->n_rows ? dp_series_append(s->file, s->rows, s->n_rows) : 0;
	if (err)
		fprintf(stderr, "dp-tcp-sampler: cannot write: %s\n", strerror(-err));
}

/* ---- the program ------------------------------------------------------------------- */

static uint64_t number(const char *text, uint64_t min, uint64_t max)
{
	uint64_t value;

	if (dp_read_number(text, min, max, &value)) {
		errno = EINVAL;
		fail(text);
	}
	return value;
}

/* An IPv4 address also stands for its mapped form on IPv6 sockets. */
static void add_source(struct sampler *s, const char *text)
{
	uint32_t *plain = s->sources[s->n_sources++], *mapped;

	if (inet_pton(AF_INET6, text, plain) == 1)
		return;
	errno = EINVAL;
	if (inet_pton(AF_INET, text, plain) != 1)
		fail(text);
	mapped = s->sources[s->n_sources++];
	mapped[2] = htonl(0xffff);
	mapped[3] = plain[0];
}

static void open_all(struct sampler *s, char **argv, uint64_t interval_ns)
{
	const struct dp_series_info info = {
		.kind = DP_SERIES_FLOWS,
		.name = "tcp",
		.columns = dp_flow_columns,
		.n_columns = DP_FLOW_N_COLUMNS,
		.interval_ns = interval_ns,
		.max_bytes = number(argv[4], 1, UINT64_MAX),
	};
	const struct timeval second = { .tv_sec = 1 };
	int err, i;

	s->max_flows = (uint32_t)number(argv[3], 1, FLOWS_MAX);
	s->flows = calloc(s->max_flows, sizeof(*s->flows));
	s->rows = calloc(s->max_flows, sizeof(*s->rows));
	s->others.cookies = calloc(FLOWS_MAX, sizeof(uint64_t));
	s->old.cookies = calloc(FLOWS_MAX, sizeof(uint64_t));
	for (i = 5; argv[i]; i++)
		;
	s->sources = calloc(2 * (size_t)i, sizeof(*s->sources));
	if (!s->flows || !s->old.cookies || !s->others.cookies || !s->rows || !s->sources)
		fail("memory");
	for (i = 5; argv[i]; i++)
		add_source(s, argv[i]);
	s->netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (s->netlink < 0 ||
	    setsockopt(s->netlink, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second)))
		fail("sock_diag");
	s->starting = true;
	list(s);
	s->starting = false;
	err = dp_series_open(argv[1], &info, &s->file);
	if (err) {
		errno = -err;
		fail(argv[1]);
	}
}

int main(int argc, char **argv)
{
	static struct sampler s;
	uint64_t interval, next, now;
	struct timespec ts;

	if (argc < 6) {
		fprintf(stderr,
			"usage: dp-tcp-sampler FILE INTERVAL_NS FLOWS MAX_BYTES ADDRESS...\n");
		return 2;
	}
	interval = number(argv[2], 100000, UINT64_MAX / 4);
	open_all(&s, argv, interval);
	prctl(PR_SET_TIMERSLACK, 1000UL);
	for (next = dp_now_ns();;) {
		now = dp_now_ns();
		if (now >= next) {
			sample(&s, now);
			next += interval * ((now - next) / interval + 1);
		}
		ts.tv_sec = (time_t)(next / 1000000000);
		ts.tv_nsec = (long)(next % 1000000000);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	}
}
