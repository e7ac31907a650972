// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Commands, one a line, words separated by tabs; each is answered by one line that begins
 * with "ok" or "error".
 *
 *   network <port> <ecn 0|1> <algorithm|->
 *   cards <guests' MTU> <pipes of a tunnel> <ns to coalesce>
 *   host <name> <address>              the first one is this host
 *   rate <bit/s>                       of all frames that leave the card; 0: no limit
 *   class <name> <share>               the first one has all ports that no class names
 *   tenant <VNI> <share>               of a guest on this host
 *   guest <VNI> <MAC> <host> <IPv4|-> <IPv6|-> <device|->
 *   recover <udp|tcp> <port>           of source or destination
 *   assign <udp|tcp> <port> <class>    by its number
 *   start                              after these; ok <description in JSON>
 *   offer <host>                       ok <QPN>:<PSN> ...   makes QPs anew
 *   connect <host> <QPN>:<PSN> ...     ok, or: again
 *   disconnect <host>
 *   state, counters                    a JSON object
 *   clear                              sets the counters of tenants to zero
 *   sample <ns> <bytes> <files> <prefix>   interval, most bytes of a file, most files; without
 *                                      words: no more samples
 *
 * Hosts and classes are numbers, in the order in which they were named.
 * <share>: <weight> <guaranteed bit/s> <largest bit/s>; 0: none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/addr.h"
#include "posix/number.h"
#include "vnic/card.h"
#include "wire/headers.h"

enum { WORDS_MAX = PIPES_MAX + 2, QPN_MAX = 0xffffff };
#define RATE_MAX 10000000000000ull
#define COALESCE_MAX_NS 10000000
#define SAMPLE_MIN_NS 100000

struct words {
	char *word[WORDS_MAX];
	unsigned n;
};

static int failed(int err, const char *why)
{
	printf("error %s\n", *why ? why : strerror(-err));
	return err;
}

static int bad(const char *what)
{
	return failed(-EINVAL, what);
}

static bool is_none(const char *word)
{
	return !strcmp(word, "-");
}

/* ---- before the start ------------------------------------------------------------------ */

static int network(struct card *card, struct words *w)
{
	struct card_options opt = { .port = w->word[1] };
	char why[512] = "";
	int err;

	if (w->n != 4 || card->device)
		return bad("network <port> <ecn> <algorithm>, once");
	opt.ecn = w->word[2][0] == '1';
	opt.cc = is_none(w->word[3]) ? NULL : w->word[3];
	err = card_open_network(card, &opt, why, sizeof(why));
	return err ? failed(err, why) : 0;
}

static int cards(struct card *card, struct words *w)
{
	if (w->n != 4 || dp_read_u32(w->word[1], 576, FRAME_MAX - ETH_LEN, &card->mtu) ||
	    dp_read_u32(w->word[2], 1, PIPES_MAX, &card->n_pipes) ||
	    dp_read_number(w->word[3], 0, COALESCE_MAX_NS, &card->coalesce_ns))
		return bad("cards <MTU> <pipes> <ns to coalesce>");
	return 0;
}

static int host(struct card *card, struct words *w)
{
	struct host *h = &card->host[card->n_hosts];

	if (w->n != 3 || card->n_hosts == HOSTS_MAX || strlen(w->word[1]) >= sizeof(h->name) ||
	    dp_addr_parse(w->word[2], &h->addr))
		return bad("host <name> <address>");
	if (table_host(card, &h->addr) != NOBODY)
		return bad("another host has this address");
	strcpy(h->name, w->word[1]);
	card->n_hosts++;
	return 0;
}

static int rate(struct card *card, struct words *w)
{
	if (w->n != 2 || dp_read_number(w->word[1], 0, RATE_MAX, &card->rate.bps))
		return bad("rate <bit/s>");
	return 0;
}

static int read_share(char *const *word, struct share *out)
{
	return dp_read_u32(word[0], 1, SHARE_WEIGHT_MAX, &out->weight) ||
			       dp_read_number(word[1], 0, RATE_MAX, &out->least.bps) ||
			       dp_read_number(word[2], 0, RATE_MAX, &out->most.bps) ?
		       -EINVAL :
		       0;
}

static int class(struct card *card, struct words *w)
{
	struct class *c = &card->class[card->n_classes];

	if (w->n != 5 || card->n_classes == CLASSES_MAX || strlen(w->word[1]) >= sizeof(c->name) ||
	    read_share(&w->word[2], &c->share))
		return bad("class <name> <weight> <guaranteed bit/s> <largest bit/s>");
	strcpy(c->name, w->word[1]);
	card->n_classes++;
	return 0;
}

static uint16_t tenant_of(const struct card *card, uint32_t vni)
{
	for (uint32_t i = 0; i < card->n_tenants; i++)
		if (card->tenant[i].vni == vni)
			return (uint16_t)i;
	return NOBODY;
}

static int tenant(struct card *card, struct words *w)
{
	struct tenant *t = &card->tenant[card->n_tenants];

	if (w->n != 5 || card->n_tenants == LOCAL_MAX ||
	    dp_read_u32(w->word[1], 0, VNI_MAX, &t->vni) || read_share(&w->word[2], &t->share) ||
	    tenant_of(card, t->vni) != NOBODY)
		return bad("tenant <VNI> <weight> <guaranteed bit/s> <largest bit/s>");
	card->n_tenants++;
	return 0;
}

static int read_mac(const char *text, uint8_t *mac)
{
	unsigned b[MAC_LEN];
	char rest;

	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", b, b + 1, b + 2, b + 3, b + 4, b + 5,
		   &rest) != MAC_LEN)
		return -EINVAL;
	for (unsigned i = 0; i < MAC_LEN; i++)
		mac[i] = (uint8_t)b[i];
	return is_group_mac(mac) ? -EINVAL : 0;
}

static int read_addr(const char *word, bool v4, struct dp_addr *out)
{
	if (is_none(word))
		return 0;
	return dp_addr_parse(word, out) || dp_addr_is_v4(out) != v4 ? -EINVAL : 0;
}

static int guest(struct card *card, struct words *w)
{
	struct guest g = {};
	uint32_t at_host;
	int err;

	if (w->n != 7 || dp_read_u32(w->word[1], 0, VNI_MAX, &g.vni) ||
	    read_mac(w->word[2], g.mac) || !card->n_hosts ||
	    dp_read_u32(w->word[3], 0, card->n_hosts - 1, &at_host) ||
	    read_addr(w->word[4], true, &g.ipv4) || read_addr(w->word[5], false, &g.ipv6))
		return bad("guest <VNI> <MAC> <host> <IPv4> <IPv6> <device>");
	g.host = (uint16_t)at_host;
	link_local_address(g.mac, &g.link_local);
	if (!is_none(w->word[6])) {
		struct dp_raw_port *p = &card->port[card->n_local];

		if (card->n_local == LOCAL_MAX || strlen(w->word[6]) >= sizeof(p->name))
			return bad("too many guests on this host, or too long a name of a device");
		strcpy(p->name, w->word[6]);
		g.port = p;
		g.tenant = tenant_of(card, g.vni);
		if (g.tenant == NOBODY)
			return bad("a guest of this host comes after its tenant");
	}
	err = table_add(card, &g);
	if (err)
		return failed(err, err == -EEXIST ? "the tenant has this address twice" : "");
	if (g.port)
		card->local[card->n_local++] = (uint16_t)(card->n_guests - 1);
	return 0;
}

static int recover(struct card *card, struct words *w)
{
	uint32_t port;
	uint8_t *ports;

	if (w->n != 3 || dp_read_u32(w->word[2], 1, UINT16_MAX, &port))
		return bad("recover <udp|tcp> <port>");
	ports = strcmp(w->word[1], "tcp") ? card->udp_recovered : card->tcp_recovered;
	ports[port / 8] |= (uint8_t)(1u << port % 8);
	return 0;
}

static int assign(struct card *card, struct words *w)
{
	uint32_t port, number;

	if (w->n != 4 || !card->n_classes || dp_read_u32(w->word[2], 1, UINT16_MAX, &port) ||
	    dp_read_u32(w->word[3], 0, card->n_classes - 1, &number))
		return bad("assign <udp|tcp> <port> <class>");
	(strcmp(w->word[1], "tcp") ? card->udp_class : card->tcp_class)[port] = (uint8_t)number;
	return 0;
}

static int start(struct card *card, struct words *w)
{
	char why[512] = "";
	int err;

	(void)w;
	if (card->started || !card->device || card->n_hosts < 1 || !card->mtu || !card->n_classes)
		return bad("start comes once, after network, cards, class and host");
	err = card_start(card, why, sizeof(why));
	return err ? failed(err, why) : 0;
}

/* ---- tunnels --------------------------------------------------------------------------- */

static int read_peer(const struct card *card, const struct words *w, uint16_t *out)
{
	uint32_t index;

	if (w->n < 2 || !card->started || dp_read_u32(w->word[1], 0, card->n_hosts - 1, &index) ||
	    index == card->self)
		return bad("not another host, or not started");
	*out = (uint16_t)index;
	return 0;
}

static int offer(struct card *card, struct words *w)
{
	uint16_t index;
	int err = read_peer(card, w, &index);

	if (err)
		return err;
	err = tunnel_offer(card, index);
	if (err)
		return failed(err, "");
	printf("ok");
	for (uint32_t i = 0; i < card->n_pipes; i++) {
		const struct pipe *p = &card->host[index].pipe[i];

		printf("%c%u:%u", i ? ' ' : '\t', dp_qp_qpn(p->qp), p->psn);
	}
	printf("\n");
	return 1;
}

static int connect_to(struct card *card, struct words *w)
{
	struct pipe_end ends[PIPES_MAX] = {};
	uint16_t index;
	int err = read_peer(card, w, &index);

	if (err)
		return err;
	if (w->n != card->n_pipes + 2)
		return bad("another number of pipes than the card's");
	for (uint32_t i = 0; i < card->n_pipes; i++) {
		char *psn = w->word[i + 2], *qpn = strsep(&psn, ":");

		if (!psn || dp_read_u32(qpn, 2, QPN_MAX, &ends[i].qpn) ||
		    dp_read_u32(psn, 0, DP_PSN_MASK, &ends[i].psn))
			return bad("<QPN>:<PSN>");
	}
	err = tunnel_connect(card, index, ends);
	if (err == -EAGAIN) {
		printf("again\n");
		return 1;
	}
	return err ? failed(err, "") : 0;
}

static int disconnect(struct card *card, struct words *w)
{
	uint16_t index;
	int err = read_peer(card, w, &index);

	if (!err)
		tunnel_close(card, index);
	return err;
}

/* ---- all ---------------------------------------------------------------------------------- */

static int state(struct card *card, struct words *w)
{
	(void)w;
	report_state(card, stdout);
	return 1;
}

static int counters(struct card *card, struct words *w)
{
	(void)w;
	report_counters(card, stdout);
	return 1;
}

static int clear(struct card *card, struct words *w)
{
	(void)w;
	queue_clear(card);
	return 0;
}

static int sample(struct card *card, struct words *w)
{
	struct sample_options o = {};
	int err;

	if (w->n == 1) {
		sample_end(card);
		return 0;
	}
	if (w->n != 5 || !card->started ||
	    dp_read_number(w->word[1], SAMPLE_MIN_NS, UINT64_MAX, &o.interval_ns) ||
	    dp_read_number(w->word[2], 1, UINT64_MAX, &o.max_bytes) ||
	    dp_read_u32(w->word[3], 1, UINT32_MAX, &o.most))
		return bad("sample <ns> <bytes> <files> <prefix>");
	o.prefix = w->word[4];
	err = sample_begin(card, &o);
	return err ? failed(err, "") : 0;
}

/* run() returns 0: answer "ok"; 1: it has answered itself; -errno: it has told an error. */
static const struct {
	const char *name;
	int (*run)(struct card *, struct words *);
} commands[] = {
	{ "network", network },	      { "cards", cards },     { "rate", rate },
	{ "class", class },	      { "tenant", tenant },   { "host", host },
	{ "guest", guest },	      { "recover", recover }, { "assign", assign },
	{ "start", start },	      { "offer", offer },     { "connect", connect_to },
	{ "disconnect", disconnect }, { "state", state },     { "counters", counters },
	{ "clear", clear },	      { "sample", sample },
};

static void command(void *user, char *line)
{
	struct card *card = user;
	struct words w = {};
	size_t i;

	while (line && w.n < WORDS_MAX)
		w.word[w.n++] = strsep(&line, "\t");
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(w.word[0], commands[i].name))
			break;
	if (i == sizeof(commands) / sizeof(commands[0]))
		bad("no such command");
	else if (!commands[i].run(card, &w))
		printf("ok\n");
	fflush(stdout);
}

void control_read(struct card *card)
{
	if (!dp_lines_read(&card->lines, STDIN_FILENO, command, card))
		card->quit = true;
}
