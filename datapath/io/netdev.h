/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Queries of a network device.
 */
#ifndef DP_IO_NETDEV_H
#define DP_IO_NETDEV_H

#include <stdbool.h>

#include "io/port.h"
#include "io/spec.h"

/* Fills netdev, ifindex, mac, netdev_mtu and line_rate_bps of info. */
int dp_netdev_query(const char *name, struct dp_port_info *info, struct dp_error *);
bool dp_netdev_is_up(const char *name);
/* 1: up, with a carrier; 0: it is not; or -errno. */
int dp_netdev_is_running(const char *name);
/* Returns a descriptor that is readable after any device of this namespace, or an address of one,
 * has changed; or -errno. */
int dp_netdev_watch(void);
/* Returns whether anything has changed since the last call. */
bool dp_netdev_has_changed(int watch_fd);
/* The name of the driver ("veth"); "": the driver does not tell. */
void dp_netdev_driver(const char *name, char *out, size_t len);
int dp_netdev_rx_queues(const char *name);
/* Makes virtio-net take new receive buffers.  Buffers from before an XDP program was attached have
 * no headroom.  A packet of 4 KiB does not fit a page together with the headroom, and virtio-net
 * would drop such packets until it has used each old buffer once. */
void dp_netdev_renew_buffers(const char *name);

/* The address of a port on `name`: `wanted` if it is there, or, when that is
 * unspecified, the device's first IPv4 address, else its first IPv6 one. */
int dp_netdev_address(const char *name, const struct dp_addr *wanted, struct dp_addr *out,
		      struct dp_error *);
/* The device that has a local address; -ENODEV: none; -ENOTUNIQ: it is a link-local one, and several
 * have it. */
int dp_netdev_of_address(const struct dp_addr *, char *name, size_t len);
/* The same of the text ADDRESS or ADDRESS%DEVICE.  -EINVAL, and no message: it is no address. */
int dp_netdev_find(const char *where, struct dp_addr *, char *name, size_t len, struct dp_error *);

#endif
