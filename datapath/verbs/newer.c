/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls that libibverbs has since version 1.15 (rdma-core 58).  The front always has them, whatever
 * version it was built with, because a newer program may load it.  The headers may be older or
 * newer than these calls.  So this file declares the structures itself, and its functions have
 * names of their own, with the symbols of libibverbs.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>

#define SYMBOL(name) __asm__(#name) __attribute__((visibility("default")))
#define REAL_AS(type, name) ((type)real(DP_SLOT_##name, (void *)no_object))
#define REAL_CODE(type, name) ((type)real(DP_SLOT_##name, (void *)no_code))

enum {
	HAS_IOVA = 1 << 0,
	HAS_ADDR = 1 << 1,
	HAS_FD = 1 << 2,
	HAS_FD_OFFSET = 1 << 3,
	HAS_BUF = 1 << 5,
};

/* struct ibv_mr_init_attr */
struct region {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct buffer *buf;
};

/* struct ibv_buf, which libibverbs hides from programs but reads itself. */
struct buffer {
	void *addr;
	size_t size;
	struct ibv_pd *pd;
	int dmabuf_fd;
};

/* The first members of struct ibv_dmah. */
struct dma_handle {
	struct ibv_context *context;
};

typedef struct ibv_mr *(*reg_mr_ex_fn)(struct ibv_pd *, struct region *);
typedef void *(*alloc_dmah_fn)(struct ibv_context *, void *attr);
typedef int (*dealloc_dmah_fn)(struct dma_handle *);
typedef int (*export_dm_fn)(struct ibv_dm *);
typedef int (*port_speed_fn)(struct ibv_context *, uint32_t port, uint64_t *speed);
typedef void *(*alloc_buf_fn)(struct ibv_pd *, size_t, struct buffer **);
typedef void (*free_buf_fn)(struct buffer *);
typedef struct ibv_mr *(*reg_buf_mr_fn)(struct ibv_pd *, struct buffer *, void *, size_t, int);

struct ibv_mr *front_new_reg_mr_ex(struct ibv_pd *, struct region *) SYMBOL(ibv_reg_mr_ex);
void *front_new_alloc_dmah(struct ibv_context *, void *attr) SYMBOL(ibv_alloc_dmah);
int front_new_dealloc_dmah(struct dma_handle *) SYMBOL(ibv_dealloc_dmah);
int front_new_export_dm(struct ibv_dm *) SYMBOL(ibv_dm_export_dmabuf_fd);
int front_new_port_speed(struct ibv_context *, uint32_t, uint64_t *) SYMBOL(ibv_query_port_speed);
void *front_new_alloc_buf(struct ibv_pd *, size_t, struct buffer **) SYMBOL(ibv_alloc_buf);
void front_new_free_buf(struct buffer *) SYMBOL(ibv_free_buf);
struct ibv_mr *front_new_reg_buf_mr(struct ibv_pd *, struct buffer *, void *, size_t, int)
	SYMBOL(ibv_reg_buf_mr);

/* The answers for a real device, if the machine's libibverbs is older than the program. */
static void *no_object(void)
{
	return front_fail(EOPNOTSUPP);
}

static int no_code(void)
{
	return EOPNOTSUPP;
}

static void *real(unsigned slot, void *otherwise)
{
	void *fn = dp_forward_get(slot);

	return fn ? fn : otherwise;
}

/*
 * Returns whether all of [addr, addr + len) lies in the buffer, and the buffer belongs to the
 * domain.
 */
static bool lies_in(const struct ibv_pd *pd, const struct buffer *buf, const void *addr, size_t len)
{
	uintptr_t offset = (uintptr_t)addr - (uintptr_t)buf->addr;

	return buf->pd == pd && offset <= buf->size && len <= buf->size - offset;
}

static struct ibv_mr *reg_mr_ex(struct ibv_pd *pd, const struct region *r)
{
	const uint64_t known = HAS_IOVA | HAS_ADDR | HAS_FD | HAS_FD_OFFSET | HAS_BUF;
	bool addr = r->comp_mask & HAS_ADDR, fd = r->comp_mask & HAS_FD;
	/* A field whose bit is not set may hold anything. */
	uint64_t iova = r->comp_mask & HAS_IOVA ? r->iova : addr ? (uintptr_t)r->addr : 0;

	if (r->comp_mask & ~known)
		return front_fail(EOPNOTSUPP);
	if (addr == fd || (fd && !(r->comp_mask & HAS_FD_OFFSET)) ||
	    (r->comp_mask & HAS_BUF && (!addr || !lies_in(pd, r->buf, r->addr, r->length))))
		return front_fail(EINVAL);
	return fd ? front_reg_dmabuf_mr(pd, r->fd_offset, r->length, iova, r->fd,
					(unsigned)r->access) :
		    front_reg_mr(pd, r->addr, r->length, iova, (unsigned)r->access);
}

struct ibv_mr *front_new_reg_mr_ex(struct ibv_pd *pd, struct region *r)
{
	return front_owns(pd->context) ? reg_mr_ex(pd, r) :
					 REAL_AS(reg_mr_ex_fn, ibv_reg_mr_ex)(pd, r);
}

void *front_new_alloc_dmah(struct ibv_context *context, void *attr)
{
	return front_owns(context) ? front_fail(EOPNOTSUPP) :
				     REAL_AS(alloc_dmah_fn, ibv_alloc_dmah)(context, attr);
}

int front_new_dealloc_dmah(struct dma_handle *dmah)
{
	return front_owns(dmah->context) ? EOPNOTSUPP :
					   REAL_CODE(dealloc_dmah_fn, ibv_dealloc_dmah)(dmah);
}

int front_new_export_dm(struct ibv_dm *dm)
{
	if (!front_owns(dm->context))
		return REAL_CODE(export_dm_fn, ibv_dm_export_dmabuf_fd)(dm);
	errno = EOPNOTSUPP;
	return -1;
}

/* The speed is in units of 100 Mbit/s. */
int front_new_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	if (!front_owns(context))
		return REAL_CODE(port_speed_fn, ibv_query_port_speed)(context, port, speed);
	if (port != FRONT_PORT)
		return EINVAL;
	*speed = front_rate_bps(dp_device_port(to_context(context)->dev)) / 100000000;
	return 0;
}

static void *alloc_buf(struct ibv_pd *pd, size_t size, struct buffer **out)
{
	struct buffer *buf;

	if (!size)
		return front_fail(EINVAL);
	buf = calloc(1, sizeof(*buf));
	if (!buf || posix_memalign(&buf->addr, 4096, size)) {
		free(buf);
		return front_fail(ENOMEM);
	}
	buf->size = size;
	buf->pd = pd;
	buf->dmabuf_fd = -1;
	*out = buf;
	return buf->addr;
}

void *front_new_alloc_buf(struct ibv_pd *pd, size_t size, struct buffer **out)
{
	return front_owns(pd->context) ? alloc_buf(pd, size, out) :
					 REAL_AS(alloc_buf_fn, ibv_alloc_buf)(pd, size, out);
}

void front_new_free_buf(struct buffer *buf)
{
	if (!front_owns(buf->pd->context)) {
		REAL_CODE(free_buf_fn, ibv_free_buf)(buf);
		return;
	}
	free(buf->addr);
	free(buf);
}

struct ibv_mr *front_new_reg_buf_mr(struct ibv_pd *pd, struct buffer *buf, void *addr, size_t len,
				    int access)
{
	if (!front_owns(pd->context))
		return REAL_AS(reg_buf_mr_fn, ibv_reg_buf_mr)(pd, buf, addr, len, access);
	return lies_in(pd, buf, addr, len) ?
		       front_reg_mr(pd, addr, len, (uintptr_t)addr, (unsigned)access) :
		       front_fail(EINVAL);
}
