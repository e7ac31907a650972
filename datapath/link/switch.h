/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State that the links of one switch share: the packet buffer with dynamic thresholds
 * (Choudhury and Hahne, 1998), priority flow control (IEEE 802.1Qbb) by what
 * waits of each ingress port and class, and the choice among equal paths.
 *
 * A frame takes room in the buffer while it waits; one that is transmitted at
 * once takes none.  A class without PFC may fill a queue up to alpha times what
 * is free.  A class with PFC is not dropped by threshold: above XOFF its ingress
 * port is paused, and what still arrives goes into the headroom of that port and
 * class, which nobody else may use.
 */
#ifndef DP_LINK_SWITCH_H
#define DP_LINK_SWITCH_H

#include <stdbool.h>
#include <stdint.h>

#include "link/link.h"
#include "wire/packet.h"

enum { DP_NO_INGRESS = 0xffff }; /* dp_frame.ingress of a frame made here: it pauses no port */

struct dp_buffer_config {
	uint64_t total_bytes; /* headroom included */
	double alpha;	      /* 0: only the total limits */
	uint32_t n_ports;
	uint32_t pfc_classes; /* mask */
	/* of each ingress port and class with PFC */
	uint64_t xoff_bytes;
	uint64_t xon_bytes;
	uint64_t headroom_bytes;
};

/* Called when an ingress port has to tell its peer to stop or to go on.  The user passes this to
 * dp_link_pause() of the link that ends at the port, after the time that a pause frame takes.  The
 * callback must not call the links of this buffer. */
typedef void dp_pfc_fn(void *user, uint32_t port, uint32_t class, bool paused, uint64_t now_ns);

struct dp_buffer;

int dp_buffer_create(const struct dp_buffer_config *, dp_pfc_fn *, void *user,
		     struct dp_buffer **out);
/* The links that use the buffer must have been destroyed before. */
void dp_buffer_destroy(struct dp_buffer *);
bool dp_buffer_has_pfc(const struct dp_buffer *);
/* Bytes used in the shared part and in all headrooms, as of the links' last calls. */
uint64_t dp_buffer_used_bytes(const struct dp_buffer *);
/* Bytes that wait of one ingress port and class, with PFC. */
uint64_t dp_buffer_ingress_bytes(const struct dp_buffer *, uint32_t port, uint32_t class);

/* The fields of a flow that ECMP hashes.  Addresses in the byte order of the wire. */
uint32_t dp_flow_hash(const struct dp_addr *src, const struct dp_addr *dst, uint16_t sport,
		      uint16_t dport);
/* The index of one of n paths, evenly spread.  Switches with different seeds choose
 * independently. */
uint32_t dp_ecmp(uint32_t flow_hash, uint64_t seed, uint32_t n);

#endif
