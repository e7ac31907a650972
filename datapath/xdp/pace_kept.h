/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The acknowledgements that pace.bpf.c keeps from rxe for a while. */
#ifndef DP_XDP_PACE_KEPT_H
#define DP_XDP_PACE_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "xdp/pace.h"
#include "xdp/pace_packet.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DP_PACE_FLOWS *DP_PACE_KEPT);
	__type(key, __u32);
	__type(value, struct dp_pace_kept);
} kept_acks SEC(".maps");

/* The ingress changes it, where all packets of a flow come one after another, and a new connection. */
struct dp_pace_unseen pace_unseen[DP_PACE_FLOWS] = {};

/* What rxe may see of a flow's acknowledgements. */
struct sight {
	__u32 number; /* of the flow */
	__u32 psn;    /* up to which the one that has just come tells that packets arrived */
	bool passes;  /* that one, and so all that tell less */
	bool repeats; /* that one tells us nothing new */
	bool one;     /* one more at least */
	__u64 known;  /* otherwise those up to so many acked_bytes */
};

/* The number of a flow as an index.  Without it, the compiler checks the number in one register and
 * reads it into another one from the stack, where the verifier of Linux 6.1 knows no bound. */
static __always_inline __u32 index_of(__u32 number)
{
	barrier_var(number);
	return number & (DP_PACE_FLOWS - 1);
}

static __always_inline void forget_kept(struct dp_pace_unseen *a)
{
	a->first = a->end;
}

static __always_inline struct dp_pace_kept *kept_at(__u32 number, __u32 place)
{
	__u32 index = number * DP_PACE_KEPT + (place & (DP_PACE_KEPT - 1));

	return bpf_map_lookup_elem(&kept_acks, &index);
}

/* Keeps the acknowledgement for later.  False: it cannot be kept. */
static __always_inline bool keep(struct __sk_buff *ctx, const struct sight *sight,
				 struct dp_pace_unseen *a, __u8 version, __u64 end_bytes, __u64 now)
{
	struct dp_pace_kept *kept = kept_at(sight->number, a->end);

	if (!kept)
		return false;
	if (version == 4 ? bpf_skb_load_bytes(ctx, ETH_HLEN, kept->bytes, DP_PACE_ACK4_LEN) :
			   bpf_skb_load_bytes(ctx, ETH_HLEN, kept->bytes, DP_PACE_ACK6_LEN))
		return false;
	kept->psn = sight->psn;
	kept->end_bytes = end_bytes;
	a->kept_ns = now;
	a->end++;
	if (a->end - a->first > DP_PACE_KEPT) /* those behind it tell what it tells */
		a->first = a->end - DP_PACE_KEPT;
	return true;
}

/* rxe sees the acknowledgement that has just come, and needs none that tells no more.  Returns of how
 * many bytes the newest of these tells; 0: there is none.
 *
 * Here and in take() `first` is written once: an acknowledgement that user space shows may come on
 * another CPU at the same time, and `first` must never pass `end`. */
static __always_inline __u64 forget_up_to(struct dp_pace_unseen *a, const struct sight *sight)
{
	__u32 first = a->first, end = a->end;
	struct dp_pace_kept *next;
	__u64 end_bytes = 0;

	for (int i = 0; i < DP_PACE_KEPT && first != end; i++, first++) {
		next = kept_at(sight->number, first);
		if (!next || behind(next->psn, sight->psn) > 0)
			break;
		end_bytes = next->end_bytes;
	}
	a->first = first;
	return end_bytes;
}

/* The newest acknowledgement that rxe may see now, taken from those that it has not seen; NULL:
 * none. */
static __always_inline struct dp_pace_kept *take(struct dp_pace_unseen *a,
						 const struct sight *sight)
{
	struct dp_pace_kept *found = NULL, *next;
	__u32 first = a->first, end = a->end;

	for (int i = 0; i < DP_PACE_AT_ONCE && first != end; i++, first++) {
		next = kept_at(sight->number, first);
		if (!next || (next->end_bytes > sight->known && !(sight->one && !i)))
			break;
		found = next;
	}
	a->first = first;
	return found;
}

#endif
