// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gives RoCEv2 to the AF_XDP socket of its queue and everything else to the
 * kernel, so that a device in use by a port keeps its ARP, ping and ssh.  In front
 * of a frame for the socket lies the time of its arrival, and how late that was: if the
 * frame is dated (steer.h), the program takes the date off and reckons from it.
 *
 * Where queues have ports of their own, a packet that is for the port of another queue, by the top 8
 * bits of its QPN (io/slot.h), goes to the kernel, too, which gives it to a UDP socket of that port.
 * So do management datagrams.
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

#include "xdp/slots.h"
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* as that of `sockets` */
	__type(key, __u32);
	__type(value, __u32);
} slots SEC(".maps"); /* of the port of each queue, plus one */

enum whose { NOT_OURS, OURS, OF_OTHER_QUEUE };

static __always_inline int is_for_queue(const __u8 *bth, const void *end, __u32 queue)
{
	const __u32 *slot = bpf_map_lookup_elem(&slots, &queue);
	const __u8 *qpn = bth + DP_SLOT_BYTE;

	if (!slot || (const void *)(qpn + 3) > end)
		return 0;
	return *slot == qpn[0] + 1 && (qpn[0] || qpn[1] || qpn[2] != DP_SLOTS_MAD_QPN);
}

static __always_inline enum whose whose_udp(const struct udphdr *udp, const void *end, int group,
					    __u32 queue)
{
	if ((const void *)(udp + 1) > end || udp->dest != bpf_htons(DP_STEER_UDP_PORT))
		return NOT_OURS;
	if (!steer_config.shared || group || is_for_queue((const void *)(udp + 1), end, queue))
		return OURS;
	return OF_OTHER_QUEUE;
}

static __always_inline enum whose whose_ipv4(const struct iphdr *ip, const void *end, __u32 queue)
{
	int group;

	if ((const void *)(ip + 1) > end || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
		return NOT_OURS;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT))
		return NOT_OURS;
	if (steer_config.addr[2] != bpf_htonl(0xffff))
		return NOT_OURS;
	group = (ip->daddr & bpf_htonl(0xf0000000)) == GROUPS;
	if (ip->daddr != steer_config.addr[3] && !group)
		return NOT_OURS;
	return whose_udp((const struct udphdr *)(ip + 1), end, group, queue);
}

static __always_inline enum whose whose_ipv6(const struct ipv6hdr *ip, const void *end, __u32 queue)
{
	int group;

	if ((const void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP)
		return NOT_OURS;
	group = ip->daddr.in6_u.u6_addr8[0] == 0xff;
	if (!group && (ip->daddr.in6_u.u6_addr32[0] != steer_config.addr[0] ||
		       ip->daddr.in6_u.u6_addr32[1] != steer_config.addr[1] ||
		       ip->daddr.in6_u.u6_addr32[2] != steer_config.addr[2] ||
		       ip->daddr.in6_u.u6_addr32[3] != steer_config.addr[3]))
		return NOT_OURS;
	return whose_udp((const struct udphdr *)(ip + 1), end, group, queue);
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

/* Takes the date off a dated frame; returns how long ago that was, less than 0 if it is still to come,
 * 0 without a date. */
static __always_inline __s32 take_date(struct xdp_md *ctx, __u64 now)
{
	__u32 len = frame_len((const void *)(long)ctx->data, (const void *)(long)ctx->data_end);
	__u32 date, late;

	if (!len || bpf_xdp_get_buff_len(ctx) != len + DP_DATE_LEN)
		return 0;
	if (bpf_xdp_load_bytes(ctx, len, &date, DP_DATE_LEN) ||
	    bpf_xdp_adjust_tail(ctx, -DP_DATE_LEN))
		return 0;
	late = (__u32)now - date;
	return late < DP_DATE_AGE_NS || -late < DP_DATE_EARLY_NS ? late : 0;
}

static __always_inline void write_times(struct xdp_md *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__s32 late = steer_config.dated ? take_date(ctx, now) : 0;
	struct dp_steer_meta *meta;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return;
	if (late < 0) {
		now -= late;
		late = 0;
	}
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
	enum whose whose = NOT_OURS;
	long action = XDP_PASS;

	if ((const void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		whose = whose_ipv4((const struct iphdr *)(eth + 1), end, ctx->rx_queue_index);
	else if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		whose = whose_ipv6((const struct ipv6hdr *)(eth + 1), end, ctx->rx_queue_index);
	if (whose == NOT_OURS)
		return XDP_PASS;
	if (whose == OURS)
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	if (action == XDP_PASS)
		__sync_fetch_and_add(&steer_counters.other_queue, 1);
	else
		write_times(ctx);
	return action;
}

char _license[] SEC("license") = "Dual BSD/GPL";
