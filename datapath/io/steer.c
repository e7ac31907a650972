// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/steer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "io/holder.h"
#include "xdp/steer.h"

#include "steer.skel.h"

struct dp_steer {
	struct steer *skel;
	uint64_t seal;
	int link_fd;
};

/* libbpf's own messages go into the error line, not to stderr of the program. */
static __thread char libbpf_said[128];

static int keep_message(enum libbpf_print_level level, const char *format, va_list args)
{
	if (level == LIBBPF_WARN && !libbpf_said[0])
		vsnprintf(libbpf_said, sizeof(libbpf_said), format, args);
	libbpf_said[strcspn(libbpf_said, "\n")] = 0;
	return 0;
}

static int load(struct dp_steer *s, const struct dp_port_info *info, uint32_t n_queues, bool dated,
		bool frags)
{
	uint32_t flags;
	int err;

	s->skel = steer__open();
	if (!s->skel)
		return -errno;
	memcpy(s->skel->rodata->steer_config.addr, info->addr.b, sizeof(info->addr.b));
	s->skel->rodata->steer_config.seal = s->seal;
	s->skel->rodata->steer_config.dated = dated;
	err = bpf_map__set_max_entries(s->skel->maps.sockets, n_queues);
	if (err)
		goto destroy;
	flags = bpf_program__flags(s->skel->progs.dp_steer);
	if (!frags)
		bpf_program__set_flags(s->skel->progs.dp_steer, flags & ~BPF_F_XDP_HAS_FRAGS);
	err = steer__load(s->skel);
	if (!err)
		return 0;
destroy:
	steer__destroy(s->skel);
	s->skel = NULL;
	return err;
}

static int attach(struct dp_steer *s, const struct dp_port_info *info, uint32_t mode)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = mode);

	s->link_fd = bpf_link_create(bpf_program__fd(s->skel->progs.dp_steer), (int)info->ifindex,
				     BPF_XDP, &opts);
	return s->link_fd < 0 ? -errno : 0;
}

/* Tells of the program at the device; returns its id, 0: none. */
static uint32_t look_up(const struct dp_port_info *info, struct bpf_prog_info *prog)
{
	uint32_t len = sizeof(*prog), id = 0;
	int fd = -1;

	memset(prog, 0, sizeof(*prog));
	if (!bpf_xdp_query_id((int)info->ifindex, 0, &id) && id)
		fd = bpf_prog_get_fd_by_id(id);
	if (fd >= 0) {
		bpf_obj_get_info_by_fd(fd, prog, &len);
		close(fd);
	}
	return id;
}

static bool is_ours(const struct bpf_prog_info *prog)
{
	return !strcmp(prog->name, "dp_steer");
}

/* Waits until the attachment of a process that has ended is gone. */
static int attach_patiently(struct dp_steer *s, const struct dp_port_info *info, uint32_t mode)
{
	int err = attach(s, info, mode), ms = 0;
	struct bpf_prog_info prog;

	while ((err == -EBUSY || err == -EEXIST) && (!look_up(info, &prog) || is_ours(&prog)) &&
	       dp_holder_wait(info->ifindex, &ms))
		err = attach(s, info, mode);
	return err;
}

static int occupied(const struct dp_port_info *info, int err, struct dp_error *error)
{
	struct bpf_prog_info prog;
	uint32_t id = look_up(info, &prog);
	int holder;

	if (is_ours(&prog)) {
		holder = dp_holder_pid(info->ifindex);
		if (holder)
			return dp_fail(error, -EBUSY,
				       "%s is in use by an afxdp port of process %d: end it, or "
				       "use another device",
				       info->netdev, holder);
		return dp_fail(error, -EBUSY,
			       "%s is in use by another afxdp port (XDP program dp_steer, id %u): "
			       "end that process, or use another device",
			       info->netdev, id);
	}
	return dp_fail(error, err == -EEXIST ? -EBUSY : err,
		       "%s already has an XDP program (%s, id %u): detach it (ip link set dev %s "
		       "xdp off), or use another device",
		       info->netdev, prog.name[0] ? prog.name : "unnamed", id, info->netdev);
}

/* Attaches in native mode if the driver has it, else in generic mode. */
static int attach_best(struct dp_steer *s, struct dp_port_info *info, struct dp_error *error)
{
	int err, native_err;

	err = attach_patiently(s, info, XDP_FLAGS_DRV_MODE);
	if (!err)
		return 0;
	native_err = err;
	if (err == -EBUSY || err == -EEXIST)
		return occupied(info, err, error);
	if (err == -EPERM)
		return dp_fail(error, err,
			       "attaching XDP to %s needs CAP_NET_ADMIN and CAP_BPF: "
			       "run as root, or use udp:%s",
			       info->netdev, info->netdev);
	err = attach(s, info, XDP_FLAGS_SKB_MODE);
	if (err == -EBUSY || err == -EEXIST)
		return occupied(info, err, error);
	if (err)
		return dp_fail(error, err, "cannot attach XDP to %s: %s (native: %s)", info->netdev,
			       strerror(-err), strerror(-native_err));
	snprintf(info->mode_reason, sizeof(info->mode_reason),
		 "generic XDP: %s refused native XDP (%s)", info->netdev, strerror(-native_err));
	return 0;
}

static int load_any(struct dp_steer *s, const struct dp_port_info *info, uint32_t n_queues,
		    bool dated, struct dp_error *error)
{
	libbpf_print_fn_t before = libbpf_set_print(keep_message);
	int err;

	libbpf_said[0] = 0;
	err = load(s, info, n_queues, dated, true);
	if (err && err != -EPERM) /* a kernel before 5.18 knows no frags */
		err = load(s, info, n_queues, dated, false);
	libbpf_set_print(before);
	if (err == -EPERM)
		return dp_fail(error, err,
			       "loading an XDP program needs CAP_BPF and CAP_NET_ADMIN: run as "
			       "root, or use udp:%s",
			       info->netdev);
	if (err)
		return dp_fail(error, err, "cannot load the steering program: %s (%s)",
			       strerror(-err), libbpf_said);
	return 0;
}

static int add_sockets(struct dp_steer *s, const struct dp_port_info *info, uint32_t first_queue,
		       const int *fds, uint32_t n_queues, struct dp_error *error)
{
	int map = bpf_map__fd(s->skel->maps.sockets);

	for (uint32_t i = 0; i < n_queues; i++) {
		uint32_t queue = first_queue + i;

		if (bpf_map_update_elem(map, &queue, &fds[i], BPF_ANY))
			return dp_fail(error, -errno,
				       "cannot put the socket of %s queue %u in the map: %s",
				       info->netdev, queue, strerror(errno));
	}
	return 0;
}

int dp_steer_attach(struct dp_port_info *info, uint32_t first_queue, const int *fds,
		    uint32_t n_queues, bool dated, struct dp_steer **out, struct dp_error *error)
{
	struct dp_steer *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return dp_fail(error, -ENOMEM, "out of memory");
	s->link_fd = -1;
	if (getrandom(&s->seal, sizeof(s->seal), 0) != sizeof(s->seal)) {
		err = dp_fail(error, -errno, "no random numbers: %s", strerror(errno));
		goto fail;
	}
	err = load_any(s, info, first_queue + n_queues, dated, error);
	if (err)
		goto fail;
	/* First the sockets: once the program is attached, no packet may miss them. */
	err = add_sockets(s, info, first_queue, fds, n_queues, error);
	if (err)
		goto fail;
	err = attach_best(s, info, error);
	if (err)
		goto fail;
	*out = s;
	return 0;
fail:
	dp_steer_detach(s);
	return err;
}

void dp_steer_detach(struct dp_steer *s)
{
	if (!s)
		return;
	if (s->link_fd >= 0)
		close(s->link_fd);
	steer__destroy(s->skel);
	free(s);
}

void dp_steer_times(const struct dp_steer *s, uint8_t *frame, struct dp_packet *out)
{
	uint8_t *at = frame - sizeof(struct dp_steer_meta);
	struct dp_steer_meta meta;

	memcpy(&meta, at, sizeof(meta));
	out->arrived_ns = 0;
	out->late_ns = 0;
	if ((meta.arrived_ns ^ meta.seal) != s->seal)
		return;
	memset(at, 0, sizeof(meta));
	out->arrived_ns = meta.arrived_ns;
	out->late_ns = meta.late_ns;
}

uint64_t dp_steer_other_queue(const struct dp_steer *s)
{
	return __atomic_load_n(&s->skel->bss->steer_counters.other_queue, __ATOMIC_RELAXED);
}
