/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Direct verbs of our devices: calls that the verbs API does not have.
 *
 * libdpverbs.so exports these calls beside those of libibverbs.  A program that links to
 * libdpverbs.so (cc program.c -I FOLDER .../libdpverbs.so, with the folder and the library that
 * datapath.native.paths names) needs the library to start.  A program that has to run without it
 * too asks the dynamic loader:
 *
 * __typeof__(dpdv_set_cc) *set_cc = dlsym(RTLD_DEFAULT, "dpdv_set_cc");
 *
 * Any thread may make any of these calls.  Functions return 0 or a positive errno.
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

/* Returns whether the calls below work on this device. */
bool dpdv_is_supported(struct ibv_device *device);

/*
 * Sets the congestion-control algorithm of one QP, in any state and while it runs.  The algorithm
 * begins anew.  Packets in flight stay in flight; none is lost or sent twice because of the change.
 * object: absolute path of a compiled algorithm (dpctl cc compile), or NULL for a constant window
 * of 1 MiB.  The object stays loaded as long as a QP uses it.
 *
 * After an error nothing has changed:
 *   EOPNOTSUPP       the QP does not belong to one of our devices
 *   EINVAL           the path is not absolute
 *   ENOENT, EACCES   and other errors of open(): the file cannot be opened
 *   EPERM            another user owns or can write the file or a folder of its path
 *   ENOEXEC          the file holds no algorithm
 *   EPROTONOSUPPORT  the file was compiled for another version: compile it again
 *   EBUSY            the file was changed while its older content is in use: give it another
 *                    name
 *   EIO              the process is a child after fork(), and its parent opened the device
 */
int dpdv_set_cc(struct ibv_qp *qp, const char *object);

struct dpdv_cc {
	char name[64];	   /* "constant window": no algorithm */
	char params[1024]; /* "name=value name=value"; "": none, or not known */
	char object[1024]; /* path; "": no algorithm */
	uint64_t changes;  /* changes since the QP was made */
};

/* Describes the QP's algorithm.  len: sizeof(struct dpdv_cc) as the program knows it. */
int dpdv_query_cc(struct ibv_qp *qp, struct dpdv_cc *out, size_t len);

/*
 * Returns the RC QP with this number, for programs in languages without pointers: QPs of other types
 * have no algorithm, and are not found.  device: its name; NULL: any of ours.  Returns NULL with errno
 * ENOENT: there is no such QP; ENOTUNIQ: several devices have one, name the device.
 */
struct ibv_qp *dpdv_find_qp(const char *device, uint32_t qp_num);

struct dpdv_place {
	char netdev[16]; /* name of the network device */
	uint32_t ifindex;
	bool up;
	union ibv_gid gid; /* the port's address, which is the GID at the first `gids` indices */
	uint32_t gids;
	__be64 guid;
	uint64_t rate_bps;
};

/*
 * Tells where a device is, without opening it.  device: its name.  len: sizeof(struct dpdv_place)
 * as the program knows it.  Returns ENOENT: no device of ours has this name; another error: its
 * network device or address does not exist.
 */
int dpdv_query_place(const char *device, struct dpdv_place *out, size_t len);

#ifdef __cplusplus
}
#endif

#endif
