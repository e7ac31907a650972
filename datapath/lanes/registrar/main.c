/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dp-tcp-registrar OBJECT
 *
 * Registers the TCP congestion control of a BPF object (a map of type struct_ops), until SIGTERM.
 * A BPF link holds the registration: it ends with this program, however that ends.
 *
 * Prints `{"ready": PID, "name": NAME}` at first and `{}` at the end.  What libbpf and the kernel's
 * verifier have against the object goes to standard error.
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

/* The name that the kernel knows the algorithm by. */
static int read_name(const struct bpf_map *map, char name[NAME_ROOM])
{
	struct btf *kernel = btf__load_vmlinux_btf();
	char *value = calloc(1, bpf_map__value_size(map));
	__u32 key = 0;
	int at, in, err;

	if (!kernel || !value) {
		btf__free(kernel);
		free(value);
		return -ENOMEM;
	}
	at = offset(kernel, "bpf_struct_ops_tcp_congestion_ops", "data");
	in = offset(kernel, "tcp_congestion_ops", "name");
	err = at < 0 || in < 0 ? -ENOENT : bpf_map_lookup_elem(bpf_map__fd(map), &key, value);
	if (!err)
		snprintf(name, NAME_ROOM, "%s", value + at + in);
	btf__free(kernel);
	free(value);
	return err;
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
	int err;

	if (!map)
		return refuse("the object has not one variable in SEC(\".struct_ops\")", -EINVAL);
	bpf_map__set_map_flags(map, bpf_map__map_flags(map) | BY_LINK);
	err = bpf_object__load(object);
	if (err)
		return refuse("the kernel does not take it", err);
	err = attach(map);
	if (err < 0)
		return refuse("the kernel does not register it", err);
	err = read_name(map, name);
	if (err)
		return refuse("its name cannot be read", err);
	printf("{\"ready\": %d, \"name\": \"%s\"}\n", getpid(), name);
	fflush(stdout);
	while (!ended)
		pause();
	printf("{}\n");
	return 0;
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = end };
	struct bpf_object *object;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: dp-tcp-registrar OBJECT\n");
		return 2;
	}
	sigaction(SIGTERM, &action, NULL);
	libbpf_set_print(warnings);
	object = bpf_object__open_file(argv[1], NULL);
	if (!object)
		return refuse(argv[1], -errno);
	status = serve(object);
	bpf_object__close(object);
	return status;
}
