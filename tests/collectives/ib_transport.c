// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Looks for RDMA devices as NCCL's own InfiniBand transport does when it starts, and says what it
 * finds, a line each: "device NAME port N speed MBPS gid INDEX pci PATH".
 *
 * Source: src/misc/ibvsymbols.cc, src/transport/net_ib/init.cc and connect.cc of NCCL 2.30.  It
 * opens libibverbs.so, or libibverbs.so.1, takes each call by the version of its symbol, and reads
 * the RoCE version of each GID and the device's place from /sys/class/infiniband.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	int (*fork_init)(void);
} verbs;

static const struct {
	const char *name;
	void *place; /* NULL: it has to be there, and is not called here */
} wanted[] = {
	{ "ibv_get_device_list", &verbs.get_device_list },
	{ "ibv_free_device_list", &verbs.free_device_list },
	{ "ibv_get_device_name", &verbs.get_device_name },
	{ "ibv_open_device", &verbs.open_device },
	{ "ibv_close_device", &verbs.close_device },
	{ "ibv_query_device", &verbs.query_device },
	{ "ibv_query_port", &verbs.query_port },
	{ "ibv_query_gid", &verbs.query_gid },
	{ "ibv_fork_init", &verbs.fork_init },
	{ "ibv_get_async_event", NULL },
	{ "ibv_ack_async_event", NULL },
	{ "ibv_query_qp", NULL },
	{ "ibv_alloc_pd", NULL },
	{ "ibv_dealloc_pd", NULL },
	{ "ibv_reg_mr", NULL },
	{ "ibv_dereg_mr", NULL },
	{ "ibv_create_cq", NULL },
	{ "ibv_destroy_cq", NULL },
	{ "ibv_create_qp", NULL },
	{ "ibv_modify_qp", NULL },
	{ "ibv_destroy_qp", NULL },
	{ "ibv_event_type_str", NULL },
};

/* NCCL goes on without these. */
static const char *const optional[][2] = {
	{ "ibv_reg_mr_iova2", "IBVERBS_1.8" },
	{ "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },
	{ "ibv_query_ece", "IBVERBS_1.10" },
	{ "ibv_set_ece", "IBVERBS_1.10" },
};

static bool load(void)
{
	void *library = dlopen("libibverbs.so", RTLD_NOW);
	bool whole = true;

	if (!library)
		library = dlopen("libibverbs.so.1", RTLD_NOW);
	if (!library) {
		printf("no libibverbs: %s\n", dlerror());
		return false;
	}
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *found = dlvsym(library, wanted[i].name, "IBVERBS_1.1");

		if (!found)
			printf("missing %s\n", wanted[i].name);
		else if (wanted[i].place)
			memcpy(wanted[i].place, &found, sizeof(found));
		whole &= found != NULL;
	}
	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		if (!dlvsym(library, optional[i][0], optional[i][1]))
			printf("without %s\n", optional[i][0]);
	return whole;
}

/* 1 or 2; 0: sysfs does not tell. */
static int roce_version(const char *device, int port, int index)
{
	char path[PATH_MAX], text[16] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", device,
		 port, index);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (!fgets(text, sizeof(text), file))
		text[0] = 0;
	fclose(file);
	return strncmp(text, "RoCE v2", 7) ? strstr(text, "RoCE v1") != NULL : 2;
}

/* The first GID of IPv4 and RoCE v2, which is what NCCL takes unless it is told otherwise. */
static int gid_index(struct ibv_context *context, const char *name, int port, int length)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	union ibv_gid gid;

	for (int i = 0; i < length; i++)
		if (!verbs.query_gid(context, (uint8_t)port, i, &gid) &&
		    !memcmp(gid.raw, mapped, sizeof(mapped)) && roce_version(name, port, i) == 2)
			return i;
	return -1;
}

/* Megabits a second of a port's codes, as NCCL computes them: by the lowest bit that is set. */
static int speed_mbps(const struct ibv_port_attr *port)
{
	static const int lanes[] = { 1, 4, 8, 12, 2 };
	static const int mbps[] = { 2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000, 200000 };

	return lanes[__builtin_ctz(port->active_width)] * mbps[__builtin_ctz(port->active_speed)];
}

static void look_at(struct ibv_context *context, const char *name, int port)
{
	struct ibv_port_attr attr = { 0 };
	char link[PATH_MAX], *pci;

	if (verbs.query_port(context, (uint8_t)port, &attr) || attr.state != IBV_PORT_ACTIVE ||
	    (attr.link_layer != IBV_LINK_LAYER_INFINIBAND &&
	     attr.link_layer != IBV_LINK_LAYER_ETHERNET))
		return;
	snprintf(link, sizeof(link), "/sys/class/infiniband/%s/device", name);
	pci = realpath(link, NULL);
	printf("device %s port %d speed %d gid %d pci %s\n", name, port, speed_mbps(&attr),
	       gid_index(context, name, port, attr.gid_tbl_len), pci ? pci : "none");
	free(pci);
}

int main(void)
{
	struct ibv_device **list;
	int n = 0;

	if (!load())
		return 1;
	verbs.fork_init();
	list = verbs.get_device_list(&n);
	for (int i = 0; list && i < n; i++) {
		struct ibv_context *context = verbs.open_device(list[i]);
		struct ibv_device_attr attr = { 0 };

		if (!context || verbs.query_device(context, &attr)) {
			printf("cannot open %s\n", verbs.get_device_name(list[i]));
			continue;
		}
		for (int port = 1; port <= attr.phys_port_cnt; port++)
			look_at(context, verbs.get_device_name(list[i]), port);
		verbs.close_device(context);
	}
	if (list)
		verbs.free_device_list(list);
	return 0;
}
