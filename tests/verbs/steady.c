/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An algorithm that leaves its window as it is, for programs in C. */
#include "engine/cc.h"

static const struct dp_cc_flow initial;

static void on_init(void *record)
{
	struct dp_cc_flow *flow = record;

	flow->cwnd_bytes = 10 * flow->mss_bytes;
}

static void on_ack(void *flow, const struct dp_cc_ack *ack)
{
	(void)flow, (void)ack;
}

static void on_loss(void *flow, const struct dp_cc_loss *loss)
{
	(void)flow, (void)loss;
}

static void on_timeout(void *flow, double now_ns)
{
	(void)flow, (void)now_ns;
}

extern struct dp_cc_algo dp_cc_algo;
struct dp_cc_algo dp_cc_algo = {
	.abi = DP_CC_ABI,
	.name = "steady",
	.flow_bytes = sizeof(initial),
	.initial = &initial,
	.on_init = on_init,
	.on_ack = on_ack,
	.on_loss = on_loss,
	.on_timeout = on_timeout,
};
