// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The connection manager of a device: an instance of cm/, and a UD QP with number 1 that carries
 * its messages.  A device gets an agent when an id first needs one, and keeps it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "posix/clock.h"
#include "verbs/channel.h"
#include "verbs/ucm/ucm.h"
#include "wire/grh.h"

enum {
	RECEIVES = 256,
	SENDS = 256,
	BUFFER = 320, /* GRH and MAD, rounded up to cache lines */
	PEERS_MAX = 256,
	/* A peer's link address is looked up again after this time; before it connects: */
	PEER_AGE_NS = 1000000000,
	PEER_AGE_CONNECTING_NS = 10000000, /* many connect at a time */
};

struct ucm_peer {
	struct ucm_peer *next;
	struct dp_addr addr;
	struct ibv_ah *ah;
	uint64_t known_ns; /* since when */
};

static struct ucm_agent *agents;

struct ucm_agent *ucm_agents(void)
{
	return agents;
}

void ucm_forget_agents(void)
{
	struct ucm_agent *a;

	for (a = agents; a; a = a->next)
		a->device->agent = NULL;
	agents = NULL;
}

/* ---- counters ------------------------------------------------------------------------------ */

/* The writer of the counters has the device locked, and must not wait for ucm_lock. */
static void tell_counters(struct ucm_agent *a)
{
	if (dp_device_lock(a->dev))
		return;
	dp_cm_stats(a->cm, &a->told);
	a->device->agent = a;
	dp_device_unlock(a->dev);
}

void ucm_put_counters(FILE *f, const struct front_device *d)
{
	const struct dp_cm_stats *s = d->agent ? &d->agent->told : NULL;
	const char *comma = "";

	fputs("{", f);
	if (s) {
#define PUT(name)                                                                                  \
	fprintf(f, "%s\"" #name "\": %llu", comma, (unsigned long long)s->name);                   \
	comma = ", ";
#define PUT_BOTH(name, attribute) PUT(tx_##name) PUT(rx_##name)
		DP_CM_COUNTERS(PUT)
		DP_CM_MESSAGES(PUT_BOTH)
#undef PUT_BOTH
#undef PUT
	}
	fputs("}", f);
}

/* ---- opening ------------------------------------------------------------------------------- */

static int post_receive(struct ucm_agent *a, uint64_t i)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(a->buffers + i * BUFFER),
		.length = DP_GRH_LEN + DP_MAD_LEN,
		.lkey = a->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	return front_post_recv(a->qp, &wr, &bad);
}

static int start_qp(struct ucm_agent *a)
{
	static const struct {
		enum ibv_qp_state state;
		int mask;
	} steps[] = {
		{ IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
		{ IBV_QPS_RTR, IBV_QP_STATE },
		{ IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN },
	};
	struct ibv_qp_attr attr = { .port_num = FRONT_PORT, .qkey = DP_MAD_QKEY };
	size_t i;
	int err = 0;

	for (i = 0; i < sizeof(steps) / sizeof(steps[0]) && !err; i++) {
		attr.qp_state = steps[i].state;
		err = front_modify_qp(a->qp, &attr, steps[i].mask);
	}
	for (i = 0; i < RECEIVES && !err; i++)
		err = post_receive(a, i);
	return -err;
}

static int make_qp(struct ucm_agent *a)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = SENDS,
			 .max_recv_wr = RECEIVES,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = DP_MAD_LEN },
		.qp_type = IBV_QPT_UD,
	};

	a->pd = front_alloc_pd(a->context);
	a->channel = front_create_channel(a->context);
	a->buffers = aligned_alloc(64, RECEIVES * BUFFER);
	if (!a->pd || !a->channel || !a->buffers)
		return -ENOMEM;
	a->mr = front_reg_mr(a->pd, a->buffers, RECEIVES * BUFFER, (uintptr_t)a->buffers,
			     IBV_ACCESS_LOCAL_WRITE);
	a->cq = front_create_cq(a->context, RECEIVES + SENDS, NULL, a->channel, 0);
	if (!a->mr || !a->cq)
		return -ENOMEM;
	attr.send_cq = attr.recv_cq = a->cq;
	a->qp = front_create_gsi_qp(a->pd, &attr);
	return a->qp ? start_qp(a) : -errno;
}

static int make_cm(struct ucm_agent *a)
{
	struct dp_cm_config config = {
		.addr = a->addr,
		.guid = be64toh(a->guid),
		.id_prefix = dp_device_port(a->dev)->qpn_prefix,
		.path_mtu = a->path_mtu,
		.ack_timeout = UCM_ACK_TIMEOUT,
	};

	if (getrandom(&config.seed, sizeof(config.seed), 0) < 0)
		return -errno;
	return dp_cm_create(&config, &a->cm);
}

static void close_agent(struct ucm_agent *a)
{
	if (a->context)
		front_close_device(a->context); /* closing ends all objects of the context */
	if (a->cm)
		dp_cm_destroy(a->cm);
	free(a->buffers);
	free(a);
}

static int open_agent(struct front_device *d, struct ucm_agent **out)
{
	struct ucm_agent *a = calloc(1, sizeof(*a));
	struct ibv_port_attr port;
	int err = a ? ucm_thread_start() : -ENOMEM;

	if (err)
		goto fail;
	a->device = d;
	a->context = front_open_device(&d->ibv);
	err = a->context ? 0 : -errno;
	if (err)
		goto fail;
	a->dev = to_context(a->context)->dev;
	a->addr = dp_device_port(a->dev)->addr;
	a->guid = front_device_guid(d);
	front_query_port(a->context, FRONT_PORT, &port, sizeof(port));
	a->path_mtu = (uint8_t)port.active_mtu;
	err = make_cm(a);
	if (!err)
		err = make_qp(a);
	if (!err)
		err = ucm_thread_watch(a->channel->fd);
	if (err)
		goto fail;
	fcntl(a->channel->fd, F_SETFL, O_NONBLOCK);
	front_hide_channel(a->channel);
	a->next = agents;
	agents = a;
	ucm_agent_serve(a, dp_now_ns()); /* serving arms the CQ */
	*out = a;
	return 0;

fail:
	if (a)
		close_agent(a);
	return err;
}

int ucm_agent_open(struct front_device *d, struct ucm_agent **out)
{
	struct ucm_agent *a;

	for (a = agents; a; a = a->next) {
		if (a->device == d) {
			*out = a;
			return 0;
		}
	}
	return open_agent(d, out);
}

/* ---- claims ------------------------------------------------------------------------------------ */

int ucm_agent_claim(struct ucm_agent *a, uint64_t service_id)
{
	int err = dp_device_lock(a->dev);

	if (err)
		return err;
	err = dp_device_serve(a->dev, service_id);
	dp_device_unlock(a->dev);
	return err;
}

void ucm_agent_unclaim(struct ucm_agent *a, uint64_t service_id)
{
	if (dp_device_lock(a->dev))
		return;
	dp_device_unserve(a->dev, service_id);
	dp_device_unlock(a->dev);
}

/* ---- peers --------------------------------------------------------------------------------------- */

/* Returns false if a message that waits to be sent has the peer's handle. */
static bool drop_peer(struct ucm_agent *a, struct ucm_peer **at)
{
	struct ucm_peer *peer = *at;

	if (front_destroy_ah(peer->ah))
		return false;
	*at = peer->next;
	a->n_peers--;
	free(peer);
	return true;
}

/* Drops the peer that was not used for the longest time.  Returns -EAGAIN as long as messages to
 * all of them wait. */
static int make_room(struct ucm_agent *a)
{
	struct ucm_peer **at;
	uint32_t newer, i;

	if (a->n_peers < PEERS_MAX)
		return 0;
	for (newer = a->n_peers; newer-- > 0;) {
		for (at = &a->peers, i = 0; i < newer; i++)
			at = &(*at)->next;
		if (drop_peer(a, at))
			return 0;
	}
	return -EAGAIN;
}

/* The peer's route is known, so this does not wait. */
static int add_peer(struct ucm_agent *a, const struct dp_addr *addr)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = FRONT_PORT };
	struct ucm_peer *peer = calloc(1, sizeof(*peer));
	int err;

	if (!peer)
		return -ENOMEM;
	memcpy(attr.grh.dgid.raw, addr->b, sizeof(addr->b));
	peer->ah = front_create_ah(a->pd, &attr);
	if (!peer->ah) {
		err = -errno;
		free(peer);
		return err;
	}
	peer->addr = *addr;
	peer->known_ns = dp_now_ns();
	peer->next = a->peers;
	a->peers = peer;
	a->n_peers++;
	return 0;
}

/* Returns -EAGAIN as long as the route is not known. */
static int make_peer(struct ucm_agent *a, const struct dp_addr *addr)
{
	uint32_t path_id;
	int err = dp_device_resolve(a->dev, addr, 0, &path_id);

	if (err)
		return err;
	err = make_room(a);
	if (!err)
		err = add_peer(a, addr);
	if (!dp_device_lock(a->dev)) {
		dp_device_release(a->dev, path_id);
		dp_device_unlock(a->dev);
	}
	return err;
}

/* The peer becomes the first of the list. */
static int find_peer(struct ucm_agent *a, const struct dp_addr *addr)
{
	struct ucm_peer **at, *peer;

	for (at = &a->peers; *at && !dp_addr_equal(&(*at)->addr, addr); at = &(*at)->next)
		;
	peer = *at;
	if (!peer)
		return make_peer(a, addr);
	*at = peer->next;
	peer->next = a->peers;
	a->peers = peer;
	return 0;
}

/*
 * A handle keeps the peer's route, and so its link address, for QPs that are made later.  On an
 * error the handle can be used as before.
 */
static int refresh_peer(struct ucm_agent *a, struct ucm_peer *peer, uint64_t age_ns)
{
	uint64_t now = dp_now_ns();
	int err;

	if (now - peer->known_ns <= age_ns)
		return 0;
	err = dp_device_refresh(a->dev, ((struct front_ah *)peer->ah)->path_id);
	if (!err)
		peer->known_ns = now;
	return err;
}

int ucm_agent_reach(struct ucm_agent *a, const struct dp_addr *addr)
{
	int err = find_peer(a, addr);

	return err ? err : refresh_peer(a, a->peers, PEER_AGE_CONNECTING_NS);
}

/* ---- messages --------------------------------------------------------------------------------------- */

/* A message that cannot be sent now is lost, like a packet on the network. */
static void send_mad(struct ucm_agent *a, struct dp_cm_mad *mad)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mad->data, .length = DP_MAD_LEN };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		/* Without a completion: the CQ has room for the receives, however many are sent. */
		.send_flags = IBV_SEND_INLINE,
		.wr.ud = { .remote_qpn = DP_MAD_QPN, .remote_qkey = DP_MAD_QKEY },
	};
	struct ibv_send_wr *bad;

	if (find_peer(a, &mad->to)) {
		dp_cm_unsent(a->cm, mad);
		return;
	}
	/* As long as no new link address is known, the message goes to the old one. */
	refresh_peer(a, a->peers, PEER_AGE_NS);
	wr.wr.ud.ah = a->peers->ah;
	if (front_post_send(a->qp, &wr, &bad))
		dp_cm_unsent(a->cm, mad);
}

void ucm_agent_flush(struct ucm_agent *a)
{
	struct dp_cm_mad mad;

	while (dp_cm_tx(a->cm, &mad))
		send_mad(a, &mad);
	tell_counters(a);
	ucm_thread_wake();
}

static void receive(struct ucm_agent *a, const struct dp_wc *wc, uint64_t now)
{
	const uint8_t *buffer = a->buffers + wc->wr_id * BUFFER, *mad = buffer + DP_GRH_LEN;
	struct ibv_wc ibv = { .wc_flags = IBV_WC_GRH };
	struct dp_cm_target target;
	struct ibv_ah_attr attr;
	struct dp_cm_event event;
	struct dp_addr from;

	if (wc->status || wc->opcode != DP_WC_RECV)
		return;
	if (wc->src_qpn == DP_MAD_QPN && wc->byte_len > DP_GRH_LEN &&
	    !front_init_ah_from_wc(a->context, FRONT_PORT, &ibv, (const void *)buffer, &attr)) {
		size_t len = wc->byte_len - DP_GRH_LEN;

		memcpy(from.b, attr.grh.dgid.raw, sizeof(from.b));
		/* The way back is known by the time that a program answers, or that the request is
		 * refused because none serves it. */
		if (!dp_cm_target(mad, len, &target) && target.is_service)
			ucm_agent_reach(a, &from);
		if (dp_cm_rx(a->cm, mad, len, &from, now, &event))
			ucm_deliver(a, &event);
	}
	post_receive(a, wc->wr_id);
}

/*
 * Returns only completions that exist already.  The program and the device's thread move packets.
 */
static int poll_cq(struct ucm_agent *a, bool arm, struct dp_wc *wcs, int max)
{
	struct dp_cq *cq = to_cq(a->cq)->cq;
	int n;

	if (dp_device_lock(a->dev))
		return 0;
	if (arm)
		dp_cq_arm(cq, false);
	n = dp_cq_poll(cq, max, wcs);
	dp_device_unlock(a->dev);
	return n;
}

static void receive_all(struct ucm_agent *a, uint64_t now)
{
	struct ibv_cq *cq;
	struct dp_wc wcs[32];
	void *context;
	bool arm = true;
	int n, i;

	while (!front_get_cq_event(a->channel, &cq, &context))
		front_ack_cq_events(cq, 1);
	/* Arm the CQ before the last poll, so that no completion is missed. */
	while ((n = poll_cq(a, arm, wcs, 32)) > 0) {
		for (i = 0; i < n; i++)
			receive(a, &wcs[i], now);
		arm = false;
	}
}

uint64_t ucm_agent_serve(struct ucm_agent *a, uint64_t now)
{
	struct dp_cm_event event;
	struct dp_cm_mad mad;

	receive_all(a, now);
	while (dp_cm_tick(a->cm, now, &event))
		if (event.type)
			ucm_deliver(a, &event);
	while (dp_cm_tx(a->cm, &mad))
		send_mad(a, &mad);
	tell_counters(a);
	return dp_cm_deadline(a->cm);
}
