/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loads and attaches the steering program (xdp/steer.bpf.c), which lies inside
 * this library.  The attachment lives as long as the process or until
 * dp_steer_detach(); nothing is pinned.
 *
 * A device takes one such program.  Ports that serve one queue each, of one process or of several,
 * share it: the first attaches it, and each holds the attachment, which lasts until the last of them
 * is closed.
 */
#ifndef DP_IO_STEER_H
#define DP_IO_STEER_H

#include <stdbool.h>

#include "io/port.h"
#include "io/spec.h"

struct dp_steer;

/* The AF_XDP sockets of a port: fds[i] is that of queue first_queue + i. */
struct dp_steer_sockets {
	uint32_t first_queue, n;
	const int *fds;
	bool shared;   /* other ports have the other queues, and all use one program */
	uint32_t slot; /* shared: the port's */
};

/* Steers RoCE packets to info->addr that arrive at these queues of info->netdev to the sockets.
 * dated: frames end with the time at which an emulated link let them go (xdp/steer.h).
 * If a slower way of attachment was necessary, info->mode_reason tells why. */
int dp_steer_attach(struct dp_port_info *info, const struct dp_steer_sockets *, bool dated,
		    struct dp_steer **out, struct dp_error *);
void dp_steer_detach(struct dp_steer *);
/* Fills in arrived_ns, when the program saw the frame or its date if that is still to come (0: the
 * driver leaves no room in front of frames), and late_ns. */
void dp_steer_times(const struct dp_steer *, const uint8_t *frame, struct dp_packet *out);
/* Clears them there, since the memory is used again. */
void dp_steer_forget_times(uint8_t *frame);
/* RoCE packets to our address that arrived on queues without a socket. */
uint64_t dp_steer_other_queue(const struct dp_steer *);

#endif
