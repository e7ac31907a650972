/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A port moves RoCEv2 datagrams between a wire and an engine, in batches.  It reads no more of them
 * than the IP and UDP headers.
 *
 * Opened from a specification "KIND:WHERE[,key=value...]":
 *   afxdp:eth1          AF_XDP on a network device
 *   udp:10.0.0.1        a UDP socket on a local address (also udp:eth1)
 *
 * One thread at a time uses a port; the caller holds the lock.
 *
 * The files of this folder:
 *
 *   port.c, spec.c            specifications; the table of kinds (port_impl.h)
 *   afxdp.c, afxdp_open.c, ...  kind afxdp (afxdp.h lists its files); steer.c: its XDP program;
 *                             holder.c: who has the device
 *   udp.c, udp_rx.c, ...      kind udp (udp_impl.h lists its files)
 *   slot.c, run.c             several ports at one address, which hand on to each other
 *   frame.c                   headers of whole frames
 *   peers.c, route.c          peers; the kernel's routes and neighbours
 *   groups.c, netdev.c, addr.c  multicast groups; network devices; addresses
 *   raw.c                     whole frames, for the emulator and the virtual card
 *   xsk.h                     AF_XDP sockets, also with old kernel headers
 *   device.c, ...             the device: port, engine, lock, thread (device_impl.h lists its files)
 *   lock.c, urgent.c, lateness.c  its lock; the thread's priority; how late the thread wakes
 *   lease.c                   until when the thread leaves a polling program alone
 *   linger.c                  how long the thread looks for packets before it sleeps
 *   wall_clock.c              CLOCK_REALTIME of the kernel's stamps as CLOCK_MONOTONIC
 *   trust.c                   whether compiled code may be loaded
 *   series.c, tcp_sampler.c   files of samples; a program that samples the kernel's TCP
 */
#ifndef DP_IO_PORT_H
#define DP_IO_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h"

enum { DP_PORT_BATCH = 88 }; /* two UDP_SEGMENT sends of full packets at an MTU of 1500 */

struct dp_port;

struct dp_port_info {
	char kind[16];	 /* "afxdp", "udp" */
	char netdev[16]; /* network device, "" if none is bound */
	uint32_t ifindex;
	uint8_t mac[6];
	struct dp_addr addr; /* our address */
	uint32_t netdev_mtu;
	uint32_t path_mtu;	   /* largest RoCE path MTU that fits, bytes */
	char path_mtu_reason[128]; /* why it is no larger, in words */
	uint32_t segment_max;	   /* payload of the longest extended packet that fits */
	uint32_t segment;	   /* the best such payload, which a device takes if none is set */
	char mode[32];		   /* "zero-copy", "copy", "gso", "plain" */
	char mode_reason[128];	   /* why it is not the faster one, "" if it is */
	uint16_t udp_sport;	   /* 0: the engine may choose the UDP source port */
	uint32_t n_queues;	   /* afxdp: receive queues that it serves */
	uint32_t qpn_prefix;	   /* for struct dp_engine_config */
	uint64_t line_rate_bps;	   /* 0: not known */
};

#define DP_PORT_COUNTERS(X)                                                                        \
	X(rx_packets)                                                                              \
	X(rx_bytes)                                                                                \
	X(tx_packets)                                                                              \
	X(tx_bytes)                                                                                \
	X(rx_wakeups)	  /* system calls made to receive */                                       \
	X(tx_wakeups)	  /* system calls made to send */                                          \
	X(rx_malformed)	  /* not IPv4/IPv6 UDP to our port */                                      \
	X(rx_dropped)	  /* packets lost in front of the port: ring full, no buffer */            \
	X(tx_full)	  /* times that no transmit buffer was free */                             \
	X(rx_misdirected) /* handed on to the port that owns the QPN */                            \
	X(copies)	  /* packets the kernel copied (afxdp copy mode) */                        \
	X(tx_dropped)	  /* packets that the kernel refused for good: too large, no route */      \
	X(rx_early)	  /* times that a dated packet was there before its date, and was held */  \
	X(rx_untimed)	  /* packets whose time of arrival is not known */                         \
	X(rx_other_queue) /* afxdp: RoCE to our address on other queues than its port's */

struct dp_port_stats {
#define X(name) uint64_t name;
	DP_PORT_COUNTERS(X)
#undef X
};

/* 0 or -errno; on error, `error` holds one line for the user: what failed and
 * what to do next. */
int dp_port_open(const char *spec, struct dp_port **out, char *error, size_t error_len);
void dp_port_close(struct dp_port *);
void dp_port_info(const struct dp_port *, struct dp_port_info *out);
void dp_port_stats(struct dp_port *, struct dp_port_stats *out);

enum dp_port_state {
	DP_PORT_GONE,	 /* its network device no longer exists, and no other takes its place */
	DP_PORT_DOWN,	 /* its network device is down or has no carrier */
	DP_PORT_RUNNING, /* it sends and receives */
	DP_PORT_UNKNOWN, /* it could not be looked up now: no descriptor is free, or no memory */
};

static inline bool dp_port_is_down(enum dp_port_state state)
{
	return state == DP_PORT_GONE || state == DP_PORT_DOWN;
}

/* A network device that was removed and made again, or renamed, is looked for as the kernel does it:
 * a UDP port goes with its address, an AF_XDP port and a link-local address with the device. */
enum dp_port_state dp_port_state(const struct dp_port_info *);

/* Finds the route to a peer, for struct dp_qp_attr.path_id: looks up next hop and link address.
 * Does not wait.  -EAGAIN: the next hop is asked for its address, so call again; -ENOSPC: too many
 * peers at a time.  Each success must be matched by a call of dp_port_release(). */
int dp_port_resolve(struct dp_port *, const struct dp_addr *peer, uint32_t *path_id);
void dp_port_release(struct dp_port *, uint32_t path_id);
/* Looks the link address of a route up again, for all its users.  On an error, those of
 * dp_port_resolve(), the route keeps the address that it has. */
int dp_port_refresh(struct dp_port *, uint32_t path_id);

/* Receives the packets of a multicast group from now on.  Joins are counted.  -EAFNOSUPPORT:
 * the group's address is not of the port's family, -ENOSPC: too many groups at a time. */
int dp_port_join(struct dp_port *, const struct dp_addr *group);
void dp_port_leave(struct dp_port *, const struct dp_addr *group);

/* Borrows up to max received packets, with their times of arrival if these are known.  The caller
 * returns all of them with dp_port_rx_release() before the next call. */
int dp_port_rx(struct dp_port *, struct dp_packet *out, int max);
void dp_port_rx_release(struct dp_port *, const struct dp_packet *, int n);

/* Reserves up to max buffers (sets data, cap, cookie).  Commit then sends the first n_used of
 * them (packets to one path in one system call as far as possible), and takes the other n -
 * n_used back. */
int dp_port_tx_reserve(struct dp_port *, struct dp_packet *out, int max);
int dp_port_tx_commit(struct dp_port *, const struct dp_packet *, int n_used, int n);

/* From now on requests for this service of the connection manager come to this port, whichever
 * process with a port on the same address the kernel gives them to.  -EADDRINUSE: a process has
 * the service already. */
int dp_port_serve(struct dp_port *, uint64_t service_id);
void dp_port_unserve(struct dp_port *, uint64_t service_id);

/* Whether dp_port_rx() may have packets: dp_port_fd() without a system call, where the port can.  Needs
 * no lock. */
bool dp_port_has_packets(const struct dp_port *);

/* Until when dp_port_rx() holds the next packet: an emulated link handed it over before the time at
 * which it lets it go.  0: it holds none.  Needs no lock. */
uint64_t dp_port_held_until(const struct dp_port *);

/* A descriptor that is readable when dp_port_rx() may have packets, also while they are held.  Nobody
 * has to wait for it to become writable. */
int dp_port_fd(const struct dp_port *);
/* Tells whether a thread is going to wait on dp_port_fd(); true at first.  While no thread waits,
 * packets arrive a little sooner, since the kernel need not wake one. */
void dp_port_watch(struct dp_port *, bool on);

#endif
