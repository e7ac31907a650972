/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory regions of DMA-BUFs: memory that another driver (of a GPU, of /dev/udmabuf) exports as a
 * file.  We copy payload with the CPU, so the buffer stays mapped into the process as long as the
 * region exists.
 */
#include "verbs/front.h"

#include <errno.h>
#include <linux/dma-buf.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* As the kernel's documentation of this ioctl wants it, a call that was interrupted is made again. */
static bool sync_once(int fd, uint64_t flags)
{
	struct dma_buf_sync sync = { flags | DMA_BUF_SYNC_RW };
	int err;

	do
		err = ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
	while (err && (errno == EINTR || errno == EAGAIN));
	return !err;
}

/* mmap() takes any file; only a DMA-BUF has this ioctl. */
static bool is_dmabuf(int fd)
{
	return sync_once(fd, DMA_BUF_SYNC_START) && sync_once(fd, DMA_BUF_SYNC_END);
}

/* Maps [offset, offset + len) of the buffer, and sets *at to its first byte. */
static int map(struct front_mr *mr, int fd, uint64_t offset, size_t len, unsigned access, void **at)
{
	uint64_t skew = offset & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	int prot = access & IBV_ACCESS_LOCAL_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
	off_t size = lseek(fd, 0, SEEK_END);
	void *mapping;

	if (!len || size < 0 || offset > (uint64_t)size || len > (uint64_t)size - offset)
		return -EINVAL;
	mapping = mmap(NULL, len + skew, prot, MAP_SHARED, fd, (off_t)(offset - skew));
	if (mapping == MAP_FAILED) /* its driver does not let the CPU reach the memory */
		return errno == EACCES || errno == ENOMEM ? -errno : -EOPNOTSUPP;
	mr->mapping = mapping;
	mr->mapping_len = len + skew;
	*at = (uint8_t *)mapping + skew;
	return 0;
}

struct ibv_mr *front_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
				   int fd, unsigned access)
{
	struct dp_range range = { .len = len, .iova = iova };
	struct front_mr *mr;
	int err;

	err = front_check_access(access);
	if (!err && (access & (IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND) || !is_dmabuf(fd)))
		err = -EINVAL;
	if (err)
		return front_fail(-err);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return front_fail(ENOMEM);
	err = map(mr, fd, offset, len, access, &range.addr);
	if (!err)
		err = front_mr_begin(mr, pd, &range, access);
	if (err) {
		front_free_mr(mr);
		return front_fail(-err);
	}
	mr->ibv.addr = (void *)(uintptr_t)offset; /* libibverbs sets the same */
	return &mr->ibv;
}
