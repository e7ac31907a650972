// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * As raw.bpf.c, and puts a VLAN tag that travels beside the frame back into its bytes.  A sender on
 * veth leaves it there (tx-vlan-offload), and an AF_XDP socket sees the bytes alone: the frame would
 * go on without its tag.
 *
 * The kernel tells such tags since Linux 6.8, to a program that is bound to the device, where the
 * driver knows them, as veth's does.
 */
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

#include "xdp/raw_frame.h"

struct vlan_tag {
	__be16 protocol, control;
};

extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_protocol,
					__u16 *vlan_control) __ksym;

static __always_inline int put_tag(struct xdp_md *ctx, __be16 protocol, __u16 control)
{
	const struct vlan_tag tag = { protocol, bpf_htons(control) };
	__u8 *frame;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(tag)))
		return -1;
	frame = (void *)(long)ctx->data;
	if (frame + sizeof(tag) + ETH_HLEN > (__u8 *)(long)ctx->data_end)
		return -1;
	__builtin_memmove(frame, frame + sizeof(tag), 2 * ETH_ALEN);
	__builtin_memcpy(frame + 2 * ETH_ALEN, &tag, sizeof(tag));
	return 0;
}

SEC("xdp.frags")
int dp_raw_tags(struct xdp_md *ctx)
{
	__be16 protocol;
	__u16 control;

	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &protocol, &control) &&
	    put_tag(ctx, protocol, control))
		return XDP_DROP;
	return give_to_socket(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
