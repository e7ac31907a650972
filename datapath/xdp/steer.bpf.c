// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gives RoCEv2 to the AF_XDP socket of its queue and everything else to the
 * kernel, so that a device in use by a port keeps its ARP, ping and ssh.  In front
 * of a frame for the socket lies the time of its arrival, and how late that was: if the
 * frame is dated (steer.h), the program takes the date off and reckons from it.
 *
 * RoCEv2 is: UDP to port 4791 of the port's own address or of a multicast group, not a
 * fragment, no IP options or extension headers (annex A17.3 has none).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "xdp/steer.h"

#define GROUPS bpf_htonl(0xe0000000) /* 224.0.0.0/4 */
#define IP_FRAGMENT 0x3fff	     /* more-fragments flag and offset */

const volatile struct dp_steer_config steer_config = {};
struct dp_steer_counters steer_counters = {};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1); /* the port sets it to cover its queues */
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

static __always_inline int to_our_udp_port(const struct udphdr *udp, const void *end)
{
	return (const void *)(udp + 1) <= end && udp->dest == bpf_htons(DP_STEER_UDP_PORT);
}

static __always_inline int is_ours_ipv4(const struct iphdr *ip, const void *end)
{
	if ((const void *)(ip + 1) > end || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
		return 0;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT))
		return 0;
	if (steer_config.addr[2] != bpf_htonl(0xffff))
		return 0;
	if (ip->daddr != steer_config.addr[3] && (ip->daddr & bpf_htonl(0xf0000000)) != GROUPS)
		return 0;
	return to_our_udp_port((const struct udphdr *)(ip + 1), end);
}

static __always_inline int is_ours_ipv6(const struct ipv6hdr *ip, const void *end)
{
	if ((const void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP)
		return 0;
	if (ip->daddr.in6_u.u6_addr8[0] != 0xff &&
	    (ip->daddr.in6_u.u6_addr32[0] != steer_config.addr[0] ||
	     ip->daddr.in6_u.u6_addr32[1] != steer_config.addr[1] ||
	     ip->daddr.in6_u.u6_addr32[2] != steer_config.addr[2] ||
	     ip->daddr.in6_u.u6_addr32[3] != steer_config.addr[3]))
		return 0;
	return to_our_udp_port((const struct udphdr *)(ip + 1), end);
}

/* Bytes of the frame without what lies behind its IP packet; 0: not known. */
static __always_inline __u32 frame_len(const struct ethhdr *eth, const void *end)
{
	const struct iphdr *v4 = (const void *)(eth + 1);
	const struct ipv6hdr *v6 = (const void *)(eth + 1);

	if ((const void *)(eth + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return (const void *)(v4 + 1) > end ? 0 : sizeof(*eth) + bpf_ntohs(v4->tot_len);
	if ((const void *)(v6 + 1) > end)
		return 0;
	return sizeof(*eth) + sizeof(*v6) + bpf_ntohs(v6->payload_len);
}

/* Takes the date off a dated frame; returns how long ago that was, 0 without a date. */
static __always_inline __u32 take_date(struct xdp_md *ctx, __u64 now)
{
	__u32 len = frame_len((const void *)(long)ctx->data, (const void *)(long)ctx->data_end);
	__u32 date, late;

	if (!len || bpf_xdp_get_buff_len(ctx) != len + DP_DATE_LEN)
		return 0;
	if (bpf_xdp_load_bytes(ctx, len, &date, DP_DATE_LEN) ||
	    bpf_xdp_adjust_tail(ctx, -DP_DATE_LEN))
		return 0;
	late = (__u32)now - date;
	return late < DP_DATE_AGE_NS ? late : 0;
}

static __always_inline void write_times(struct xdp_md *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 late = steer_config.dated ? take_date(ctx, now) : 0;
	struct dp_steer_meta *meta;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return;
	meta->arrived_ns = now;
	meta->seal = now ^ steer_config.seal;
	meta->late_ns = late;
}

/* .frags: a device whose MTU exceeds one page takes only such programs. */
SEC("xdp.frags")
int dp_steer(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *eth = (const void *)(long)ctx->data;
	int ours = 0;
	long action;

	if ((const void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		ours = is_ours_ipv4((const struct iphdr *)(eth + 1), end);
	else if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		ours = is_ours_ipv6((const struct ipv6hdr *)(eth + 1), end);
	if (!ours)
		return XDP_PASS;
	action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	if (action == XDP_PASS)
		__sync_fetch_and_add(&steer_counters.other_queue, 1);
	else
		write_times(ctx);
	return action;
}

char _license[] SEC("license") = "Dual BSD/GPL";
