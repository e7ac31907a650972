/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dp-tcp-registrar OBJECT
 *
 * Registers the TCP congestion control of a BPF object (a map of type struct_ops), until SIGTERM.
 * A BPF link holds the registration: it ends with this program, however that ends.
 *
 * Prints `{"ready": PID, "name": NAME}` at first and `{}` at the end; `{"taken": NAME}` alone if an
 * algorithm of another object has its name, which is global to the kernel.  What libbpf and the
 * kernel's verifier have against the object goes to standard error.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_ROOM = 16, BY_LINK = 1 << 13 /* BPF_F_LINK of Linux 6.4 */ };

static const enum bpf_attach_type STRUCT_OPS = 44; /* BPF_STRUCT_OPS of Linux 6.4 */

static volatile sig_atomic_t ended;

static void end(int number)
{
	(void)number;
	ended = 1;
}

static int warnings(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return level <= LIBBPF_WARN ? vfprintf(stderr, format, arguments) : 0;
}

static int refuse(const char *what, int err)
{
	fprintf(stderr, "dp-tcp-registrar: %s: %s\n", what, strerror(-err));
	return 1;
}

static struct bpf_map *find(struct bpf_object *object)
{
	struct bpf_map *map, *found = NULL;

	bpf_object__for_each_map(map, object)
	{
		if (bpf_map__type(map) != BPF_MAP_TYPE_STRUCT_OPS)
			continue;
		if (found)
			return NULL;
		found = map;
	}
	return found;
}

/* Offset of a member in bytes; negative: there is none. */
static int offset(const struct btf *btf, const char *type, const char *member)
{
	int id = btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT);
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (unsigned int)id) : NULL;

	for (int i = 0; t && i < btf_vlen(t); i++)
		if (!strcmp(btf__name_by_offset(btf, btf_members(t)[i].name_off), member))
			return (int)btf_member_bit_offset(t, (unsigned int)i) / 8;
	return -ENOENT;
}

/* Where the value of such a map has the algorithm's name; negative: this kernel has none. */
static int name_place(void)
{
	struct btf *kernel = btf__load_vmlinux_btf();
	int at, in;

	if (!kernel)
		return -ENOMEM;
	at = offset(kernel, "bpf_struct_ops_tcp_congestion_ops", "data");
	in = offset(kernel, "tcp_congestion_ops", "name");
	btf__free(kernel);
	return at < 0 || in < 0 ? -ENOENT : at + in;
}

/* The name that the kernel knows the algorithm of a map by.  place: of name_place(). */
static int read_name(int fd, __u32 value_size, int place, char name[NAME_ROOM])
{
	char *value = calloc(1, value_size);
	__u32 key = 0;
	int err;

	if (!value)
		return -ENOMEM;
	err = bpf_map_lookup_elem(fd, &key, value);
	if (!err)
		snprintf(name, NAME_ROOM, "%s", value + place);
	free(value);
	return err;
}

/*
 * Whether a map beside ours has an algorithm of this name.  The name is then free again when its
 * user ends; an algorithm that no map has is the kernel's own.
 */
static bool is_of_bpf(int ours, int place, const char *name)
{
	struct bpf_map_info info = { 0 }, mine = { 0 };
	__u32 id = 0, size = sizeof(mine);
	char other[NAME_ROOM];
	bool found = false;
	int fd;

	bpf_obj_get_info_by_fd(ours, &mine, &size);
	while (!found && !bpf_map_get_next_id(id, &id)) {
		fd = id == mine.id ? -1 : bpf_map_get_fd_by_id(id);
		if (fd < 0)
			continue;
		memset(&info, 0, size = sizeof(info));
		found = !bpf_obj_get_info_by_fd(fd, &info, &size) &&
			info.type == BPF_MAP_TYPE_STRUCT_OPS &&
			info.value_size == mine.value_size &&
			!read_name(fd, info.value_size, place, other) && !strcmp(other, name);
		close(fd);
	}
	return found;
}

/* What the kernel's answer to attach() means. */
static int refuse_attached(int err, int ours, int place, const char *name)
{
	if (err != -EEXIST)
		return refuse("the kernel does not register it", err);
	if (is_of_bpf(ours, place, name)) {
		printf("{\"taken\": \"%s\"}\n", name);
		return 1;
	}
	fprintf(stderr,
		"dp-tcp-registrar: the kernel has an algorithm %s of its own; change .name\n",
		name);
	return 1;
}

static int attach(const struct bpf_map *map)
{
	struct bpf_link *link = bpf_map__attach_struct_ops(map);

	if (!link)
		return -errno;
	/* Older libraries only give the kernel the value. */
	if (libbpf_major_version() == 1 && libbpf_minor_version() < 2)
		return bpf_link_create(bpf_map__fd(map), 0, STRUCT_OPS, NULL);
	return 0;
}

static int serve(struct bpf_object *object)
{
	struct bpf_map *map = find(object);
	char name[NAME_ROOM] = "";
	int err, place, fd;
	sigset_t none;

	if (!map)
		return refuse("the object has not one variable in SEC(\".struct_ops\")", -EINVAL);
	bpf_map__set_map_flags(map, bpf_map__map_flags(map) | BY_LINK);
	err = bpf_object__load(object);
	if (err)
		return refuse("the kernel does not take it", err);
	fd = bpf_map__fd(map);
	place = name_place();
	err = attach(map);
	if (place < 0 || read_name(fd, bpf_map__value_size(map), place, name))
		return refuse("its name cannot be read", err < 0 ? err : -ENOENT);
	if (err < 0)
		return refuse_attached(err, fd, place, name);
	printf("{\"ready\": %d, \"name\": \"%s\"}\n", getpid(), name);
	fflush(stdout);
	/* SIGTERM is blocked but here: one between the look and the sleep ends the sleep. */
	sigemptyset(&none);
	while (!ended)
		sigsuspend(&none);
	printf("{}\n");
	return 0;
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = end };
	struct bpf_object *object;
	sigset_t term;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: dp-tcp-registrar OBJECT\n");
		return 2;
	}
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	sigaction(SIGTERM, &action, NULL);
	libbpf_set_print(warnings);
	object = bpf_object__open_file(argv[1], NULL);
	if (!object)
		return refuse(argv[1], -errno);
	status = serve(object);
	bpf_object__close(object);
	return status;
}
