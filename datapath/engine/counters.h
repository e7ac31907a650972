/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The counters of an engine and of its QPs. */
#ifndef DP_ENGINE_COUNTERS_H
#define DP_ENGINE_COUNTERS_H

#include <stdint.h>

/* X(name): all uint64_t; the lists are those of the structs, the JSON and the docs. */
#define DP_QP_TRAFFIC_COUNTERS(X)                                                                  \
	X(tx_packets)	/* data packets sent, retransmissions included */                          \
	X(tx_bytes)	/* payload bytes of tx_packets */                                          \
	X(rx_packets)	/* packets accepted */                                                     \
	X(rx_bytes)	/* payload placed */                                                       \
	X(out_of_order) /* extended mode: packets placed ahead of a gap */                         \
	X(dropped_ooo)	/* standard mode: packets dropped behind a gap */                          \
	X(duplicates)	/* packets received again */                                               \
	X(ecn_marked)	/* packets received with CE */                                             \
	X(trimmed)	/* packets received without their payload */                               \
	X(cnp_rx) X(cnp_tx) X(acks_tx) X(acks_rx) X(naks_tx) X(rnr_tx)

/* Counters of a connection that has sent a packet. */
#define DP_QP_SENDER_COUNTERS(X)                                                                   \
	X(retransmits)	    /* data packets sent again */                                          \
	X(fast_retransmits) /* retransmits that order and time found (RACK), not a time-out */     \
	X(spurious)	    /* packets the peer got twice */                                       \
	X(timeouts)	    /* RTO or IB timeout expiries */                                       \
	X(probes)	    /* tail loss probes */                                                 \
	X(naks_rx)                                                                                 \
	X(rnr_rx)                                                                                  \
	X(pacing_waits)	  /* packets that had to wait for their time */                            \
	X(pacing_late_ns) /* sum of the times by which they were sent late */

#define DP_QP_COUNTERS(X) DP_QP_TRAFFIC_COUNTERS(X) DP_QP_SENDER_COUNTERS(X)

/* Counters that hold a maximum.  Over several QPs take the largest, not the sum. */
#define DP_QP_PEAKS(X)                                                                             \
	X(pacing_late_max_ns)                                                                      \
	X(pacing_burst_max) /* packets that a paced QP sent in a row to reach its plan */

struct dp_qp_stats {
#define X(name) uint64_t name;
	DP_QP_COUNTERS(X)
	DP_QP_PEAKS(X)
#undef X
};

#define DP_ENGINE_COUNTERS(X)                                                                      \
	X(rx_packets)                                                                              \
	X(tx_packets)                                                                              \
	X(drop_malformed) /* truncated, bad version, pad, length, reserved syndrome */             \
	X(drop_icrc)                                                                               \
	X(drop_unknown_qp)                                                                         \
	X(drop_foreign_addr) /* source or destination address is not that of the QP */             \
	X(drop_bad_state)                                                                          \
	X(drop_other_type) /* an opcode of another QP type */                                      \
	X(drop_unknown_opcode)                                                                     \
	X(drop_qkey)	   /* UD: the Q_Key is not that of the QP */                               \
	X(drop_no_member)  /* multicast: to a group in which no QP is */                           \
	X(drop_no_receive) /* UD: no receive was posted */                                         \
	X(drop_too_long)   /* UD: longer than the receive */                                       \
	X(tx_too_long)	   /* UD: messages longer than the path MTU, which are not sent */

struct dp_engine_stats {
#define X(name) uint64_t name;
	DP_ENGINE_COUNTERS(X)
#undef X
};

#endif
