// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/multicast.h"

#include "engine/check.h"
#include "wire/headers.h"
#include "wire/icrc.h"

static struct dp_member *find(struct dp_members *all, const struct dp_qp *qp,
			      const struct dp_addr *group)
{
	for (uint32_t i = 0; i < all->n; i++)
		if (all->at[i].qp == qp && !memcmp(&all->at[i].group, group, sizeof(*group)))
			return &all->at[i];
	return NULL;
}

int dp_multicast_attach(struct dp_qp *qp, const struct dp_addr *group)
{
	struct dp_members *all = &qp->engine->members;
	struct dp_member *at;

	if (qp->ops->connected || !dp_addr_is_group(group))
		return -EINVAL;
	if (find(all, qp, group))
		return -EEXIST;
	if (all->n == all->room) {
		at = realloc(all->at, (all->room * 2 + 8) * sizeof(*at));
		if (!at)
			return -ENOMEM;
		all->at = at;
		all->room = all->room * 2 + 8;
	}
	all->at[all->n++] = (struct dp_member){ *group, qp };
	return 0;
}

static void drop(struct dp_members *all, struct dp_member *m)
{
	*m = all->at[--all->n];
	if (all->n)
		return;
	free(all->at);
	*all = (struct dp_members){ 0 };
}

int dp_multicast_detach(struct dp_qp *qp, const struct dp_addr *group)
{
	struct dp_member *m = find(&qp->engine->members, qp, group);

	if (!m)
		return -EINVAL;
	drop(&qp->engine->members, m);
	return 0;
}

void dp_multicast_forget(struct dp_qp *qp)
{
	struct dp_members *all = &qp->engine->members;

	for (uint32_t i = all->n; i--;)
		if (all->at[i].qp == qp)
			drop(all, &all->at[i]);
}

/* ---- packets ------------------------------------------------------------------- */

static int refuse(struct dp_engine *e, const struct dp_packet *pkt, const struct dp_parsed *p)
{
	if (!(p->mask & DP_HAS_DETH)) {
		e->stats.drop_other_type++;
		return -EPROTO;
	}
	if (!dp_addr_is_group(&pkt->dst)) {
		e->stats.drop_foreign_addr++;
		return -EACCES;
	}
	if (!e->cfg.no_payload && !p->cut && !dp_icrc_check(pkt)) {
		e->stats.drop_icrc++;
		return -EBADMSG;
	}
	return 0;
}

/* The packet is its own, come back: a QP gets no copy of what it sends. */
static bool is_sender(const struct dp_qp *qp, const struct dp_packet *pkt,
		      const struct dp_parsed *p)
{
	return dp_deth_src_qpn(p->deth) == qp->qpn &&
	       !memcmp(&pkt->src, &qp->engine->cfg.addr, sizeof(pkt->src));
}

int dp_multicast_rx(struct dp_engine *e, const struct dp_packet *pkt, const struct dp_parsed *p,
		    uint64_t now)
{
	int err = refuse(e, pkt, p), one;
	struct dp_member *m;

	if (err)
		return err;
	err = -ENOENT;
	for (uint32_t i = 0; i < e->members.n; i++) {
		m = &e->members.at[i];
		if (memcmp(&m->group, &pkt->dst, sizeof(m->group)) || !dp_qp_receives(m->qp) ||
		    is_sender(m->qp, pkt, p))
			continue;
		m->qp->stats.rx_packets++;
		one = m->qp->ops->rx(m->qp, pkt, p, now);
		if (one && err == -ENOENT)
			err = one;
		else if (!one)
			err = 0;
	}
	if (err == -ENOENT)
		e->stats.drop_no_member++;
	return err;
}

const char *dp_multicast_check(const struct dp_engine *e)
{
	for (uint32_t i = 0; i < e->members.n; i++) {
		const struct dp_member *m = &e->members.at[i];

		MUST(dp_find_qp(e, m->qp->qpn) == m->qp, "a member of a group is no QP");
		MUST(!m->qp->ops->connected && dp_addr_is_group(&m->group),
		     "a group has a member that cannot be one");
	}
	return NULL;
}
