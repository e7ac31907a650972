/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The virtual card: guests' Ethernet frames over queue pairs of our engine.
 *
 *   main.c      the loop, when to sleep
 *   control.c   commands on standard input
 *   card.c      opening: device of the network side, memory, guests' devices
 *   guests.c    frames of guests: who may send what to whom
 *   tunnel.c    QPs to another host, and the frames in them
 *   vxlan.c     frames of the classes without recovery (RFC 7348)
 *   table.c     who is where
 *   header.c, answer.c   the bytes of a frame (header.h)
 *   report.c    state and counters, as JSON
 *
 * One thread owns everything.  A frame of a recovered class is a SEND with immediate over
 * an RC QP; the immediate is the tenant's VNI.  The frame stays in the chunks of the UMEM in
 * which the guest's device was read, which are registered memory of the engine, until the
 * SEND completes.  A receive is made of chunks as well, and they go to the transmit ring of
 * the guest's device.  So the card copies only between registered memory and packets, as any
 * QP does.
 *
 * The frames of a flow take one QP, so they arrive in order.  A frame of a recovered class is
 * never dropped on its way: if the tunnel takes no more, the card reads no more from the
 * guest that has too many frames in it (HELD_MAX).
 */
#ifndef DP_VNIC_CARD_H
#define DP_VNIC_CARD_H

#include <stdio.h>

#include "engine/engine.h"
#include "io/device.h"
#include "io/raw.h"
#include "posix/lines.h"
#include "vnic/header.h"

enum {
	GUESTS_MAX = 4096,
	LOCAL_MAX = 64, /* of them, on this host */
	HOSTS_MAX = 256,
	PIPES_MAX = 16,
	FILL_TARGET = 1024, /* chunks to receive into, of each guest's device */
	HELD_MAX = 2048,    /* chunks of a guest that may wait in tunnels */
	DELIVERED = 1024,   /* chunks on their way to a guest */
	SENDS = 512,	    /* frames posted to a QP */
	MARKED = 256,	    /* frames in a pipe from which on new ones are marked */
	RECEIVES = 512,	    /* frames that a QP is ready to take, at most... */
	RECEIVES_MIN = 16,
	RECEIVE_CHUNKS = 65536, /* ...and as many as make these, all QPs together */
	SPARE_CHUNKS = 1024,
	PLAIN_PORTS = 8, /* UDP source ports of frames without recovery */
	FRAME_MIN = ETH_LEN,
	FRAME_MAX = 9216,
	FRAME_CHUNKS = 3,
	VNI_MAX = (1 << 24) - 1,
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
	X(unanswered)	  /* a request for an address that the tenant does not have */             \
	X(group)	  /* to all, or to a multicast group */                                    \
	X(unknown_guest)  /* to a link address that the tenant does not have */                    \
	X(other_protocol) /* not IP, and nothing that the card answers */                          \
	X(no_tunnel)	  /* the tunnel to the other host is down */                               \
	X(not_sent)	  /* the network took a frame without recovery no more */

#define GUEST_COUNTERS(X)                                                                          \
	X(rx_frames) /* from the guest */                                                          \
	X(rx_bytes)                                                                                \
	X(tx_frames) /* to the guest */                                                            \
	X(tx_bytes)                                                                                \
	X(recovered)  /* of rx_frames: into a tunnel */                                            \
	X(marked)     /* of those: got CE, since many waited before them */                        \
	X(plain)      /* of rx_frames: sent without recovery */                                    \
	X(neighbours) /* of rx_frames: to a guest of the same host */                              \
	X(answered)   /* of rx_frames: requests that the card answered */                          \
	X(overrun)    /* to the guest, whose device took no more: dropped */                       \
	X(stopped)    /* times that the guest had too many frames in tunnels */                    \
	GUEST_DROPS(X)

/* Of what comes from another host. */
#define HOST_COUNTERS(X)                                                                           \
	X(tx_recovered)                                                                            \
	X(rx_recovered)                                                                            \
	X(tx_plain)                                                                                \
	X(rx_plain)                                                                                \
	X(aborted)	 /* frames that were in the tunnel when it broke */                        \
	X(malformed)	 /* a header is cut short */                                               \
	X(foreign_guest) /* not from a guest of the tenant that is on that host */                 \
	X(spoofed_ip)	 /* not from an address of that guest */                                   \
	X(unknown_guest) /* not to a guest of the tenant that is here */

#define CARD_COUNTERS(X)                                                                           \
	X(unknown_host) /* VXLAN from an address that is no host's */                              \
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
	uint32_t behind; /* in a pipe's queue: the next frame */
	uint16_t guest;	 /* whose frame it is */
	uint16_t chunks; /* of the frame */
	uint32_t vni;
};

struct guest {
	uint32_t vni;
	uint8_t mac[MAC_LEN];
	struct dp_addr ipv4, ipv6, link_local; /* unspecified: none */
	uint16_t host;
	struct dp_raw_port *port; /* NULL: on another host */
	uint32_t held;		  /* chunks of its frames in tunnels */
	bool stopped;
	struct guest_counters counters;
};

struct pipe {
	struct dp_qp *qp; /* NULL: none */
	uint16_t host;
	uint32_t first, last; /* frames that wait to be posted */
	uint32_t queued, posted, receives;
	uint32_t psn; /* the first one that it sends */
};

struct host {
	char name[NAME_MAX_LEN];
	struct dp_addr addr;
	bool up;     /* frames may enter the tunnel */
	bool broken; /* a QP of it has failed */
	bool routed;
	uint32_t path_id;
	struct pipe pipe[PIPES_MAX];
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
	uint32_t frame_chunks; /* that a frame of this MTU takes */
	uint32_t n_pipes;      /* of each tunnel */
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
	struct pipe *by_qpn[DP_QPN_SPACE];

	int vxlan_fd; /* receives; -1: no class goes without recovery */
	int plain_fd[PLAIN_PORTS];

	struct card_counters counters;
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
/* Once hosts and guests are known. */
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
/* A frame from another host, which is the card's own now. */
void guests_accept(struct card *, uint16_t host, uint32_t vni, uint32_t first, uint32_t len);
/* What waits in the rings to guests goes out, sent chunks come back. */
void guests_flush(struct card *);

/* ---- tunnel.c ---------------------------------------------------------------------- */

/* Makes QPs to a host, in place of those that are there.  0 or -errno. */
int tunnel_offer(struct card *, uint16_t host);
/* remote: QPN and first PSN of each pipe's peer.  -EAGAIN: the way to it is not known yet. */
struct pipe_end {
	uint32_t qpn, psn;
};
int tunnel_connect(struct card *, uint16_t host, const struct pipe_end *remote);
void tunnel_close(struct card *, uint16_t host);
/* The frame belongs to the tunnel, which takes it always while it is up. */
void tunnel_send(struct card *, struct pipe *, uint32_t first);
struct pipe *tunnel_pipe(struct card *, struct host *, uint32_t hash);
/* Posts the receives that could not be posted before. */
void tunnel_feed(struct card *);
/* Completions.  Returns how many there were. */
uint32_t tunnel_reap(struct card *);
void tunnel_event(const struct dp_event *);

/* ---- vxlan.c ----------------------------------------------------------------------- */

int vxlan_open(struct card *, char *why, size_t size);
void vxlan_close(struct card *);
/* false: not sent.  The frame stays the caller's. */
bool vxlan_send(struct card *, struct host *, uint32_t vni, uint32_t hash, uint32_t first);
void vxlan_receive(struct card *);

/* ---- chunks, in card.c ---------------------------------------------------------------- */

/* A chain with room for a frame; DP_NO_CHUNK: there are not enough chunks. */
uint32_t frame_get(struct card *);
/* Gives a chain of whole chunks the length of a frame, and back what it does not need. */
void frame_cut(struct card *, uint32_t first, uint32_t len);

/* ---- control.c, report.c ---------------------------------------------------------------- */

void control_read(struct card *);
void report_state(const struct card *, FILE *);
void report_counters(struct card *, FILE *);

#endif
