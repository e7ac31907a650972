// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Copa's default mode for the kernel's TCP, in integers.
 * Source: Arun and Balakrishnan, NSDI 2018, section 2.
 *
 * The flow aims at 1 / (delta x queueing delay) packets per second, with delta = 1/2: two packets
 * of its own in the queue.  Below that rate the window grows by 1 / delta packets per round trip,
 * above it shrinks by as many, and faster the longer the direction stays (the velocity).
 * A lost packet is sent again and changes nothing else.
 *
 * Differences from the paper: no mode for competition with flows that fill the queue.  Packets are
 * not paced unless the qdisc is fq.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

enum {
	CWND_LEAST = 2,
	VELOCITY_MAX = 64,
	ROUNDS_OF_ONE_DIRECTION = 3,  /* until the velocity doubles */
	BASE_LIFE_US = 10 * 1000000,  /* the base RTT is the lowest of so long */
	NON_RESTRICTED = 1,	      /* TCP_CONG_NON_RESTRICTED */
	INFINITE_WINDOW = 0x7fffffff, /* TCP_INFINITE_SSTHRESH */
};

/* In the socket's room for congestion control, 104 bytes. */
struct copa {
	__u32 base_us;	   /* lowest RTT */
	__u32 base_at_us;  /* when it was seen */
	__u32 standing_us; /* lowest RTT of the last half of a round trip */
	__u32 before_us;   /* that of the half before */
	__u32 half_at_us;  /* when the half began */
	__u32 round_at_us;
	__u32 round_cwnd; /* window at the beginning of the round */
	__u32 velocity;
	__u32 same;  /* rounds in one direction */
	__u32 acked; /* packets towards the next change of the window, x 1/delta */
	__u8 grew, slow_start;
};

static inline struct copa *copa_of(struct sock *sk)
{
	return (struct copa *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static inline __u32 now_us(void)
{
	return (__u32)(bpf_ktime_get_ns() / 1000);
}

static inline __u32 least(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

SEC("struct_ops/copa_init")
void BPF_PROG(copa_init, struct sock *sk)
{
	struct copa *c = copa_of(sk);

	__builtin_memset(c, 0, sizeof(*c));
	c->velocity = 1;
	c->slow_start = 1;
	((struct tcp_sock *)sk)->snd_ssthresh = INFINITE_WINDOW;
}

/* A new RTT sample. */
SEC("struct_ops/copa_pkts_acked")
void BPF_PROG(copa_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct copa *c = copa_of(sk);
	__u32 now = now_us(), rtt;

	if (sample->rtt_us <= 0)
		return;
	rtt = (__u32)sample->rtt_us;
	if (!c->base_us || rtt <= c->base_us || now - c->base_at_us > BASE_LIFE_US) {
		c->base_us = rtt;
		c->base_at_us = now;
	}
	if (!c->standing_us || now - c->half_at_us > tp->srtt_us >> 5) {
		c->before_us = c->standing_us ? c->standing_us : rtt;
		c->standing_us = rtt;
		c->half_at_us = now;
	}
	c->standing_us = least(c->standing_us, rtt);
}

/* Once per round trip: the velocity doubles while the window keeps its direction. */
static inline void end_round(struct copa *c, __u32 cwnd, __u32 now)
{
	__u8 grew = cwnd > c->round_cwnd;

	if (grew != c->grew) {
		c->velocity = 1;
		c->same = 0;
	} else if (++c->same >= ROUNDS_OF_ONE_DIRECTION && c->velocity < VELOCITY_MAX) {
		c->velocity *= 2;
	}
	c->grew = grew;
	c->round_cwnd = cwnd;
	c->round_at_us = now;
}

SEC("struct_ops/copa_cong_avoid")
void BPF_PROG(copa_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct copa *c = copa_of(sk);
	__u32 now = now_us(), cwnd = tp->snd_cwnd, rtt, queue_us, step;
	bool up;

	if (!c->base_us)
		return;
	rtt = least(c->standing_us, c->before_us);
	queue_us = rtt > c->base_us ? rtt - c->base_us : 0;
	/* cwnd / rtt below 1 / (delta x queue) */
	up = (__u64)cwnd * queue_us < 2ull * rtt;
	if (c->slow_start && up) {
		if (tp->is_cwnd_limited)
			tp->snd_cwnd = least(cwnd + acked, tp->snd_cwnd_clamp);
		return;
	}
	c->slow_start = 0;
	if (now - c->round_at_us > tp->srtt_us >> 3)
		end_round(c, cwnd, now);
	if (up != c->grew && c->velocity > 1) {
		c->velocity = 1;
		c->same = 0;
	}
	c->acked += acked * 2 * c->velocity;
	step = c->acked / cwnd;
	c->acked -= step * cwnd;
	if (up)
		cwnd += tp->is_cwnd_limited ? step : 0;
	else
		cwnd = cwnd > step + CWND_LEAST ? cwnd - step : CWND_LEAST;
	tp->snd_cwnd = least(cwnd, tp->snd_cwnd_clamp);
}

/* Loss is no sign of congestion here: the kernel's recovery keeps the window. */
SEC("struct_ops/copa_ssthresh")
__u32 BPF_PROG(copa_ssthresh, struct sock *sk)
{
	__u32 cwnd = ((struct tcp_sock *)sk)->snd_cwnd;

	return cwnd > CWND_LEAST ? cwnd : CWND_LEAST;
}

SEC("struct_ops/copa_undo_cwnd")
__u32 BPF_PROG(copa_undo_cwnd, struct sock *sk)
{
	return ((struct tcp_sock *)sk)->snd_cwnd;
}

SEC(".struct_ops")
struct tcp_congestion_ops copa = {
	.init = (void *)copa_init,
	.pkts_acked = (void *)copa_pkts_acked,
	.cong_avoid = (void *)copa_cong_avoid,
	.ssthresh = (void *)copa_ssthresh,
	.undo_cwnd = (void *)copa_undo_cwnd,
	.flags = NON_RESTRICTED,
	.name = "dp_copa",
};

char _license[] SEC("license") = "Dual BSD/GPL";
