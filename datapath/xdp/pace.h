/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by pace.bpf.c and the program that loads it. */
#ifndef DP_XDP_PACE_H
#define DP_XDP_PACE_H

enum {
	DP_PACE_FLOWS = 512,
	DP_PACE_SLOTS = 256,   /* newest PSNs of a flow; rxe has at most 128 in flight */
	DP_PACE_KEPT = 128,    /* acknowledgements of a flow that rxe has not seen */
	DP_PACE_AT_ONCE = 16,  /* of these, that one which comes lets rxe see */
	DP_PACE_ACK4_LEN = 48, /* IPv4, UDP, BTH, AETH, ICRC */
	DP_PACE_ACK6_LEN = 68,
	DP_PACE_RING = 1 << 18,	 /* bytes */
	DP_PACE_AHEAD_MS = 1000, /* no packet departs later than that */
	DP_PACE_ROCE_PORT = 4791,
	DP_PACE_SHOWN = 0x64707062, /* mark of an acknowledgement that user space lets rxe see */
};

/* An acknowledgement from the IP header on: the ICRC covers the IPv4 identification. */
struct dp_pace_kept {
	unsigned char bytes[DP_PACE_ACK6_LEN];
	unsigned int psn;	      /* up to which it tells that packets arrived */
	unsigned long long end_bytes; /* of the flow, that are acknowledged with it */
};

/* Those of a flow that rxe has not seen: their places, modulo DP_PACE_KEPT. */
struct dp_pace_unseen {
	unsigned int first, end;
	unsigned long long kept_ns; /* when the last one came */
};

enum dp_pace_kind {
	DP_PACE_BEGIN,	 /* the first packet of a connection */
	DP_PACE_ACK,	 /* bytes were acknowledged */
	DP_PACE_LOSS,	 /* a NAK of a packet that was lost */
	DP_PACE_TIMEOUT, /* rxe went back without one */
};

/* An event for user space.  Bytes are payload. */
struct dp_pace_event {
	unsigned int flow; /* its number */
	unsigned int kind;
	unsigned long long now_ns; /* CLOCK_MONOTONIC, as all times here */
	unsigned long long rtt_ns; /* 0: no sample */
	unsigned long long
		interval_ns; /* in which the bytes since prior_delivered were; 0: unknown */
	unsigned long long acked_bytes, lost_bytes;
	unsigned long long inflight_bytes, delivered_bytes, prior_delivered_bytes;
	unsigned int marked; /* the acknowledgement tells of congestion */
	unsigned int app_limited;
};

struct dp_pace_counters {
	unsigned long long paced_packets;   /* that left at a time of their own */
	unsigned long long no_room_packets; /* of connections beyond DP_PACE_FLOWS */
	unsigned long long held_acks;	    /* that rxe did not see when they came */
	unsigned long long unknown_acks;    /* that belong to no connection seen */
	unsigned long long lost_events;	    /* for which the ring had no room */
};

#endif
