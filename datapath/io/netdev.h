/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel tells of a network device.
 */
#ifndef DP_IO_NETDEV_H
#define DP_IO_NETDEV_H

#include <stdbool.h>

#include "io/port.h"
#include "io/spec.h"

/* Fills netdev, ifindex, mac, netdev_mtu and line_rate_bps of info. */
int dp_netdev_query(const char *name, struct dp_port_info *info, struct dp_error *);
bool dp_netdev_is_up(const char *name);
/* Driver's name ("veth"), "" when it does not tell. */
void dp_netdev_driver(const char *name, char *out, size_t len);
int dp_netdev_rx_queues(const char *name);
/* Has virtio-net take new receive buffers.  Those that it was given before an XDP
 * program was attached lack room in front, and of a packet in such a buffer it
 * drops what does not fit one page with it: packets of 4 KiB, until all of the
 * ring has been used once. */
void dp_netdev_renew_buffers(const char *name);

/* The address of a port on `name`: `wanted` if it is there, or, when that is
 * unspecified, the device's first IPv4 address, else its first IPv6 one. */
int dp_netdev_address(const char *name, const struct dp_addr *wanted, struct dp_addr *out,
		      struct dp_error *);
/* The device that carries a local address; -ENODEV. */
int dp_netdev_of_address(const struct dp_addr *, char *name, size_t len);

#endif
