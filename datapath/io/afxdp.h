/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * AF_XDP port: frames of a network device, past the kernel's stack.  Each of the device's receive
 * queues has a socket; all share one UMEM.  Frames leave through the first queue.
 *
 * UMEM, in chunks of 4096 bytes (one page, the most that every kernel takes):
 *
 *   [ tx chunk | tx chunk ] x TX_BUFFERS  [ rx chunk ] x (chunks of a queue) x queues
 *
 * A receive chunk belongs to one queue, and goes back to that queue's fill ring.
 *
 * A received packet that exceeds a chunk arrives as two descriptors.  A
 * transmit buffer is two adjacent chunks, so the engine writes a packet of any
 * path MTU in one piece, and it leaves as two descriptors when it crosses the
 * border (XDP_PKT_CONTD).  Rings have room for twice as many chunks as can be in
 * them, so that pushing to a ring never fails (see FILL_RING).
 *
 * Packets to our own address cannot leave a device and come back; they go
 * through a queue of transmit buffers inside the port (loop_*).  So do copies of packets to a
 * multicast group that this host is in.
 *
 * afxdp_open.c makes and unmakes a port, afxdp_socket.c its sockets; afxdp_rx.c receives packets,
 * afxdp.c sends them; afxdp_share.c is for ports that serve one queue of a device each.
 *
 * Threads: none; see port.h.  Memory order: libxdp's ring functions acquire and
 * release the kernel's indices.
 */
#ifndef DP_IO_AFXDP_H
#define DP_IO_AFXDP_H

#include "io/frame.h"
#include "io/groups.h"
#include "io/holder.h"
#include "io/peers.h"
#include "io/port_impl.h"
#include "io/steer.h"
#include "io/slot.h"
#include "io/xsk.h"

enum {
	CHUNK = 4096,
	QUEUES_MAX = 128,
	RX_SHIFT_MAX = 12,
	RX_CHUNKS_MAX = 1 << RX_SHIFT_MAX, /* of a queue */
	TX_BUFFERS = 1024,
	TX_BUFFER = 2 * CHUNK,
	TX_CHUNKS = TX_BUFFERS * TX_BUFFER / CHUNK,
	/* room in front of the BTH; keeps the BTH 64-byte aligned */
	TX_HEADROOM = 128,
	RX_RING = RX_CHUNKS_MAX,
	TX_RING = 4 * TX_BUFFERS,
	COMP_RING = 2 * TX_BUFFERS,
	/* The kernel announces a packet before it gives back the places of its
	 * chunks in the ring, so chunks may return while those look taken. */
	FILL_RING = 2 * RX_CHUNKS_MAX,
	/* more than the descriptors of the longest packet that a kernel makes */
	RX_DESCS_MAX = 64,
	/* the first piece must hold all headers */
	RX_FIRST_MIN = 100,
	RX_HEADERS = 192, /* first bytes of a packet, which are prefetched */
	CACHE_LINE = 64,
};

_Static_assert((int)TX_HEADROOM >= (int)DP_FRAME_HDR_MAX, "headers fit in front of a packet");

/* cookie of a received packet: index of its first chunk, 1 + index of the
 * second one << 32 (0: none); or a transmit buffer of the loop; or COOKIE_ASIDE. */
#define COOKIE_LOOP (1ull << 63)
#define COOKIE_ASIDE (1ull << 62)

struct afxdp_route {
	bool self;  /* our own address */
	bool group; /* multicast */
	struct dp_frame_template frame;
};

/* A receive queue of the device. */
struct afxdp_queue {
	struct xsk_ring_cons rx, comp; /* comp of the first queue, which sends */
	struct xsk_ring_prod fill;
	struct xsk_socket *xsk;
	int fd; /* of the socket */
};

struct afxdp {
	struct dp_port port;
	struct xsk_ring_prod tx;
	bool zero_copy, busy_poll;
	int zero_copy_err; /* why bind() refused zero-copy; 0: not tried, or not refused */
	bool tx_pending;   /* descriptors wait for a kick that the kernel accepts */
	bool tx_down;	   /* ... and the device is down: there is no hurry to try again */
	bool wake_set;	   /* wake_fd is readable */
	uint32_t n_queues, first_queue;
	bool dated;	     /* frames may be dated */
	uint64_t seen_ns;    /* dated: the last look at the clock */
	uint32_t next_queue; /* index of the queue that dp_afxdp_rx_queues() looks at first */
	uint32_t rx_shift;   /* log2 of the receive chunks of a queue */
	uint8_t *umem_area;
	size_t umem_size;
	uint32_t n_free;	       /* transmit buffers in `free` */
	uint16_t free[TX_BUFFERS];     /* a stack: the buffer used last is still in the cache */
	uint8_t tx_parts[TX_BUFFERS];  /* descriptors that the kernel holds */
	uint32_t loop_head, loop_tail; /* of `loop`; free-running */
	struct dp_packet loop[TX_BUFFERS];
	struct dp_groups groups;
	struct dp_peers peers;
	struct afxdp_route routes[DP_PEERS_MAX]; /* by path_id */

	struct xsk_umem *umem;
	struct dp_steer *steer;
	bool any_queue;	      /* one_queue: the first one that is free */
	bool one_queue;	      /* ports on the other queues of the device share its address */
	struct dp_slot names; /* of services, if it has all queues: then the address has no slots */
	struct dp_port *aside; /* one_queue: UDP port that gets what arrives elsewhere */
	bool aside_has_more;   /* packets that nothing announces */
	uint32_t idle_rx;      /* calls of rx() that found nothing */
	uint32_t busy_rx;      /* calls of rx() of a port that has an `aside` */
	int wake_fd;	       /* eventfd: rx() has work that no packet will announce */
	int queues_fd;	       /* epoll over the sockets of several queues; -1: there is one */
	int holder_fd;	       /* tells others who holds the device; -1: nobody is told */
	struct afxdp_queue queues[QUEUES_MAX];
};

static inline uint64_t tx_buffer_addr(uint32_t buffer)
{
	return (uint64_t)buffer * TX_BUFFER;
}

static inline uint32_t rx_chunks(const struct afxdp *a)
{
	return 1u << a->rx_shift;
}

/* The first receive chunk of a queue. */
static inline uint32_t first_chunk(const struct afxdp *a, uint32_t queue)
{
	return TX_CHUNKS + (queue << a->rx_shift);
}

static inline struct afxdp_queue *queue_of_chunk(struct afxdp *a, uint32_t chunk)
{
	return &a->queues[(chunk - TX_CHUNKS) >> a->rx_shift];
}

int dp_afxdp_open(const struct dp_spec *, struct dp_port **out, struct dp_error *);
void dp_afxdp_close(struct dp_port *);
void dp_afxdp_stats(struct dp_port *);

/* Which modes bind() may choose from. */
enum afxdp_mode { MODE_AUTO, MODE_COPY, MODE_ZEROCOPY };

/* Makes the sockets of all queues, in the fastest mode that the first one gets; tells in
 * port.info which mode that is and why. */
int dp_afxdp_make_sockets(struct afxdp *, enum afxdp_mode, struct dp_error *);
void dp_afxdp_delete_sockets(struct afxdp *);

/* Takes packets from the network: part of rx() of struct dp_port_ops. */
int dp_afxdp_rx_queues(struct afxdp *, struct dp_packet *out, int max);
/* Opens the UDP port beside a port of one queue, which has the slot of both. */
int dp_afxdp_share(struct afxdp *, struct dp_error *);
/* Hands a packet to our own address to the port that it is for; false: that is this one. */
bool dp_afxdp_hand_on(struct afxdp *, const struct dp_packet *);
/* Takes what arrived on other queues, and what was handed on to this port. */
int dp_afxdp_rx_aside(struct afxdp *, struct dp_packet *out, int max);
/* rx_release() and has_packets() of struct dp_port_ops. */
void dp_afxdp_rx_release(struct dp_port *, const struct dp_packet *, int n);
bool dp_afxdp_has_packets(const struct dp_port *);

#endif
