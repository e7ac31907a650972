/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which socket of an address the kernel gives a datagram to: that of the process whose slot
 * (slot.h) the destination QPN has in its top 8 bits.
 *
 * With the privilege for it (CAP_SYS_ADMIN, or root), a BPF program of type SK_REUSEPORT looks the
 * socket up in a map with a place for each slot, and the owner of a service in another.  So a
 * process that stands still (a debugger has stopped it, say) holds up nobody else.  Processes find
 * the maps of their address by name.  They are held by the program and the program by the sockets,
 * and so the kernel frees all with the last of these.
 *
 * Without it, a classic BPF program returns the slot as the number of the socket.  The kernel
 * numbers sockets in the order in which they were bound, and when one is closed, the last takes its
 * number: after that, datagrams reach processes that they are not for, which hand them on.
 */
#ifndef DP_IO_UDP_STEER_H
#define DP_IO_UDP_STEER_H

#include "io/spec.h"
#include "wire/packet.h"

struct dp_udp_steer {
	uint32_t slot;
	int services_fd; /* -1: none */
};

/* To be called first, so that dp_udp_steer_close() can be called at any time. */
void dp_udp_steer_init(struct dp_udp_steer *);
/* Makes the sockets of `addr` receive so, of which `udp_fd` has become one.  One process at a time:
 * between dp_slot_claim() and dp_slot_settled(). */
int dp_udp_steer_open(struct dp_udp_steer *, const struct dp_addr *addr, uint32_t slot, int udp_fd,
		      struct dp_error *);
void dp_udp_steer_close(struct dp_udp_steer *);

/* Requests for a service reach this process at once from now on, or no longer. */
void dp_udp_steer_serve(struct dp_udp_steer *, uint64_t service_id);
void dp_udp_steer_unserve(struct dp_udp_steer *, uint64_t service_id);

#endif
