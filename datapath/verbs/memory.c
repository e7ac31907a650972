/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory regions.
 */
#include "verbs/front.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Returns whether all of [start, end) is mapped, can be read and, if asked for, be written. */
static bool may_use(uintptr_t start, uintptr_t end, bool writes)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t from, to;
	char may[5];

	if (!maps)
		return false;
	while (start < end &&
	       fscanf(maps, "%" SCNxPTR "-%" SCNxPTR " %4s%*[^\n]", &from, &to, may) == 3) {
		if (to <= start)
			continue;
		if (from > start || may[0] != 'r' || (writes && may[1] != 'w'))
			break;
		start = to;
	}
	fclose(maps);
	return start >= end;
}

/*
 * Brings the pages in.  RDMA hardware pins pages, which finds bad addresses and makes the first
 * access cheap; this has both effects.  Returns -EFAULT if a part is not mapped, cannot be read, or
 * is read-only, and -EINVAL for a range that touches no page or passes the end of the address space,
 * as the kernel does: zero bytes inside a page are a range.
 */
static int populate(void *addr, size_t len, unsigned access)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr & ~(page - 1), end = (uintptr_t)addr + len;
	bool writes = access & IBV_ACCESS_LOCAL_WRITE;

	if (end <= start)
		return -EINVAL;
	if (!madvise((void *)start, end - start, writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return 0;
	if (errno != EINVAL)
		return -EFAULT;
	/*
	 * EINVAL means memory without these permissions, memory of a device, or a kernel that does
	 * not know MADV_POPULATE_WRITE.
	 */
	return may_use(start, end, writes) ? 0 : -EFAULT;
}

int front_check_access(unsigned access)
{
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			       IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
			       IBV_ACCESS_OPTIONAL_RANGE | DP_ACCESS_FLUSH_GLOBAL;

	if (access & ~known)
		return -EOPNOTSUPP;
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static uint32_t rights_of(unsigned access)
{
	return access & (DP_ACCESS_LOCAL_WRITE | DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_READ |
			 DP_ACCESS_REMOTE_ATOMIC | DP_ACCESS_MW_BIND | DP_ACCESS_FLUSH_GLOBAL);
}

int front_mr_begin(struct front_mr *mr, struct ibv_pd *pd, const struct dp_range *range,
		   unsigned access)
{
	struct dp_device *dev = to_context(pd->context)->dev;
	int err = dp_device_lock(dev);

	if (err)
		return err;
	err = dp_mr_create(front_engine_pd(pd), range->addr, range->len, range->iova,
			   rights_of(access), &mr->mr);
	dp_device_unlock(dev);
	if (err)
		return err;
	mr->access = access;
	mr->ibv = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.addr = range->addr,
		.length = range->len,
		.lkey = dp_mr_key(mr->mr),
		.rkey = dp_mr_key(mr->mr),
	};
	front_enter(pd->context, &to_context(pd->context)->mrs, &mr->object);
	return 0;
}

struct ibv_mr *front_reg_mr(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
			    unsigned access)
{
	struct dp_range range = { addr, len, access & IBV_ACCESS_ZERO_BASED ? 0 : iova };
	struct front_mr *mr;
	int err;

	err = front_check_access(access);
	if (!err)
		err = populate(addr, len, access);
	if (err)
		return front_fail(-err);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return front_fail(ENOMEM);
	err = front_mr_begin(mr, pd, &range, access);
	if (err) {
		free(mr);
		return front_fail(-err);
	}
	return &mr->ibv;
}

void front_free_mr(struct front_mr *mr)
{
	if (mr->mapping)
		munmap(mr->mapping, mr->mapping_len);
	if (mr->dm)
		front_dm_put(mr->dm);
	free(mr);
}

/* The mapping of a region without LOCAL_WRITE may only be read. */
static int allow_writes(const struct front_mr *mr)
{
	return mprotect(mr->mapping, mr->mapping_len, PROT_READ | PROT_WRITE) ? -errno : 0;
}

static int check_change(const struct front_mr *mr, int flags, const struct ibv_pd *pd, void *addr,
			size_t len, unsigned access)
{
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	int err = 0;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return -EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_PD && (!pd || pd->context != mr->ibv.context))
		return -EINVAL;
	if (moves && (!addr || !len || mr->mapping || mr->dm))
		return -EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		err = front_check_access(access);
	else
		access = mr->access;
	if (err || !(flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS)))
		return err;
	if (mr->mapping)
		return access & IBV_ACCESS_LOCAL_WRITE ? allow_writes(mr) : 0;
	if (mr->dm) /* the memory is ours and needs no check */
		return 0;
	return moves ? populate(addr, len, access) : populate(mr->ibv.addr, mr->ibv.length, access);
}

/* If the change is refused, the region stays as it was. */
int front_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t len,
		   unsigned access)
{
	struct dp_device *dev = to_context(ibv->context)->dev;
	struct dp_range range = { addr, len, (uintptr_t)addr };
	struct front_mr *mr = (struct front_mr *)ibv;
	bool new_pd = flags & IBV_REREG_MR_CHANGE_PD;
	bool new_range = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	bool new_access = flags & IBV_REREG_MR_CHANGE_ACCESS;
	uint32_t rights = rights_of(access);
	int err = check_change(mr, flags, pd, addr, len, access);

	if (!err)
		err = dp_device_lock(dev);
	if (!err) {
		err = dp_mr_change(mr->mr, new_pd ? front_engine_pd(pd) : NULL,
				   new_range ? &range : NULL, new_access ? &rights : NULL);
		dp_device_unlock(dev);
	}
	if (err) {
		errno = -err;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (new_pd)
		ibv->pd = pd;
	if (new_range) {
		ibv->addr = addr;
		ibv->length = len;
	}
	if (new_access)
		mr->access = access;
	return 0;
}

int front_dereg_mr(struct ibv_mr *ibv)
{
	struct dp_device *dev = to_context(ibv->context)->dev;
	struct front_mr *mr = (struct front_mr *)ibv;
	int err;

	err = dp_device_lock(dev);
	if (err)
		return -err;
	err = dp_mr_destroy(mr->mr);
	dp_device_unlock(dev);
	if (err)
		return -err;
	front_leave(ibv->context, &mr->object);
	front_free_mr(mr);
	return 0;
}
