/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the device's thread looks after beside packets: requests from outside (control.c), and the
 * state of the port.  When the network device stops running, runs again or is removed for good, each
 * context has an asynchronous event, as with the kernel's devices.
 */
#include "verbs/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io/netdev.h"

struct front_watch {
	struct front_device *device;
	int fd;	       /* readable while one of the two others is */
	int netdev_fd; /* see dp_netdev_watch() */
	enum dp_port_state state;
};

static int add(const struct front_watch *w, int fd)
{
	struct epoll_event in = { .events = EPOLLIN };

	return epoll_ctl(w->fd, EPOLL_CTL_ADD, fd, &in) ? -errno : 0;
}

static void tell_contexts(struct front_device *d, enum ibv_event_type type)
{
	struct front_event event = { .type = (int)type };
	struct front_context *c;

	pthread_mutex_lock(&d->contexts_lock);
	for (c = d->contexts; c; c = c->next) {
		event.popped = &c->port_events_popped;
		front_queue_push(&c->async, &event);
	}
	pthread_mutex_unlock(&d->contexts_lock);
}

void front_watch_serve(struct dp_device *dev, void *arg)
{
	struct front_watch *w = arg;
	enum dp_port_state state, was = w->state;

	if (w->device->control)
		front_control_serve(dev, w->device->control);
	if (!dp_netdev_has_changed(w->netdev_fd))
		return;
	state = dp_port_state(dp_device_port(dev));
	if (state == was || state == DP_PORT_UNKNOWN || was == DP_PORT_GONE)
		return;
	w->state = state;
	if (state == DP_PORT_RUNNING)
		tell_contexts(w->device, IBV_EVENT_PORT_ACTIVE);
	else if (was == DP_PORT_RUNNING)
		tell_contexts(w->device, IBV_EVENT_PORT_ERR);
	if (state == DP_PORT_GONE)
		tell_contexts(w->device, IBV_EVENT_DEVICE_FATAL);
}

int front_watch_open(struct front_device *d, struct front_watch **out)
{
	struct front_watch *w = calloc(1, sizeof(*w));
	struct dp_port_info info;
	int err;

	if (!w)
		return -ENOMEM;
	w->device = d;
	w->fd = epoll_create1(EPOLL_CLOEXEC);
	err = w->fd < 0 ? -errno : 0;
	w->netdev_fd = dp_netdev_watch();
	w->state = front_find_place(d, &info) ? DP_PORT_DOWN : dp_port_state(&info);
	if (!err)
		err = w->netdev_fd < 0 ? w->netdev_fd : add(w, w->netdev_fd);
	if (!err && d->control)
		err = add(w, front_control_fd(d->control));
	if (!err)
		*out = w;
	else
		front_watch_close(w);
	return err;
}

int front_watch_fd(const struct front_watch *w)
{
	return w->fd;
}

void front_watch_close(struct front_watch *w)
{
	if (w && w->netdev_fd >= 0)
		close(w->netdev_fd);
	if (w && w->fd >= 0)
		close(w->fd);
	free(w);
}
