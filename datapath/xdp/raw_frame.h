/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What raw.bpf.c and raw_tags.bpf.c share: a frame on its way to the AF_XDP socket of its queue. */
#ifndef DP_XDP_RAW_FRAME_H
#define DP_XDP_RAW_FRAME_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "xdp/raw.h"

struct dp_raw_counters raw_counters = {};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

static __always_inline int give_to_socket(struct xdp_md *ctx)
{
	struct dp_raw_meta *meta;

	if (!bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) {
		meta = (void *)(long)ctx->data_meta;
		if ((void *)(meta + 1) <= (void *)(long)ctx->data)
			meta->arrived_ns = bpf_ktime_get_ns();
	} else {
		__sync_fetch_and_add(&raw_counters.unstamped, 1);
	}
	return (int)bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
}

#endif
