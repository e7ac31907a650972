// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The verbs devices of this host.  All users of the plug-in in a process share them; they are
 * opened once, and closed with the last finalize().
 *
 * Environment:  NCCL_DP_DEVICES    names, separated by commas; all that can be used unless set
 *               NCCL_DP_GID_INDEX  the first one of IPv4 and RoCE v2 unless set; else of IPv4
 *               NCCL_SOCKET_IFNAME NCCL's own list of network devices: listeners listen at the
 *                                  IPv4 address of the first one that runs of those that it
 *                                  names; the GID's address
 *                                  unless set, or if there is no such device
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#include "collectives/live/gid.h"
#include "collectives/nccl/net.h"
#include "posix/number.h"

enum {
	MAX_DEVICES = 32,
};

static struct {
	pthread_mutex_t lock; /* of users and devices; what is open stays as it is */
	int users;
	int n;
	struct net_device device[MAX_DEVICES];
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic(nccl_logger) logger;

enum nccl_result net_fail(enum nccl_result result, const char *format, ...)
{
	nccl_logger log = logger;
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (log)
		log(NCCL_LOG_WARN, NCCL_LOG_NET, __FILE__, __LINE__, "NET/dp: %s", text);
	return result;
}

static bool is_wanted(const char *name)
{
	const char *list = getenv("NCCL_DP_DEVICES");
	size_t bytes = strlen(name);

	if (!list || !*list)
		return true;
	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, name, bytes) && (!at[bytes] || at[bytes] == ','))
			return true;
	}
	return false;
}

static bool choose_gid(struct net_device *dev)
{
	const char *chosen = getenv("NCCL_DP_GID_INDEX");
	uint32_t index = 0;

	if (chosen && dp_read_u32(chosen, 0, UINT8_MAX, &index)) {
		net_fail(NCCL_INVALID_USAGE, "NCCL_DP_GID_INDEX is %s, and has to be 0 to %d",
			 chosen, UINT8_MAX);
		return false;
	}
	dev->gid_index = chosen ? (int)index : coll_choose_gid(dev->verbs, &dev->port);
	return !ibv_query_gid(dev->verbs, 1, dev->gid_index, &dev->gid);
}

/*
 * Whether a list names a network device, as NCCL reads NCCL_SOCKET_IFNAME: the begins of names,
 * between commas; behind "=" whole names; behind "^" all others.  A port behind a name means
 * nothing here.
 */
static bool is_listed(const char *list, const char *name)
{
	bool others = *list == '^', whole, any = false, found = false;
	size_t length;

	list += others;
	whole = *list == '=';
	for (const char *at = list + whole; *at; at += length + (at[length] == ',')) {
		size_t bytes = strcspn(at, ":,");

		length = strcspn(at, ",");
		any |= bytes;
		found |= bytes && !strncmp(name, at, bytes) && (!whole || !name[bytes]);
	}
	return (found || !any) != others;
}

/* The IPv4 address of the first network device that runs and is listed. */
static bool find_address(const char *listed, struct in_addr *out)
{
	struct ifaddrs *list = NULL;
	bool found = false;

	if (getifaddrs(&list))
		return false;
	for (struct ifaddrs *a = list; a && !found; a = a->ifa_next)
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
		    a->ifa_flags & IFF_RUNNING && is_listed(listed, a->ifa_name)) {
			*out = ((struct sockaddr_in *)a->ifa_addr)->sin_addr;
			found = true;
		}
	freeifaddrs(list);
	return found;
}

static bool choose_address(struct net_device *dev)
{
	const char *listed = getenv("NCCL_SOCKET_IFNAME");

	if (listed && *listed && find_address(listed, &dev->address))
		return true;
	if (coll_gid_is_ipv4(&dev->gid)) {
		memcpy(&dev->address, dev->gid.raw + 12, sizeof(dev->address));
		return true;
	}
	net_fail(NCCL_INVALID_USAGE,
		 "device %s is left out: its GID %d is not that of an IPv4 address, and "
		 "NCCL_SOCKET_IFNAME (%s) names no running network device that has one; set it "
		 "to one that has, or NCCL_DP_GID_INDEX to a GID of IPv4",
		 dev->name, dev->gid_index, listed ?: "not set");
	return false;
}

/* InfiniBand's codes of width and speed, whose lowest bit counts. */
static int speed_mbps(const struct ibv_port_attr *port)
{
	static const int lanes[] = { 1, 4, 8, 12, 2 };
	static const int mbps[] = { 2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000 };
	int width = port->active_width ? __builtin_ctz(port->active_width) : 0;
	int speed = port->active_speed ? __builtin_ctz(port->active_speed) : 0;

	return lanes[width < 5 ? width : 0] * mbps[speed < 8 ? speed : 0];
}

/* The folder in /sys of its PCI device; NULL: it has none. */
static char *pci_path(const char *name)
{
	char link[PATH_MAX], *path;

	snprintf(link, sizeof(link), "/sys/class/infiniband/%s/device", name);
	path = realpath(link, NULL);
	if (path && !strstr(path, "/pci")) {
		free(path);
		return NULL;
	}
	return path;
}

static void leave(struct net_device *dev)
{
	if (dev->pd)
		ibv_dealloc_pd(dev->pd);
	if (dev->verbs)
		ibv_close_device(dev->verbs);
	free(dev->pci_path);
	*dev = (struct net_device){ 0 };
}

/* Whether the device can be used. */
static bool enter(struct net_device *dev, struct ibv_device *found)
{
	*dev = (struct net_device){ 0 };
	snprintf(dev->name, sizeof(dev->name), "%s", ibv_get_device_name(found));
	if (!is_wanted(dev->name) || found->transport_type == IBV_TRANSPORT_IWARP)
		return false;
	dev->verbs = ibv_open_device(found);
	if (!dev->verbs || ibv_query_device(dev->verbs, &dev->attr) ||
	    ibv_query_port(dev->verbs, 1, &dev->port) || dev->port.state != IBV_PORT_ACTIVE ||
	    !choose_gid(dev) || !choose_address(dev))
		return false;
	dev->pd = ibv_alloc_pd(dev->verbs);
	dev->speed_mbps = speed_mbps(&dev->port);
	dev->pci_path = pci_path(dev->name);
	return dev->pd;
}

static enum nccl_result open_all(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (int i = 0; list && i < n && shared.n < MAX_DEVICES; i++) {
		struct net_device *dev = &shared.device[shared.n];

		if (enter(dev, list[i]))
			shared.n++;
		else
			leave(dev);
	}
	if (list)
		ibv_free_device_list(list);
	return shared.n ? NCCL_SUCCESS :
			  net_fail(NCCL_SYSTEM_ERROR,
				   "none of the %d verbs devices of this host can be used; "
				   "NCCL_DP_DEVICES is %s",
				   n, getenv("NCCL_DP_DEVICES") ?: "not set");
}

enum nccl_result net_open_devices(nccl_logger log)
{
	enum nccl_result result = NCCL_SUCCESS;

	logger = log;
	pthread_mutex_lock(&shared.lock);
	if (!shared.users)
		result = open_all();
	if (!result)
		shared.users++;
	pthread_mutex_unlock(&shared.lock);
	return result;
}

void net_close_devices(void)
{
	pthread_mutex_lock(&shared.lock);
	if (shared.users && !--shared.users)
		while (shared.n)
			leave(&shared.device[--shared.n]);
	pthread_mutex_unlock(&shared.lock);
}

int net_device_count(void)
{
	int n;

	pthread_mutex_lock(&shared.lock);
	n = shared.n;
	pthread_mutex_unlock(&shared.lock);
	return n;
}

struct net_device *net_device(int index)
{
	return index >= 0 && index < net_device_count() ? &shared.device[index] : NULL;
}

enum nccl_result net_register(struct net_device *dev, void *data, size_t bytes, int pointer,
			      void **memory)
{
	if (pointer != NCCL_PTR_HOST)
		return net_fail(NCCL_INTERNAL_ERROR,
				"memory of kind %d cannot be registered: this plug-in offers %d",
				pointer, NCCL_PTR_HOST);
	*memory =
		ibv_reg_mr(dev->pd, data, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return *memory ? NCCL_SUCCESS :
			 net_fail(NCCL_SYSTEM_ERROR, "device %s: registering %zu bytes: %s",
				  dev->name, bytes, strerror(errno));
}
