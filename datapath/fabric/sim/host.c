// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A host: one engine, and the link that is its NIC.
 *
 * The host asks the engine for a packet only when the NIC can use it: one packet is being
 * transmitted and one waits, as in hardware that schedules its QPs.  So a window never waits in an
 * endless queue inside the host.
 *
 * All memory regions cover one reserved piece of address space that can be neither read nor
 * written.  The engines move lengths only; an engine that touched memory would crash at once.
 */
#include "fabric/sim/internal.h"

#include "wire/opcode.h"
#include "wire/telemetry.h"
#include "wire/trim.h"

#define MEMORY_BYTES DP_FLOW_MESSAGE_MAX
#define ACCESS (DP_ACCESS_LOCAL_WRITE | DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_READ)

/* ::ffff:10.x.y.z */
static struct dp_addr address(uint32_t host)
{
	return (struct dp_addr){ { [10] = 0xff,
				   [11] = 0xff,
				   [12] = 10,
				   [13] = (uint8_t)(host >> 16),
				   [14] = (uint8_t)(host >> 8),
				   [15] = (uint8_t)host } };
}

int sim_host_open(struct dp_sim *s, struct sim_host *h)
{
	struct dp_engine_config c = s->cfg.engine;
	int err;

	if (h->engine)
		return 0;
	c.addr = address(h->index);
	c.seed = dp_mix64(s->cfg.seed ^ dp_mix64(0x686f737400000000ull + h->index));
	c.no_payload = 1;
	c.cc = NULL;
	c.store = s->store;
	err = dp_engine_create(&c, &h->engine);
	if (!err)
		err = dp_pd_create(h->engine, &h->pd);
	if (!err)
		err = dp_mr_create(h->pd, s->memory, MEMORY_BYTES, (uintptr_t)s->memory, ACCESS,
				   &h->mr);
	if (!err)
		err = dp_cq_create(h->engine, 64, NULL, &h->cq);
	return err;
}

void sim_host_free(struct dp_sim *s, struct sim_host *h)
{
	if (h->spare)
		sim_packet_put(&s->pool, h->spare);
	if (h->cq)
		dp_cq_destroy(h->cq);
	if (h->mr)
		dp_mr_destroy(h->mr);
	if (h->pd)
		dp_pd_destroy(h->pd);
	if (h->engine)
		dp_engine_destroy(h->engine);
}

/* ---- packets -------------------------------------------------------------------- */

static uint32_t flow_hash(struct sim_channel *c, uint32_t end, const struct dp_packet *p)
{
	if (c->sport[end] != p->sport) {
		c->sport[end] = p->sport;
		c->hash[end] = dp_flow_hash(&p->src, &p->dst, p->sport, 4791);
	}
	return c->hash[end];
}

/* Switches may cut only data packets of the extended mode. */
static bool can_be_trimmed(const struct dp_packet *p)
{
	uint32_t mask = dp_opcodes[dp_bth_opcode(p->data)].mask;

	return p->pay_len && mask & DP_HAS_XDH && mask & DP_HAS_PAYLOAD;
}

static bool is_credit(const struct dp_packet *p)
{
	return dp_bth_opcode(p->data) == DP_OP_CREDIT;
}

static uint8_t class_of(const struct dp_sim *s, const struct dp_packet *p)
{
	if (s->cfg.symmetric && is_credit(p))
		return s->cfg.credit_class;
	if (s->cfg.by_dscp)
		return s->cfg.class_of_dscp[p->tos >> 2];
	return p->pay_len ? s->cfg.data_class : s->cfg.control_class;
}

/* Sets the fields of a packet that links look at. */
static void dress(struct dp_sim *s, struct sim_packet *p)
{
	uint32_t end = p->packet.path_id & 1, pay = p->packet.pay_len;
	struct sim_channel *c = &s->channel[p->packet.path_id >> 1];
	uint32_t headers = DP_LINK_HEADROOM + SIM_OUTER_BYTES + p->packet.len;
	struct dp_frame *f = &p->frame;

	p->channel = p->packet.path_id >> 1;
	p->src = end ? c->dst : c->src;
	f->to = end ? c->src : c->dst;
	f->bytes = headers + ((pay + 3) & ~3u);
	f->header_bytes = can_be_trimmed(&p->packet) ? (uint16_t)headers : 0;
	f->flow_hash = flow_hash(c, end, &p->packet);
	f->class = class_of(s, &p->packet);
	if (s->cfg.symmetric && is_credit(&p->packet)) /* the path of the data, backwards */
		f->flow_hash = c->hash[!end];
	f->ecn = p->packet.tos & DP_ECN_MASK;
	f->flags = 0;
	f->n_hops = 0;
	f->hop = s->pool.telemetry ? p->hop : NULL;
}

static bool transmit(struct dp_sim *s, struct sim_host *h)
{
	struct sim_packet *p = h->spare;

	if (!p) {
		p = h->spare = sim_packet_get(&s->pool);
		if (!p) {
			sim_fail(s, -ENOMEM, "no memory for packets");
			return false;
		}
		p->packet.data = p->bytes;
		p->packet.cap = SIM_HEADERS_MAX;
	}
	if (!dp_engine_tx(h->engine, &p->packet, 1, s->now))
		return false;
	h->spare = NULL;
	dress(s, p);
	sim_inject(s, h, p);
	return true;
}

static void take_completions(struct dp_sim *s, struct sim_host *h)
{
	struct dp_event event;
	struct dp_wc wc[16];
	int n, i;

	while ((n = dp_cq_poll(h->cq, 16, wc)) > 0) {
		if (sim_sleeps(s))
			sim_stay_awake(h, s->now + s->cfg.wakeup.spin_ns);
		for (i = 0; i < n; i++)
			sim_completed(s, &wc[i]);
	}
	while (dp_engine_event(h->engine, &event))
		if (event.type == DP_EVENT_CQ_OVERRUN)
			sim_fail(s, -EPROTO, "host %u lost completions", h->index);
}

/* Also in the nanosecond in which a stall ends, until the host has had its turn: links act before
 * hosts, and nobody else reads what has come during the stall. */
static bool stands_still(const struct dp_sim *s, const struct sim_host *h)
{
	return s->now < h->sleep.stalled_ns || (h->sleep.unread && !sim_sleeps(s));
}

void sim_host_run(struct dp_sim *s, struct sim_host *h)
{
	struct dp_link *nic = s->link[h->nic].link;
	uint64_t at, turn;

	if (!h->engine)
		return;
	if (stands_still(s, h)) {
		sim_queue_set(&s->queue, s->n_links + h->index, h->sleep.stalled_ns);
		return;
	}
	take_completions(s, h);
	while ((turn = dp_link_turn_ns(nic)) <= s->now)
		if (!transmit(s, h))
			break;
	at = dp_engine_deadline(h->engine);
	if (sim_sleeps(s))
		at = sim_next_turn(s, h, at, turn);
	else if (!at) /* the engine has a packet that the NIC cannot take yet */
		at = turn;
	else if (at <= s->now)
		at = s->now + 1;
	sim_queue_set(&s->queue, s->n_links + h->index, at);
}

void sim_host_act(struct dp_sim *s, struct sim_host *h)
{
	if (sim_sleeps(s))
		sim_wake(s, h);
	else
		sim_read_unread(s, h);
	dp_engine_tick(h->engine, s->now);
	sim_host_run(s, h);
}

/* Writes the switches' marks and cuts into the packet. */
static void undress(struct sim_packet *p)
{
	const struct dp_frame *f = &p->frame;
	struct dp_packet *k = &p->packet;
	unsigned i;

	k->tos = (uint8_t)((k->tos & ~DP_ECN_MASK) | f->ecn);
	if (f->flags & DP_FRAME_TRIMMED)
		dp_trim(k);
	for (i = 0; i < f->n_hops; i++)
		dp_telemetry_stamp(k->data, k->len, &p->hop[i]);
}

void sim_host_read(struct dp_sim *s, struct sim_host *h, struct sim_packet *p)
{
	if (p->frame.flags & DP_FRAME_CORRUPT) {
		s->corrupted++;
		sim_trace_packet(s, DP_SIM_CORRUPT, h->index, p, 0);
	} else {
		s->delivered++;
		s->packet_events++;
		undress(p);
		sim_trace_packet(s, DP_SIM_RX, h->index, p, p->frame.ecn);
		dp_engine_rx(h->engine, &p->packet, s->now);
	}
	sim_packet_put(&s->pool, p);
}

/* Packets are read in the order of their arrival, even if the program runs by now. */
static bool reads_now(const struct dp_sim *s, const struct sim_host *h)
{
	const struct sim_sleep *z = &h->sleep;

	if (z->unread || s->now < z->stalled_ns)
		return false;
	return !sim_sleeps(s) || s->now <= z->awake_ns;
}

void sim_host_rx(struct dp_sim *s, struct sim_host *h, struct sim_packet *p)
{
	p->packet.arrived_ns = s->now;
	if (reads_now(s, h))
		sim_host_read(s, h, p);
	else
		sim_keep_unread(s, h, p);
}

int dp_sim_stall(struct dp_sim *s, uint32_t host, uint64_t until_ns)
{
	struct sim_host *h;

	if (host >= s->n_hosts || until_ns == DP_NEVER)
		return -EINVAL;
	h = &s->host[host];
	if (until_ns > h->sleep.stalled_ns)
		h->sleep.stalled_ns = until_ns;
	sim_note(s, host, until_ns);
	sim_host_run(s, h);
	return 0;
}

/* ---- connections ------------------------------------------------------------------ */

static int create_qp(struct dp_sim *s, struct sim_host *h, uint32_t sends, uint32_t receives,
		     struct dp_qp **out)
{
	struct dp_qp_config c = {
		.pd = h->pd,
		.send_cq = h->cq,
		.recv_cq = h->cq,
		.max_send_wr = sends,
		.max_recv_wr = receives,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.sq_sig_all = true,
	};
	int err;

	h->cq_wanted += sends + receives;
	if (h->cq_wanted > dp_cq_entries(h->cq)) {
		err = dp_cq_resize(h->cq, 2 * h->cq_wanted);
		if (err)
			return err;
	}
	s->qps++;
	return dp_qp_create(h->engine, &c, out);
}

static int bring_up(struct dp_sim *s, struct dp_qp *qp, const struct dp_qp *peer,
		    uint32_t peer_host, uint32_t path_id, uint8_t tos)
{
	struct dp_qp_attr a = {
		.state = DP_QPS_INIT,
		.access = DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_READ,
		.raddr = address(peer_host),
		.path_id = path_id,
		.tos = tos,
		.path_mtu = s->cfg.path_mtu,
		.dest_qpn = dp_qp_qpn(peer),
		.timeout = s->cfg.timeout,
		.retry_cnt = s->cfg.retry_cnt,
		.rnr_retry = s->cfg.rnr_retry,
		.min_rnr_timer = s->cfg.min_rnr_timer,
		.max_rd_atomic = DP_RD_ATOMIC_MAX,
		.max_dest_rd_atomic = DP_RD_ATOMIC_MAX,
	};
	int err;

	a.sq_psn = (uint32_t)dp_mix64(s->cfg.seed ^ dp_mix64(path_id)) & 0xffffff;
	a.rq_psn = (uint32_t)dp_mix64(s->cfg.seed ^ dp_mix64(path_id ^ 1)) & 0xffffff;
	err = dp_qp_modify(qp, &a, DP_QP_STATE | DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_ACCESS_FLAGS,
			   s->now);
	a.state = DP_QPS_RTR;
	if (!err)
		err = dp_qp_modify(qp, &a,
				   DP_QP_STATE | DP_QP_AV | DP_QP_PATH_MTU | DP_QP_DEST_QPN |
					   DP_QP_RQ_PSN | DP_QP_MAX_DEST_RD_ATOMIC |
					   DP_QP_MIN_RNR_TIMER,
				   s->now);
	a.state = DP_QPS_RTS;
	if (!err)
		err = dp_qp_modify(qp, &a,
				   DP_QP_STATE | DP_QP_TIMEOUT | DP_QP_RETRY_CNT | DP_QP_RNR_RETRY |
					   DP_QP_SQ_PSN | DP_QP_MAX_QP_RD_ATOMIC,
				   s->now);
	return err;
}

int sim_connect(struct dp_sim *s, struct sim_channel *c)
{
	struct sim_host *src = &s->host[c->src], *dst = &s->host[c->dst];
	uint32_t depth = c->ring_mask + 1, path = (uint32_t)(c - s->channel) << 1;
	uint8_t tos = (uint8_t)(c->dscp << 2);
	uint64_t rtt_ns;
	int err = sim_host_open(s, src);

	if (!err)
		err = sim_host_open(s, dst);
	if (!err)
		err = create_qp(s, src, depth, 1, &c->requester);
	if (!err)
		err = create_qp(s, dst, 1, c->receives ? depth : 1, &c->responder);
	if (!err)
		err = dp_qp_set_cc(c->requester, c->algo, s->now);
	if (!err && c->algo && c->algo->on_request)
		err = dp_qp_set_cc(c->responder, c->algo, s->now);
	if (!err)
		err = bring_up(s, c->requester, c->responder, c->dst, path, tos);
	if (!err)
		err = bring_up(s, c->responder, c->requester, c->src, path | 1, tos);
	if (!err) /* an order starts a flow between two runs, perhaps behind changes of routes */
		err = dp_routes_renew(&s->routes);
	if (!err && s->cfg.preset_extended) {
		rtt_ns = sim_delay_ns(s, c->src, c->dst) + sim_delay_ns(s, c->dst, c->src);
		dp_qp_agree(c->requester, c->responder, rtt_ns, s->now);
		dp_qp_agree(c->responder, c->requester, rtt_ns, s->now);
	}
	for (; !err && c->receives && c->receives_posted < depth;)
		err = sim_post_receive(s, c);
	return err;
}
