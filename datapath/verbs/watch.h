/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the device's thread looks after beside packets.
 */
#ifndef DP_VERBS_WATCH_H
#define DP_VERBS_WATCH_H

#include "verbs/front.h"

#pragma GCC visibility push(hidden)

/*
 * Opens the socket through which dpctl reaches the device.  Returns NULL, with a message on stderr,
 * if there is none.
 */
struct front_control *front_control_open(struct front_device *);
int front_control_fd(const struct front_control *);
void front_control_serve(struct dp_device *, void *control);
void front_control_close(struct front_control *);

/*
 * Watches the port, and serves the control socket if there is one.  Returns 0 or -errno.  Close it
 * before the control socket, and after the device.
 */
int front_watch_open(struct front_device *, struct front_watch **out);
int front_watch_fd(const struct front_watch *);
void front_watch_serve(struct dp_device *, void *watch);
void front_watch_close(struct front_watch *);

#pragma GCC visibility pop

#endif
