/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The emulator: links of link/link.h between the AF_XDP sockets of hosts, driven by
 * the machine's clock.  Ports and links end at nodes, which are switches that take no time.
 *
 *   main.c     the loop, when to sleep
 *   layout.c   arguments: which ports and links there are, and the routes between them
 *   control.c  commands on standard input: configure, change, counters
 *   change.c   changes of links and routes at given times
 *   forward.c  frames in, from link to link in the order of time, and out
 *   pause.c    buffers that the links of a node share, and PFC between links
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

#include "fabric/routes.h"
#include "io/lateness.h"
#include "io/raw.h"
#include "io/series.h"
#include "link/link.h"
#include "link/switch.h"
#include "posix/clock.h"
#include "posix/early.h"
#include "posix/lines.h"
#include "wire/random.h"

enum {
	CHUNKS = 32768,
	PORTS_MAX = 34,
	NODES_MAX = 128,
	WIRES_MAX = 1024, /* links */
	BATCH = 64,	  /* frames that leave before the kernel is told */
	NO_PORT = 0xffff,
};

#define NS_PER_US 1000ull
#define NS_PER_S 1000000000ull

/* Counts of the frames of one link, beside those that the link has itself.  Frames that come in and
 * cross no link count for the first link that leaves their port's node. */
struct counts {
	uint64_t exempt;   /* ARP and the like: forwarded at once */
	uint64_t marked;   /* marked with CE at random, not by the queue */
	uint64_t unrouted; /* no port has the frame's link address */
	uint64_t starved;  /* no free chunk, or a full device: the emulator dropped it */
	uint64_t refused;  /* changes that the link or the routes could not take */
};

/* The class of each frame, by its DSCP; CREDITs may have one of their own. */
struct class_map {
	uint8_t of_dscp[64];
	uint8_t credits; /* DP_LINK_CLASSES: as their DSCP has it */
};

/* Arrays that a link's configuration points to. */
struct arrays {
	uint32_t *trace;
	double *jitter;
};

/* A change of a link at a time: its settings, or its place in the routes. */
struct change {
	struct change *next;
	uint64_t at_ns;
	bool of_routes;
	bool used; /* of_routes: whether routes lead along it from then on */
	struct dp_link_config link;
	struct arrays arrays;
	double ecn_mark;
};

/* One direction of a cable between two nodes. */
struct wire {
	struct emulator *emulator;
	const char *name;
	uint32_t to;	      /* node */
	struct dp_link *link; /* NULL: not configured yet; frames pass at once */
	uint64_t ecn_mark;    /* probability, times 2^32 */
	uint64_t mark_rng;
	struct arrays arrays;
	struct change *change; /* those to come, by time */
	struct pause *pause;   /* likewise */
	uint64_t pause_delay_ns;
	uint16_t ingress; /* its place among the links that end where it ends */
	uint64_t delay_ns;
	bool trims, hashes;
	bool has_classes;
	struct class_map map; /* has_classes */
	uint64_t last_ns;     /* time of the last offer; never goes back */
	uint64_t left_ns;     /* date of the last frame that left the emulator behind it */
	struct counts counts;
	struct dp_lateness late; /* of all frames that left the emulator behind it */
	struct dp_series *series;
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
	uint8_t dscp;
	bool credit; /* a CREDIT of ours */
	struct dp_telemetry hop[DP_HOPS_MAX];
};

struct port {
	struct dp_raw_port raw;
	uint8_t mac[6];
	bool has_mac;
	bool dated; /* RoCEv2 frames that leave by it end with their time (xdp/steer.h) */
	uint32_t node;
	struct wire *first;  /* the first link that leaves the node */
	uint64_t ring_drops; /* of the kernel, when counters were reset */
	uint64_t unstamped;  /* likewise */
	/* Frames that have come in and were not looked at, oldest first, by frame.next. */
	struct dp_frame *arrived, *newest;
};

/* A frame that was sent, until it is known when. */
struct sent {
	struct wire *wire;
	uint64_t at_ns; /* when the model let it go */
};

/* The buffer that the links which leave a node share. */
struct node_buffer {
	struct emulator *emulator;
	uint32_t node;
	struct dp_buffer *buffer; /* NULL: none */
};

struct emulator {
	struct port port[PORTS_MAX];
	uint32_t n_ports;
	struct wire wire[WIRES_MAX];
	uint64_t due_ns[WIRES_MAX]; /* deadlines of the links; UINT64_MAX: none */
	uint32_t n_wires;
	const char *node[NODES_MAX];
	struct node_buffer buffer[NODES_MAX];
	uint32_t n_nodes;
	struct dp_route_link ends[WIRES_MAX];
	struct dp_routes routes;
	bool chooses; /* there are several equal routes */
	bool trims;   /* a link trims frames */
	bool hashes;  /* a link needs the hash of a frame's flow */
	struct dp_raw raw;
	struct chunk *chunk;
	struct sent sent[BATCH];
	uint32_t n_sent;
	uint64_t drained_ns; /* when all receive rings were last seen empty */
	uint64_t began_ns, busy_ns;
	struct dp_early early;			/* how its timers are set */
	bool woke;				/* it has slept, and sent nothing since */
	struct dp_lateness turn_late;		/* of the first frame after each sleep */
	uint64_t change_ns;			/* the next change; UINT64_MAX: none */
	uint64_t pause_ns;			/* the next pause, or end of one; likewise */
	uint64_t sample_ns, sample_interval_ns; /* the next sample; UINT64_MAX: none */
	uint64_t early_ns; /* how long before its date a frame to a dated port may leave */
	bool quit;
	struct dp_lines lines;
};

/* ---- main.c ------------------------------------------------------------------- */

/* Makes the kernel send what the ports hold. */
void kick_ports(struct emulator *);

/* ---- layout.c ------------------------------------------------------------------- */

/* Reads the arguments of the program, and finds the routes; 0 or -errno. */
int layout_read(struct emulator *, int argc, char **argv);
/* NULL: there is none of this name. */
struct wire *layout_find(struct emulator *, const char *name);
/* Lets routes lead along a link, or around it; 0 or -errno. */
int layout_use(struct emulator *, const struct wire *, bool used);
/* Routes as at the beginning, with the choices of a run's seed; 0 or -errno. */
int layout_reset(struct emulator *, uint64_t seed);

/* ---- forward.c ---------------------------------------------------------------- */

extern const struct dp_link_ops forward_ops;
/* Takes in frames that have arrived, in the order of time. */
void forward_receive(struct emulator *);
/* Moves frames on along the links up to a time, and sends those that are through. */
void forward_send(struct emulator *, uint64_t now_ns);
/* Looks again when a link has to be called next. */
void forward_look(struct wire *);

/* ---- parse.c ------------------------------------------------------------------- */

/* Fills in ecn, payload, end and header_bytes.  False: the frame is exempt from all impairments. */
bool parse_frame(const uint8_t *bytes, struct chunk *);
/* Hash of the addresses and of the ports, if there are any. */
uint32_t hash_flow(const uint8_t *bytes, const struct chunk *);
void mark_ce(uint8_t *bytes, const struct chunk *);
void flip_bit(struct emulator *, uint32_t first, uint32_t draw);
/* Adds the records of the frame's links to a RoCEv2 packet that has room for them. */
void stamp_telemetry(uint8_t *bytes, const struct chunk *);
/* Bytes of the frame after trimming; 0: the frame cannot be trimmed. */
uint32_t trimmed_len(const uint8_t *bytes, const struct chunk *);
/* Cuts off the payload, which lies behind trimmed_len(). */
void trim_payload(uint8_t *bytes, struct chunk *);

/* ---- control.c ----------------------------------------------------------------- */

/* Reads what standard input has; sets `quit` at its end. */
void control_read(struct emulator *);
void wire_close(struct wire *);
/* Takes the settings that the emulator keeps; the link has the others. */
void wire_set(struct wire *, const struct dp_link_config *, double ecn_mark);

/* ---- change.c ------------------------------------------------------------------ */

/* Takes the change, which is freed when it has been made.  0, or -errno: the link model refuses the
 * settings, or the link could not take them while frames wait; the change stays the caller's. */
int change_add(struct wire *, struct change *);
void change_free(struct change *);
/* Makes all changes that are due. */
void changes_make(struct emulator *, uint64_t now_ns);
void changes_drop(struct wire *);

/* ---- pause.c ------------------------------------------------------------------- */

/* Gives the node of this name a buffer of its own, whose n_ports is filled in, or none (of 0 bytes).
 * All links of the node are closed, and have to be made anew. */
int buffer_open(struct emulator *, const char *node, struct dp_buffer_config *);
void buffer_close(struct emulator *, uint32_t node);
/* Has a new link share the buffer of the node that it leaves. */
int buffer_share(struct wire *, const struct dp_link_config *);
/* Makes the next pauses, of pause_ns. */
void pauses_make(struct emulator *);
void pauses_drop(struct wire *);

/* ---- report.c ------------------------------------------------------------------ */

void report_counters(struct emulator *, FILE *);

/* ---- sample.c ------------------------------------------------------------------ */

/* A link's samples go to `prefix`.NAME.series.  names: of the links, separated by tabs; NULL: all of
 * them.  0 or -errno. */
int sample_begin(struct emulator *, const char *prefix, uint64_t interval_ns, uint64_t max_bytes,
		 char *names);
void sample_take(struct emulator *, uint64_t now_ns);
void sample_end(struct emulator *);

#endif
