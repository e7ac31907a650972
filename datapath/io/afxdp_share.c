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
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/addr.h"
#include "io/afxdp.h"
#include "io/run.h"
#include "io/udp.h"
#include "wire/mad.h"

enum {
	RX_TRIES_PER_CHECK = 8,
	/* After so many calls of its rx() the UDP port has looked at all that may have made it
	 * readable. */
	ASIDE_TRIES = 16,
};

int dp_afxdp_share(struct afxdp *a, struct dp_error *error)
{
	char spec[8 + DP_ADDR_TEXT], text[DP_ADDR_TEXT];
	int err;

	a->joined = malloc(DP_RUN_MAX);
	if (!a->joined)
		return dp_fail(error, -ENOMEM, "out of memory");
	snprintf(spec, sizeof(spec), "udp:%s", dp_addr_text(&a->port.info.addr, text));
	err = dp_port_open(spec, &a->aside, error->text, error->len);
	if (!err)
		a->port.info.qpn_prefix = a->aside->info.qpn_prefix;
	return err;
}

/* Whether this port takes it as it is: no other port can want it. */
static bool is_ours(const struct afxdp *a, const struct dp_packet *pkt)
{
	return pkt->len < DP_BTH_LEN || dp_addr_is_group(&pkt->dst) ||
	       (dp_run_is_for(pkt->data, a->port.info.qpn_prefix) &&
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

	if (!dp_run_hand_on(&run, dp_udp_slot(a->aside), &a->aside->stats))
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

static int take_aside(struct afxdp *a, struct dp_packet *out, int max)
{
	int n = 0;

	/* a system call for something rare: not each time */
	if (!a->aside_has_more &&
	    (++a->idle_rx % RX_TRIES_PER_CHECK || !dp_port_has_packets(a->aside)))
		return 0;
	for (int tries = 0; !n && tries < ASIDE_TRIES; tries++)
		n = dp_port_rx(a->aside, out, max);
	for (int i = 0; i < n; i++) {
		out[i].flags |= DP_PKT_HANDED_ON;
		out[i].cookie = COOKIE_ASIDE;
	}
	a->aside_has_more = n == max;
	count_aside(a);
	return n;
}

int dp_afxdp_exchange(struct afxdp *a, struct dp_packet *out, int n, int max)
{
	n = keep_ours(a, out, n);
	return n ? n : take_aside(a, out, max);
}
