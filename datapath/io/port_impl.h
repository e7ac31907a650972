/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The calls that a kind of port implements.  port.c parses specifications and calls
 * through the table; a kind embeds struct dp_port as its first member.
 */
#ifndef DP_IO_PORT_IMPL_H
#define DP_IO_PORT_IMPL_H

#include <assert.h>

#include "io/port.h"
#include "io/spec.h"

struct dp_port_ops {
	const char *kind;
	int (*open)(const struct dp_spec *, struct dp_port **out, struct dp_error *);
	void (*close)(struct dp_port *);
	/* Brings the counters that the kernel keeps up to date. */
	void (*stats)(struct dp_port *);
	int (*resolve)(struct dp_port *, const struct dp_addr *peer, uint32_t *path_id);
	void (*release)(struct dp_port *, uint32_t path_id);
	/* NULL: the kernel finds link addresses. */
	int (*refresh)(struct dp_port *, uint32_t path_id);
	int (*join)(struct dp_port *, const struct dp_addr *group);
	void (*leave)(struct dp_port *, const struct dp_addr *group);
	/* NULL: the descriptor tells. */
	bool (*has_packets)(const struct dp_port *);
	int (*rx)(struct dp_port *, struct dp_packet *out, int max);
	void (*rx_release)(struct dp_port *, const struct dp_packet *, int n);
	int (*tx_reserve)(struct dp_port *, struct dp_packet *out, int max);
	int (*tx_commit)(struct dp_port *, const struct dp_packet *, int n_used, int n);
	int (*serve)(struct dp_port *, uint64_t service_id);
	void (*unserve)(struct dp_port *, uint64_t service_id);
};

struct dp_port {
	const struct dp_port_ops *ops;
	struct dp_port_info info;
	struct dp_port_stats stats;
	int fd;		/* epoll: readable when rx() may have something */
	int watched_fd; /* descriptor that dp_port_watch() adds and removes; 0: none */
	bool unwatched;
	uint64_t held_ns; /* dp_port_held_until() */
};

extern const struct dp_port_ops dp_afxdp_ops;
extern const struct dp_port_ops dp_udp_ops;

/* Sets path MTU, segment and the reason in info from the netdev's MTU; `cap` is the limit that the
 * user set, 0: none.  The segment is the rest of the MTU behind the headers, in whole cache lines.
 * -EINVAL: no path MTU fits; the error is told. */
int dp_port_set_path_mtu(struct dp_port_info *, uint32_t cap, struct dp_error *);

#endif
