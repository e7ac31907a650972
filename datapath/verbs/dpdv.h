/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Direct verbs of our devices: what the verbs API has no call for.
 *
 * libdpverbs.so exports these beside the calls of libibverbs.  A program that
 * links to it (cc program.c -I FOLDER .../libdpverbs.so, with the folder and the
 * library that datapath.native.paths names) needs it to start.  One that shall
 * run without it as well asks the loader:
 *
 *	__typeof__(dpdv_set_cc) *set_cc = dlsym(RTLD_DEFAULT, "dpdv_set_cc");
 *
 * Every call may be made from any thread.  Functions return 0 or a positive errno.
 */
#ifndef DP_VERBS_DPDV_H
#define DP_VERBS_DPDV_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the calls below are for this device. */
bool dpdv_is_supported(struct ibv_device *device);

/* Sets the congestion-control algorithm of one QP, in any state and while it
 * runs: the algorithm begins anew, what is in flight stays so, nothing is lost
 * or sent twice.  object: absolute path of a compiled algorithm (dpctl cc
 * compile), or NULL for a constant window of 1 MiB.  It stays loaded as long as
 * a QP uses it.
 *
 * On an error nothing is changed:
 *   EOPNOTSUPP       the QP is not one of our devices'
 *   EINVAL           the path is not absolute
 *   ENOENT, EACCES   and the like: the file cannot be opened
 *   EPERM            another user owns or can write the file or a folder on the
 *                    way to it
 *   ENOEXEC          it holds no algorithm
 *   EPROTONOSUPPORT  it was compiled for another version: compile it again
 *   EBUSY            the file was changed while its older content is in use:
 *                    give it another name
 *   EIO              in a child after fork(), of a device that the parent opened */
int dpdv_set_cc(struct ibv_qp *qp, const char *object);

struct dpdv_cc {
	char name[64];	   /* "constant window": none */
	char params[1024]; /* "name=value name=value"; "": none, or not told */
	char object[1024]; /* path; "": none */
	uint64_t changes;  /* since the QP was made */
};

/* Which one it is.  len: sizeof(struct dpdv_cc) as the program knows it. */
int dpdv_query_cc(struct ibv_qp *qp, struct dpdv_cc *out, size_t len);

/* The QP with this number, for programs in languages that know no pointer.
 * device: its name; NULL: any of ours.  NULL with errno ENOENT: there is none;
 * ENOTUNIQ: on several devices, name one. */
struct ibv_qp *dpdv_find_qp(const char *device, uint32_t qp_num);

struct dpdv_place {
	char netdev[16]; /* network device */
	uint32_t ifindex;
	bool up;
	union ibv_gid gid; /* the port's address, at the first `gids` indices */
	uint32_t gids;
	__be64 guid;
	uint64_t rate_bps;
};

/* Where a device is, without opening it.  device: its name.  len: sizeof(struct dpdv_place)
 * as the program knows it.  ENOENT: there is no such device of ours; others: its network
 * device or address is not there. */
int dpdv_query_place(const char *device, struct dpdv_place *out, size_t len);

#ifdef __cplusplus
}
#endif

#endif
