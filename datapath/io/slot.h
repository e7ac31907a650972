/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Several ports on one address, told apart by the top 8 bits of the destination QPN: UDP ports of
 * several processes, or AF_XDP ports that serve a receive queue each of one device.
 *
 * Each port holds a slot (0..255), the lowest that was free: an abstract
 * Unix socket named "datapath-udp:<address>:<slot>" that listens.  Such names
 * belong to a network namespace, and the kernel frees them when the process
 * dies.  A packet that reaches the wrong port is handed to the owner's Unix socket, with the header
 * below in front.
 *
 * All UDP ports bind UDP port 4791 with SO_REUSEPORT, which the kernel
 * grants to one user, and a BPF program picks the member of that group by byte 5 of the
 * datagram (udp_steer.h).  For the program's sake slots are taken and ports bound by one process
 * at a time.  An AF_XDP port has a UDP port beside it (afxdp_share.c), and its slot.
 *
 * Any user may bind any abstract name, so a name proves nothing: both ends of a
 * connection ask the kernel who the other is (SO_PEERCRED).  A slot that another
 * user holds is passed over, and gets no packet.  If another user holds the
 * lock's name, slots are taken without a lock.  Then some UDP sockets may be out of the program's
 * sight, which only costs time to hand packets on.
 *
 * Management datagrams all are for QPN 1.  One for a service of the connection manager is for, and
 * may be handed on to, the port that holds the service's name,
 * "datapath-udp:<address>:service-<id>"; any other to the slot in the top 8 bits of the
 * communication id that it is for.  A REJ without such an id is for all ports (run.c).
 */
#ifndef DP_IO_SLOT_H
#define DP_IO_SLOT_H

#include <stdbool.h>
#include <sys/types.h>

#include "io/spec.h"
#include "wire/packet.h"
#include "xdp/slots.h"

/* Header in front of a handed-on datagram, or of a run of datagrams of one length. */
struct dp_slot_header {
	struct dp_addr src;
	uint16_t sport;
	uint8_t tos;
	uint8_t reserved;
	uint32_t segment_len; /* of all datagrams but the last */
	uint64_t arrived_ns;  /* as in struct dp_packet */
};

struct dp_slot_service;

struct dp_slot {
	struct dp_addr addr;
	uint32_t number;
	uid_t uid;
	int fd;		    /* listens; all of these -1: not open */
	int lock_fd;	    /* held from claim to settled */
	int poll_fd;	    /* epoll: readable when dp_slot_receive() may have something */
	int timer_fd;	    /* expires when a connection that could not be taken is tried again */
	int to[DP_SLOTS];   /* connections to the owners of other slots */
	int from[DP_SLOTS]; /* connections from the owners of other slots, in no order */
	uint32_t n_from;
	struct dp_slot_service *services; /* whose names it holds */
};

/* To be called first, so that dp_slot_release() can be called at any time. */
void dp_slot_init(struct dp_slot *);
/* Takes the lowest free slot, and a lock that keeps other processes from doing
 * so before dp_slot_settled(): bind the UDP port between the two. */
int dp_slot_claim(struct dp_slot *, const struct dp_addr *, struct dp_error *);
void dp_slot_settled(struct dp_slot *);
void dp_slot_release(struct dp_slot *);

/* Does not block.  0; -ECONNREFUSED: no process of this user holds the slot; -EAGAIN: the queue to
 * it is full. */
int dp_slot_hand_on(struct dp_slot *, uint32_t owner, const struct dp_slot_header *,
		    const void *data, size_t len);
/* Takes the name of a service.  -EADDRINUSE: another process has it, or this one. */
int dp_slot_serve(struct dp_slot *, uint64_t service_id);
void dp_slot_unserve(struct dp_slot *, uint64_t service_id);
bool dp_slot_serves(const struct dp_slot *, uint64_t service_id);
/* As dp_slot_hand_on(), to the process that holds a service's name. */
int dp_slot_hand_on_request(struct dp_slot *, uint64_t service_id, const struct dp_slot_header *,
			    const void *data, size_t len);

/* Does not block.  Returns the bytes received from another process of this user, or -EAGAIN. */
int dp_slot_receive(struct dp_slot *, struct dp_slot_header *, void *data, size_t len);

#endif
