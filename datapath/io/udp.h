/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a port of another kind needs of the UDP port that stands beside it. */
#ifndef DP_IO_UDP_H
#define DP_IO_UDP_H

#include "io/port_impl.h"
#include "io/slot.h"

struct dp_slot *dp_udp_slot(struct dp_port *);

#endif
