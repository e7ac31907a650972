// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "verbs/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* The device's counts are those of this process alone. */
static bool is_inherited(const struct front_channel *channel)
{
	return to_context(channel->ibv.context)->pid != getpid();
}

static atomic_uint *count_of(const struct front_channel *channel)
{
	return &to_context(channel->ibv.context)->device->channels;
}

struct ibv_comp_channel *front_create_channel(struct ibv_context *context)
{
	struct front_channel *channel = calloc(1, sizeof(*channel));
	int err;

	if (!channel) {
		errno = ENOMEM;
		return NULL;
	}
	err = front_queue_init(&channel->queue);
	if (err) {
		free(channel);
		errno = -err;
		return NULL;
	}
	channel->ibv.context = context;
	channel->ibv.fd = channel->queue.fd;
	channel->hidden = is_inherited(channel);
	if (!channel->hidden)
		atomic_fetch_add(count_of(channel), 1);
	front_enter(context, &to_context(context)->channels, &channel->object);
	return &channel->ibv;
}

void front_hide_channel(struct ibv_comp_channel *ibv)
{
	struct front_channel *channel = (struct front_channel *)ibv;

	channel->hidden = true;
	atomic_fetch_sub(count_of(channel), 1);
}

void front_free_channel(struct front_channel *channel)
{
	if (!channel->hidden && !is_inherited(channel))
		atomic_fetch_sub(count_of(channel), 1);
	front_queue_destroy(&channel->queue);
	free(channel);
}

int front_destroy_channel(struct ibv_comp_channel *ibv)
{
	struct front_channel *channel = (struct front_channel *)ibv;
	bool used;

	pthread_mutex_lock(&ibv->context->mutex);
	used = ibv->refcnt > 0;
	pthread_mutex_unlock(&ibv->context->mutex);
	if (used)
		return EBUSY;
	front_leave(ibv->context, &channel->object);
	front_free_channel(channel);
	return 0;
}

void front_hold_channel(struct ibv_comp_channel *channel, int by)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += by;
	pthread_mutex_unlock(&channel->context->mutex);
}

/* A thread that serves the device only while it waits for one channel would leave the packets of
 * another channel lying in between. */
static bool may_serve(const struct front_channel *channel)
{
	return atomic_load_explicit(count_of(channel), memory_order_relaxed) == 1 &&
	       !(fcntl(channel->ibv.fd, F_GETFL) & O_NONBLOCK);
}

static bool has_event(void *queue)
{
	return front_queue_has(queue);
}

static void stop_serving(void *unused)
{
	(void)unused;
	front_queue_serve(NULL);
}

/* The thread may be cancelled, and what it does then may add events. */
static int serve(struct dp_device *dev, struct front_queue *q)
{
	int err;

	front_queue_serve(q);
	pthread_cleanup_push(stop_serving, NULL);
	err = dp_device_wait(dev, q->fd, has_event, q);
	pthread_cleanup_pop(1);
	return err;
}

static int next_event(struct front_channel *channel, struct front_event *out)
{
	struct dp_device *dev = to_context(channel->ibv.context)->dev;
	struct front_queue *q = &channel->queue;
	int err;

	while (!front_queue_has(q) && may_serve(channel)) {
		err = serve(dev, q);
		if (err == -EINTR) {
			errno = EINTR;
			return -1;
		}
		if (err)
			break;
	}
	return front_queue_pop(q, out);
}

int front_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **cq_context)
{
	struct front_event event;

	if (next_event((struct front_channel *)ibv, &event))
		return -1;
	*cq = ibv_cq_ex_to_cq(&((struct front_cq *)event.object)->ex);
	*cq_context = (*cq)->cq_context;
	return 0;
}
