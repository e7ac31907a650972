// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Replaces a few imports of librdmacm, and of no other library.  The addresses that librdmacm calls
 * for open(), write(), close() and fstat() become addresses of our functions.  These pass on each
 * call that does not concern RDMA-CM.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "verbs/ucm/ucm.h"

#define LIBRARY "librdmacm.so.1"

#if defined(__x86_64__)
enum { RELOCATION_SLOT = R_X86_64_JUMP_SLOT, RELOCATION_DATA = R_X86_64_GLOB_DAT };
#elif defined(__aarch64__)
enum { RELOCATION_SLOT = R_AARCH64_JUMP_SLOT, RELOCATION_DATA = R_AARCH64_GLOB_DAT };
#endif

/* ---- what stands in the slots ---------------------------------------------------------- */

static int hook_open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	if (!strcmp(path, UCM_NODE))
		return ucm_open(flags);
	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return open(path, flags, mode);
}

static int hook_open_2(const char *path, int flags)
{
	return hook_open(path, flags);
}

static ssize_t hook_write(int fd, const void *data, size_t len)
{
	ssize_t n;

	if (ucm_owns(fd))
		return ucm_write(fd, data, len);
	n = write(fd, data, len);
	if (n < 0 && errno == EBADF)
		ucm_thread_stop_late();
	return n;
}

static int hook_close(int fd)
{
	return ucm_owns(fd) ? ucm_close(fd) : close(fd);
}

/*
 * Returns the number of the kernel's own device, which librdmacm gets by netlink; 0: there is none.
 */
static dev_t kernel_device(void)
{
	FILE *file = fopen("/sys/class/misc/rdma_cm/dev", "re");
	unsigned int high = 0, low = 0;
	int n;

	if (!file)
		return 0;
	n = fscanf(file, "%u:%u", &high, &low);
	fclose(file);
	return n == 2 ? makedev(high, low) : 0;
}

/* librdmacm checks that it has opened the character device that it asked for. */
static int hook_fstat(int fd, struct stat *st)
{
	int err = fstat(fd, st);

	if (!err && ucm_owns(fd)) {
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = kernel_device();
	}
	return err;
}

static int hook_fxstat(int version, int fd, struct stat *st)
{
	(void)version;
	return hook_fstat(fd, st);
}

static const struct {
	const char *name;
	void *function;
} hooks[] = {
	{ "open", hook_open },	       { "open64", hook_open },	  { "__open_2", hook_open_2 },
	{ "__open64_2", hook_open_2 }, { "write", hook_write },	  { "close", hook_close },
	{ "fstat", hook_fstat },       { "fstat64", hook_fstat }, { "__fxstat", hook_fxstat },
	{ "__fxstat64", hook_fxstat },
};

/* ---- the slots --------------------------------------------------------------------------- */

struct object {
	ElfW(Addr) base;
	const ElfW(Sym) * symbols;
	const char *strings;
	const ElfW(Rela) * relocations[2]; /* of data, of jumps */
	size_t bytes[2];
	ElfW(Xword) name;
	ElfW(Addr) relro, relro_end; /* becomes read-only after loading */
};

/* In memory, glibc has relocated the addresses of a dynamic section. */
static void read_dynamic(const ElfW(Dyn) * d, struct object *o)
{
	for (; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:
			o->symbols = (const void *)d->d_un.d_ptr;
			break;
		case DT_STRTAB:
			o->strings = (const void *)d->d_un.d_ptr;
			break;
		case DT_RELA:
			o->relocations[0] = (const void *)d->d_un.d_ptr;
			break;
		case DT_RELASZ:
			o->bytes[0] = d->d_un.d_val;
			break;
		case DT_JMPREL:
			o->relocations[1] = (const void *)d->d_un.d_ptr;
			break;
		case DT_PLTRELSZ:
			o->bytes[1] = d->d_un.d_val;
			break;
		case DT_SONAME:
			o->name = d->d_un.d_val;
			break;
		}
	}
}

static void *hook_of(const char *name)
{
	for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
		if (!strcmp(hooks[i].name, name))
			return hooks[i].function;
	return NULL;
}

static void set_slot(const struct object *o, void **slot, void *function)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	ElfW(Addr) at = (ElfW(Addr))slot;
	bool read_only = at >= o->relro && at < o->relro_end;
	void *start = (void *)(at & ~(page - 1));

	if (*slot == function || (read_only && mprotect(start, page, PROT_READ | PROT_WRITE)))
		return;
	__atomic_store_n(slot, function, __ATOMIC_RELEASE);
	if (read_only)
		mprotect(start, page, PROT_READ);
}

static void set_slots(const struct object *o, const ElfW(Rela) * r, size_t bytes)
{
	for (; bytes >= sizeof(*r); bytes -= sizeof(*r), r++) {
		uint32_t type = ELF64_R_TYPE(r->r_info);
		void *function;

		if (type != RELOCATION_SLOT && type != RELOCATION_DATA)
			continue;
		function = hook_of(o->strings + o->symbols[ELF64_R_SYM(r->r_info)].st_name);
		if (function)
			set_slot(o, (void **)(o->base + r->r_offset), function);
	}
}

static int visit(struct dl_phdr_info *info, size_t size, void *unused)
{
	struct object o = { .base = info->dlpi_addr };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	(void)size;
	(void)unused;
	if (!strstr(info->dlpi_name, "librdmacm"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_DYNAMIC)
			read_dynamic((const void *)(o.base + p->p_vaddr), &o);
		if (p->p_type == PT_GNU_RELRO) {
			o.relro = (o.base + p->p_vaddr) & ~(page - 1);
			o.relro_end = (o.base + p->p_vaddr + p->p_memsz) & ~(page - 1);
		}
	}
	if (!o.symbols || !o.strings || strcmp(o.strings + o.name, LIBRARY))
		return 0;
	for (int i = 0; i < 2; i++)
		if (o.relocations[i])
			set_slots(&o, o.relocations[i], o.bytes[i]);
	return 0;
}

void ucm_take_over(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&lock);
	dl_iterate_phdr(visit, NULL);
	pthread_mutex_unlock(&lock);
}
