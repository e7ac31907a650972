// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The in-band negotiation of two ends: extended mode, window and features by HELLO; the payload
 * bytes of a packet by PROBE (docs/extended-mode.md).
 */
#include "engine/rc/negotiate.h"
#include "engine/rc/credit.h"
#include "engine/rc/packets.h"
#include "engine/rc/probed.h"
#include "engine/rc/stray.h"

#define HELLO_FIRST_NS 500000ull
#define HELLO_LONGEST_NS 250000000ull
/* What is allowed for a HELLO and its reply, in both hosts. */
#define HELLO_WORK_NS 20000ull
/* QPs that connect within this time count as many at once. */
#define CONNECTS_NS 1000000000ull
/* A reply tells what a HELLO does, except when the peer's connection began (stray.h).  After so many
 * HELLOs without one of the peer the reply to the next is enough: those of the peer may all be
 * lost, or it may send none. */
#define TRIES_FOR_HELLO 4
/* HELLOs by which the ends of a QP look for source ports, at most. */
#define SPORT_TRIES 64
/* A longer RTT than this is an error of measurement. */
#define HELLO_RTT_MAX_NS 1000000000u

static void count_connect(struct dp_connects *c, uint64_t now)
{
	uint64_t past_ns = now - c->since_ns;

	if (past_ns >= CONNECTS_NS) {
		c->n_before = past_ns < 2 * CONNECTS_NS ? c->n : 0;
		c->n = 0;
		c->since_ns = now;
	}
	c->n++;
}

void dp_negotiate_start(struct dp_rc *rc, uint64_t now)
{
	count_connect(&rc->qp.engine->connects, now);
	rc->hello_tries = rc->qp.engine->cfg.extended ? DP_HELLO_TRIES : 0;
	rc->hello_ns = rc->hello_tries ? now + 1 : 0;
}

/* The features that this end offers.  A packet of the path MTU and the room for telemetry have to
 * fit together. */
static uint32_t features_of(const struct dp_rc *rc)
{
	const struct dp_engine_config *cfg = &rc->qp.engine->cfg;
	bool fits = !cfg->segment_max ||
		    cfg->segment_max >= rc->qp.attr.path_mtu + dp_room_len(DP_HOPS_MAX);

	return (cfg->telemetry && fits ? DP_FEATURE_TELEMETRY : 0) |
	       (rc->grants ? DP_FEATURE_GRANTS : 0) | (cfg->paths > 1 ? DP_FEATURE_PATHS : 0);
}

static struct dp_hello hello_of(const struct dp_rc *rc, uint32_t ts_ns)
{
	return (struct dp_hello){
		.version = DP_EXT_VERSION,
		.window_psns = rc->qp.engine->cfg.window_psns,
		.features = features_of(rc),
		.qpn = rc->qp.qpn,
		.segment = (uint16_t)dp_segment_limit(rc),
		.handed_on = rc->handed_on,
		.ts_ns = ts_ns,
	};
}

static uint32_t room_len(const struct dp_rc *rc)
{
	return rc->telemetry ? dp_room_len(DP_HOPS_MAX) : 0;
}

/* Packets longer than the path MTU are used only when the path has carried one there and one
 * back. */
static void start_probe(struct dp_rc *rc, uint32_t peer_segment, uint64_t now)
{
	uint32_t segment = dp_segment_limit(rc);

	if (segment > peer_segment)
		segment = peer_segment & ~3u;
	if (segment <= rc->qp.attr.path_mtu)
		return;
	rc->probe = (uint16_t)segment;
	rc->probing = true;
	rc->hello_tries = DP_PROBE_TRIES;
	rc->hello_ns = now;
}

/* NCCL spins on 8 aligned bytes in place, of which 4 say that the others are there: no packet may
 * end between them. */
static void end_probe(struct dp_rc *rc, bool carried)
{
	uint32_t segment = (rc->probe - room_len(rc)) & ~7u;

	if (!carried)
		rc->telemetry = false;
	else if (segment > rc->qp.attr.path_mtu)
		rc->segment = (uint16_t)segment;
	rc->probing = false;
	rc->hello_ns = 0;
}

/* Notes a measured RTT of small packets.  Until data is acknowledged, nothing else is known of the
 * path. */
static void note_rtt(struct dp_rc *rc, uint64_t rtt_ns)
{
	if (rtt_ns <= HELLO_RTT_MAX_NS)
		rc->hello_rtt_ns = (uint32_t)rtt_ns;
}

/* The first HELLO of the peer, or a reply in its place. */
static void accept_hello(struct dp_rc *rc, const struct dp_hello *hello, uint64_t now)
{
	/* The requester changes its mode only after this, so nothing of the extended window is in
	 * flight yet. */
	while (rc->window > hello->window_psns)
		rc->window >>= 1;
	rc->hello_done = true;
	rc->peer_paths = hello->features & DP_FEATURE_PATHS;
	rc->telemetry = hello->features & features_of(rc) & DP_FEATURE_TELEMETRY;
	if (hello->features & DP_FEATURE_GRANTS)
		dp_credit_open(rc);
	rc->hello_ns = 0;
	start_probe(rc, hello->segment, now);
}

static void ask_again(struct dp_rc *rc)
{
	if (rc->sport_tries == SPORT_TRIES)
		return;
	rc->sport_tries++;
	rc->hello_again = true;
	dp_qp_wake(&rc->qp);
}

/*
 * The packets of an end come to whichever queue the other host's network device chooses by the UDP
 * source port.  If they are handed on from there, the end tries the next source port.
 */
static void choose_sport(struct dp_rc *rc, const struct dp_hello *hello, const struct dp_parsed *p)
{
	rc->handed_on = p->handed_on;
	if (hello->handed_on)
		dp_qp_next_sport(&rc->qp);
	if (p->opcode != DP_OP_HELLO_REPLY)
		return;
	if (rc->hello_extra)
		rc->hello_extra = false;
	else if (p->handed_on || hello->handed_on)
		ask_again(rc);
}

/* Where a HELLO was lost, packets are still handed on after it: some of them begin anew. */
void dp_negotiate_handed_on(struct dp_rc *rc)
{
	if (!rc->hello_done || ++rc->n_handed_on)
		return;
	rc->handed_on = true;
	ask_again(rc);
}

static uint32_t tried(const struct dp_rc *rc)
{
	return DP_HELLO_TRIES - rc->hello_tries;
}

static void hello_rx(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	struct dp_hello hello;

	dp_hello_get(p->hello, &hello);
	if (hello.version != DP_EXT_VERSION || hello.qpn != rc->qp.attr.dest_qpn ||
	    hello.window_psns < DP_WINDOW_MIN)
		return;
	if (p->opcode == DP_OP_HELLO_REPLY && dp_is_stray_echo(rc, hello.ts_ns, now))
		return;
	choose_sport(rc, &hello, p);
	if (p->opcode == DP_OP_HELLO) {
		rc->hello_reply = true;
		rc->hello_ts = hello.ts_ns;
		dp_stray_hello(rc, hello.ts_ns);
		if (!rc->hello_heard) { /* the peer may not have been there for the others */
			rc->hello_extra = true;
			rc->hello_again = true;
		}
	} else {
		rc->hello_heard = true;
		note_rtt(rc, (uint32_t)now - hello.ts_ns);
		if (rc->sender)
			rc->sender->heard_ns = now;
	}
	dp_qp_wake(&rc->qp);
	if (!rc->hello_done && (p->opcode == DP_OP_HELLO || tried(rc) > TRIES_FOR_HELLO))
		accept_hello(rc, &hello, now);
}

void dp_qp_agree(struct dp_qp *qp, const struct dp_qp *peer, uint64_t rtt_ns, uint64_t now)
{
	struct dp_hello hello = hello_of(dp_rc_of_const(peer), 0);
	struct dp_rc *rc = dp_rc_of(qp);

	/* Computed, not measured, so there is no limit to it but the field's. */
	rc->hello_rtt_ns = rtt_ns < UINT32_MAX ? (uint32_t)rtt_ns : UINT32_MAX;
	accept_hello(rc, &hello, now);
	if (rc->probing)
		end_probe(rc, true);
	rc->young = false; /* no connection was before this one */
	dp_qp_wake(qp);
}

void dp_negotiate_again(struct dp_rc *rc, uint64_t now)
{
	if (rc->hello_done || rc->hello_ns)
		return;
	rc->hello_tries = DP_HELLO_TRIES;
	rc->hello_ns = now;
	dp_qp_wake(&rc->qp);
}

void dp_hello_once(struct dp_rc *rc, uint64_t now)
{
	rc->hello_tries = 1;
	rc->hello_ns = now;
}

static void probe_rx(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	uint32_t len = p->payload_len + p->payload2_len;
	uint32_t segment = len - DP_PROBE_EXTRA;

	if (len <= DP_PROBE_EXTRA || segment & 3 || segment > dp_segment_limit(rc))
		return;
	if (p->opcode == DP_OP_PROBE) {
		rc->probe_reply = (uint16_t)segment;
	} else if (segment == rc->probe) {
		dp_probed_learns(rc, true, now);
		end_probe(rc, true);
	}
	dp_qp_wake(&rc->qp);
}

/* That the peer's last one was handed on is told once: each time the peer tries another source
 * port. */
static void say_hello(struct dp_rc *rc, uint8_t opcode, uint32_t ts_ns, struct dp_packet *pkt)
{
	struct dp_hello hello = hello_of(rc, ts_ns);

	rc->handed_on = false;
	dp_build_hello(rc, opcode, &hello, pkt);
}

/* What the peer waits for. */
static int owed_tx(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	if (rc->hello_reply) {
		rc->hello_reply = false;
		say_hello(rc, DP_OP_HELLO_REPLY, rc->hello_ts, pkt);
		return 1;
	}
	if (rc->hello_again) {
		rc->hello_again = false;
		say_hello(rc, DP_OP_HELLO, (uint32_t)now, pkt);
		return 1;
	}
	if (!rc->probe_reply)
		return 0;
	dp_build_probe(rc, DP_OP_PROBE_REPLY, rc->probe_reply, pkt);
	rc->probe_reply = 0;
	return 1;
}

/* Counts a try of `most`, and sets the time of the next one: `first_ns` after the first, then twice as
 * long each time. */
static void note_try(struct dp_rc *rc, uint32_t most, uint64_t first_ns, uint64_t now)
{
	uint64_t wait = first_ns << (most - rc->hello_tries);

	rc->hello_tries--;
	rc->hello_ns = now + (wait < HELLO_LONGEST_NS ? wait : HELLO_LONGEST_NS);
}

/* Where thousands of QPs connect at once, the answers take their time.  HELLOs sent again meanwhile
 * would delay them further. */
static uint64_t first_wait_ns(const struct dp_rc *rc)
{
	const struct dp_connects *c = &rc->qp.engine->connects;
	uint64_t work_ns = (c->n > c->n_before ? c->n : c->n_before) * HELLO_WORK_NS;

	return work_ns > HELLO_FIRST_NS ? work_ns : HELLO_FIRST_NS;
}

static int hello_tx(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	if (!rc->hello_tries) { /* no answer to any of the tries */
		rc->hello_ns = 0;
		return 0;
	}
	note_try(rc, DP_HELLO_TRIES, first_wait_ns(rc), now);
	say_hello(rc, DP_OP_HELLO, (uint32_t)now, pkt);
	return 1;
}

static int probe_tx(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	uint64_t first_ns = first_wait_ns(rc);

	switch (dp_probed(rc, now)) {
	case DP_PROBED_BY_OTHER:
		rc->hello_ns = now + first_ns;
		return 0;
	case DP_PROBED_GOOD:
		end_probe(rc, true);
		return 0;
	case DP_PROBED_BAD:
		end_probe(rc, false);
		return 0;
	case DP_PROBED_NOT:
		break;
	}
	if (!rc->hello_tries) {
		dp_probed_learns(rc, false, now);
		end_probe(rc, false);
		return 0;
	}
	note_try(rc, DP_PROBE_TRIES, first_ns, now);
	dp_probed_asks(rc, rc->hello_ns);
	dp_build_probe(rc, DP_OP_PROBE, rc->probe, pkt);
	return 1;
}

void dp_negotiate_rx(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	if (p->hello)
		hello_rx(rc, p, now);
	else
		probe_rx(rc, p, now);
}

int dp_negotiate_tx(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	if (owed_tx(rc, pkt, now))
		return 1;
	if (!rc->hello_ns || now < rc->hello_ns)
		return 0;
	return rc->probing ? probe_tx(rc, pkt, now) : hello_tx(rc, pkt, now);
}
