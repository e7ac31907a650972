/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The virtual card: guests' Ethernet frames over queue pairs of our engine.
 *
 *   main.c      the loop, when to sleep
 *   control.c   commands on standard input
 *   card.c      opening: device of the network side, memory, guests' devices
 *   chunks.c    frames in chunks
 *   guests.c    frames of guests: who may send what to whom
 *   queue.c     frames that wait for their turn
 *   share.c     whose turn it is: tenants and classes
 *   tunnel.c    QPs to another host, and the frames in them
 *   vxlan.c     frames of the classes without recovery (RFC 7348)
 *   table.c     who is where
 *   header.c, answer.c   the bytes of a frame (header.h)
 *   report.c    state and counters, as JSON
 *   sample.c    tunnels and classes over time, as files
 *
 * One thread owns everything.  A frame of a recovered class is a SEND with immediate over
 * an RC QP; the immediate is the tenant's VNI.  Until the SEND completes, the frame stays in the
 * chunks of the UMEM in which it came from the guest's device; these are registered memory of the
 * engine.  A receive is made of chunks as well, and they go to the transmit ring of the guest's
 * device.  So the card copies only between registered memory and packets, as any QP does.
 *
 * The frames of a flow take one QP, so they arrive in order.  A frame of a recovered class is
 * never dropped on its way.  When the tunnel takes no more frames, the card reads no more from a
 * guest with too many frames in it (HELD_MAX).
 */
#ifndef DP_VNIC_CARD_H
#define DP_VNIC_CARD_H

#include <stdio.h>

#include "engine/engine.h"
#include "io/device.h"
#include "io/raw.h"
#include "posix/lines.h"
#include "vnic/header.h"
#include "vnic/share.h"

enum {
	GUESTS_MAX = 4096,
	LOCAL_MAX = 64, /* guests on this host */
	HOSTS_MAX = 256,
	PIPES_MAX = 16,
	CLASSES_MAX = 8,
	FILL_TARGET = 1024, /* chunks in the fill ring of each guest's device */
	HELD_MAX = 2048,    /* chunks that a guest may have in lines and tunnels */
	DELIVERED = 1024,   /* chunks on their way to a guest, at most */
	SENDS = 512,	    /* frames posted to a QP */
	MARKED = 256,	    /* a new frame is marked (CE) behind so many frames */
	PLAIN_MAX = 512,    /* frames without recovery that may wait in a line */
	RECEIVES = 512,	    /* receives of a QP; fewer, down to RECEIVES_MIN... */
	RECEIVES_MIN = 16,
	RECEIVE_CHUNKS = 65536, /* ...if those of all QPs would take more chunks */
	SPARE_CHUNKS = 1024,
	PLAIN_PORTS = 8, /* UDP source ports of frames without recovery */
	FRAME_MIN = ETH_LEN,
	FRAME_MAX = 9216,
	FRAME_CHUNKS = 3,
	VNI_MAX = (1 << 24) - 1,
	SMOOTHED = 8, /* a new sample weighs an eighth of a smoothed time, as in RFC 6298 */
	NAME_MAX_LEN = 32,
	NOBODY = 0xffff,
};

/* Why a guest's frame is dropped. */
#define GUEST_DROPS(X)                                                                             \
	X(malformed)	  /* a header is cut short */                                              \
	X(too_long)	  /* more than the card's MTU */                                           \
	X(spoofed_mac)	  /* not from the guest's link address */                                  \
	X(spoofed_ip)	  /* not from an address of the guest */                                   \
	X(spoofed_arp)	  /* a request in another's name */                                        \
	X(spoofed_nd)	  /* tells where an IPv6 neighbour or router is */                         \
	X(unanswered)	  /* a request for an address of no other guest of the tenant */           \
	X(group)	  /* a broadcast or a multicast */                                         \
	X(unknown_guest)  /* to a link address that the tenant does not have */                    \
	X(other_protocol) /* not IP, and nothing that the card answers */                          \
	X(no_tunnel)	  /* the tunnel to the other host is down */                               \
	X(crowded)	  /* too many frames without recovery wait for their turn */               \
	X(not_sent)	  /* the kernel did not take a frame without recovery */

#define GUEST_COUNTERS(X)                                                                          \
	X(rx_frames) /* from the guest */                                                          \
	X(rx_bytes)                                                                                \
	X(tx_frames) /* to the guest */                                                            \
	X(tx_bytes)                                                                                \
	X(recovered)  /* of rx_frames: into a tunnel */                                            \
	X(marked)     /* of recovered: got CE, since many waited before them */                    \
	X(plain)      /* of rx_frames: sent without recovery */                                    \
	X(neighbours) /* of rx_frames: to a guest of the same host */                              \
	X(answered)   /* of rx_frames: requests that the card answered */                          \
	X(overrun)    /* to the guest, whose device took no more: dropped */                       \
	X(stopped)    /* times that the guest had too many frames in tunnels */                    \
	GUEST_DROPS(X)

/* Counters of frames that come from another host. */
#define HOST_COUNTERS(X)                                                                           \
	X(tx_recovered)                                                                            \
	X(rx_recovered)                                                                            \
	X(tx_plain)                                                                                \
	X(rx_plain)                                                                                \
	X(aborted)	 /* frames that were in the tunnel when it broke */                        \
	X(malformed)	 /* a header is cut short */                                               \
	X(foreign_guest) /* the tenant has no such sender on that host */                          \
	X(spoofed_ip)	 /* not from an address of that guest */                                   \
	X(spoofed_nd)	 /* tells where an IPv6 neighbour or router is */                          \
	X(unknown_guest) /* the tenant has no such receiver on this host */

#define CARD_COUNTERS(X)                                                                           \
	X(wakes)	/* times that the card slept and woke */                                   \
	X(unknown_host) /* VXLAN from an address of no host */                                     \
	X(bad_vxlan)	/* no VXLAN header with a VNI */                                           \
	X(starved)	/* receives that could not be posted at once: no chunk was free */

#define X(name) uint64_t name;
struct guest_counters {
	GUEST_COUNTERS(X)
};
struct host_counters {
	HOST_COUNTERS(X)
};
struct card_counters {
	CARD_COUNTERS(X)
};
#undef X

struct chunk {
	struct dp_chunk raw;
	struct line *line; /* in which the frame waits, or waited before it entered the tunnel */
	uint64_t came_ns;  /* when the frame came from the guest */
	uint32_t behind;   /* in a line: the next frame */
	uint16_t guest;	   /* whose frame it is */
	uint16_t chunks;   /* of the frame */
	uint32_t vni;
	uint32_t hash; /* of the flow */
};

struct class
{
	char name[NAME_MAX_LEN];
	struct share share; /* initial value of each tenant's leaf */
};

/* A class of a tenant. */
struct leaf {
	struct share share; /* first */
	struct tenant *tenant;
	struct line *ready, *ready_last; /* ready lines, which take turns */
	uint64_t tx_frames, tx_bytes;
	/* The card's tx_bytes and the time when the first frame began to wait in empty lines.  The
	 * most bytes that others sent before such a frame, and its longest wait. */
	uint64_t woke_bytes, woke_ns;
	uint64_t first_wait_bytes, first_wait_ns;
	uint32_t queued; /* in all lines */
};

struct tenant {
	struct share share; /* first */
	uint32_t vni;
	uint32_t queued; /* in all classes */
	uint64_t tx_bytes;
	double due_bytes; /* its share by weights of the bytes sent while it had frames queued */
	struct shares classes;
	struct leaf leaf[CLASSES_MAX];
};

/* Counters of what a class of a tenant sends to another host, over all pipes. */
struct traffic {
	uint64_t tx_frames, tx_bytes; /* frames that have had their turn */
	/* Frames that entered tunnels: acknowledged by the other card; their packets, and how many of
	 * these were sent again; frames lost with a tunnel. */
	uint64_t delivered_frames, delivered_bytes, packets, retransmits, aborted;
	uint64_t queued_frames, queued_bytes;	  /* frames that wait for their turn now */
	uint64_t inflight_frames, inflight_bytes; /* frames in tunnels now */
	double wait_ns;				  /* wait of a frame for its turn, smoothed */
	double rtt_ns; /* smoothed RTTs of its pipes, smoothed over frames */
};

/* Frames of a leaf for a pipe. */
struct line {
	struct leaf *leaf;
	struct traffic *traffic;
	struct pipe *pipe;
	struct line *next; /* next ready line of the leaf */
	uint32_t first, last, queued;
	uint32_t posted; /* frames in the pipe's QP */
	bool blocked;	 /* the pipe takes no more now */
};

struct guest {
	uint32_t vni;
	uint16_t tenant; /* of a guest on this host: index */
	uint8_t mac[MAC_LEN];
	struct dp_addr ipv4, ipv6, link_local; /* unspecified: none */
	uint16_t host;
	struct dp_raw_port *port; /* NULL: on another host */
	uint32_t held;		  /* chunks of its frames in lines and tunnels */
	bool stopped;
	struct guest_counters counters;
};

struct pipe {
	struct dp_qp *qp; /* NULL: none */
	uint16_t host;
	bool plain;	   /* takes frames without recovery, and has no QP */
	struct line *line; /* one for each leaf */
	uint32_t posted, receives;
	uint32_t psn; /* first PSN that this end sends */
};

struct host {
	char name[NAME_MAX_LEN];
	struct dp_addr addr;
	bool up;     /* frames may enter the tunnel */
	bool broken; /* a QP of it has failed; not up then */
	bool routed;
	uint32_t path_id;
	struct pipe pipe[PIPES_MAX];
	struct pipe plain; /* for frames without recovery; always has room */
	struct host_counters counters;
};

struct card {
	struct dp_device *device;
	struct dp_engine *engine;
	struct dp_pd *pd;
	struct dp_mr *memory;
	struct dp_cq *cq;
	void *cc_library;
	const struct dp_cc_algo *cc; /* NULL: constant window */
	struct dp_raw raw;
	struct chunk *chunk;
	uint32_t mtu;	       /* of guests, bytes of IP */
	uint32_t frame_chunks; /* chunks that a frame of this MTU takes */
	uint32_t n_pipes;      /* of each tunnel */
	uint64_t coalesce_ns;  /* frames may wait for others, from one wake-up to the next */
	double rtt_ns;	       /* of the tunnels, smoothed; 0: not known yet */
	uint32_t n_receives;   /* of each pipe */
	bool hungry;	       /* a pipe lacks receives, since no chunk was free */
	bool started;

	struct host host[HOSTS_MAX];
	uint32_t n_hosts;
	uint16_t self; /* index of this host */

	struct guest guest[GUESTS_MAX];
	uint32_t n_guests;
	uint16_t by_mac[2 * GUESTS_MAX]; /* hash table: guest + 1, 0: none */
	uint16_t by_addr[8 * GUESTS_MAX];
	struct dp_raw_port port[LOCAL_MAX];
	uint16_t local[LOCAL_MAX]; /* guest of each port */
	uint32_t n_local;

	uint8_t udp_recovered[8192], tcp_recovered[8192]; /* a bit for each port */
	uint8_t udp_class[65536], tcp_class[65536];	  /* of each port; 0: of all others */

	struct class class[CLASSES_MAX];
	uint32_t n_classes;
	struct tenant tenant[LOCAL_MAX]; /* tenants with guests on this host */
	uint32_t n_tenants;
	struct shares tenants;
	struct rate rate; /* of all frames */
	uint64_t tx_bytes;
	struct line *line;
	struct traffic *traffic; /* one for each leaf, of each host */
	uint32_t n_leaves;	 /* classes of all tenants */
	uint32_t n_blocked;	 /* blocked lines */
	struct pipe *by_qpn[DP_QPN_SPACE];

	int vxlan_fd;	  /* receives */
	bool plain_waits; /* vxlan_fd may have packets */
	int plain_fd[PLAIN_PORTS];

	struct card_counters counters;
	struct sampler *sampler; /* NULL: nobody wants samples */
	struct dp_lines lines;
	bool quit;
};

/* ---- card.c ------------------------------------------------------------------------ */

struct card_options {
	const char *port; /* of io/port.h */
	const char *cc;	  /* compiled algorithm; NULL: constant window */
	bool ecn;
};

/* 0 or -errno; then `why` says what failed. */
int card_open_network(struct card *, const struct card_options *, char *why, size_t size);
/* To be called once hosts and guests are known. */
int card_start(struct card *, char *why, size_t size);
void card_close(struct card *);

/* ---- table.c ----------------------------------------------------------------------- */

/* -EEXIST: the tenant has this link address or address already. */
int table_add(struct card *, const struct guest *);
/* Index in guest[], or NOBODY.  Tenants may use the same addresses. */
uint16_t table_mac(const struct card *, uint32_t vni, const uint8_t mac[MAC_LEN]);
uint16_t table_addr(const struct card *, uint32_t vni, const struct dp_addr *);
uint16_t table_host(const struct card *, const struct dp_addr *);
/* Whether the address is one of the guest's own. */
bool guest_has(const struct guest *, const struct dp_addr *);

/* ---- guests.c ---------------------------------------------------------------------- */

/* Takes what guests have sent. */
void guests_receive(struct card *);
/* Takes over a frame from another host. */
void guests_accept(struct card *, uint16_t host, uint32_t vni, uint32_t first, uint32_t len);
/* Sends the frames that wait in the rings to guests, and takes sent chunks back. */
void guests_flush(struct card *);

/* ---- tunnel.c ---------------------------------------------------------------------- */

/* Makes QPs to a host, in place of those that are there.  0 or -errno. */
int tunnel_offer(struct card *, uint16_t host);
/* remote: QPN and first PSN of each pipe's peer.  -EAGAIN: the route to it is not known yet. */
struct pipe_end {
	uint32_t qpn, psn;
};
int tunnel_connect(struct card *, uint16_t host, const struct pipe_end *remote);
void tunnel_close(struct card *, uint16_t host);
/* Whether the pipe takes another frame now; its tunnel must be up. */
bool tunnel_has_room(const struct pipe *);
/* Bytes of a frame that one packet of the pipe carries. */
uint32_t tunnel_packet(const struct pipe *);
/* Sends the frame, which belongs to the tunnel from now on. */
void tunnel_send(struct card *, struct pipe *, uint32_t first);
struct pipe *tunnel_pipe(struct card *, struct host *, uint32_t hash);
/* Posts the receives that could not be posted before. */
void tunnel_feed(struct card *);
/* Handles completions; returns their number. */
uint32_t tunnel_reap(struct card *);
void tunnel_event(const struct dp_event *);

/* ---- queue.c ----------------------------------------------------------------------- */

/* To be called once hosts, guests, tenants and classes are known.  0 or -ENOMEM. */
int queue_open(struct card *);
/* The line in which frames of a class of a guest wait for the pipe. */
struct line *queue_line(const struct card *, const struct guest *, uint8_t class, struct pipe *);
/* Puts a frame, whose guest, chunks and hash are set, at the end of the line. */
void queue_put(struct card *, struct line *, uint32_t first);
/* Sends all frames that may be sent now.  Returns when the next one may be sent, unless a pipe has
 * room earlier. */
uint64_t queue_run(struct card *);
/* The traffic of a leaf to a host. */
struct traffic *queue_traffic(const struct card *, uint16_t host, uint32_t leaf);
/* Sets the counters of tenants and their classes to zero. */
void queue_clear(struct card *);
/* Drops the frames that wait for the pipe. */
void queue_drop(struct card *, struct pipe *);

/* ---- vxlan.c ----------------------------------------------------------------------- */

int vxlan_open(struct card *, char *why, size_t size);
void vxlan_close(struct card *);
/* false: not sent.  The frame stays the caller's. */
bool vxlan_send(struct card *, struct host *, uint32_t vni, uint32_t hash, uint32_t first);
/* Sends a guest's frame, whose turn it is, and frees it. */
void vxlan_send_queued(struct card *, uint16_t host, uint32_t first);
/* Clears plain_waits once nothing waits. */
void vxlan_receive(struct card *);

/* ---- chunks.c ---------------------------------------------------------------- */

/* A chain with room for a frame; DP_NO_CHUNK: there are not enough chunks. */
uint32_t frame_get(struct card *);
/* Shortens a chain of whole chunks to the length of a frame; the other chunks are free again. */
void frame_cut(struct card *, uint32_t first, uint32_t len);
/* Fills a frame up to whole packets of `packet` bytes, if only a few bytes are missing: with zeros
 * behind its IP packet.  Congestion control takes RTTs from full packets only, since short ones
 * leave a slow link sooner.  siw's segments, whose lengths are multiples of four, would make none. */
void frame_fill(struct card *, uint32_t first, uint32_t packet);
/* Counts a frame that is about to wait as held by its guest. */
void frame_hold(struct card *, struct guest *, uint32_t first);
/* Frees the frame's chunks. */
void frame_let_go(struct card *, uint32_t first);

/* ---- control.c, report.c ---------------------------------------------------------------- */

void control_read(struct card *);
void report_state(const struct card *, FILE *);
void report_counters(struct card *, FILE *);

/* Sums over the QPs to a host; rtt_ns is the longest RTT. */
struct pipes_sum {
	uint64_t packets, retransmits, timeouts, ecn_marked, queued_frames, posted_frames, extended;
	double rtt_ns, cwnd_bytes, inflight_bytes, delivered_bytes, pacing_rate_bps;
};
void report_pipes(const struct card *, const struct host *, struct pipes_sum *);
/* The sum of the windows of the pipes in which the leaf has frames. */
double report_window(const struct card *, const struct host *, uint32_t leaf);

/* ---- sample.c --------------------------------------------------------------------------- */

struct sample_options {
	const char *prefix; /* of the files' names */
	uint64_t interval_ns, max_bytes;
	uint32_t most; /* number of files, at most */
};

/* Starts the sampler, or starts it anew.  0 or -errno. */
int sample_begin(struct card *, const struct sample_options *);
/* Takes a sample if its time has come; returns when the next one is due. */
uint64_t sample_take(struct card *, uint64_t now);
/* Takes the last sample; harmless if there is no sampler. */
void sample_end(struct card *);

#endif
