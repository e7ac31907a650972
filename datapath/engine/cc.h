/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Congestion control: what an algorithm sees and what it sets.
 *
 * An algorithm is up to seven functions over a flow record, at the sender, and may
 * have up to four more at the receiver, over a record of the port and one of each flow
 * that comes in.  It is written in Python (datapath/cc/), compiled to a shared
 * object that exports one `struct dp_cc_algo dp_cc_algo`, and runs without
 * Python.  The records are also numpy dtypes (datapath/cc/records.py); a test
 * compares every offset.
 *
 * All members are 8 bytes wide, so there is no padding to get wrong.  Only
 * what a kernel transport could know as well stands here.
 */
#ifndef DP_ENGINE_CC_H
#define DP_ENGINE_CC_H

#include <stdint.h>

#define DP_CC_ABI 11
#define DP_CC_HOPS_MAX 8

/* Head of every flow record; parameters and state of the algorithm follow. */
struct dp_cc_flow {
	/* set by the algorithm */
	double cwnd_bytes;	/* may be less than a packet: then one is sent in several RTTs */
	double pacing_rate_bps; /* 0: not paced */
	double next_path; /* path of the packets that this lets out; -1: the paths take turns */
	double unscheduled_bytes; /* may be in flight without a grant, where grants are needed */
	double wake_ns;		  /* when on_wake is called; 0: not */
	/* set by the transport before each call */
	double mss_bytes;      /* payload of a full packet */
	double line_rate_bps;  /* 0: not known */
	double max_cwnd_bytes; /* what the transport can track */
	double min_rtt_ns;     /* lowest RTT of some 10 s, 0: none yet */
	double srtt_ns;	       /* RFC 6298, 0: none yet */
	double host_ns;	       /* time that both hosts add to an RTT, smoothed like srtt_ns */
	double inflight_bytes;
	double delivered_bytes; /* since the QP was connected */
	double now_ns;
	double paths;	     /* number of paths that packets may take, 1 to 64 */
	double needs_grants; /* 1: the receiver gives grants, and only these may be sent */
};

/* One record of in-band telemetry (HPCC, SIGCOMM 2019, section 3.1). */
struct dp_cc_hop {
	double queue_bytes;
	double tx_bytes;
	double ts_ns;
	double rate_bps;
};

struct dp_cc_ack {
	double now_ns;
	double rtt_ns;	       /* of the newest packet acknowledged, without host_ns; 0: none */
	double host_ns;	       /* time that both hosts added to that RTT */
	double back_ns;	       /* part of rtt_ns in queues of the return path; 0: none or unknown */
	double acked_bytes;    /* newly delivered */
	double marked_bytes;   /* part of acked_bytes that arrived with CE */
	double lost_bytes;     /* declared lost since the previous on_ack */
	double inflight_bytes; /* after this acknowledgement */
	double delivered_bytes;	      /* total, after it */
	double prior_delivered_bytes; /* total when the newest packet acked was sent */
	double delivery_rate_bps;     /* draft-cheng-iccrg-delivery-rate-estimation; 0: none */
	double app_limited;	      /* 1: the rate sample was limited by the application */
	double credit_bytes;	      /* granted by the receiver and not sent yet; 0: none */
	double path; /* of the newest packet acked; with by_path, of all that this call tells */
	double n_hops;
	struct dp_cc_hop hop[DP_CC_HOPS_MAX];
};

struct dp_cc_loss {
	double now_ns;
	double lost_bytes;
	double inflight_bytes;	      /* in flight, without the lost packet */
	double prior_delivered_bytes; /* total delivered when the lost packet was sent */
	double path;		      /* path that the lost packet took */
	double trimmed;		      /* 1: a switch cut the payload off and told us */
};

/* ---- at the receiver ---- */

/* Head of the record of a port: one for all flows that come in.  Parameters and state follow. */
struct dp_cc_port {
	/* set by the algorithm */
	double timer_ns; /* when on_timer is called; 0: not */
	/* set by the transport before each call */
	double now_ns;
	double line_rate_bps; /* 0: not known */
	double n_senders;     /* flows that have told a demand which has not arrived in full */
};

/* Head of the record of a flow that comes in.  State follows.  Bytes are totals, and count
 * payload of SENDs and WRITEs. */
struct dp_cc_sender {
	/* set by the algorithm */
	double granted_bytes; /* may have been sent; never falls, nor exceeds wanted_bytes */
	double credits;	      /* CREDITs sent to it, each for one packet; never falls */
	double dscp; /* of the packets that it sends by the next grant; -1: that of its QP */
	/* set by the transport before each call */
	double wanted_bytes;  /* sent, and wanted to be sent */
	double arrived_bytes; /* arrived, or known to be lost */
	double heard_ns;      /* when its last packet came */
	double rtt_ns;	      /* lowest time from its DEMAND to the GRANT; 0: not known */
	double mss_bytes;     /* payload of its longest packet so far */
	double credits_told;  /* number of the newest CREDIT that it told to have received */
	double credits_heard; /* how many of them it received, up to that one */
};

/* A packet of data that has arrived. */
struct dp_cc_data {
	double now_ns;
	double bytes;	/* payload that had not arrived before */
	double marked;	/* 1: it came with CE */
	double trimmed; /* 1: a switch cut its payload off */
	double n_hops;
	struct dp_cc_hop hop[DP_CC_HOPS_MAX];
};

struct dp_cc_algo {
	uint64_t abi; /* DP_CC_ABI */
	const char *name;
	uint64_t by_path;    /* 1: on_ack is called once for each path of an acknowledgement */
	uint64_t flow_bytes; /* size of a flow record: head, parameters and state */
	const void *initial; /* record of a new flow, flow_bytes long */
	/* the receiver's records, as the flow's; 0 and NULL: the algorithm has no receiver's side */
	uint64_t port_bytes;
	const void *port_initial;
	uint64_t sender_bytes;
	const void *sender_initial;
	void (*on_init)(void *flow);
	void (*on_ack)(void *flow, const struct dp_cc_ack *ack);
	void (*on_loss)(void *flow, const struct dp_cc_loss *loss);
	void (*on_timeout)(void *flow, double now_ns);
	/* NULL: what they tell changes nothing */
	void (*on_cnp)(void *flow, double now_ns);
	void (*on_rtt)(void *flow, const struct dp_cc_ack *ack); /* once in a round trip */
	void (*on_wake)(void *flow, double now_ns);		 /* wake_ns has come */
	/* the receiver's side: NULL, or all of the first three */
	void (*on_request)(void *port, void *sender);
	void (*on_data)(void *port, void *sender, const struct dp_cc_data *data);
	void (*on_timer)(void *port, void *senders, uint64_t n);
	void (*on_round)(void *port, void *sender); /* once in a round trip of it; may be NULL */
	const char *params; /* "name=value name=value", to be shown to people; may be NULL */
};

#define DP_CC_FLOW_BYTES_MAX 1024

#endif
