/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a port of another kind needs of the UDP port that stands beside it. */
#ifndef DP_IO_UDP_H
#define DP_IO_UDP_H

#include "io/port_impl.h"
#include "io/slot.h"

/* After so many calls in a row that found nothing, rx() has looked at all that may have made the port
 * readable: handed-on packets cost a system call more, so it does not look for them each time. */
enum {
	DP_UDP_RX_TRIES = 8,
	DP_UDP_RX_BUSY = 64, /* the same for a port that always has packets of its own */
};

struct dp_slot *dp_udp_slot(struct dp_port *);

#endif
