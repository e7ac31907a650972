// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gives a datagram to the UDP socket of the process that it is for: io/slot.h.  A datagram for
 * nobody goes to any of the sockets.
 */
#include <linux/bpf.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "xdp/slots.h"

struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, DP_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, DP_SLOTS_SERVICES);
	__type(key, __u64); /* service id */
	__type(value, __u32);
} services SEC(".maps");

/* The context begins with the UDP header. */
static __always_inline long load(const struct sk_reuseport_md *ctx, __u32 at, void *to, __u32 len)
{
	return bpf_skb_load_bytes(ctx, sizeof(struct udphdr) + at, to, len);
}

/* The slot of whom a management datagram is for; DP_SLOTS: unknown. */
static __always_inline __u32 slot_of_mad(const struct sk_reuseport_md *ctx)
{
	__be16 attribute;
	__be64 service;
	__u64 number;
	__u32 *slot;
	__u8 top;

	if (load(ctx, DP_SLOTS_ATTRIBUTE_AT, &attribute, sizeof(attribute)))
		return DP_SLOTS;
	switch (bpf_ntohs(attribute)) {
	case DP_SLOTS_REQ:
	case DP_SLOTS_SIDR_REQ:
		if (load(ctx, DP_SLOTS_SERVICE_ID_AT, &service, sizeof(service)))
			return DP_SLOTS;
		number = bpf_be64_to_cpu(service);
		slot = bpf_map_lookup_elem(&services, &number);
		return slot ? *slot : DP_SLOTS;
	case DP_SLOTS_SIDR_REP:
		return load(ctx, DP_SLOTS_MESSAGE_AT, &top, 1) ? DP_SLOTS : top;
	default:
		return load(ctx, DP_SLOTS_REMOTE_ID_AT, &top, 1) ? DP_SLOTS : top;
	}
}

SEC("sk_reuseport")
int dp_slots(struct sk_reuseport_md *ctx)
{
	__u8 bth[DP_SLOTS_BTH_LEN];
	__u32 slot;

	if (load(ctx, 0, bth, sizeof(bth)))
		return SK_PASS;
	slot = bth[DP_SLOT_BYTE];
	if (!slot && !bth[DP_SLOT_BYTE + 1] && bth[DP_SLOT_BYTE + 2] == DP_SLOTS_MAD_QPN)
		slot = slot_of_mad(ctx);
	bpf_sk_select_reuseport(ctx, &slots, &slot, 0);
	return SK_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
