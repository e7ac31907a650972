// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gives the reliable connections of the kernel's soft-RoCE (rxe), which has no congestion control, a
 * rate and a window.  At the egress of the device each request gets the time at which it may depart
 * (skb->tstamp), and the qdisc fq keeps it until then.  At the ingress acknowledgements become
 * events, from which a program in user space (lanes/pacer/) computes both.
 *
 * A rate alone would come too late: rxe hands over all 128 packets of a QP that may be
 * unacknowledged, and their times of departure are fixed from then on.  So rxe sees an
 * acknowledgement only when the window has room for the packets that it will send for it.  In the
 * place of each acknowledgement that arrives it sees an older one, or none.
 *
 * An acknowledgement names the QP that it is for, and a request the QP that it goes to.  What both
 * have in common is their UDP source port: rxe makes it of the product of the two QPs' numbers, or
 * of the flow label that both have.  Two connections with one peer that meet in it are paced as
 * one.
 *
 * READ responses are the requests of nobody here: they are not paced.
 *
 * ECN: requests leave as ECT(0).  The peer, which runs this program too, notes those that arrive
 * with CE, and sets BECN in acknowledgements.  The ICRC covers neither field.
 */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "xdp/pace.h"
#include "xdp/pace_kept.h"
#include "xdp/pace_marks.h"
#include "xdp/pace_packet.h"

/* `lock` guards it and the flow's slots. */
struct flow {
	struct bpf_spin_lock lock;
	__u32 number;
	__u32 begun;
	__u32 next_psn;	 /* after the newest packet ever sent */
	__u32 going_psn; /* after the packet sent last */
	__u32 excused;	 /* rxe has been asked to go back */
	__u32 congested; /* a CNP came */
	__u32 unused;
	__u64 sent_bytes, acked_bytes;
	__u64 asked_bytes; /* sent_bytes after the last packet that asked for an acknowledgement */
	__u64 told_bytes;  /* of acked_bytes, what rxe knows */
	__u64 next_ns;	   /* when the next packet may depart */
	__u64 delivered_ns, first_sent_ns;
};

struct slot {
	__u32 psn;
	__u16 resent, app_limited;
	__u64 end_bytes; /* sent_bytes after it */
	__u64 departed_ns;
	__u64 prior_delivered, delivered_ns, first_sent_ns; /* of the flow when it was sent */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DP_PACE_FLOWS);
	__type(key, struct key);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DP_PACE_FLOWS *DP_PACE_SLOTS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* Of flows to come; user space fills it. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, DP_PACE_FLOWS);
	__type(value, __u32);
} numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, DP_PACE_RING);
} events SEC(".maps");

const volatile bool pace_ecn = false;

/* Set by user space, by the flow's number; bit/s of payload, 0: not paced. */
__u64 pace_rate_bps[DP_PACE_FLOWS] = {};
__u64 pace_cwnd_bytes[DP_PACE_FLOWS] = {}; /* of payload; 0: no window */
struct dp_pace_counters pace_counters = {};

static __always_inline void tell(const struct dp_pace_event *event)
{
	if (bpf_ringbuf_output(&events, (void *)event, sizeof(*event), 0))
		__sync_fetch_and_add(&pace_counters.lost_events, 1);
}

static __always_inline struct slot *slot_of(__u32 number, __u32 psn)
{
	__u32 index = number * DP_PACE_SLOTS + (psn & (DP_PACE_SLOTS - 1));

	return bpf_map_lookup_elem(&slots, &index);
}

static __always_inline struct flow *flow_of(const struct key *key)
{
	struct flow *found = bpf_map_lookup_elem(&flows, key), fresh = {};
	__u32 number;

	if (found)
		return found;
	if (bpf_map_pop_elem(&numbers, &number))
		return NULL;
	fresh.number = number;
	bpf_map_update_elem(&flows, key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&flows, key);
}

/* When a packet may depart that takes `needs_ns` at the flow's rate. */
static __always_inline __u64 departure(struct flow *f, __u64 now, __u64 needs_ns)
{
	__u64 at = f->next_ns > now ? f->next_ns : now, last = now + DP_PACE_AHEAD_MS * 1000000ull;

	if (at > last)
		at = last;
	f->next_ns = at + needs_ns;
	return at;
}

/* idle: no packet of the flow waits for its time. */
static __always_inline void remember(struct flow *f, struct slot *s, __u32 psn, bool idle, __u64 at)
{
	s->psn = psn;
	s->app_limited = idle;
	s->departed_ns = at;
	s->prior_delivered = f->acked_bytes;
	s->delivered_ns = f->delivered_ns;
	s->first_sent_ns = f->first_sent_ns;
}

/* A request leaves: its time of departure, 0 when it is not paced. */
static __always_inline __u64 sent(struct packet *p, __u64 now)
{
	struct dp_pace_event event = { .now_ns = now };
	__u64 rate, needs = 0, at;
	bool tells = false, idle;
	struct flow *f;
	struct slot *s;
	__u32 number;
	int d;

	f = flow_of(&p->key);
	if (!f) {
		__sync_fetch_and_add(&pace_counters.no_room_packets, 1);
		return 0;
	}
	number = f->number;
	s = slot_of(number, p->psn);
	if (!s)
		return 0;
	rate = pace_rate_bps[index_of(number)];
	if (rate)
		needs = p->payload * 8000000000ull / rate;
	event.flow = number;
	bpf_spin_lock(&f->lock);
	/* rxe begins no request more than 128 PSNs after the first that is not acknowledged, and so
	 * goes back by no more. */
	d = behind(p->psn, f->next_psn);
	if (!f->begun || d < -DP_PACE_SLOTS) {
		f->begun = 1;
		f->going_psn = f->next_psn = p->psn;
		f->sent_bytes = f->acked_bytes = f->asked_bytes = f->told_bytes = 0;
		f->excused = f->congested = 0;
		forget_kept(&pace_unseen[index_of(number)]);
		d = 0;
		tells = true;
		event.kind = DP_PACE_BEGIN;
	}
	idle = f->next_ns <= now;
	at = departure(f, now, needs);
	if (d >= 0) {
		if (f->sent_bytes == f->acked_bytes)
			f->first_sent_ns = f->delivered_ns = at;
		remember(f, s, p->psn, idle, at);
		f->sent_bytes += p->payload;
		s->end_bytes = f->sent_bytes;
		if (p->asks)
			f->asked_bytes = f->sent_bytes;
		s->resent = 0;
		f->next_psn = (p->psn + 1) & PSN_MASK;
	} else {
		if (s->psn == p->psn) { /* the rest of a READ has a PSN that no request had */
			remember(f, s, p->psn, idle, at);
			s->resent = 1;
		}
		if (behind(p->psn, f->going_psn) < 0) {
			event.kind = DP_PACE_TIMEOUT;
			tells = !f->excused;
			f->excused = 0;
		}
	}
	f->going_psn = (p->psn + 1) & PSN_MASK;
	event.delivered_bytes = f->acked_bytes;
	bpf_spin_unlock(&f->lock);
	if (tells)
		tell(&event);
	return rate ? at : 0;
}

/* rxe sends as many packets more as it sees acknowledged; the window has room for only some.  One
 * acknowledgement at least when no packet in flight asks for another.  If then none comes, user space
 * lets rxe see the rest.  end_bytes: what the acknowledgement that has come tells of. */
static __always_inline void look(const struct flow *f, __u64 end_bytes, struct sight *sight)
{
	__u64 inflight = f->sent_bytes - f->acked_bytes;
	__u64 cwnd = pace_cwnd_bytes[index_of(f->number)];

	sight->one = f->acked_bytes >= f->asked_bytes;
	sight->known = f->told_bytes;
	if (inflight < cwnd)
		sight->known += cwnd - inflight;
	sight->passes = !cwnd || sight->known >= end_bytes;
}

/* What rxe sees tells it of so many bytes. */
static __always_inline void knows(struct flow *f, __u64 end_bytes)
{
	if (f->told_bytes < end_bytes)
		f->told_bytes = end_bytes;
}

/* Delivered when the packet was sent last; of one that is not known, as if that were now. */
static __always_inline __u64 delivered_before(const struct flow *f, const struct slot *s, __u32 psn)
{
	return s->psn == psn ? s->prior_delivered : f->acked_bytes;
}

/* All packets before `end` have arrived; `lost`: the one at `end` has not.  `plain`: rxe need not see
 * this at once. */
static __always_inline struct sight acknowledged(struct packet *p, __u32 end, bool plain, bool lost,
						 bool excused, __u64 now)
{
	struct dp_pace_event event = { .kind = DP_PACE_ACK, .now_ns = now };
	struct flow *f = bpf_map_lookup_elem(&flows, &p->key);
	struct sight sight = { .passes = true, .number = DP_PACE_FLOWS };
	__u64 sent_in, acked_in, before_lost;
	__u32 psn = (end - 1) & PSN_MASK;
	struct slot *s, *missing;
	bool ours;

	if (!f) {
		__sync_fetch_and_add(&pace_counters.unknown_acks, 1);
		return sight;
	}
	s = slot_of(f->number, psn);
	missing = slot_of(f->number, end);
	if (!s || !missing)
		return sight;
	event.flow = f->number;
	sight.psn = psn;
	bpf_spin_lock(&f->lock);
	ours = s->psn == psn && s->end_bytes <= f->sent_bytes;
	if (ours && s->end_bytes > f->acked_bytes) {
		event.acked_bytes = s->end_bytes - f->acked_bytes;
		f->acked_bytes = s->end_bytes;
		if (!s->resent && now > s->departed_ns)
			event.rtt_ns = now - s->departed_ns;
		sent_in = s->departed_ns - s->first_sent_ns;
		acked_in = now - s->delivered_ns;
		event.interval_ns = sent_in > acked_in ? sent_in : acked_in;
		event.prior_delivered_bytes = s->prior_delivered;
		event.app_limited = s->app_limited;
		f->first_sent_ns = s->departed_ns;
		f->delivered_ns = now;
		event.marked = f->congested || p->congestion & BECN;
		f->congested = 0;
	}
	if (excused)
		f->excused = 1;
	sight.number = f->number;
	sight.repeats = !event.acked_bytes;
	if (plain && ours)
		look(f, s->end_bytes, &sight);
	if (sight.passes && ours)
		knows(f, s->end_bytes);
	event.delivered_bytes = f->acked_bytes;
	event.inflight_bytes = f->sent_bytes - f->acked_bytes;
	before_lost = delivered_before(f, missing, end);
	bpf_spin_unlock(&f->lock);
	if (event.acked_bytes)
		tell(&event);
	if (!lost)
		return sight;
	/* Go-back-N: everything behind it is sent again. */
	event.kind = DP_PACE_LOSS;
	event.lost_bytes = event.inflight_bytes;
	event.prior_delivered_bytes = before_lost;
	tell(&event);
	return sight;
}

static __always_inline void congested(struct packet *p)
{
	struct flow *f = bpf_map_lookup_elem(&flows, &p->key);

	if (!f)
		return;
	bpf_spin_lock(&f->lock);
	f->congested = 1;
	bpf_spin_unlock(&f->lock);
}

/* In the place of an acknowledgement rxe sees an older one, or nothing.  So acknowledgements that come
 * move the window, and rxe has no more in flight than the algorithm lets it. */
static __always_inline int show(struct __sk_buff *ctx, struct packet *p, const struct sight *sight,
				__u64 now)
{
	struct flow *f = bpf_map_lookup_elem(&flows, &p->key);
	struct dp_pace_kept *kept;
	struct dp_pace_unseen *a;
	__u64 seen;

	if (!f || sight->number >= DP_PACE_FLOWS)
		return TC_ACT_UNSPEC;
	a = &pace_unseen[index_of(sight->number)];
	/* One that is kept tells what this one repeats. */
	if (!sight->passes && sight->repeats)
		return TC_ACT_SHOT;
	if (sight->passes || !keep(ctx, sight, a, p->version, f->acked_bytes, now)) {
		seen = forget_up_to(a, sight);
		bpf_spin_lock(&f->lock);
		knows(f, seen);
		bpf_spin_unlock(&f->lock);
		return TC_ACT_UNSPEC;
	}
	__sync_fetch_and_add(&pace_counters.held_acks, 1);
	kept = take(a, sight);
	if (!kept)
		return TC_ACT_SHOT;
	bpf_spin_lock(&f->lock);
	knows(f, kept->end_bytes);
	bpf_spin_unlock(&f->lock);
	if (p->version == 4)
		bpf_skb_store_bytes(ctx, ETH_HLEN, kept->bytes, DP_PACE_ACK4_LEN,
				    BPF_F_RECOMPUTE_CSUM);
	else
		bpf_skb_store_bytes(ctx, ETH_HLEN, kept->bytes, DP_PACE_ACK6_LEN,
				    BPF_F_RECOMPUTE_CSUM);
	return TC_ACT_UNSPEC;
}

static __always_inline int answered(struct __sk_buff *ctx, struct packet *p, __u64 now)
{
	struct sight sight;
	bool rnr, nak;

	if (p->opcode == CNP) {
		congested(p);
		return TC_ACT_UNSPEC;
	}
	if (!has_aeth(p->opcode) ||
	    bpf_skb_load_bytes(ctx, p->bth_at + sizeof(struct bth), &p->syndrome, 1))
		return TC_ACT_UNSPEC;
	rnr = (p->syndrome & AETH_KIND) == AETH_RNR;
	nak = (p->syndrome & AETH_KIND) == AETH_NAK;
	sight = acknowledged(p, rnr || nak ? p->psn : p->psn + 1,
			     p->opcode == RC_ACK && p->payload == AETH_LEN && !rnr && !nak &&
				     ctx->mark != DP_PACE_SHOWN,
			     p->syndrome == NAK_SEQUENCE, rnr || nak, now);
	return show(ctx, p, &sight, now);
}

/* The packet that waits is a copy which belongs to no socket: a QP may be destroyed meanwhile, and
 * rxe looks at the QP of a packet when it has been sent (a panic in rxe_skb_tx_dtor of 6.12).
 * dp_pace_out() sees the copy again, and knows it by its mark.
 *
 * A copy that the qdisc drops (a result above 0) is lost as on the way, and rxe hears of it as of any
 * loss.  Told at once, it would hand over the same PSN again and again, or end the QP: Linux does
 * the one or the other, by its version. */
static __always_inline int wait_until(struct __sk_buff *ctx, __u64 at)
{
	__u32 mark = ctx->mark;

	if (bpf_skb_set_tstamp(ctx, at, BPF_SKB_TSTAMP_DELIVERY_MONO))
		return TC_ACT_UNSPEC;
	__sync_fetch_and_add(&pace_counters.paced_packets, 1);
	ctx->mark = PACED;
	if (bpf_clone_redirect(ctx, ctx->ifindex, 0) >= 0)
		return TC_ACT_STOLEN;
	ctx->mark = mark;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int dp_pace_out(struct __sk_buff *ctx)
{
	struct packet p;
	__u64 at;

	if (ctx->mark == DP_PACE_SHOWN)
		return bpf_redirect(ctx->ifindex, BPF_F_INGRESS);
	if (ctx->mark == PACED || !parse(ctx, &p, true))
		return TC_ACT_UNSPEC;
	if (is_request(p.opcode)) {
		at = sent(&p, bpf_ktime_get_ns());
		if (pace_ecn)
			set_ect(ctx, &p);
		if (at)
			return wait_until(ctx, at);
	} else if (p.opcode <= RC_LAST) {
		/* In a flow of its own it waits for no request. */
		bpf_set_hash(ctx, p.qpn | 1u << 31);
		if (pace_ecn && has_aeth(p.opcode))
			echo_marks(ctx, &p);
	}
	return TC_ACT_UNSPEC;
}

SEC("tc")
int dp_pace_in(struct __sk_buff *ctx)
{
	struct packet p;

	if (!parse(ctx, &p, false))
		return TC_ACT_UNSPEC;
	if (p.opcode == CNP || (p.opcode <= RC_LAST && !is_request(p.opcode)))
		return answered(ctx, &p, bpf_ktime_get_ns());
	if (pace_ecn && is_request(p.opcode))
		note_mark(&p);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
