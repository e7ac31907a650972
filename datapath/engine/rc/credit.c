// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/credit.h"

#include "engine/build.h"
#include "engine/rc/packets.h"
#include "engine/rc/requester.h"
#include "engine/rc/scoreboard.h"
#include "wire/trim.h"

enum {
	LOOKED_AT = 64,	 /* requests and lost packets whose bytes a DEMAND counts */
	AHEAD = 16,	 /* while more segments of the last DEMAND wait for grants, none is due */
	UNANSWERED = 12, /* after so many DEMANDs without an answer nothing waits for grants */
	DOUBLINGS = 2,
};

#define ASK_FIRST_NS 200000ull
#define DEMAND_MAX (1u << 30)

/* ---- the sender of data ------------------------------------------------------------------ */

void dp_credit_open(struct dp_rc *rc)
{
	if (!rc->credit) {
		rc->credit = calloc(1, sizeof(*rc->credit));
		if (rc->credit)
			rc->credit->dscp = DP_GRANT_OWN_DSCP;
	}
	if (rc->flow)
		rc->flow->needs_grants = rc->credit;
}

void dp_credit_close(struct dp_rc *rc)
{
	free(rc->credit);
	rc->credit = NULL;
	if (rc->flow)
		rc->flow->needs_grants = false;
}

void dp_credit_stop(struct dp_rc *rc)
{
	struct dp_credit *c = rc->credit;

	if (c)
		*c = (struct dp_credit){
			.sent = c->sent,
			.granted = c->granted,
			.told = c->told,
			.rtt_ns = c->rtt_ns,
			.dscp = c->dscp,
			.number = c->number,
			.heard = c->heard,
		};
}

/* Bytes that are still to be sent, as far as a DEMAND counts them. */
static uint32_t backlog(const struct dp_rc *rc)
{
	const struct dp_tx_block *b = rc->req.block;
	uint32_t i = rc->qp.sq_tx, end = dp_send_limit(rc), n, at;
	uint64_t bytes = 0;

	for (n = 0; n < LOOKED_AT && i != end; n++, i++) {
		const struct dp_swqe *wqe = dp_sq(&rc->qp, i);

		if (dp_is_answered(wqe->opcode))
			continue;
		bytes += wqe->len - (n ? 0 : dp_offset_of(rc, wqe, rc->req.snd_nxt));
	}
	for (n = 0, at = b ? b->lost.head : DP_NIL; n < LOOKED_AT && at != DP_NIL; n++) {
		bytes += dp_rec(b, at)->response ? 0 : dp_rec(b, at)->len;
		at = dp_rec(b, at)->next;
	}
	return bytes < DEMAND_MAX ? (uint32_t)bytes : DEMAND_MAX;
}

/* When a DEMAND is repeated. */
static uint64_t patience_ns(const struct dp_rc *rc, uint64_t now)
{
	uint64_t rtt = rc->flow->rtt.srtt_ns ? rc->flow->rtt.srtt_ns + rc->flow->rtt.host_ns :
					       rc->hello_rtt_ns;
	uint64_t wait = 4 * rtt > ASK_FIRST_NS ? 4 * rtt : ASK_FIRST_NS;
	uint8_t asked = rc->credit->asked;

	return now + (wait << (asked < DOUBLINGS ? asked : DOUBLINGS));
}

bool dp_credit_allows(struct dp_rc *rc, uint32_t bytes, uint64_t now)
{
	struct dp_credit *c = rc->credit;
	uint64_t wanted;

	/* A grant may end within a packet.  If it had to cover the packet, its rest would be of no use,
	 * and the receiver might wait for it to be used. */
	if (!c || !bytes || c->sent < c->granted)
		return true;
	if (c->silent) { /* the peer gets another DEMAND now and then */
		if (!c->ask_ns)
			c->ask_ns = patience_ns(rc, now);
		return true;
	}
	if ((double)(rc->flow->inflight_bytes + bytes) <= dp_flow_unscheduled_bytes(rc->flow))
		return true;
	wanted = c->sent + backlog(rc);
	if (wanted > c->told && c->told <= c->granted + AHEAD * rc->req.segment)
		c->due = true;
	if (!c->ask_ns)
		c->ask_ns = patience_ns(rc, now);
	return false;
}

void dp_credit_sent(struct dp_rc *rc, uint32_t bytes, struct dp_packet *pkt)
{
	struct dp_credit *c = rc->credit;

	if (!c)
		return;
	if (c->sent < c->granted && c->dscp != DP_GRANT_OWN_DSCP)
		pkt->tos = (uint8_t)(c->dscp << 2 | (pkt->tos & DP_ECN_MASK));
	c->sent += bytes;
	if (!c->silent)
		c->ask_ns = c->asked = 0;
}

double dp_credit_left(const struct dp_rc *rc)
{
	const struct dp_credit *c = rc->credit;

	return c && c->granted > c->sent ? (double)(c->granted - c->sent) : 0;
}

static void demand(struct dp_rc *rc, struct dp_packet *pkt, uint32_t wants, uint64_t now)
{
	struct dp_credit *c = rc->credit;
	uint64_t flying = rc->flow->inflight_bytes < c->sent ? rc->flow->inflight_bytes : c->sent;
	struct dp_demand d = {
		.settled = (uint32_t)(c->sent - flying),
		.wanted = (uint32_t)c->sent + wants,
		.rtt_ns = (uint32_t)c->rtt_ns,
		.number = c->number,
		.heard = c->heard,
	};

	c->told_ns = c->told == c->sent + wants ? 0 : now;
	c->told = c->sent + wants;
	dp_build_start(rc, pkt, DP_OP_DEMAND, 0, 0, 0, 0);
	dp_demand_set(dp_packet_push(pkt, DP_DEMAND_LEN), &d);
	dp_packet_end(&rc->qp, pkt);
}

int dp_credit_tx(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	struct dp_credit *c = rc->credit;
	uint32_t wants;

	if (!c || !c->due)
		return 0;
	c->due = false;
	wants = backlog(rc);
	if (!wants && !c->silent) /* a silent peer is asked whether it is back */
		return 0;
	c->ask_ns = wants ? patience_ns(rc, now) : 0;
	if (c->asked < UINT8_MAX)
		c->asked++;
	demand(rc, pkt, wants, now);
	return 1;
}

void dp_credit_tick(struct dp_rc *rc, uint64_t now)
{
	struct dp_credit *c = rc->credit;

	if (!c || !dp_has_expired(rc, c->ask_ns, now))
		return;
	c->ask_ns = 0;
	c->due = true;
	if (c->unanswered < UNANSWERED)
		c->unanswered++;
	else
		c->silent = true;
	dp_qp_wake(&rc->qp);
}

/* A GRANT that knows what the last DEMAND told has come after it. */
static void note_rtt(struct dp_credit *c, uint32_t wanted, uint64_t now)
{
	uint64_t rtt = now - c->told_ns;

	if (!c->told_ns || wanted != (uint32_t)c->told)
		return;
	c->told_ns = 0;
	if (rtt <= UINT32_MAX && (!c->rtt_ns || rtt < c->rtt_ns))
		c->rtt_ns = rtt;
}

/* A packet with payload and the DSCP of trimmed packets is taken for one. */
static bool is_usable(uint8_t dscp)
{
	return dscp < 64 && dscp != DP_DSCP_TRIMMED;
}

/* The peer cannot grant more than this end has asked for. */
static void granted_rx(struct dp_rc *rc, const struct dp_grant *g, uint64_t now)
{
	struct dp_credit *c = rc->credit;
	uint64_t granted;

	if (!c)
		return;
	note_rtt(c, g->wanted, now);
	granted = c->sent + (uint64_t)(int64_t)(int32_t)(g->granted - (uint32_t)c->sent);
	if (granted > c->told)
		granted = granted > c->sent + INT32_MAX ? c->granted : c->told;
	if (granted >= c->granted)
		c->dscp = is_usable(g->dscp) ? g->dscp : DP_GRANT_OWN_DSCP;
	c->unanswered = 0;
	c->silent = false;
	if (granted <= c->granted)
		return;
	c->granted = granted;
	if (c->ask_ns)
		c->ask_ns = patience_ns(rc, now);
	dp_requester_wake(rc);
}

/* The peer adjusts the rate of its CREDITs to those that were lost, so it is told once in an
 * RTT. */
static void report(struct dp_rc *rc, uint64_t now)
{
	struct dp_credit *c = rc->credit;
	uint64_t rtt = rc->flow->rtt.srtt_ns ? rc->flow->rtt.srtt_ns : c->rtt_ns;

	if (now < c->report_ns)
		return;
	c->report_ns = now + rtt;
	c->due = true;
}

/* A CREDIT grants the bytes of one full packet.  It is lost if nothing is to be sent. */
static void credit_rx(struct dp_rc *rc, uint32_t number, uint64_t now)
{
	struct dp_credit *c = rc->credit;

	if (!c || !rc->flow || (int32_t)(number - c->number) <= 0)
		return;
	c->number = number;
	c->heard++;
	c->unanswered = 0;
	c->silent = false;
	if (c->granted < c->sent)
		c->granted = c->sent;
	if (c->granted < c->told) {
		c->granted += rc->req.segment;
		if (c->granted > c->told)
			c->granted = c->told;
	}
	if (c->ask_ns)
		c->ask_ns = patience_ns(rc, now);
	report(rc, now);
	dp_requester_wake(rc);
}

/* ---- the receiver of data ------------------------------------------------------------------ */

void dp_grants_open(struct dp_rc *rc)
{
	rc->grants = dp_granting_join(rc->qp.engine, rc->cc);
}

void dp_grants_close(struct dp_rc *rc)
{
	if (rc->grants)
		dp_granting_leave(rc->qp.engine, rc->incoming);
	rc->grants = false;
	rc->incoming = NULL;
}

void dp_grants_data(struct dp_rc *rc, const struct dp_parsed *p, uint64_t bytes, bool marked,
		    uint64_t now)
{
	struct dp_cc_data data;

	if (!rc->incoming || !(bytes || p->cut))
		return;
	data = (struct dp_cc_data){
		.now_ns = (double)now,
		.bytes = (double)bytes,
		.marked = marked,
		.trimmed = p->cut,
	};
	if (bytes && p->room && rc->echo) { /* the echo has the records of this packet */
		data.n_hops = rc->echo->n;
		dp_flow_hops(&rc->incoming->hops, data.hop, rc->echo->record, rc->echo->n, now);
	}
	dp_granting_data(rc->incoming, &data, now);
}

int dp_grants_tx(struct dp_rc *rc, struct dp_packet *pkt)
{
	struct dp_incoming *in = rc->incoming;
	struct dp_grant g;

	if (in && in->unsent) {
		dp_build_start(rc, pkt, DP_OP_CREDIT, 0, 0, 0, 0);
		dp_put32(dp_packet_push(pkt, DP_CREDIT_LEN),
			 (uint32_t)(in->credits - --in->unsent));
		dp_packet_end(&rc->qp, pkt);
		return 1;
	}
	if (!in || !in->owed)
		return 0;
	in->owed = false;
	g = (struct dp_grant){ (uint32_t)in->granted, (uint32_t)in->wanted, in->dscp };
	dp_build_start(rc, pkt, DP_OP_GRANT, 0, 0, 0, 0);
	dp_grant_set(dp_packet_push(pkt, DP_GRANT_LEN), &g);
	dp_packet_end(&rc->qp, pkt);
	return 1;
}

void dp_credit_rx(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	struct dp_demand d;
	struct dp_grant g;

	if (p->grant) {
		dp_grant_get(p->grant, &g);
		granted_rx(rc, &g, now);
	} else if (p->credit) {
		credit_rx(rc, dp_get32(p->credit), now);
	} else if (rc->grants && rc->hello_done) {
		dp_demand_get(p->demand, &d);
		rc->incoming = dp_granting_demand(&rc->qp, rc->incoming, &d, now);
	}
}

const char *dp_credit_check(const struct dp_rc *rc)
{
	const struct dp_credit *c = rc->credit;

	if (rc->incoming && (!rc->grants || rc->incoming->qp != &rc->qp))
		return "a QP has the record of another flow";
	if (rc->grants && !rc->qp.engine->granting)
		return "a QP gives grants without a port";
	if (rc->flow && rc->flow->needs_grants != !!c)
		return "the algorithm does not know whether it needs grants";
	return NULL;
}
