// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/run.h"

#include <errno.h>

#include "wire/headers.h"
#include "wire/mad.h"

enum {
	MAD_PACKET = DP_MAD_AT + DP_MAD_LEN + DP_ICRC_LEN,
	FREE_SLOTS = 8, /* ports take the lowest slot: few lie behind so many free ones */
};

bool dp_run_receive(struct dp_run *run, struct dp_slot *slot)
{
	struct dp_slot_header h;
	int n = dp_slot_receive(slot, &h, run->data, DP_RUN_MAX);

	if (n <= 0)
		return false;
	run->src = h.src;
	run->dst = slot->addr;
	run->sport = h.sport;
	run->tos = h.tos;
	run->arrived_ns = h.arrived_ns;
	run->for_us = true;
	run->len = (uint32_t)n;
	run->segment_len = h.segment_len;
	run->done = 0;
	return true;
}

static inline uint32_t next_len(const struct dp_run *run)
{
	uint32_t left = run->len - run->done;

	return left < run->segment_len ? left : run->segment_len;
}

static struct dp_slot_header header_of(const struct dp_run *run, uint32_t segment_len)
{
	return (struct dp_slot_header){
		.src = run->src,
		.sport = run->sport,
		.tos = run->tos,
		.segment_len = segment_len,
		.arrived_ns = run->arrived_ns,
	};
}

/* False: no process wants them.  Then they stay here and count as packets for an unknown QPN. */
static bool note_handed_on(struct dp_run *run, struct dp_port_stats *stats, int err,
			   uint32_t packets, uint32_t end)
{
	if (err == -ECONNREFUSED)
		return false;
	if (err)
		stats->rx_dropped += packets;
	else
		stats->rx_misdirected += packets;
	run->done = end;
	return true;
}

/* By its QPN alone.  Management datagrams all are for one QPN. */
static inline bool is_for(const uint8_t *packet, uint32_t slot)
{
	return packet[DP_SLOT_BYTE] == slot;
}

/* As many datagrams as follow each other for one port. */
static bool hand_on_row(struct dp_run *run, struct dp_slot *slot, struct dp_port_stats *stats)
{
	struct dp_slot_header h = header_of(run, run->segment_len);
	uint32_t owner = run->data[run->done + DP_SLOT_BYTE], end = run->done, packets = 0;
	int err;

	while (end + DP_BTH_LEN <= run->len && is_for(run->data + end, owner)) {
		end += run->segment_len < run->len - end ? run->segment_len : run->len - end;
		packets++;
	}
	err = dp_slot_hand_on(slot, owner, &h, run->data + run->done, end - run->done);
	return note_handed_on(run, stats, err, packets, end);
}

/* A peer that gives its request up before it has an answer does not know our id.  Each port looks
 * whether it knows the peer's. */
static void copy_to_others(struct dp_slot *slot, const struct dp_slot_header *h,
			   const uint8_t *packet, uint32_t len)
{
	uint32_t i, free = 0;

	for (i = 0; i < DP_SLOTS && free < FREE_SLOTS; i++)
		if (i != slot->number)
			free += dp_slot_hand_on(slot, i, h, packet, len) == -ECONNREFUSED;
}

/* A management datagram, if another port has the service or the connection that it is for. */
static bool hand_on_mad(struct dp_run *run, struct dp_slot *slot, struct dp_port_stats *stats)
{
	const uint8_t *packet = run->data + run->done;
	uint32_t len = next_len(run), owner;
	struct dp_slot_header h = header_of(run, len);
	struct dp_cm_target target;
	int err;

	if (len != MAD_PACKET || dp_cm_target(packet + DP_MAD_AT, DP_MAD_LEN, &target))
		return false;
	if (dp_mad_attribute(packet + DP_MAD_AT) == DP_CM_REJ && !target.id) {
		copy_to_others(slot, &h, packet, len);
		return false;
	}
	owner = target.id >> (32 - DP_CM_PREFIX_BITS);
	if (target.is_service ? dp_slot_serves(slot, target.service_id) : owner == slot->number)
		return false;
	err = target.is_service ?
		      dp_slot_hand_on_request(slot, target.service_id, &h, packet, len) :
		      dp_slot_hand_on(slot, owner, &h, packet, len);
	return note_handed_on(run, stats, err, 1, run->done + len);
}

bool dp_run_hand_on(struct dp_run *run, struct dp_slot *slot, struct dp_port_stats *stats)
{
	const uint8_t *packet = run->data + run->done;

	if (run->for_us || next_len(run) < DP_BTH_LEN)
		return false;
	if (dp_bth_dest_qpn(packet) == DP_MAD_QPN)
		return hand_on_mad(run, slot, stats);
	return !is_for(packet, slot->number) && hand_on_row(run, slot, stats);
}

bool dp_run_next(struct dp_run *run, struct dp_slot *slot, struct dp_port_stats *stats,
		 struct dp_packet *out)
{
	uint32_t len;

	for (;;) {
		len = next_len(run);
		if (!len)
			return false;
		if (len < DP_BTH_LEN) {
			stats->rx_malformed++;
			run->done += len;
		} else if (!dp_run_hand_on(run, slot, stats)) {
			break;
		}
	}
	out->src = run->src;
	out->dst = run->dst;
	out->sport = run->sport;
	out->ip_id = 0;
	out->tos = run->tos;
	out->flags = DP_PKT_IP_ID_UNKNOWN;
	out->data = run->data + run->done;
	out->len = len;
	out->frag = NULL;
	out->frag_len = 0;
	out->cookie = 0;
	out->arrived_ns = run->arrived_ns;
	out->late_ns = 0;
	run->done += len;
	stats->rx_bytes += len;
	stats->rx_untimed += !out->arrived_ns;
	return true;
}
