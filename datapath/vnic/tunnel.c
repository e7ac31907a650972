// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A tunnel to another host is several RC QPs, its pipes.  Each flow takes one pipe.  So its frames
 * stay in order, and a loss holds up only the flows of that pipe.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "vnic/card.h"
#include "wire/headers.h"

enum {
	COMPLETIONS = 64,
	UNSENT = 64,  /* frames posted to a QP and not sent yet, at most */
	TIMEOUT = 17, /* 0.54 s; eight of them without an answer, and 1.5 s, break a tunnel */
	RETRIES = 7,
	MIN_RNR_TIMER = 5, /* 60 us */
};

static struct pipe *pipe_of(struct card *card, uint32_t qpn)
{
	return card->by_qpn[qpn % DP_QPN_SPACE];
}

/* ---- receives ------------------------------------------------------------------------ */

static bool post_receive(struct card *card, struct pipe *p)
{
	struct dp_sge sge[FRAME_CHUNKS];
	struct dp_recv_wr wr = { .sge = sge };
	uint32_t first = frame_get(card);

	if (first == DP_NO_CHUNK)
		return false;
	for (uint32_t i = first; i != DP_NO_CHUNK; i = card->chunk[i].raw.next)
		sge[wr.num_sge++] = (struct dp_sge){ .addr = card->chunk[i].raw.addr,
						     .length = DP_CHUNK,
						     .lkey = dp_mr_key(card->memory) };
	wr.wr_id = first;
	if (dp_qp_post_recv(p->qp, &wr)) {
		dp_raw_put(&card->raw, first);
		return false;
	}
	p->receives++;
	return true;
}

static void post_receives(struct card *card, struct pipe *p)
{
	while (p->receives < card->n_receives) {
		if (!post_receive(card, p)) {
			card->counters.starved++;
			card->hungry = true;
			return;
		}
	}
}

/* Receives are posted after completions.  A pipe without receives gets no completion, so its
 * receives are posted here. */
void tunnel_feed(struct card *card)
{
	if (!card->hungry)
		return;
	card->hungry = false;
	for (uint32_t i = 0; i < card->n_hosts; i++)
		for (uint32_t k = 0; card->host[i].up && k < card->n_pipes; k++)
			post_receives(card, &card->host[i].pipe[k]);
}

/* ---- sends --------------------------------------------------------------------------- */

static int post(struct card *card, struct pipe *p, uint32_t first)
{
	struct dp_sge sge[FRAME_CHUNKS + 1];
	struct dp_send_wr wr = {
		.wr_id = first, .opcode = DP_WR_SEND_WITH_IMM, .flags = DP_SEND_SIGNALED, .sge = sge
	};

	dp_put32(&wr.imm, card->chunk[first].vni);
	for (uint32_t i = first; i != DP_NO_CHUNK; i = card->chunk[i].raw.next) {
		if (wr.num_sge > FRAME_CHUNKS)
			return -EINVAL;
		sge[wr.num_sge++] = (struct dp_sge){ .addr = card->chunk[i].raw.addr,
						     .length = card->chunk[i].raw.len,
						     .lkey = dp_mr_key(card->memory) };
	}
	return dp_qp_post_send(p->qp, &wr);
}

struct pipe *tunnel_pipe(struct card *card, struct host *host, uint32_t hash)
{
	return &host->pipe[hash % card->n_pipes];
}

bool tunnel_has_room(const struct pipe *p)
{
	return p->posted < SENDS && dp_qp_unsent(p->qp) < UNSENT;
}

uint32_t tunnel_packet(const struct pipe *p)
{
	return dp_qp_segment(p->qp);
}

static void lost_with_tunnel(struct card *card, struct pipe *p, struct traffic *t)
{
	card->host[p->host].counters.aborted++;
	t->aborted++;
}

void tunnel_send(struct card *card, struct pipe *p, uint32_t first)
{
	const struct chunk *c = &card->chunk[first];
	struct traffic *t = c->line->traffic;

	card->host[p->host].counters.tx_recovered++;
	if (post(card, p, first)) {
		lost_with_tunnel(card, p, t);
		frame_let_go(card, first);
	} else {
		p->posted++;
		c->line->posted++;
		t->inflight_frames++;
		t->inflight_bytes += c->raw.total;
	}
}

/* ---- completions ---------------------------------------------------------------------- */

static void received(struct card *card, struct pipe *p, const struct dp_wc *wc)
{
	uint32_t first = (uint32_t)wc->wr_id;

	p->receives--;
	if (wc->status != DP_WC_SUCCESS) {
		dp_raw_put(&card->raw, first);
		return;
	}
	card->host[p->host].counters.rx_recovered++;
	guests_accept(card, p->host, dp_get32(&wc->imm) & VNI_MAX, first, wc->byte_len);
}

static void smooth(double *mean, double sample)
{
	*mean += *mean > 0 ? (sample - *mean) / SMOOTHED : sample;
}

static void delivered(struct card *card, const struct pipe *p, struct traffic *t, uint32_t bytes)
{
	const struct dp_cc_flow *flow = dp_qp_flow(p->qp);

	t->delivered_frames++;
	t->delivered_bytes += bytes;
	if (flow && flow->srtt_ns > 0) {
		smooth(&t->rtt_ns, flow->srtt_ns);
		smooth(&card->rtt_ns, flow->srtt_ns);
	}
}

static void sent(struct card *card, struct pipe *p, const struct dp_wc *wc)
{
	const struct chunk *c = &card->chunk[wc->wr_id];
	struct traffic *t = c->line->traffic;

	p->posted--;
	c->line->posted--;
	t->inflight_frames--;
	t->inflight_bytes -= c->raw.total;
	t->packets += wc->packets;
	t->retransmits += wc->resent;
	if (wc->status == DP_WC_SUCCESS)
		delivered(card, p, t, c->raw.total);
	else
		lost_with_tunnel(card, p, t);
	frame_let_go(card, (uint32_t)wc->wr_id);
}

static uint32_t reap(struct card *card)
{
	struct dp_wc wc[COMPLETIONS];
	int n = dp_cq_poll(card->cq, COMPLETIONS, wc);

	for (int i = 0; i < n; i++) {
		struct pipe *p = pipe_of(card, wc[i].qpn);

		if (wc[i].opcode & DP_WC_RECV)
			received(card, p, &wc[i]);
		else
			sent(card, p, &wc[i]);
	}
	/* Only the QPs of a tunnel that is up get receives back: one in error would complete them
	 * at once, and tunnel_reap() would never end. */
	for (int i = 0; i < n; i++) {
		struct pipe *p = pipe_of(card, wc[i].qpn);

		if (card->host[p->host].up)
			post_receives(card, p);
	}
	return (uint32_t)n;
}

uint32_t tunnel_reap(struct card *card)
{
	uint32_t sum = 0, n;

	do {
		n = reap(card);
		sum += n;
	} while (n == COMPLETIONS);
	return sum;
}

void tunnel_event(const struct dp_event *event)
{
	if (event->type == DP_EVENT_QP_FAILED || event->type == DP_EVENT_QP_ACCESS ||
	    event->type == DP_EVENT_QP_REQUEST) {
		struct host *host = dp_qp_user(event->qp);

		host->broken = true;
		host->up = false;
	}
}

/* ---- set-up -------------------------------------------------------------------------- */

static void close_pipe(struct card *card, struct pipe *p)
{
	const struct dp_qp_attr attr = { .state = DP_QPS_ERR };

	if (!p->qp)
		return;
	/* All requests of the QP are flushed, and their chunks come back. */
	dp_qp_modify(p->qp, &attr, DP_QP_STATE, dp_device_now_ns());
	tunnel_reap(card);
	queue_drop(card, p);
	card->by_qpn[dp_qp_qpn(p->qp) % DP_QPN_SPACE] = NULL;
	dp_qp_destroy(p->qp);
	p->qp = NULL;
}

void tunnel_close(struct card *card, uint16_t index)
{
	struct host *host = &card->host[index];

	host->up = false;
	for (uint32_t i = 0; i < card->n_pipes; i++)
		close_pipe(card, &host->pipe[i]);
	if (host->routed)
		dp_device_release(card->device, host->path_id);
	host->routed = host->broken = false;
}

static int open_pipe(struct card *card, struct host *host, struct pipe *p)
{
	const struct dp_qp_config config = {
		.type = DP_QPT_RC,
		.pd = card->pd,
		.send_cq = card->cq,
		.recv_cq = card->cq,
		.max_send_wr = SENDS,
		.max_recv_wr = card->n_receives,
		.max_send_sge = FRAME_CHUNKS + 1,
		.max_recv_sge = FRAME_CHUNKS,
		.user = host,
	};
	struct dp_qp_attr attr = { .state = DP_QPS_INIT };
	int err = dp_qp_create(card->engine, &config, &p->qp);

	if (err)
		return err;
	p->posted = p->receives = 0;
	card->by_qpn[dp_qp_qpn(p->qp) % DP_QPN_SPACE] = p;
	/* The two cards tell each other their first PSNs; ours is random. */
	if (getrandom(&attr.sq_psn, sizeof(attr.sq_psn), 0) != sizeof(attr.sq_psn))
		return -EIO;
	attr.sq_psn &= DP_PSN_MASK;
	p->psn = attr.sq_psn;
	return dp_qp_modify(p->qp, &attr,
			    DP_QP_STATE | DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_ACCESS_FLAGS,
			    dp_device_now_ns());
}

int tunnel_offer(struct card *card, uint16_t index)
{
	struct host *host = &card->host[index];
	int err = 0;

	tunnel_close(card, index);
	for (uint32_t i = 0; i < card->n_pipes && !err; i++)
		err = open_pipe(card, host, &host->pipe[i]);
	if (err)
		tunnel_close(card, index);
	return err;
}

static int connect_pipe(struct card *card, const struct host *host, struct pipe *p,
			const struct pipe_end *remote)
{
	struct dp_qp_attr attr = {
		.state = DP_QPS_RTR,
		.raddr = host->addr,
		.path_id = host->path_id,
		.path_mtu = dp_device_path_mtu(card->device),
		.dest_qpn = remote->qpn,
		.rq_psn = remote->psn,
		.min_rnr_timer = MIN_RNR_TIMER,
		.sq_psn = p->psn,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RETRIES,
	};
	uint64_t now = dp_device_now_ns();
	int err;

	err = dp_qp_modify(p->qp, &attr,
			   DP_QP_STATE | DP_QP_AV | DP_QP_PATH_MTU | DP_QP_DEST_QPN | DP_QP_RQ_PSN |
				   DP_QP_MAX_DEST_RD_ATOMIC | DP_QP_MIN_RNR_TIMER,
			   now);
	if (err)
		return err;
	attr.state = DP_QPS_RTS;
	err = dp_qp_modify(p->qp, &attr,
			   DP_QP_STATE | DP_QP_TIMEOUT | DP_QP_RETRY_CNT | DP_QP_RNR_RETRY |
				   DP_QP_SQ_PSN | DP_QP_MAX_QP_RD_ATOMIC,
			   now);
	if (!err && card->cc)
		err = dp_qp_set_cc(p->qp, card->cc, now);
	if (!err)
		post_receives(card, p);
	return err;
}

int tunnel_connect(struct card *card, uint16_t index, const struct pipe_end *remote)
{
	struct host *host = &card->host[index];
	int err;

	if (!host->routed) {
		err = dp_device_resolve(card->device, &host->addr, 0, &host->path_id);
		if (err)
			return err;
		host->routed = true;
	}
	for (uint32_t i = 0; i < card->n_pipes; i++) {
		err = host->pipe[i].qp ? connect_pipe(card, host, &host->pipe[i], &remote[i]) :
					 -ENOTCONN;
		if (err) {
			tunnel_close(card, index);
			return err;
		}
	}
	host->up = true;
	return 0;
}
