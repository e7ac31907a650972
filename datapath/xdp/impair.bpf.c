// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The middle of an emulated path: forwards between veth devices, and on the
 * way loses, marks or corrupts IP packets at random or by aim.
 *
 * A classifier at the ingress of every device of the middle.  What a device
 * does is in `ports`; configuration and state of the two directions are in
 * `configs` and `states`.  ARP, IPv6 neighbour discovery and multicast
 * listener reports are exempt, so that loss never turns into an address that
 * cannot be found.
 *
 * Why tc and not XDP: docs/impairments.md.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "wire/random.h"
#include "xdp/impair_common.h"

enum {
	IP_FRAGMENT_OFFSET = 0x1fff,
	ECN_MASK = 3,
	ECN_CE = 3,
	BTH_LEN = 12,
	TCP_DATA_OFFSET = 12, /* high nibble: header length in words */
	/* neighbour discovery and multicast listener discovery (RFC 4861, 2710, 3810) */
	ICMP6_MLD_QUERY = 130,
	ICMP6_REDIRECT = 137,
	ICMP6_MLD2_REPORT = 143,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DP_IMPAIR_PORTS);
	__type(key, __u32);
	__type(value, struct dp_impair_port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DP_IMPAIR_PORTS);
	__type(key, struct dp_impair_address);
	__type(value, __u32);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DP_IMPAIR_DIRECTIONS);
	__type(key, __u32);
	__type(value, struct dp_impair_config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DP_IMPAIR_DIRECTIONS);
	__type(key, __u32);
	__type(value, struct dp_impair_state);
} states SEC(".maps");

/* Where things are in one packet; offsets from the start of the frame. */
struct packet {
	bool ip;      /* may be impaired */
	bool roce;    /* has a BTH */
	__u8 version; /* 4 or 6 */
	__u8 ecn;
	__u32 payload; /* first byte that corruption may touch */
	__u32 end;     /* one past the last byte of the IP packet */
	__u32 qpn;
	__u32 psn;
};

/*
 * The parsed packet under way on each CPU.  It is in a map because of the kernel's verifier, which
 * assumes nothing about values in maps: it walks through impair() once.  With a packet on the stack
 * it walks through impair() again for each way through the parser.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet);
} parsed SEC(".maps");

static __always_inline bool happens(__u64 *rng, __u64 probability)
{
	return probability && dp_random32(rng) < probability;
}

static __always_inline void parse_bth(struct __sk_buff *ctx, struct packet *p)
{
	__u32 bth[3];

	if (p->payload + BTH_LEN > p->end || bpf_skb_load_bytes(ctx, p->payload, bth, sizeof(bth)))
		return;
	p->roce = true;
	p->qpn = bpf_ntohl(bth[1]) & 0xffffff;
	p->psn = bpf_ntohl(bth[2]) & 0xffffff;
	p->payload += BTH_LEN;
}

static __always_inline void parse_transport(struct __sk_buff *ctx, struct packet *p, __u8 protocol)
{
	struct udphdr udp;
	__u8 words;

	if (protocol == IPPROTO_UDP) {
		if (bpf_skb_load_bytes(ctx, p->payload, &udp, sizeof(udp)))
			return;
		p->payload += sizeof(udp);
		if (udp.dest == bpf_htons(DP_IMPAIR_ROCE_PORT))
			parse_bth(ctx, p);
	} else if (protocol == IPPROTO_TCP) {
		if (bpf_skb_load_bytes(ctx, p->payload + TCP_DATA_OFFSET, &words, 1))
			return;
		p->payload += (words >> 4) * 4;
	} else if (protocol == IPPROTO_ICMPV6) {
		if (bpf_skb_load_bytes(ctx, p->payload, &words, 1))
			return;
		if ((words >= ICMP6_MLD_QUERY && words <= ICMP6_REDIRECT) ||
		    words == ICMP6_MLD2_REPORT)
			p->ip = false;
	}
}

static __always_inline void parse_ipv4(struct __sk_buff *ctx, struct packet *p)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(ctx, ETH_HLEN, &ip, sizeof(ip)))
		return;
	p->ip = true;
	p->version = 4;
	p->ecn = ip.tos & ECN_MASK;
	p->payload = ETH_HLEN + ip.ihl * 4;
	p->end = ETH_HLEN + bpf_ntohs(ip.tot_len);
	if (!(ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET)))
		parse_transport(ctx, p, ip.protocol);
}

static __always_inline void parse_ipv6(struct __sk_buff *ctx, struct packet *p)
{
	__u8 hop_by_hop[8] = {};
	struct ipv6hdr ip;
	__u8 next;

	if (bpf_skb_load_bytes(ctx, ETH_HLEN, &ip, sizeof(ip)))
		return;
	p->ip = true;
	p->version = 6;
	p->ecn = ip.flow_lbl[0] >> 4 & ECN_MASK;
	p->payload = ETH_HLEN + sizeof(ip);
	p->end = p->payload + bpf_ntohs(ip.payload_len);
	next = ip.nexthdr;
	/* Multicast listener reports come behind a router alert option. */
	if (next == IPPROTO_HOPOPTS) {
		if (bpf_skb_load_bytes(ctx, p->payload, hop_by_hop, sizeof(hop_by_hop)))
			return;
		next = hop_by_hop[0];
		p->payload += (hop_by_hop[1] + 1) * 8;
	}
	parse_transport(ctx, p, next);
}

/* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'). */
static __always_inline void mark_ipv4(struct __sk_buff *ctx)
{
	__u16 word, check, marked;
	__u32 sum;

	if (bpf_skb_load_bytes(ctx, ETH_HLEN, &word, 2) ||
	    bpf_skb_load_bytes(ctx, ETH_HLEN + 10, &check, 2))
		return;
	marked = word | bpf_htons(ECN_CE);
	sum = (__u16)~check + (__u16)~word + marked;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	check = ~sum;
	bpf_skb_store_bytes(ctx, ETH_HLEN, &marked, 2, 0);
	bpf_skb_store_bytes(ctx, ETH_HLEN + 10, &check, 2, 0);
}

static __always_inline void mark_ipv6(struct __sk_buff *ctx)
{
	__u8 byte;

	if (bpf_skb_load_bytes(ctx, ETH_HLEN + 1, &byte, 1))
		return;
	byte |= ECN_CE << 4;
	bpf_skb_store_bytes(ctx, ETH_HLEN + 1, &byte, 1, 0);
}

static __always_inline void corrupt(struct __sk_buff *ctx, const struct packet *p, __u32 where)
{
	__u32 at = p->payload + (__u32)((__u64)(p->end - p->payload) * where >> 32);
	__u8 byte;

	if (bpf_skb_load_bytes(ctx, at, &byte, 1))
		return;
	byte ^= 1 << (where & 7);
	bpf_skb_store_bytes(ctx, at, &byte, 1, 0);
}

static __always_inline bool loses(const struct dp_impair_config *config,
				  struct dp_impair_state *state, __u64 now)
{
	__u64 *rng = &state->rng[DP_IMPAIR_RNG_LOSS];
	bool lost;

	if (config->loss_model == DP_IMPAIR_BERNOULLI)
		return happens(rng, config->loss_good);
	if (config->loss_model == DP_IMPAIR_GE_TIME) {
		lost = dp_ge_time_is_bad(&config->ge_time, &state->ge_state, now);
		return happens(rng, lost ? config->loss_bad : config->loss_good);
	}
	lost = happens(rng, state->bad ? config->loss_bad : config->loss_good);
	if (happens(rng, state->bad ? config->to_good : config->to_bad))
		state->bad = !state->bad;
	return lost;
}

static __always_inline bool is_target(const struct dp_impair_fault *fault, const struct packet *p)
{
	if (fault->match && !p->roce)
		return false;
	if (fault->match & DP_IMPAIR_MATCH_QPN && fault->qpn != p->qpn)
		return false;
	return !(fault->match & DP_IMPAIR_MATCH_PSN) || fault->psn == p->psn;
}

/* The actions, as bits 1 << enum dp_impair_action, of all faults that hit. */
static __always_inline __u32 aimed_actions(const struct dp_impair_config *config,
					   struct dp_impair_state *state, const struct packet *p)
{
	__u32 actions = 0;

	for (__u32 i = 0; i < DP_IMPAIR_FAULTS; i++) {
		const struct dp_impair_fault *fault = &config->faults[i];

		if (i >= config->n_faults)
			break;
		if (!is_target(fault, p))
			continue;
		state->seen[i]++;
		if (state->seen[i] < fault->nth || state->seen[i] - fault->nth >= fault->count)
			continue;
		state->hits[i]++;
		actions |= 1u << (fault->action & 7);
	}
	return actions;
}

/* The decision about one packet: taken under the lock, carried out after it. */
struct verdict {
	bool drop;
	bool mark;
	bool corrupt;
	__u32 where; /* a draw: place of the flipped bit */
};

static __always_inline void decide(const struct dp_impair_config *config,
				   struct dp_impair_state *state, const struct packet *p, __u64 now,
				   struct verdict *v)
{
	bool capable = p->ecn == 1 || p->ecn == 2;
	__u32 actions = aimed_actions(config, state, p);

	v->drop = loses(config, state, now) || actions & 1 << DP_IMPAIR_DROP;
	if (v->drop) {
		state->dropped++;
		return;
	}
	v->mark = capable && (happens(&state->rng[DP_IMPAIR_RNG_MARK], config->mark) ||
			      actions & 1 << DP_IMPAIR_MARK);
	v->corrupt = p->payload < p->end &&
		     (happens(&state->rng[DP_IMPAIR_RNG_CORRUPT], config->corrupt) ||
		      actions & 1 << DP_IMPAIR_CORRUPT);
	if (v->corrupt)
		v->where = dp_random32(&state->rng[DP_IMPAIR_RNG_CORRUPT]);
	state->marked += v->mark;
	state->corrupted += v->corrupt;
	state->passed++;
}

/* False: the packet is lost. */
static __always_inline bool impair(struct __sk_buff *ctx, __u32 direction, const struct packet *p)
{
	const struct dp_impair_config *config = bpf_map_lookup_elem(&configs, &direction);
	struct dp_impair_state *state = bpf_map_lookup_elem(&states, &direction);
	bool unsegmented = ctx->gso_segs > 1;
	struct verdict v = {};
	__u64 now = 0;

	if (!config || !state)
		return true;
	/* No helper may be called under the lock. */
	if (config->loss_model == DP_IMPAIR_GE_TIME)
		now = bpf_ktime_get_ns();
	bpf_spin_lock(&state->lock);
	state->unsegmented += unsegmented;
	if (p->ip)
		decide(config, state, p, now, &v);
	else
		state->exempt++;
	bpf_spin_unlock(&state->lock);
	if (v.mark && p->version == 4)
		mark_ipv4(ctx);
	else if (v.mark)
		mark_ipv6(ctx);
	if (v.corrupt)
		corrupt(ctx, p, v.where);
	return !v.drop;
}

static __always_inline int forward(struct __sk_buff *ctx, const struct dp_impair_port *port)
{
	struct dp_impair_address address = { .group = port->group };
	__u32 *known;

	if (bpf_skb_load_bytes(ctx, 0, address.mac, sizeof(address.mac)))
		return TC_ACT_SHOT;
	known = bpf_map_lookup_elem(&addresses, &address);
	if (known)
		return bpf_redirect(*known, 0);
	return port->out_ifindex ? bpf_redirect(port->out_ifindex, 0) : TC_ACT_SHOT;
}

SEC("tc")
int dp_impair(struct __sk_buff *ctx)
{
	__u32 ifindex = ctx->ifindex;
	const struct dp_impair_port *port = bpf_map_lookup_elem(&ports, &ifindex);
	__u32 zero = 0;
	struct packet *packet = bpf_map_lookup_elem(&parsed, &zero);

	if (!port || !packet)
		return TC_ACT_SHOT;
	if (port->direction < DP_IMPAIR_DIRECTIONS) {
		*packet = (struct packet){};
		if (ctx->protocol == bpf_htons(ETH_P_IP))
			parse_ipv4(ctx, packet);
		else if (ctx->protocol == bpf_htons(ETH_P_IPV6))
			parse_ipv6(ctx, packet);
		if (!impair(ctx, port->direction, packet))
			return TC_ACT_SHOT;
	}
	return forward(ctx, port);
}

char _license[] SEC("license") = "Dual BSD/GPL";
