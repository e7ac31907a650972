/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls of libibverbs 1.15 and later on dp0, declared here as its headers may be older.
 * Says what it expected and did not find, and ends with 1.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

struct region {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32 };

#define AS(name) __asm__(#name)
struct ibv_mr *reg_mr_ex(struct ibv_pd *, struct region *) AS(ibv_reg_mr_ex);
void *alloc_dmah(struct ibv_context *, void *) AS(ibv_alloc_dmah);
int export_dm(struct ibv_dm *) AS(ibv_dm_export_dmabuf_fd);
int port_speed(struct ibv_context *, uint32_t, uint64_t *) AS(ibv_query_port_speed);
void *alloc_buf(struct ibv_pd *, size_t, void **) AS(ibv_alloc_buf);
void free_buf(void *) AS(ibv_free_buf);
struct ibv_mr *reg_buf_mr(struct ibv_pd *, void *, void *, size_t, int) AS(ibv_reg_buf_mr);

#define EXPECT(what)                                                                               \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: not %s\n", __LINE__, #what);                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static char memory[8192];
static struct ibv_pd *pd;

static struct ibv_mr *region_of(uint64_t mask, struct region r)
{
	r.comp_mask = mask;
	r.access = IBV_ACCESS_LOCAL_WRITE;
	errno = 0;
	return reg_mr_ex(pd, &r);
}

static void regions(void)
{
	struct region whole = { .length = sizeof(memory), .addr = memory };
	struct ibv_mr *mr = region_of(ADDR, whole);

	EXPECT(mr && mr->addr == memory && mr->length == sizeof(memory));
	EXPECT(!ibv_dereg_mr(mr));
	whole.iova = 0x1000;
	EXPECT((mr = region_of(ADDR | IOVA, whole)) && !ibv_dereg_mr(mr));
	EXPECT(!region_of(0, whole) && errno == EINVAL);
	EXPECT(!region_of(ADDR | FD | FD_OFFSET, whole) && errno == EINVAL);
	EXPECT(!region_of(FD, whole) && errno == EINVAL);
	EXPECT(!region_of(ADDR | DMAH, whole) && errno == EOPNOTSUPP);
	EXPECT(!region_of(ADDR | 1 << 20, whole) && errno == EOPNOTSUPP);
}

/* A flag about confidential guests changes nothing here; others are refused. */
static void domains(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .comp_mask = 1 << 2 };
	struct ibv_pd *parent = ibv_alloc_parent_domain(pd->context, &attr);

	EXPECT(parent && !ibv_dealloc_pd(parent));
	attr.comp_mask = 1 << 3;
	EXPECT(!ibv_alloc_parent_domain(pd->context, &attr) && errno == EOPNOTSUPP);
}

static void buffers(void)
{
	struct ibv_pd *other = ibv_alloc_pd(pd->context);
	struct region part = { .length = 100 };
	struct ibv_mr *mr;
	void *buf;
	char *at = alloc_buf(pd, 4096, &buf);

	EXPECT(at);
	EXPECT((mr = reg_buf_mr(pd, buf, at + 96, 4000, IBV_ACCESS_LOCAL_WRITE)));
	EXPECT(mr->addr == at + 96 && !ibv_dereg_mr(mr));
	EXPECT(!reg_buf_mr(pd, buf, at + 97, 4000, 0) && errno == EINVAL);
	EXPECT(!reg_buf_mr(pd, buf, at - 1, 4, 0) && errno == EINVAL);
	EXPECT(!reg_buf_mr(other, buf, at, 4, 0) && errno == EINVAL);
	part.addr = at;
	part.buf = buf;
	EXPECT((mr = region_of(ADDR | BUF, part)) && !ibv_dereg_mr(mr));
	part.addr = at + 4000;
	EXPECT(!region_of(ADDR | BUF, part) && errno == EINVAL);
	free_buf(buf);
	EXPECT(!alloc_buf(pd, 0, &buf) && errno == EINVAL);
	EXPECT(!ibv_dealloc_pd(other));
}

int main(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct ibv_context *context = all ? ibv_open_device(all[0]) : NULL;
	struct ibv_dm *dm;
	uint64_t speed = 0;

	EXPECT(context && (pd = ibv_alloc_pd(context)));
	regions();
	buffers();
	domains();
	EXPECT(!alloc_dmah(context, NULL) && errno == EOPNOTSUPP);
	EXPECT((dm = ibv_alloc_dm(context, &attr)));
	EXPECT(export_dm(dm) == -1 && errno == EOPNOTSUPP);
	EXPECT(!ibv_free_dm(dm));
	EXPECT(!port_speed(context, 1, &speed) && speed);
	EXPECT(port_speed(context, 2, &speed) == EINVAL);
	return 0;
}
