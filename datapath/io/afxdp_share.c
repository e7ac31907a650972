// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * AF_XDP ports that serve one receive queue each of a device.  They share its address and its XDP
 * program, which gives a packet to the port of the queue where it arrives: the network device has
 * chosen that by the packet's addresses and UDP ports (RSS).  If the packet is for another port, it
 * is handed on, as UDP ports do (slot.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/afxdp.h"
#include "wire/mad.h"

enum { RX_TRIES_PER_SLOT_CHECK = 8 };

int dp_afxdp_share(struct afxdp *a, struct dp_error *error)
{
	int err;

	a->handed.data = malloc(DP_RUN_MAX);
	a->joined = malloc(DP_RUN_MAX);
	if (!a->handed.data || !a->joined)
		return dp_fail(error, -ENOMEM, "out of memory");
	err = dp_slot_claim(&a->slot, &a->port.info.addr, error);
	a->port.info.qpn_prefix = a->slot.number;
	return err;
}

/* Whether this port takes it as it is: no other port can want it. */
static bool is_ours(const struct afxdp *a, const struct dp_packet *pkt)
{
	return pkt->len < DP_BTH_LEN || dp_addr_is_group(&pkt->dst) ||
	       (dp_run_is_for(pkt->data, a->slot.number) &&
		dp_bth_dest_qpn(pkt->data) != DP_MAD_QPN);
}

/* All bytes of a packet in a row. */
static uint8_t *join(const struct afxdp *a, const struct dp_packet *pkt)
{
	if (!pkt->frag_len)
		return pkt->data;
	memcpy(a->joined, pkt->data, pkt->len);
	memcpy(a->joined + pkt->len, pkt->frag, pkt->frag_len);
	return a->joined;
}

static bool hand_on(struct afxdp *a, const struct dp_packet *pkt)
{
	struct dp_port_stats *stats = &a->port.stats;
	uint32_t len = pkt->len + pkt->frag_len;
	struct dp_run run = {
		.src = pkt->src,
		.sport = pkt->sport,
		.tos = pkt->tos,
		.len = len,
		.segment_len = len,
		.arrived_ns = pkt->arrived_ns,
		.data = join(a, pkt),
	};

	if (!dp_run_hand_on(&run, &a->slot, stats))
		return false;
	/* The other port counts it. */
	stats->rx_packets--;
	stats->rx_bytes -= len;
	stats->rx_untimed -= !pkt->arrived_ns && !(pkt->cookie & COOKIE_LOOP);
	return true;
}

static int keep_ours(struct afxdp *a, struct dp_packet *pkts, int n)
{
	int kept = 0;

	for (int i = 0; i < n; i++) {
		if (!is_ours(a, &pkts[i]) && hand_on(a, &pkts[i])) {
			dp_afxdp_rx_release(&a->port, &pkts[i], 1);
			continue;
		}
		if (kept < i)
			pkts[kept] = pkts[i];
		kept++;
	}
	return kept;
}

static int take_handed(struct afxdp *a, struct dp_packet *out, int max)
{
	int n = 0;

	/* a system call for something rare: not each time */
	if (a->handed.done == a->handed.len && ++a->idle_rx % RX_TRIES_PER_SLOT_CHECK == 0)
		dp_run_receive(&a->handed, &a->slot);
	while (n < max && dp_run_next(&a->handed, &a->slot, &a->port.stats, &out[n])) {
		out[n].flags |= DP_PKT_HANDED_ON;
		out[n++].cookie = COOKIE_HANDED;
	}
	a->port.stats.rx_packets += (uint32_t)n;
	return n;
}

int dp_afxdp_exchange(struct afxdp *a, struct dp_packet *out, int n, int max)
{
	n = keep_ours(a, out, n);
	return n ? n : take_handed(a, out, max);
}
