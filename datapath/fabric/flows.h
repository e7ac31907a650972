/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The traffic table and its results, as they lie in files and in memory.
 *
 * One schedule drives the simulator and the live generator; both answer with
 * the same rows and the same histogram.  Little endian, naturally aligned, no
 * padding.  flows.py has the same layout and the meaning of the rules.
 *
 * A table file:   dp_flow_table, then `rows` dp_flow, ordered by start_ns
 * A result file:  dp_flow_report, then `buckets` uint64_t counts of latencies,
 *                 then `rows` dp_flow_result
 *
 * All times are nanoseconds after the schedule's zero.
 */
#ifndef DP_FABRIC_FLOWS_H
#define DP_FABRIC_FLOWS_H

#include <stdint.h>

#define DP_FLOW_TABLE_MAGIC "DPFLOWS"
#define DP_FLOW_REPORT_MAGIC "DPREPRT"
#define DP_FLOW_ABI 4
#define DP_FLOW_UNTIL_STOP UINT64_MAX
#define DP_FLOW_MESSAGE_MAX (1ULL << 30)
#define DP_FLOW_DEPTH_MAX (1 << 20)

/* One flow: messages of one size from src to dst. */
struct dp_flow {
	uint64_t start_ns;	/* the first message is posted then */
	uint64_t stop_ns;	/* 0: ends when all bytes are delivered */
	uint32_t src, dst;	/* host indices */
	uint64_t bytes;		/* DP_FLOW_UNTIL_STOP: as many bytes as possible until stop_ns */
	uint64_t message_bytes; /* 0: the flow is one message */
	uint32_t depth;		/* messages outstanding at once */
	uint32_t qp;	 /* number of the QP from src to dst; flows of one QP wait for each other */
	uint32_t tag;	 /* free for the maker of the table */
	uint32_t opcode; /* enum dp_wr_opcode: RDMA_WRITE, SEND or RDMA_READ */
	uint32_t cc;   /* algorithm that its QP gets when the flow begins, counted from 1 in a list
		      * beside the table; 0: as it is */
	uint32_t dscp; /* of the packets of its QP, 0 to 63; all flows of a QP have the same */
	uint32_t
		after; /* an earlier row, counted from 1, without whose end it does not begin; 0: none */
	uint32_t held; /* 1: it does not begin before an order says so */
};

/* What becomes of a row while a run goes on. */
enum dp_flow_what {
	DP_FLOW_HOLD,  /* it has not begun, and does not */
	DP_FLOW_BEGIN, /* it is held no longer: it begins now, or when its start_ns comes */
	DP_FLOW_END,   /* it ends now; if it sends until stop_ns, it has finished */
	DP_FLOW_CC,    /* its QP has another algorithm; none of its rows changes that again */
	DP_FLOW_WHATS,
};

/* An order to the live generator, in its FIFO. */
struct dp_flow_order {
	uint32_t row, what; /* enum dp_flow_what */
	uint32_t cc;	    /* with DP_FLOW_CC: as in struct dp_flow */
	uint32_t reserved;
};

/* Bytes of the next message when `left` bytes are still to be posted. */
static inline uint64_t dp_flow_next_message(const struct dp_flow *flow, uint64_t left)
{
	return flow->message_bytes && flow->message_bytes < left ? flow->message_bytes : left;
}

/* finish_ns of a flow that ends now.  Where links take no time it may end at 0, which would say that
 * it has not finished. */
static inline uint64_t dp_flow_finish_now(uint64_t now_ns)
{
	return now_ns ? now_ns : 1;
}

/* finish_ns of a flow that is ended at a time, by its stop_ns or by an order.  A flow that sends until
 * stop_ns has finished then; a flow of a number of bytes has not. */
static inline uint64_t dp_flow_finish_at(const struct dp_flow *flow, uint64_t at_ns)
{
	return flow->bytes == DP_FLOW_UNTIL_STOP ? at_ns : 0;
}

/* The result of a flow. */
struct dp_flow_result {
	uint64_t posted_ns;	  /* its first message was posted */
	uint64_t finish_ns;	  /* its last message completed, or stop_ns; 0: not finished */
	uint64_t delivered_bytes; /* of completed messages */
	uint64_t messages;	  /* completed */
	uint32_t failed;	  /* enum dp_wc_status of the first failure; 0: none */
	uint32_t flow;		  /* its row in the table */
};

struct dp_flow_table {
	char magic[8];
	uint32_t abi, row_bytes;
	uint64_t rows;
	uint32_t hosts;
	uint32_t reserved;
	uint64_t seed; /* seed from which the schedule was drawn */
};

struct dp_flow_report {
	char magic[8];
	uint32_t abi, row_bytes;
	uint64_t rows;
	uint32_t host;	  /* host whose flows these are; UINT32_MAX: several hosts */
	uint32_t buckets; /* DP_LATENCY_BUCKETS */
	uint64_t latency_min_ns, latency_max_ns, latency_sum_ns;
	uint64_t data_packets,
		retransmitted_packets; /* counted by the transport; both 0: not known */
};

/*
 * Latencies are counted in buckets whose width is at most 1/128 of their values (the idea of
 * HdrHistogram): one bucket for each nanosecond below 256 ns, and 128 for each doubling above.
 */
enum {
	DP_LATENCY_SUB_BITS = 7,
	DP_LATENCY_SUB = 1 << DP_LATENCY_SUB_BITS,
	DP_LATENCY_BUCKETS = (64 - DP_LATENCY_SUB_BITS + 1) * DP_LATENCY_SUB,
};

static inline uint32_t dp_latency_bucket(uint64_t ns)
{
	int top = ns ? 63 - __builtin_clzll(ns) : 0;
	int shift = top > DP_LATENCY_SUB_BITS ? top - DP_LATENCY_SUB_BITS : 0;

	return ((uint32_t)shift << DP_LATENCY_SUB_BITS) + (uint32_t)(ns >> shift);
}

#endif
