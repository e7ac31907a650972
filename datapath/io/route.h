/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's routes and neighbours, by rtnetlink.
 */
#ifndef DP_IO_ROUTE_H
#define DP_IO_ROUTE_H

#include "wire/packet.h"

/* The link address of the next hop from `src` to `peer` through a device.  Does not wait.
 *   -ENETUNREACH   no route, or it leaves through another device
 *   -EAGAIN        the next hop is asked for its address */
int dp_route_resolve(uint32_t ifindex, const struct dp_addr *src, const struct dp_addr *peer,
		     uint8_t mac[6]);

#endif
