/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * AF_XDP port: frames of one queue of a network device, past the kernel's
 * stack.
 *
 * UMEM, in chunks of 4096 bytes (one page, the most that every kernel takes):
 *
 *   [ rx chunk ] x RX_CHUNKS  [ tx chunk | tx chunk ] x TX_BUFFERS
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
 * afxdp_open.c makes and unmakes a port, afxdp.c moves packets.
 *
 * Threads: none; see port.h.  Memory order: libxdp's ring functions acquire and
 * release the kernel's indices.
 */
#ifndef DP_IO_AFXDP_H
#define DP_IO_AFXDP_H

#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#include "io/frame.h"
#include "io/groups.h"
#include "io/holder.h"
#include "io/peers.h"
#include "io/port_impl.h"
#include "io/steer.h"
#include "io/udp_slot.h"

/* The kernel headers may be older than Linux 6.6. */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

enum {
	CHUNK = 4096,
	RX_CHUNKS = 4096,
	TX_BUFFERS = 1024,
	TX_BUFFER = 2 * CHUNK,
	/* room in front of the BTH; keeps the BTH 64-byte aligned */
	TX_HEADROOM = 128,
	RX_RING = RX_CHUNKS,
	TX_RING = 4 * TX_BUFFERS,
	COMP_RING = 2 * TX_BUFFERS,
	/* The kernel announces a packet before it gives back the places of its
	 * chunks in the ring, so chunks may return while those look taken. */
	FILL_RING = 2 * RX_CHUNKS,
	/* more than the descriptors of the longest packet that a kernel makes */
	RX_DESCS_MAX = 64,
	/* the first piece must hold all headers */
	RX_FIRST_MIN = 100,
	RX_HEADERS = 192, /* first bytes of a packet, which are prefetched */
	CACHE_LINE = 64,
};

_Static_assert((int)TX_HEADROOM >= (int)DP_FRAME_HDR_MAX, "headers fit in front of a packet");

/* cookie of a received packet: index of its first chunk, 1 + index of the
 * second one << 32 (0: none); or a transmit buffer of the loop. */
#define COOKIE_LOOP (1ull << 63)

struct afxdp_route {
	bool self;  /* our own address */
	bool group; /* multicast */
	struct dp_frame_template frame;
};

struct afxdp {
	struct dp_port port;
	struct xsk_ring_cons rx, comp;
	struct xsk_ring_prod tx, fill;
	int xsk_fd;
	bool zero_copy, busy_poll;
	int zero_copy_err; /* why bind() refused zero-copy; 0: not tried, or not refused */
	bool tx_pending;   /* descriptors wait for a kick that the kernel accepts */
	bool tx_down;	   /* ... and the device is down: there is no hurry to try again */
	bool wake_set;	   /* wake_fd is readable */
	uint8_t *umem_area;
	uint32_t n_free;	       /* transmit buffers in `free` */
	uint16_t free[TX_BUFFERS];     /* a stack: the buffer used last is still in the cache */
	uint8_t tx_parts[TX_BUFFERS];  /* descriptors that the kernel holds */
	uint32_t loop_head, loop_tail; /* of `loop`; free-running */
	struct dp_packet loop[TX_BUFFERS];
	struct dp_groups groups;
	struct dp_peers peers;
	struct afxdp_route routes[DP_PEERS_MAX]; /* by path_id */

	struct xsk_socket *xsk;
	struct xsk_umem *umem;
	struct dp_steer *steer;
	struct dp_slot names; /* of services; the address has no slots */
	int wake_fd;	      /* eventfd: rx() has work that no packet will announce */
	int holder_fd;	      /* tells others who holds the device; -1: nobody is told */
};

static const size_t umem_size = (size_t)RX_CHUNKS * CHUNK + (size_t)TX_BUFFERS * TX_BUFFER;

static inline uint64_t tx_buffer_addr(uint32_t buffer)
{
	return (uint64_t)RX_CHUNKS * CHUNK + (uint64_t)buffer * TX_BUFFER;
}

int dp_afxdp_open(const struct dp_spec *, struct dp_port **out, struct dp_error *);
void dp_afxdp_close(struct dp_port *);
void dp_afxdp_stats(struct dp_port *);

#endif
