/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Device memory: memory of a device, which a program reaches by copies or as a memory region.  Ours
 * is memory of the process, and each device may hand out a part of it.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	UNIT = 4, /* offsets and lengths are multiples of it, as on network cards */
	LOG_ALIGN_MAX = 12,
};

static struct front_dm *to_dm(struct ibv_dm *dm)
{
	return (struct front_dm *)dm;
}

/* Checks that [offset, offset + len) lies within the device memory and is aligned. */
static int check_piece(const struct front_dm *dm, uint64_t offset, size_t len)
{
	if (offset % UNIT || len % UNIT)
		return EINVAL;
	return offset > dm->len || len > dm->len - offset ? EFAULT : 0;
}

static int copy_to(struct ibv_dm *ibv, uint64_t offset, const void *from, size_t len)
{
	int err = check_piece(to_dm(ibv), offset, len);

	if (!err)
		memcpy(to_dm(ibv)->memory + offset, from, len);
	return err;
}

static int copy_from(void *to, struct ibv_dm *ibv, uint64_t offset, size_t len)
{
	int err = check_piece(to_dm(ibv), offset, len);

	if (!err)
		memcpy(to, to_dm(ibv)->memory + offset, len);
	return err;
}

/* Reserves `len` of the bytes that the device may hand out. */
static bool take(struct front_device *device, size_t len)
{
	size_t lent = atomic_load(&device->dm_lent);

	do {
		if (len > FRONT_DM_MAX - lent)
			return false;
	} while (!atomic_compare_exchange_weak(&device->dm_lent, &lent, lent + len));
	return true;
}

/* The device's count is that of this process alone: not of what a parent had before fork(). */
static void give_back(const struct front_dm *dm)
{
	if (dm->pid == getpid())
		atomic_fetch_sub(&to_context(dm->ibv.context)->device->dm_lent, dm->len);
}

struct ibv_dm *front_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct front_device *device = to_context(context)->device;
	struct front_dm *dm;

	if (attr->comp_mask || !attr->length || attr->log_align_req > LOG_ALIGN_MAX)
		return front_fail(EINVAL);
	if (!take(device, attr->length))
		return front_fail(ENOMEM);
	dm = calloc(1, sizeof(*dm));
	if (!dm || posix_memalign((void **)&dm->memory, 1u << LOG_ALIGN_MAX, attr->length)) {
		free(dm);
		atomic_fetch_sub(&device->dm_lent, attr->length);
		return front_fail(ENOMEM);
	}
	memset(dm->memory, 0, attr->length); /* nothing of its last user */
	dm->len = attr->length;
	dm->users = 1;
	dm->pid = getpid();
	dm->ibv.context = context;
	dm->ibv.memcpy_to_dm = copy_to;
	dm->ibv.memcpy_from_dm = copy_from;
	front_enter(context, &to_context(context)->dms, &dm->object);
	return &dm->ibv;
}

void front_dm_put(struct front_dm *dm)
{
	if (atomic_fetch_sub(&dm->users, 1) > 1)
		return;
	give_back(dm);
	free(dm->memory);
	free(dm);
}

int front_free_dm(struct ibv_dm *ibv)
{
	struct front_dm *dm = to_dm(ibv);

	if (atomic_load(&dm->users) > 1)
		return EBUSY;
	front_leave(ibv->context, &dm->object);
	front_dm_put(dm);
	return 0;
}

/* The region's first byte has address 0: device memory has no address that a program could know. */
struct ibv_mr *front_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibv, uint64_t offset, size_t len,
			       unsigned access)
{
	struct front_dm *dm = to_dm(ibv);
	struct dp_range range = { dm->memory + offset, len, 0 };
	struct front_mr *mr;
	int err = front_check_access(access);

	if (!err && (!(access & IBV_ACCESS_ZERO_BASED) || ibv->context != pd->context ||
		     check_piece(dm, offset, len)))
		err = -EINVAL;
	if (err)
		return front_fail(-err);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return front_fail(ENOMEM);
	atomic_fetch_add(&dm->users, 1);
	mr->dm = dm;
	err = front_mr_begin(mr, pd, &range, access);
	if (err) {
		front_free_mr(mr);
		return front_fail(-err);
	}
	mr->ibv.addr = NULL;
	return &mr->ibv;
}
