// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/udp_steer.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/mad.h"
#include "xdp/slots.h"

#include "slots.skel.h"

static_assert((int)DP_SLOTS_BTH_LEN == (int)DP_BTH_LEN, "as wire/headers.h has it");
static_assert((int)DP_SLOTS_MAD_QPN == (int)DP_MAD_QPN, "as wire/mad.h has it");
static_assert((int)DP_SLOTS_ATTRIBUTE_AT == DP_MAD_AT + DP_MAD_ATTRIBUTE_AT, "likewise");
static_assert((int)DP_SLOTS_MESSAGE_AT == DP_MAD_AT + DP_MAD_HEADER_LEN, "likewise");
static_assert((int)DP_REQ_SERVICE_ID == (int)DP_SIDR_REQ_SERVICE_ID &&
		      (int)DP_REQ_SERVICE_ID ==
			      DP_CM_AT(DP_SLOTS_SERVICE_ID_AT - DP_SLOTS_MESSAGE_AT, 0, 64),
	      "likewise");
static_assert((int)DP_CM_REMOTE_ID == DP_CM_AT(DP_SLOTS_REMOTE_ID_AT - DP_SLOTS_MESSAGE_AT, 0, 32),
	      "likewise");
static_assert((int)DP_SLOTS_REQ == (int)DP_CM_REQ, "likewise");
static_assert((int)DP_SLOTS_SIDR_REQ == (int)DP_CM_SIDR_REQ, "likewise");
static_assert((int)DP_SLOTS_SIDR_REP == (int)DP_CM_SIDR_REP, "likewise");

enum { BPF_DESCRIPTORS = 8 }; /* that loading the program takes for a while */

void dp_udp_steer_init(struct dp_udp_steer *s)
{
	s->slot = 0;
	s->services_fd = -1;
}

void dp_udp_steer_close(struct dp_udp_steer *s)
{
	int fd = s->services_fd;

	s->services_fd = -1; /* first: fork() in another thread must not leave a closed one */
	if (fd >= 0)
		close(fd);
}

/* ---- by number ------------------------------------------------------------------ */

/* Past the last socket, the kernel gives a datagram to any.  A request may go to any process. */
static int steer_by_number(int udp_fd, struct dp_error *error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, DP_SLOT_BYTE),
		BPF_JUMP(BPF_JMP | BPF_JEQ, 0, 0, 7),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, DP_SLOT_BYTE + 1),
		BPF_JUMP(BPF_JMP | BPF_JEQ, DP_MAD_QPN, 0, 6),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, DP_SLOTS_ATTRIBUTE_AT),
		BPF_JUMP(BPF_JMP | BPF_JEQ, DP_CM_SIDR_REP, 2, 0),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, DP_SLOTS_REMOTE_ID_AT),
		BPF_STMT(BPF_RET | BPF_A, 0),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, DP_SLOTS_MESSAGE_AT),
		BPF_STMT(BPF_RET | BPF_A, 0),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program;

	memset(&program, 0, sizeof(program)); /* the kernel copies the padding, too */
	program.len = sizeof(code) / sizeof(code[0]);
	program.filter = code;
	if (setsockopt(udp_fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)))
		return dp_fail(error, -errno, "cannot steer UDP sockets by QPN: %s",
			       strerror(errno));
	return 0;
}

/* ---- by map --------------------------------------------------------------------- */

/* The name of a map: `kind`, and a hash (FNV-1a) of the network namespace and the address, which
 * many processes of a machine share. */
static int name_map(const char *kind, const struct dp_addr *addr, char *out, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325;
	struct stat netns;

	if (stat("/proc/thread-self/ns/net", &netns))
		return -errno;
	for (size_t i = 0; i < sizeof(netns.st_ino) + sizeof(addr->b); i++) {
		hash ^= i < sizeof(netns.st_ino) ? (uint8_t)(netns.st_ino >> 8 * i) :
						   addr->b[i - sizeof(netns.st_ino)];
		hash *= 0x100000001b3;
	}
	snprintf(out, size, "%s_%010llx", kind, (unsigned long long)(hash & 0xffffffffffULL));
	return 0;
}

/* A descriptor of the map of that name and kind; -ENOENT: there is none. */
static int find_map(const struct bpf_map *like, const char *name)
{
	struct bpf_map_info info;
	uint32_t id = 0, len;
	int fd;

	while (!bpf_map_get_next_id(id, &id)) {
		fd = bpf_map_get_fd_by_id(id);
		if (fd < 0 && errno != ENOENT) /* it may have gone meanwhile */
			return -errno;
		if (fd < 0)
			continue;
		memset(&info, 0, sizeof(info));
		len = sizeof(info);
		if (!bpf_obj_get_info_by_fd(fd, &info, &len) && !strcmp(info.name, name) &&
		    info.type == bpf_map__type(like))
			return fd;
		close(fd);
	}
	return -errno;
}

/* Makes `map` of the program the one that this address has, or gives the address one. */
static int share_map(struct bpf_map *map, const char *kind, const struct dp_addr *addr)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = bpf_map__map_flags(map));
	char name[BPF_OBJ_NAME_LEN];
	int fd, err;

	err = name_map(kind, addr, name, sizeof(name));
	if (err)
		return err;
	fd = find_map(map, name);
	if (fd == -ENOENT)
		fd = bpf_map_create(bpf_map__type(map), name, bpf_map__key_size(map),
				    bpf_map__value_size(map), bpf_map__max_entries(map), &opts);
	if (fd < 0)
		return fd;
	err = bpf_map__reuse_fd(map, fd); /* a duplicate */
	close(fd);
	return err;
}

static int load(struct dp_udp_steer *s, struct slots *skel, const struct dp_addr *addr, int udp_fd)
{
	uint64_t socket = (uint64_t)udp_fd;
	int err, program;

	err = share_map(skel->maps.slots, "dps", addr);
	if (!err)
		err = share_map(skel->maps.services, "dpv", addr);
	if (!err)
		err = slots__load(skel);
	if (err)
		return err;
	program = bpf_program__fd(skel->progs.dp_slots);
	if (bpf_map_update_elem(bpf_map__fd(skel->maps.slots), &s->slot, &socket, BPF_ANY) ||
	    setsockopt(udp_fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, sizeof(program)))
		return -errno;
	s->services_fd = fcntl(bpf_map__fd(skel->maps.services), F_DUPFD_CLOEXEC, 0);
	return s->services_fd < 0 ? -errno : 0;
}

static int steer_by_map(struct dp_udp_steer *s, const struct dp_addr *addr, int udp_fd)
{
	libbpf_print_fn_t before = libbpf_set_print(NULL); /* without the privilege: no error */
	struct slots *skel = slots__open();
	int err = skel ? load(s, skel, addr, udp_fd) : -errno;

	libbpf_set_print(before);
	slots__destroy(skel);
	return err;
}

int dp_udp_steer_open(struct dp_udp_steer *s, const struct dp_addr *addr, uint32_t slot, int udp_fd,
		      struct dp_error *error)
{
	int err = dp_check_descriptors(BPF_DESCRIPTORS, error);

	if (err)
		return err;
	s->slot = slot;
	err = steer_by_map(s, addr, udp_fd);
	if (err == -EMFILE || err == -ENFILE || err == -ENOMEM)
		return dp_fail(error, err, "cannot steer UDP sockets by a map: %s", strerror(-err));
	return err ? steer_by_number(udp_fd, error) : 0;
}

void dp_udp_steer_serve(struct dp_udp_steer *s, uint64_t service_id)
{
	if (s->services_fd >= 0) /* if the map is full, requests are handed on */
		bpf_map_update_elem(s->services_fd, &service_id, &s->slot, BPF_ANY);
}

void dp_udp_steer_unserve(struct dp_udp_steer *s, uint64_t service_id)
{
	if (s->services_fd >= 0)
		bpf_map_delete_elem(s->services_fd, &service_id);
}
