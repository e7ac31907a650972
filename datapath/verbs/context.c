/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One ibv_open_device(): the table of operations that the inline verbs call, and the attributes of
 * device and port.
 *
 * GID table.  A port has one address, so it has one GID, of type RoCE v2: the address itself, IPv4
 * as ::ffff:a.b.c.d.  The GID is at index 0, where perftest and new programs look first.  It is
 * also at index 1, where rxe has its IPv4 GID and where many scripts expect it (-x 1, -g 1).  The
 * other entries are empty.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/groups.h"

/* Values of the kernel's enum ib_uverbs_device_cap_flags, which libibverbs does not name. */
#define CAP_FLUSH_GLOBAL (UINT64_C(1) << 38)
#define CAP_ATOMIC_WRITE (UINT64_C(1) << 40)

#ifndef DP_VERSION
#define DP_VERSION "0"
#endif

enum { PHYS_DISABLED = 3, PHYS_LINK_UP = 5, WIDTH_1X = 1, WIDTH_4X = 2 };

/*
 * The inline functions of verbs.h return EOPNOTSUPP for an operation that is NULL here.  (No
 * program linked since 2008 calls the _compat_ operations.)
 */
static const struct verbs_context operations = {
	.query_port = front_query_port,
	.query_rt_values = front_query_rt_values,
	.create_cq_ex = front_create_cq_ex,
	.modify_cq = front_modify_cq,
	.query_device_ex = front_query_device_ex,
	.create_qp_ex = front_create_qp_ex,
	.create_srq_ex = front_create_srq_ex,
	.alloc_parent_domain = front_alloc_parent_domain,
	.alloc_td = front_alloc_td,
	.dealloc_td = front_dealloc_td,
	.alloc_dm = front_alloc_dm,
	.free_dm = front_free_dm,
	.reg_dm_mr = front_reg_dm_mr,
	.sz = sizeof(struct verbs_context),
	.context = {
		.ops = {
			._compat_query_device = front_query_device,
			.alloc_mw = front_alloc_mw,
			.bind_mw = front_bind_mw,
			.dealloc_mw = front_dealloc_mw,
			.poll_cq = front_poll_cq,
			.req_notify_cq = front_req_notify_cq,
			.post_srq_recv = front_post_srq_recv,
			.post_send = front_post_send,
			.post_recv = front_post_recv,
		},
		.num_comp_vectors = 1,
	},
};

/*
 * A context's command descriptor.  The kernel's devices take commands through it, and programs may
 * duplicate it and pass it on.  Ours is an empty file, which only tells that the context is ours.
 */
static int command_fd = -1;

static void make_command_fd(void)
{
	command_fd = memfd_create("libdpverbs", MFD_CLOEXEC);
}

static int get_command_fd(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_command_fd);
	return command_fd;
}

bool front_owns_fd(int fd)
{
	struct stat ours, other;

	return command_fd >= 0 && !fstat(command_fd, &ours) && !fstat(fd, &other) &&
	       ours.st_dev == other.st_dev && ours.st_ino == other.st_ino;
}

int front_context_create(struct front_device *device, struct front_context **out)
{
	struct front_context *c = calloc(1, sizeof(*c));
	int err = c ? front_queue_init(&c->async) : -ENOMEM;

	if (err) {
		free(c);
		return err;
	}
	c->device = device;
	c->dev = device->dev;
	c->pid = getpid();
	c->verbs = operations;
	c->verbs.context.device = &device->ibv;
	c->verbs.context.async_fd = c->async.fd;
	c->verbs.context.cmd_fd = get_command_fd();
	c->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->verbs.context.mutex, NULL);
	pthread_mutex_lock(&device->contexts_lock);
	c->next = device->contexts;
	device->contexts = c;
	pthread_mutex_unlock(&device->contexts_lock);
	*out = c;
	return 0;
}

/* In a child after fork(), a context of the parent is in no list. */
static void leave_device(const struct front_context *c)
{
	struct front_context **at;

	pthread_mutex_lock(&c->device->contexts_lock);
	for (at = &c->device->contexts; *at && *at != c; at = &(*at)->next)
		;
	if (*at)
		*at = c->next;
	pthread_mutex_unlock(&c->device->contexts_lock);
}

void front_context_destroy(struct front_context *c)
{
	leave_device(c);
	front_queue_destroy(&c->async);
	pthread_mutex_destroy(&c->verbs.context.mutex);
	free(c);
}

int front_query_device(struct ibv_context *ibv, struct ibv_device_attr *attr)
{
	__be64 guid = front_device_guid(to_context(ibv)->device);

	*attr = (struct ibv_device_attr){
		.fw_ver = DP_VERSION,
		.node_guid = guid,
		.sys_image_guid = guid,
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.vendor_id = FRONT_VENDOR_ID,
		.vendor_part_id = FRONT_PART_ID,
		.hw_ver = DP_CC_ABI,
		.max_qp = DP_QPS_MAX,
		.max_qp_wr = DP_WR_MAX,
		/* MEM_MGT_EXTENSIONS: by this flag programs know of SEND with invalidate. */
		.device_cap_flags = IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_CURR_QP_STATE_MOD |
				    IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS |
				    IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_sge = DP_SGE_MAX,
		.max_sge_rd = DP_SGE_MAX,
		.max_cq = FRONT_OBJECTS_MAX,
		.max_cqe = FRONT_CQE_MAX,
		.max_mr = DP_KEYS_MAX,
		.max_mw = DP_KEYS_MAX,
		.max_pd = FRONT_OBJECTS_MAX,
		.max_ah = FRONT_OBJECTS_MAX,
		.max_srq = FRONT_OBJECTS_MAX,
		.max_srq_wr = DP_WR_MAX,
		.max_srq_sge = DP_SGE_MAX,
		.max_qp_rd_atom = DP_RD_ATOMIC_MAX,
		.max_res_rd_atom = DP_RD_ATOMIC_MAX * DP_QPS_MAX,
		.max_qp_init_rd_atom = DP_RD_ATOMIC_MAX,
		/* Atomics are atomic only to other atomics of this engine. */
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mcast_grp = DP_GROUPS_MAX,
		.max_mcast_qp_attach = DP_QPS_MAX,
		.max_total_mcast_qp_attach = INT32_MAX,
		.max_pkeys = 1,
		.local_ca_ack_delay = 0,
		.phys_port_cnt = 1,
	};
	return 0;
}

int front_query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t len)
{
	struct ibv_device_attr_ex full = {
		.phys_port_cnt_ex = 1,
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = 1000000, /* kHz: timestamps count nanoseconds */
		.max_dm_size = FRONT_DM_MAX,
		.cq_mod_caps = { .max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX },
	};

	if ((input && input->comp_mask) || len < sizeof(full.orig_attr))
		return EINVAL;
	front_query_device(ibv, &full.orig_attr);
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags | CAP_FLUSH_GLOBAL |
				   CAP_ATOMIC_WRITE;
	/* The program may have been built with a smaller or a larger struct. */
	memset(attr, 0, len);
	memcpy(attr, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	return bytes >= 4096 ? IBV_MTU_4096 :
	       bytes >= 2048 ? IBV_MTU_2048 :
	       bytes >= 1024 ? IBV_MTU_1024 :
	       bytes >= 512  ? IBV_MTU_512 :
			       IBV_MTU_256;
}

/* Sets the InfiniBand width and speed codes with the highest rate that is not above rate_bps. */
static void link_speed(uint64_t rate_bps, struct ibv_port_attr *attr)
{
	static const struct {
		uint64_t rate_bps;
		uint8_t width, speed;
	} codes[] = {
		{ 400000000000, WIDTH_4X, 128 }, { 200000000000, WIDTH_4X, 64 },
		{ 100000000000, WIDTH_4X, 32 },	 { 50000000000, WIDTH_1X, 64 },
		{ 40000000000, WIDTH_4X, 4 },	 { 25000000000, WIDTH_1X, 32 },
		{ 10000000000, WIDTH_1X, 4 },	 { 0, WIDTH_1X, 1 },
	};
	size_t i = 0;

	while (codes[i].rate_bps > rate_bps)
		i++;
	attr->active_width = codes[i].width;
	attr->active_speed = codes[i].speed;
}

int front_query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	struct front_context *c = to_context(ibv);
	struct ibv_port_attr full = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.gid_tbl_len = FRONT_GID_TABLE,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = DP_MSG_MAX,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.phys_state = PHYS_LINK_UP,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};
	struct dp_engine_stats stats;

	if (port != FRONT_PORT)
		return EINVAL;
	dp_device_engine_stats(c->dev, &stats);
	full.qkey_viol_cntr = (uint32_t)stats.drop_qkey;
	if (dp_port_is_down(dp_port_state(dp_device_port(c->dev)))) {
		full.state = IBV_PORT_DOWN;
		full.phys_state = PHYS_DISABLED;
	}
	full.active_mtu = mtu_code(dp_device_path_mtu(c->dev));
	link_speed(front_rate_bps(dp_device_port(c->dev)), &full);
	memset(attr, 0, len);
	memcpy(attr, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}

int front_query_gid_entry(struct ibv_context *ibv, uint32_t port, uint32_t index,
			  struct ibv_gid_entry *entry)
{
	const struct dp_port_info *info = dp_device_port(to_context(ibv)->dev);

	if (port != FRONT_PORT || index >= FRONT_GID_TABLE)
		return EINVAL;
	if (index >= FRONT_GIDS)
		return ENODATA;
	memset(entry, 0, sizeof(*entry));
	memcpy(entry->gid.raw, info->addr.b, sizeof(entry->gid.raw));
	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = IBV_GID_TYPE_ROCE_V2;
	entry->ndev_ifindex = info->ifindex;
	return 0;
}

int front_query_rt_values(struct ibv_context *ibv, struct ibv_values_ex *values)
{
	(void)ibv;
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	/* As in mlx5, tv_nsec has the whole clock value, also beyond a second. */
	if (values->comp_mask)
		values->raw_clock = (struct timespec){ .tv_nsec = (long)dp_device_now_ns() };
	return 0;
}
