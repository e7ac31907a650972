/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who holds a network device, or one of its queues.  The kernel tells only that an AF_XDP queue is
 * taken.  So a process with an afxdp port listens on an abstract Unix socket,
 * "datapath-afxdp:<ifindex>:<queue>" or "datapath-afxdp:<ifindex>:all", and the kernel
 * tells everyone who connects to it which process that is (SO_PEERCRED).  Another user may take the
 * name and be named in the holder's place: it is for error messages alone.
 */
#ifndef DP_IO_HOLDER_H
#define DP_IO_HOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define DP_ALL_QUEUES UINT32_MAX

/* Returns a descriptor: the name lasts until it is closed, here and in children after fork().  -1:
 * somebody has the name. */
int dp_holder_tell(uint32_t ifindex, uint32_t queue);
/* The process that holds this queue, or all.  0: not known. */
pid_t dp_holder_pid(uint32_t ifindex, uint32_t queue);

/* Waits a moment for a queue that is taken: a process that has ended keeps it until the kernel has
 * freed it.  *waited_ms: so far, 0 at first.  False at once when no more waiting will help. */
bool dp_holder_wait(uint32_t ifindex, uint32_t queue, int *waited_ms);

#endif
