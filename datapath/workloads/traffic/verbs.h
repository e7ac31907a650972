/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The declarations that the files of the transport "verbs" share.
 *
 *   verbs.c          messages: posting, and completions
 *   verbs_connect.c  QPs are made, joined and filled with receives
 *   verbs_open.c     the device, its GID, the CQ
 *   verbs_memory.c   the memory, and where each connection's slots lie in it
 */
#ifndef DP_TRAFFIC_VERBS_H
#define DP_TRAFFIC_VERBS_H

#include <infiniband/verbs.h>

#include "generator.h"

/* wr_id: the connection, and whether it is the receiving end's. */
#define RECEIVED (1ULL << 32)

struct half {
	struct ibv_qp *qp;
	uint32_t peer_rkey;
	uint64_t peer_addr;
	uint64_t offset; /* of this end's slots in the memory */
};

struct verbs {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
	struct half *half; /* by connection; a host is never both ends of one */
	struct cm *cm;
	char *memory;
	uint64_t out_bytes, in_bytes; /* shared memory: first the part that is sent */
	uint32_t unacked_events;
};

/* verbs_open.c */
int verbs_open(struct run *, struct record *records, uint32_t *n);

/* verbs_memory.c */
int verbs_register(struct run *, struct verbs *);
char *verbs_slot(const struct run *, const struct verbs *, uint32_t conn, uint64_t number);
uint64_t verbs_slot_bytes(const struct conn *);

/* verbs_connect.c */
int verbs_connect(struct run *, const struct record *all);
int verbs_make_qp(struct run *, struct verbs *, uint32_t conn);
int verbs_post_receive(struct run *, struct verbs *, uint32_t conn, uint64_t number);
/* Receives that the receiver keeps posted: it may be a while behind the sender. */
uint32_t verbs_receives(const struct run *, const struct conn *);
/* The first PSN that an end of a connection sends. */
uint32_t verbs_psn(uint32_t conn, uint32_t end);

#endif
