/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Completion channels.  ibv_get_cq_event() on the only channel of a device serves the device while
 * it waits (dp_device_wait()), so that a packet wakes the thread that wants it, and no other.
 */
#ifndef DP_VERBS_CHANNEL_H
#define DP_VERBS_CHANNEL_H

#include "verbs/front.h"

struct front_channel {
	struct ibv_comp_channel ibv;
	struct front_queue queue;
	struct front_object object;
	bool hidden; /* not counted among the device's channels */
};

/* Nobody waits on the channel in ibv_get_cq_event(): it keeps nobody from serving the device. */
void front_hide_channel(struct ibv_comp_channel *);
void front_free_channel(struct front_channel *);
/* A CQ begins or ends to use the channel, NULL: none. */
void front_hold_channel(struct ibv_comp_channel *, int by);

#endif
