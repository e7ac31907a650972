/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A program without Python that runs a compiled algorithm. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "engine/cc.h"

static void drive(const struct dp_cc_algo *algo, void *record)
{
	struct dp_cc_flow *flow = record;

	flow->mss_bytes = 4096;
	flow->max_cwnd_bytes = 1e6;
	algo->on_init(record);
	for (int i = 1; i <= 100; i++) {
		struct dp_cc_ack ack = {
			.now_ns = i * 1e5,
			.rtt_ns = 30000 + 1000 * i,
			.acked_bytes = 4096,
			.marked_bytes = i % 4 ? 0 : 4096,
			.inflight_bytes = 65536,
			.delivered_bytes = i * 4096,
			.prior_delivered_bytes = (i - 10) * 4096,
		};

		flow->now_ns = ack.now_ns;
		flow->srtt_ns = 45000;
		flow->delivered_bytes = ack.delivered_bytes;
		algo->on_ack(record, &ack);
	}
	algo->on_timeout(record, 2e7);
	printf("cwnd_bytes %.17g\npacing_rate_bps %.17g\n", flow->cwnd_bytes,
	       flow->pacing_rate_bps);
}

int main(int argc, char **argv)
{
	static uint64_t record[DP_CC_FLOW_BYTES_MAX / sizeof(uint64_t)];
	const struct dp_cc_algo *algo;
	void *object;

	if (argc != 2)
		return 2;
	object = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!object) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	algo = dlsym(object, "dp_cc_algo");
	if (!algo || algo->abi != DP_CC_ABI || algo->flow_bytes > sizeof(record))
		return 1;
	memcpy(record, algo->initial, algo->flow_bytes);
	printf("name %s\n", algo->name);
	drive(algo, record);
	return 0;
}
