/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The plan of a collective, as it lies in files and in memory.
 *
 * plan.py has the same layout, and the meaning of each column.  Little endian, naturally aligned,
 * no padding.  A plan: dp_plan_head, `steps` dp_plan_step by rank, `waits` dp_plan_wait.
 */
#ifndef DP_COLLECTIVES_PLAN_H
#define DP_COLLECTIVES_PLAN_H

#include <stdint.h>

#define DP_PLAN_MAGIC "DPPLAN"
#define DP_PLAN_ABI 1
#define DP_PLAN_NONE UINT32_MAX

enum dp_plan_op {
	DP_PLAN_SEND,
	DP_PLAN_RECEIVE,
	DP_PLAN_REDUCE,
	DP_PLAN_COPY_LOCAL,
	DP_PLAN_REDUCE_LOCAL,
};

enum dp_plan_buffer {
	DP_PLAN_DATA,
	DP_PLAN_INPUT,
	DP_PLAN_SCRATCH,
	DP_PLAN_BUFFERS,
};

enum dp_plan_collective {
	DP_PLAN_ALLREDUCE,
	DP_PLAN_REDUCE_SCATTER,
	DP_PLAN_ALLGATHER,
	DP_PLAN_BROADCAST,
	DP_PLAN_ALLTOALL,
	DP_PLAN_REDUCE_TO_ROOT,
	DP_PLAN_GATHER,
	DP_PLAN_SCATTER,
	DP_PLAN_COLLECTIVES,
};

struct dp_plan_step {
	uint32_t rank, step;
	uint32_t channel;
	uint32_t op; /* enum dp_plan_op */
	uint32_t peer;
	uint32_t match; /* row of the other end's step, or DP_PLAN_NONE */
	uint32_t buffer, from_buffer;
	uint64_t offset, from_offset;
	uint64_t bytes;
	uint64_t compute_ns;
};

/* Row `step` waits for row `on`. */
struct dp_plan_wait {
	uint32_t step, on;
};

struct dp_plan_head {
	char magic[8];
	uint32_t abi, step_bytes;
	uint32_t ranks, channels;
	uint32_t collective, root;
	uint32_t item_bytes;
	uint32_t slot_bytes; /* the largest transfer */
	uint64_t data_bytes, input_bytes, scratch_bytes;
	uint64_t steps, waits;
};

#endif
