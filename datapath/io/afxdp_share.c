// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * AF_XDP ports that serve one receive queue each of a device.  They share its address and its XDP
 * program, which gives a packet to the port of the queue where it arrives, if it is for that port: the
 * network device has chosen the queue by the packet's addresses and UDP ports (RSS).
 *
 * Beside each of them stands a UDP port, which has the slot of both (slot.h).  It gets the packets
 * that arrive on other queues, by the kernel, and those that ports of this host hand on: a packet to
 * our own address does not leave the port (afxdp.h).
 */
#include <stdio.h>

#include "io/addr.h"
#include "io/afxdp.h"
#include "io/run.h"
#include "io/udp.h"

int dp_afxdp_share(struct afxdp *a, struct dp_error *error)
{
	const struct dp_port_info *info = &a->port.info;
	char spec[8 + DP_ADDR_TEXT + sizeof(info->netdev)], text[DP_ADDR_TEXT];
	int err;

	snprintf(spec, sizeof(spec), "udp:%s%%%s", dp_addr_text(&info->addr, text), info->netdev);
	err = dp_port_open(spec, &a->aside, error->text, error->len);
	if (!err)
		a->port.info.qpn_prefix = a->aside->info.qpn_prefix;
	return err;
}

bool dp_afxdp_hand_on(struct afxdp *a, const struct dp_packet *pkt)
{
	struct dp_run run = {
		.src = pkt->src,
		.sport = pkt->sport,
		.tos = pkt->tos,
		.for_us = dp_addr_is_group(&pkt->dst),
		.len = pkt->len,
		.segment_len = pkt->len,
		.data = pkt->data,
	};

	return dp_run_hand_on(&run, dp_udp_slot(a->aside), &a->aside->stats);
}

/* Counters of arrivals become those of the whole port.  dp_afxdp_stats() adds the others. */
static void count_aside(struct afxdp *a)
{
	struct dp_port_stats *from = &a->aside->stats, *to = &a->port.stats;
	uint64_t *each[][2] = {
		{ &to->rx_packets, &from->rx_packets }, { &to->rx_bytes, &from->rx_bytes },
		{ &to->rx_wakeups, &from->rx_wakeups }, { &to->rx_malformed, &from->rx_malformed },
		{ &to->rx_untimed, &from->rx_untimed },
	};

	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		*each[i][0] += *each[i][1];
		*each[i][1] = 0;
	}
}

int dp_afxdp_rx_aside(struct afxdp *a, struct dp_packet *out, int max)
{
	int n = 0;

	if (!a->aside_has_more && !dp_port_has_packets(a->aside))
		return 0;
	for (int tries = 0; !n && tries < DP_UDP_RX_TRIES; tries++)
		n = dp_port_rx(a->aside, out, max);
	for (int i = 0; i < n; i++) {
		out[i].flags |= DP_PKT_HANDED_ON;
		out[i].cookie = COOKIE_ASIDE;
	}
	a->aside_has_more = n == max;
	count_aside(a);
	return n;
}
