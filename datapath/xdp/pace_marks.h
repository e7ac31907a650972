/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ECN of pace.bpf.c: requests leave as ECT(0), and acknowledgements tell of those that came with CE. */
#ifndef DP_XDP_PACE_MARKS_H
#define DP_XDP_PACE_MARKS_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_helpers.h>

#include "xdp/pace.h"
#include "xdp/pace_packet.h"

/* Of requests that a peer sends to us. */
struct echo {
	__u32 packets, marked; /* since the last acknowledgement */
	__s32 owed;	       /* marked packets, less those that acknowledgements have told of */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DP_PACE_FLOWS);
	__type(key, struct key);
	__type(value, struct echo);
} echoes SEC(".maps");

/* A peer's request comes in. */
static __always_inline void note_mark(struct packet *p)
{
	struct echo *echo, fresh = {};

	echo = bpf_map_lookup_elem(&echoes, &p->key);
	if (!echo) {
		bpf_map_update_elem(&echoes, &p->key, &fresh, BPF_NOEXIST);
		echo = bpf_map_lookup_elem(&echoes, &p->key);
	}
	if (!echo)
		return;
	__sync_fetch_and_add(&echo->packets, 1);
	if (p->ecn == ECN_CE)
		__sync_fetch_and_add(&echo->marked, 1);
}

/* Our acknowledgement leaves.  It speaks for several packets and has one bit, so that a rest is
 * kept for the next: the share of marked bytes is right over several acknowledgements. */
static __always_inline void echo_marks(struct __sk_buff *ctx, struct packet *p)
{
	struct echo *echo;
	__s32 packets;
	__u8 bits;

	echo = bpf_map_lookup_elem(&echoes, &p->key);
	if (!echo)
		return;
	packets = (__s32)echo->packets;
	echo->owed += (__s32)echo->marked;
	echo->packets = echo->marked = 0;
	if (echo->owed <= 0 || 2 * echo->owed < packets)
		return;
	echo->owed -= packets;
	bits = p->congestion | BECN;
	bpf_skb_store_bytes(ctx, p->bth_at + offsetof(struct bth, congestion), &bits, 1, 0);
}

static __always_inline void set_ect(struct __sk_buff *ctx, const struct packet *p)
{
	__be16 before, after;
	__u8 word[2];

	if (p->ecn || bpf_skb_load_bytes(ctx, ETH_HLEN, word, sizeof(word)))
		return;
	__builtin_memcpy(&before, word, 2);
	if (p->version == 4)
		word[1] |= ECN_ECT0;
	else
		word[1] |= ECN_ECT0 << 4;
	__builtin_memcpy(&after, word, 2);
	if (p->version == 4)
		bpf_l3_csum_replace(ctx, ETH_HLEN + offsetof(struct iphdr, check), before, after,
				    2);
	bpf_skb_store_bytes(ctx, ETH_HLEN, word, sizeof(word), 0);
}

#endif
