/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The emulator: two links of link/link.h between AF_XDP sockets, driven by the
 * machine's clock.
 *
 *   main.c     arguments, the loop, when to sleep
 *   control.c  commands on standard input: configure, change, counters
 *   change.c   changes of a direction at given times
 *   forward.c  frames in and out, and their direction
 *   parse.c    the fields of a frame that the link model needs; marks, flipped bits
 *   report.c   how late frames left: the emulator's own accuracy
 *   sample.c   the queues over time, as a file
 *
 * One UMEM serves all devices (io/raw.h), so a frame is forwarded in the chunks in
 * which it was received.
 *
 * Time: the XDP program writes into each frame when it arrived, and the links work
 * with that.  So it does not matter how soon the emulator sees a frame, as long as
 * it does before the frame has to leave.  How much later than that frames really
 * left is the emulator's error; it is measured for every frame.
 */
#ifndef DP_FABRIC_EMULATOR_H
#define DP_FABRIC_EMULATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "io/lateness.h"
#include "io/raw.h"
#include "link/link.h"
#include "link/switch.h"
#include "posix/clock.h"
#include "posix/lines.h"
#include "wire/random.h"

enum {
	CHUNKS = 32768,
	PORTS_MAX = 34,
	FORWARD = 0, /* from the left side to the right one */
	BACKWARD = 1,
	DIRECTIONS = 2,
	NO_PORT = 0xffff,
};

#define NS_PER_US 1000ull
#define NS_PER_S 1000000000ull

/* Counts of the frames of one direction, beside those of the link. */
struct counts {
	uint64_t exempt;   /* ARP and the like: forwarded at once */
	uint64_t marked;   /* marked with CE at random, not by the queue */
	uint64_t unrouted; /* no port has the frame's link address */
	uint64_t starved;  /* no free chunk, or a full device: the emulator dropped it */
	uint64_t refused;  /* changes that the link could not take */
};

/* Arrays that a link's configuration points to. */
struct arrays {
	uint32_t *trace;
	double *jitter;
};

/* Settings that a direction gets at a time. */
struct change {
	struct change *next;
	uint64_t at_ns;
	struct dp_link_config link;
	struct arrays arrays;
	double ecn_mark;
};

struct direction {
	struct emulator *emulator;
	struct dp_link *link;
	uint64_t ecn_mark; /* probability, times 2^32 */
	uint64_t mark_rng;
	struct arrays arrays;
	struct change *change; /* those to come, by time */
	uint64_t delay_ns;
	bool trims;
	bool hashes;	  /* the link needs the hash of a frame's flow */
	uint64_t last_ns; /* time of the last offer; never goes back */
	struct counts counts;
	struct dp_lateness late; /* of all frames */
};

/* A chunk.  The first chunk of a frame also describes the frame. */
struct chunk {
	struct dp_chunk raw;
	struct dp_frame frame;
	uint16_t out;	  /* port it leaves by */
	uint16_t payload; /* first byte that corruption may touch */
	uint32_t end;	  /* one past the last byte that corruption may touch */
	uint16_t bth;	  /* RoCEv2: offset of the BTH; 0: another protocol */
	uint16_t ports;	  /* UDP and TCP: offset of the ports; 0: another protocol */
	uint8_t version;  /* IP version; 0: not IP */
	struct dp_telemetry hop;
};

struct port {
	struct dp_raw_port raw;
	uint8_t mac[6];
	bool has_mac;
	uint8_t side;	     /* the direction of frames that come in here */
	uint64_t ring_drops; /* of the kernel, when counters were reset */
	uint64_t unstamped;  /* likewise */
};

struct emulator {
	struct port port[PORTS_MAX];
	uint32_t n_ports;
	struct direction direction[DIRECTIONS];
	struct dp_raw raw;
	struct chunk *chunk;
	uint64_t drained_ns; /* when all receive rings were last seen empty */
	uint64_t began_ns, busy_ns;
	bool woke;		      /* it has slept, and sent nothing since */
	struct dp_lateness turn_late; /* of the first frame after each sleep */
	struct dp_series *series[DIRECTIONS];
	uint64_t change_ns;			/* the next change; UINT64_MAX: none */
	uint64_t sample_ns, sample_interval_ns; /* the next sample; UINT64_MAX: none */
	bool quit;
	struct dp_lines lines;
};

/* ---- main.c ------------------------------------------------------------------- */

/* Makes the kernel send what the ports hold. */
void kick_ports(struct emulator *);

/* ---- forward.c ---------------------------------------------------------------- */

extern const struct dp_link_ops forward_ops;
/* Hands frames that have arrived to the links; returns how many. */
uint32_t forward_receive(struct emulator *);
/* Sends the frames whose time on the links is over; returns how many. */
uint32_t forward_send(struct emulator *, uint64_t now_ns);

/* ---- parse.c ------------------------------------------------------------------- */

/* Fills in ecn, payload, end and header_bytes.  False: the frame is exempt from all impairments. */
bool parse_frame(const uint8_t *bytes, struct chunk *);
/* Hash of the addresses and of the ports, if there are any. */
uint32_t hash_flow(const uint8_t *bytes, const struct chunk *);
void mark_ce(uint8_t *bytes, const struct chunk *);
void flip_bit(struct emulator *, uint32_t first, uint32_t draw);
/* Adds the record `hop` to a RoCEv2 packet that has room for it. */
void stamp_telemetry(uint8_t *bytes, const struct chunk *);
/* Bytes of the frame after trimming; 0: the frame cannot be trimmed. */
uint32_t trimmed_len(const uint8_t *bytes, const struct chunk *);
/* Cuts off the payload, which lies behind trimmed_len(). */
void trim_payload(uint8_t *bytes, struct chunk *);

/* ---- control.c ----------------------------------------------------------------- */

/* Reads what standard input has; sets `quit` at its end. */
void control_read(struct emulator *);
void direction_close(struct direction *);
/* What the emulator keeps of a link's settings, beside those that the link has itself. */
void direction_set(struct direction *, const struct dp_link_config *, double ecn_mark);

/* ---- change.c ------------------------------------------------------------------ */

/* Takes the change, which is freed when it has been made.  0, or -errno: the link model refuses the
 * settings, or the link could not take them while frames wait; the change stays the caller's. */
int change_add(struct direction *, struct change *);
void change_free(struct change *);
/* Makes all changes whose time has come. */
void changes_make(struct emulator *, uint64_t now_ns);
void changes_drop(struct direction *);

/* ---- report.c ------------------------------------------------------------------ */

void report_counters(struct emulator *, FILE *);

/* ---- sample.c ------------------------------------------------------------------ */

/* Samples go to `prefix`.forward.series and .backward.series.  0 or -errno. */
int sample_begin(struct emulator *, const char *prefix, uint64_t interval_ns, uint64_t max_bytes);
void sample_take(struct emulator *, uint64_t now_ns);
void sample_end(struct emulator *);

#endif
