/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whole frames of network devices, by AF_XDP sockets that share one UMEM: a frame
 * is forwarded in the chunks in which it was received.  A frame of more than one
 * chunk is a chain of them.
 *
 * In copy mode, which veth and taps have, the kernel copies frames in and out.  An XDP
 * program gives every frame of a device to its socket, with the time of arrival in
 * front (xdp/raw.bpf.c; xdp/raw_tags.bpf.c knows VLAN tags, too); the device's other users
 * see none of them.
 *
 * The user keeps a record for each chunk, which begins with its struct dp_chunk.
 * One thread at a time uses all of this.
 */
#ifndef DP_IO_RAW_H
#define DP_IO_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "io/xsk.h"

enum {
	DP_CHUNK = 4096,
	DP_RAW_RING = 4096,
	DP_RAW_FILL_RING = 8192, /* the kernel announces a frame before it gives its place back */
};

#define DP_NO_CHUNK UINT32_MAX

struct dp_chunk {
	uint64_t addr;	/* of its bytes in the UMEM */
	uint32_t len;	/* bytes of the frame in it */
	uint32_t next;	/* chunk of the same frame, or of the free list */
	uint32_t total; /* in the first chunk: of the whole frame, bytes */
};

struct dp_raw {
	uint8_t *area;
	struct xsk_umem *umem;
	void *records;
	size_t stride;
	uint32_t n_chunks;
	uint32_t free, n_free;
};

struct dp_raw_port {
	char name[16];
	uint32_t ifindex;
	struct xsk_ring_cons rx, comp;
	struct xsk_ring_prod tx, fill;
	struct xsk_socket *xsk;
	struct raw *skel;
	struct raw_tags *tags; /* in place of skel, where kernel and driver can have it */
	int fd, link_fd;       /* fd: readable when frames wait */
	uint32_t fill_target;  /* chunks that are at the kernel to receive into */
	uint32_t filled;
	uint32_t sending; /* chunks that the device has not sent yet */
	bool pending;	  /* descriptors wait for a kick */
	uint64_t ask_ns;  /* when to kick a device that was down; 0: it was not */
	uint64_t dropped; /* frames that the device took and dropped, since it was full */
};

/* records: n_chunks of them, zeroed, each `stride` bytes, until dp_raw_close().  0 or -ENOMEM. */
int dp_raw_open(struct dp_raw *, void *records, size_t stride, uint32_t n_chunks);
/* The ports must be closed. */
void dp_raw_close(struct dp_raw *);
/* 0 or -errno, and then `why` says in words what failed; dp_raw_port_close() in any case.
 * The port is zeroed, but for its name and fill_target. */
int dp_raw_port_open(struct dp_raw *, struct dp_raw_port *, char *why, size_t size);
void dp_raw_port_close(struct dp_raw_port *);

static inline struct dp_chunk *dp_raw_chunk(const struct dp_raw *raw, uint32_t i)
{
	return (struct dp_chunk *)((char *)raw->records + i * raw->stride);
}

static inline uint8_t *dp_raw_bytes(const struct dp_raw *raw, uint32_t i)
{
	return raw->area + dp_raw_chunk(raw, i)->addr;
}

/* Puts n bytes behind a frame; false, and nothing is done, if its last chunk has no room. */
static inline bool dp_raw_append(const struct dp_raw *raw, uint32_t first, const void *bytes,
				 uint32_t n)
{
	struct dp_chunk *whole = dp_raw_chunk(raw, first), *last = whole;

	while (last->next != DP_NO_CHUNK)
		last = dp_raw_chunk(raw, last->next);
	if (last->addr % DP_CHUNK + last->len + n > DP_CHUNK)
		return false;
	memcpy(raw->area + last->addr + last->len, bytes, n);
	last->len += n;
	whole->total += n;
	return true;
}

/* A chunk, or DP_NO_CHUNK. */
uint32_t dp_raw_get(struct dp_raw *);
/* Takes back a chain. */
void dp_raw_put(struct dp_raw *, uint32_t first);

/* Calls `take` with each frame that has come in, at most `max`, and when it arrived, which is
 * not after now_ns.  The frame is take's own from then on.  Returns how many. */
typedef void dp_raw_take(void *user, uint32_t first, uint64_t arrived_ns);
uint32_t dp_raw_receive(struct dp_raw *, struct dp_raw_port *, uint32_t max, uint64_t now_ns,
			dp_raw_take *take, void *user);
/* Hands a frame to the device; its chunks come back when it has been sent.  false: the device
 * takes no more, and the frame stays the caller's. */
bool dp_raw_send(struct dp_raw *, struct dp_raw_port *, uint32_t first);
/* Makes the kernel send; what it does not take now waits for the next call.  A device that was down
 * is asked at intervals, so call it also when dp_raw_send() fails. */
void dp_raw_kick(struct dp_raw_port *);
/* Takes back chunks that were sent, and gives the kernel some to receive into. */
void dp_raw_reap(struct dp_raw *, struct dp_raw_port *);
void dp_raw_refill(struct dp_raw *, struct dp_raw_port *);

/* Frames that the kernel dropped because a receive ring was full or had no chunks. */
uint64_t dp_raw_drops(const struct dp_raw_port *);
/* Frames in front of which the driver had no room for the time. */
uint64_t dp_raw_unstamped(const struct dp_raw_port *);

#endif
