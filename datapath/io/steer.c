// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/steer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "io/holder.h"
#include "io/netdev.h"
#include "xdp/steer.h"

#include "steer.skel.h"

enum { BPF_DESCRIPTORS = 12 }; /* that loading and attaching the program takes for a while */

struct dp_steer {
	struct dp_steer_config config;
	int sockets_fd, slots_fd, counters_fd, link_fd; /* -1: none */
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

static int load(const struct dp_steer *s, uint32_t n_queues, bool frags, struct steer **out)
{
	struct steer *skel = steer__open();
	uint32_t flags;
	int err;

	if (!skel)
		return -errno;
	memcpy((void *)&skel->rodata->steer_config, &s->config, sizeof(s->config));
	flags = bpf_program__flags(skel->progs.dp_steer);
	if (!frags)
		bpf_program__set_flags(skel->progs.dp_steer, flags & ~BPF_F_XDP_HAS_FRAGS);
	err = bpf_map__set_max_entries(skel->maps.sockets, n_queues);
	if (!err)
		err = bpf_map__set_max_entries(skel->maps.slots, n_queues);
	if (!err)
		err = steer__load(skel);
	if (err)
		steer__destroy(skel);
	else
		*out = skel;
	return err;
}

static int attach(struct dp_steer *s, int prog_fd, const struct dp_port_info *info, uint32_t mode)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = mode);

	s->link_fd = bpf_link_create(prog_fd, (int)info->ifindex, BPF_XDP, &opts);
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

/* Waits a moment if the program at the device is ours: it may be that of a process that has
 * ended. */
static bool wait_for_device(const struct dp_port_info *info, int *waited_ms)
{
	struct bpf_prog_info prog;

	return (!look_up(info, &prog) || is_ours(&prog)) &&
	       dp_holder_wait(info->ifindex, DP_ALL_QUEUES, waited_ms);
}

/* The attachment of the program with this id; -ENOENT: no link attaches it, or it is gone;
 * -EPERM: that takes CAP_SYS_ADMIN. */
static int find_link(const struct dp_port_info *info, uint32_t prog_id)
{
	struct bpf_link_info link;
	uint32_t id = 0, len;
	int fd;

	while (!bpf_link_get_next_id(id, &id)) {
		fd = bpf_link_get_fd_by_id(id);
		if (fd < 0 && errno != ENOENT) /* it may have gone meanwhile */
			return -errno;
		if (fd < 0)
			continue;
		memset(&link, 0, sizeof(link));
		len = sizeof(link);
		if (!bpf_obj_get_info_by_fd(fd, &link, &len) && link.type == BPF_LINK_TYPE_XDP &&
		    link.prog_id == prog_id && link.xdp.ifindex == info->ifindex)
			return fd;
		close(fd);
	}
	return -errno;
}

static bool is_taken(int err)
{
	return err == -EBUSY || err == -EEXIST;
}

static bool is_generic(const struct dp_port_info *info)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, query);

	return !bpf_xdp_query((int)info->ifindex, 0, &query) &&
	       query.attach_mode == XDP_ATTACHED_SKB;
}

static const char *tell_how_to_detach(const struct dp_port_info *info, uint32_t prog_id, char *out,
				      size_t len)
{
	int link = find_link(info, prog_id);

	if (link < 0 && link != -ENOENT)
		return "detach it, or end the process that has its link (bpftool link show, as "
		       "root)";
	if (link < 0) {
		snprintf(out, len, "detach it (ip link set dev %s %s off)", info->netdev,
			 is_generic(info) ? "xdpgeneric" : "xdp");
		return out;
	}
	close(link);
	return "end the process that has its link (bpftool link show)";
}

static int occupied(const struct dp_port_info *info, int err, struct dp_error *error)
{
	struct bpf_prog_info prog;
	uint32_t id = look_up(info, &prog);
	char how[96];
	int holder;

	if (is_ours(&prog)) {
		holder = dp_holder_pid(info->ifindex, DP_ALL_QUEUES);
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
		       "%s already has an XDP program (%s, id %u): %s, or use another device",
		       info->netdev, prog.name[0] ? prog.name : "unnamed", id,
		       tell_how_to_detach(info, id, how, sizeof(how)));
}

/* Attaches in native mode if the driver has it, else in generic mode. */
static int attach_best(struct dp_steer *s, int prog_fd, struct dp_port_info *info,
		       struct dp_error *error)
{
	int err, native_err;

	err = attach(s, prog_fd, info, XDP_FLAGS_DRV_MODE);
	if (!err)
		return 0;
	native_err = err;
	if (is_taken(err))
		return occupied(info, err, error);
	if (err == -EPERM)
		return dp_fail(error, err,
			       "attaching XDP to %s needs CAP_NET_ADMIN and CAP_BPF: "
			       "run as root, or use udp:%s",
			       info->netdev, info->netdev);
	err = attach(s, prog_fd, info, XDP_FLAGS_SKB_MODE);
	if (is_taken(err))
		return occupied(info, err, error);
	if (err)
		return dp_fail(error, err, "cannot attach XDP to %s: %s (native: %s)", info->netdev,
			       strerror(-err), strerror(-native_err));
	snprintf(info->mode_reason, sizeof(info->mode_reason),
		 "generic XDP: %s refused native XDP (%s)", info->netdev, strerror(-native_err));
	return 0;
}

static int load_any(const struct dp_steer *s, const struct dp_port_info *info, uint32_t n_queues,
		    struct steer **out, struct dp_error *error)
{
	int err = dp_check_descriptors(BPF_DESCRIPTORS, error);
	libbpf_print_fn_t before;

	if (err)
		return err;
	before = libbpf_set_print(keep_message);
	libbpf_said[0] = 0;
	err = load(s, n_queues, true, out);
	if (err && err != -EPERM) /* a kernel before 5.18 knows no frags */
		err = load(s, n_queues, false, out);
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

static int add_sockets(const struct dp_steer *s, const struct dp_port_info *info,
		       const struct dp_steer_sockets *sockets, struct dp_error *error)
{
	for (uint32_t i = 0; i < sockets->n; i++) {
		uint32_t queue = sockets->first_queue + i, slot = sockets->slot + 1;

		if ((sockets->shared && bpf_map_update_elem(s->slots_fd, &queue, &slot, BPF_ANY)) ||
		    bpf_map_update_elem(s->sockets_fd, &queue, &sockets->fds[i], BPF_ANY))
			return dp_fail(error, -errno,
				       "cannot put the socket of %s queue %u in the map: %s",
				       info->netdev, queue, strerror(errno));
	}
	return 0;
}

static int open_first(struct dp_steer *s, struct dp_port_info *info,
		      const struct dp_steer_sockets *sockets, struct dp_error *error)
{
	uint32_t queues = (uint32_t)dp_netdev_rx_queues(info->netdev);
	uint32_t end = sockets->first_queue + sockets->n;
	struct steer *skel;
	int err;

	if (getrandom(&s->config.seal, sizeof(s->config.seal), 0) != sizeof(s->config.seal))
		return dp_fail(error, -errno, "no random numbers: %s", strerror(errno));
	err = load_any(s, info, queues > end ? queues : end, &skel, error);
	if (err)
		return err;
	s->sockets_fd = fcntl(bpf_map__fd(skel->maps.sockets), F_DUPFD_CLOEXEC, 0);
	s->slots_fd = fcntl(bpf_map__fd(skel->maps.slots), F_DUPFD_CLOEXEC, 0);
	s->counters_fd = fcntl(bpf_map__fd(skel->maps.bss), F_DUPFD_CLOEXEC, 0);
	if (s->sockets_fd < 0 || s->slots_fd < 0 || s->counters_fd < 0)
		err = dp_fail(error, -errno, "cannot keep the maps of the steering program: %s",
			      strerror(errno));
	/* First the sockets: once the program is attached, no packet may miss them. */
	if (!err)
		err = add_sockets(s, info, sockets, error);
	if (!err)
		err = attach_best(s, bpf_program__fd(skel->progs.dp_steer), info, error);
	steer__destroy(skel);
	return err;
}

/* ---- sharing ------------------------------------------------------------------ */

/* Keeps the descriptor if the map is one that a port needs, and reads the configuration. */
static void take_map(struct dp_steer *s, int fd)
{
	struct bpf_map_info map = {};
	uint32_t len = sizeof(map), zero = 0;

	if (bpf_obj_get_info_by_fd(fd, &map, &len))
		map.name[0] = 0;
	if (!strcmp(map.name, "sockets"))
		s->sockets_fd = fd;
	else if (!strcmp(map.name, "slots"))
		s->slots_fd = fd;
	else if (!strcmp(map.name, "steer.bss") &&
		 map.value_size == sizeof(struct dp_steer_counters))
		s->counters_fd = fd;
	else if (!strcmp(map.name, "steer.rodata") && map.value_size == sizeof(s->config))
		bpf_map_lookup_elem(fd, &zero, &s->config);
	if (fd != s->sockets_fd && fd != s->slots_fd && fd != s->counters_fd)
		close(fd);
}

static int take_maps(struct dp_steer *s, uint32_t prog_id)
{
	uint32_t ids[8] = {}, len = sizeof(struct bpf_prog_info);
	struct bpf_prog_info prog = { .nr_map_ids = 8, .map_ids = (uintptr_t)ids };
	int fd = bpf_prog_get_fd_by_id(prog_id), err;

	if (fd < 0)
		return -errno;
	err = bpf_obj_get_info_by_fd(fd, &prog, &len) ? -errno : 0;
	close(fd);
	for (uint32_t i = 0; !err && i < prog.nr_map_ids && i < 8; i++) {
		fd = bpf_map_get_fd_by_id(ids[i]);
		if (fd < 0)
			return -errno;
		take_map(s, fd);
	}
	return err;
}

static bool agrees(const struct dp_steer_config *a, const struct dp_steer_config *b)
{
	return !memcmp(a->addr, b->addr, sizeof(a->addr)) && a->dated == b->dated &&
	       a->shared == b->shared;
}

/* Uses the program that a port on another queue has attached.  -ENOENT: there is none. */
static int join(struct dp_steer *s, struct dp_port_info *info, struct dp_error *error)
{
	struct dp_steer_config wanted = s->config;
	struct bpf_prog_info prog;
	uint32_t id = look_up(info, &prog);
	int err;

	if (!id || !is_ours(&prog))
		return -ENOENT;
	s->link_fd = find_link(info, id);
	err = s->link_fd < 0 ? s->link_fd : take_maps(s, id);
	if (err == -ENOENT)
		return dp_fail(error, -EBUSY, "an afxdp port on %s is just being closed",
			       info->netdev);
	if (err)
		return dp_fail(error, err,
			       "cannot share %s with the ports on its other queues: %s%s",
			       info->netdev, strerror(-err),
			       err == -EPERM ? " (that needs CAP_SYS_ADMIN: run as root)" : "");
	if (s->sockets_fd < 0 || s->slots_fd < 0 || s->counters_fd < 0 ||
	    !agrees(&wanted, &s->config))
		return dp_fail(error, -EBUSY,
			       "%s has afxdp ports with another address, dated= or version: ports "
			       "on the queues of a device have these in common",
			       info->netdev);
	if (is_generic(info))
		snprintf(info->mode_reason, sizeof(info->mode_reason),
			 "generic XDP: %s refused native XDP", info->netdev);
	return 0;
}

/* ---- for ports ---------------------------------------------------------------- */

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void dp_steer_detach(struct dp_steer *s)
{
	if (!s)
		return;
	close_fd(s->link_fd);
	close_fd(s->sockets_fd);
	close_fd(s->slots_fd);
	close_fd(s->counters_fd);
	free(s);
}

static int try_once(struct dp_port_info *info, const struct dp_steer_sockets *sockets, bool dated,
		    struct dp_steer **out, struct dp_error *error)
{
	struct dp_steer *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return dp_fail(error, -ENOMEM, "out of memory");
	s->sockets_fd = s->slots_fd = s->counters_fd = s->link_fd = -1;
	memcpy(s->config.addr, info->addr.b, sizeof(info->addr.b));
	s->config.dated = dated;
	s->config.shared = sockets->shared;
	err = sockets->shared ? join(s, info, error) : -ENOENT;
	if (!err)
		err = add_sockets(s, info, sockets, error);
	else if (err == -ENOENT)
		err = open_first(s, info, sockets, error);
	if (err)
		dp_steer_detach(s);
	else
		*out = s;
	return err;
}

int dp_steer_attach(struct dp_port_info *info, const struct dp_steer_sockets *sockets, bool dated,
		    struct dp_steer **out, struct dp_error *error)
{
	int err, ms = 0;

	do
		err = try_once(info, sockets, dated, out, error);
	while (is_taken(err) && wait_for_device(info, &ms));
	return err;
}

void dp_steer_times(const struct dp_steer *s, const uint8_t *frame, struct dp_packet *out)
{
	const uint8_t *at = frame - sizeof(struct dp_steer_meta);
	struct dp_steer_meta meta;

	memcpy(&meta, at, sizeof(meta));
	out->arrived_ns = 0;
	out->late_ns = 0;
	if ((meta.arrived_ns ^ meta.seal) != s->config.seal)
		return;
	out->arrived_ns = meta.arrived_ns;
	out->late_ns = meta.late_ns;
}

void dp_steer_forget_times(uint8_t *frame)
{
	memset(frame - sizeof(struct dp_steer_meta), 0, sizeof(struct dp_steer_meta));
}

uint64_t dp_steer_other_queue(const struct dp_steer *s)
{
	struct dp_steer_counters counters = {};
	uint32_t zero = 0;

	bpf_map_lookup_elem(s->counters_fd, &zero, &counters);
	return counters.other_queue;
}
