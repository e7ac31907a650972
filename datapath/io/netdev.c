// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/netdev.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "io/addr.h"

/* One ioctl on a device, through a temporary socket. */
static int device_ioctl(const char *name, unsigned long request, struct ifreq *ifr)
{
	int fd, err = 0;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	strncpy(ifr->ifr_name, name, IFNAMSIZ - 1);
	ifr->ifr_name[IFNAMSIZ - 1] = 0;
	if (ioctl(fd, request, ifr) < 0)
		err = -errno;
	close(fd);
	return err;
}

void dp_netdev_driver(const char *name, char *out, size_t len)
{
	struct ethtool_drvinfo drv = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq ifr = { .ifr_data = (void *)&drv };

	out[0] = 0;
	if (!device_ioctl(name, SIOCETHTOOL, &ifr))
		snprintf(out, len, "%s", drv.driver);
}

int dp_netdev_rx_queues(const char *name)
{
	struct ethtool_channels ch = { .cmd = ETHTOOL_GCHANNELS };
	struct ifreq ifr = { .ifr_data = (void *)&ch };

	if (device_ioctl(name, SIOCETHTOOL, &ifr))
		return 1;
	return (int)(ch.rx_count + ch.combined_count ? ch.rx_count + ch.combined_count : 1);
}

void dp_netdev_renew_buffers(const char *name)
{
	struct ethtool_ringparam ring = { .cmd = ETHTOOL_GRINGPARAM };
	struct ifreq ifr = { .ifr_data = (void *)&ring };
	char driver[32];
	uint32_t size;

	dp_netdev_driver(name, driver, sizeof(driver));
	if (strcmp(driver, "virtio_net") || device_ioctl(name, SIOCETHTOOL, &ifr))
		return;
	/* Only a new ring size makes the driver return its buffers.  An error means that the kernel
	 * or the host cannot do this (before Linux 6.1, QEMU 7.2). */
	size = ring.rx_pending;
	ring.cmd = ETHTOOL_SRINGPARAM;
	ring.rx_pending = size / 2;
	if (device_ioctl(name, SIOCETHTOOL, &ifr))
		return;
	ring.rx_pending = size;
	device_ioctl(name, SIOCETHTOOL, &ifr);
}

/* Virtual devices report a speed that means nothing. */
static bool speed_is_fiction(const char *name)
{
	static const char *const drivers[] = { "veth", "tun", "bridge", "dummy", "ifb", "bonding" };
	char driver[32];

	dp_netdev_driver(name, driver, sizeof(driver));
	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
		if (!strcmp(driver, drivers[i]))
			return true;
	return false;
}

static uint64_t line_rate_bps(const char *name)
{
	struct ethtool_cmd cmd = { .cmd = ETHTOOL_GSET };
	struct ifreq ifr = { .ifr_data = (void *)&cmd };
	uint32_t mbps;

	if (speed_is_fiction(name) || device_ioctl(name, SIOCETHTOOL, &ifr))
		return 0;
	mbps = ethtool_cmd_speed(&cmd);
	return mbps == (uint32_t)SPEED_UNKNOWN ? 0 : mbps * 1000000ull;
}

bool dp_netdev_is_up(const char *name)
{
	struct ifreq ifr = {};

	return !device_ioctl(name, SIOCGIFFLAGS, &ifr) && ifr.ifr_flags & IFF_UP;
}

int dp_netdev_is_running(const char *name)
{
	enum { RUNNING = IFF_UP | IFF_RUNNING };
	struct ifreq ifr = {};
	int err = device_ioctl(name, SIOCGIFFLAGS, &ifr);

	return err ? err : (ifr.ifr_flags & RUNNING) == RUNNING;
}

int dp_netdev_watch(void)
{
	struct sockaddr_nl name = { .nl_family = AF_NETLINK,
				    .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR |
						 RTMGRP_IPV6_IFADDR };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE), err;

	if (fd < 0)
		return -errno;
	if (!bind(fd, (const struct sockaddr *)&name, sizeof(name)))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* What has changed is left to the caller: messages are lost when the socket has no room (ENOBUFS). */
bool dp_netdev_has_changed(int watch_fd)
{
	bool changed = false;
	char byte;

	while (recv(watch_fd, &byte, sizeof(byte), MSG_TRUNC) > 0 || errno == ENOBUFS)
		changed = true;
	return changed;
}

static int no_such_device(const char *name, struct dp_error *error)
{
	struct if_nameindex *all = if_nameindex();
	char known[256] = "";

	for (struct if_nameindex *i = all; i && i->if_index; i++) {
		if (i != all)
			strncat(known, ", ", sizeof(known) - strlen(known) - 1);
		strncat(known, i->if_name, sizeof(known) - strlen(known) - 1);
	}
	if (all)
		if_freenameindex(all);
	return dp_fail(error, -ENODEV,
		       "no network device '%s' in this network namespace (there are: %s)", name,
		       known);
}

static int look_up_failed(const char *name, int err, struct dp_error *error)
{
	if (err == -ENODEV || err == -ENXIO)
		return no_such_device(name, error);
	return dp_fail(error, err, "cannot look up network device %s: %s", name, strerror(-err));
}

/* Unlike if_nametoindex(), tells of a want of descriptors as such. */
static int find_index(const char *name, uint32_t *index)
{
	struct ifreq ifr = {};
	int err = strlen(name) < IFNAMSIZ ? device_ioctl(name, SIOCGIFINDEX, &ifr) : -ENODEV;

	*index = err ? 0 : (uint32_t)ifr.ifr_ifindex;
	return err;
}

int dp_netdev_query(const char *name, struct dp_port_info *info, struct dp_error *error)
{
	struct ifreq ifr = {};
	int err = find_index(name, &info->ifindex);

	if (!err)
		err = device_ioctl(name, SIOCGIFHWADDR, &ifr);
	if (!err) {
		memcpy(info->mac, ifr.ifr_hwaddr.sa_data, sizeof(info->mac));
		err = device_ioctl(name, SIOCGIFMTU, &ifr);
	}
	if (err)
		return look_up_failed(name, err, error);
	strcpy(info->netdev, name);
	info->netdev_mtu = (uint32_t)ifr.ifr_mtu;
	info->line_rate_bps = line_rate_bps(name);
	return 0;
}

/* Preference among a device's addresses: IPv4, global IPv6, link-local. */
static int address_rank(const struct dp_addr *a)
{
	return dp_addr_is_v4(a) ? 3 : dp_addr_is_link_local(a) ? 1 : 2;
}

int dp_netdev_address(const char *name, const struct dp_addr *wanted, struct dp_addr *out,
		      struct dp_error *error)
{
	bool any = dp_addr_is_unspecified(wanted);
	struct ifaddrs *all, *i;
	int best = 0;
	char text[DP_ADDR_TEXT];

	if (getifaddrs(&all))
		return dp_fail(error, -errno, "cannot list addresses: %s", strerror(errno));
	for (i = all; i; i = i->ifa_next) {
		struct dp_addr a;

		if (!i->ifa_addr || strcmp(i->ifa_name, name) ||
		    (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		dp_addr_from_sockaddr(i->ifa_addr, &a);
		if ((any || dp_addr_equal(&a, wanted)) && address_rank(&a) > best) {
			best = address_rank(&a);
			*out = a;
		}
	}
	freeifaddrs(all);
	if (best)
		return 0;
	if (any)
		return dp_fail(error, -EADDRNOTAVAIL,
			       "%s has no IP address: give it one (ip address add 10.0.0.1/24 dev "
			       "%s)",
			       name, name);
	dp_addr_text(wanted, text);
	return dp_fail(error, -EADDRNOTAVAIL,
		       "%s is not an address of %s: add it (ip address add %s dev %s) or name "
		       "another",
		       text, name, text, name);
}

int dp_netdev_of_address(const struct dp_addr *addr, char *name, size_t len)
{
	bool unique = !dp_addr_is_link_local(addr);
	struct ifaddrs *all, *i;
	int err = -ENODEV;

	if (getifaddrs(&all))
		return -errno;
	for (i = all; i && (err == -ENODEV || !unique); i = i->ifa_next) {
		struct dp_addr a;

		if (!i->ifa_addr ||
		    (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		dp_addr_from_sockaddr(i->ifa_addr, &a);
		if (!dp_addr_equal(&a, addr))
			continue;
		err = err == -ENODEV ? 0 : -ENOTUNIQ;
		snprintf(name, len, "%s", i->ifa_name);
	}
	freeifaddrs(all);
	/* all of 127.0.0.0/8 is local, but only 127.0.0.1 is listed */
	if (err && dp_addr_is_loopback(addr)) {
		snprintf(name, len, "lo");
		err = 0;
	}
	return err;
}

int dp_netdev_find(const char *where, struct dp_addr *addr, char *name, size_t len,
		   struct dp_error *error)
{
	const char *device = strchr(where, '%');
	char text[DP_ADDR_TEXT];
	int n = device ? (int)(device - where) : (int)strlen(where), err;
	uint32_t index;

	if (n >= (int)sizeof(text))
		return -EINVAL;
	snprintf(text, sizeof(text), "%.*s", n, where);
	if (dp_addr_parse(text, addr))
		return -EINVAL;
	if (device) {
		snprintf(name, len, "%s", ++device);
		err = find_index(device, &index);
		return err ? look_up_failed(device, err, error) :
			     dp_netdev_address(device, addr, addr, error);
	}
	err = dp_netdev_of_address(addr, name, len);
	if (err == -ENOTUNIQ)
		return dp_fail(error, err, "several devices have %s: name one (%s%%%s)", text, text,
			       name);
	if (err == -ENODEV)
		return dp_fail(error, -EADDRNOTAVAIL,
			       "%s is not an address of this network namespace", text);
	return err ? dp_fail(error, err, "cannot look up %s: %s", text, strerror(-err)) : 0;
}
