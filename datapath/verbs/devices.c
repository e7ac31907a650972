/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The devices of DATAPATH_DEVICES.  The first ibv_get_device_list() reads them.  The first
 * ibv_open_device() of a device opens its port, and all contexts of the device share it.
 */
#include "io/spec.h"
#include "verbs/channel.h"
#include "verbs/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	EXIT_MS = 1000,
	INDEX_FIRST = 1 << 30, /* above the kernel's indices, which begin at 0 */
};

static struct front_device *devices;
static int n_devices;
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static struct front_device *find(const char *name)
{
	struct front_device *d;

	for (d = devices; d && strcmp(d->ibv.name, name); d = d->next)
		;
	return d;
}

static void add(const struct dp_device_config *config, struct front_device ***end)
{
	struct front_device *d;

	if (find(config->name)) {
		fprintf(stderr, "libdpverbs: DATAPATH_DEVICES: %s is there twice\n", config->name);
		return;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return;
	d->config = *config;
	pthread_mutex_init(&d->contexts_lock, NULL);
	d->ibv.node_type = IBV_NODE_CA;
	d->ibv.transport_type = IBV_TRANSPORT_IB;
	memcpy(d->ibv.name, config->name, sizeof(config->name));
	/* dpctl exec shows these devices in sysfs (sysfs.py).  They have no node in /dev. */
	snprintf(d->ibv.dev_name, sizeof(d->ibv.dev_name), "dpverbs-%s", config->name);
	snprintf(d->ibv.dev_path, sizeof(d->ibv.dev_path), "/sys/class/infiniband_verbs/%s",
		 d->ibv.dev_name);
	snprintf(d->ibv.ibdev_path, sizeof(d->ibv.ibdev_path), "/sys/class/infiniband/%s",
		 config->name);
	d->index = INDEX_FIRST + n_devices++;
	**end = d;
	*end = &d->next;
}

static void read_devices(void)
{
	const char *text = secure_getenv("DATAPATH_DEVICES");
	struct front_device **end = &devices;
	struct dp_device_config config;
	char error[256];
	int got;

	while (text && (got = dp_config_next(&text, &config, error, sizeof(error)))) {
		if (got == 1)
			add(&config, &end);
		else
			fprintf(stderr, "libdpverbs: DATAPATH_DEVICES: %s\n", error);
	}
}

struct front_device *front_devices(void)
{
	pthread_once(&devices_once, read_devices);
	return devices;
}

bool front_owns_device(const struct ibv_device *device)
{
	struct front_device *d;

	for (d = devices; d && &d->ibv != device; d = d->next)
		;
	return d != NULL;
}

int front_device_index(const struct front_device *d)
{
	return d->index;
}

static int refuse(const struct front_device *d, int err, const char *error)
{
	fprintf(stderr, "libdpverbs: cannot open %s (%s): %s\n", d->config.name, d->config.spec,
		error);
	return err;
}

static void refuse_for(const struct front_device *d, int err, const char *what)
{
	char text[128];

	dp_fail(&(struct dp_error){ text, sizeof(text) }, err, "%s: %s", what, strerror(-err));
	refuse(d, err, text);
}

static int load_algorithm(struct front_device *d)
{
	char error[1400];
	int err = 0;

	d->cc = NULL;
	if (d->config.cc[0])
		err = front_cc_load(d->config.cc, &d->cc, error, sizeof(error));
	return err ? refuse(d, err, error) : 0;
}

static void unload_algorithm(struct front_device *d)
{
	front_cc_put(d->cc);
	d->cc = NULL;
	front_cc_sweep();
}

bool front_lock_within(pthread_mutex_t *mutex, int timeout_ms)
{
	while (pthread_mutex_trylock(mutex)) {
		if (!timeout_ms--)
			return false;
		usleep(1000);
	}
	return true;
}

static void leave_numbers(struct front_device *d)
{
	front_stats_write(d);
	if (d->series)
		front_series_flush(d->series);
}

/* Other threads may open and close devices while one thread calls exit(). */
static void leave_numbers_at_exit(void)
{
	struct front_device *d;

	if (!front_lock_within(&open_lock, EXIT_MS))
		return;
	for (d = devices; d; d = d->next)
		if (d->opens && d->pid == getpid())
			leave_numbers(d);
	pthread_mutex_unlock(&open_lock);
}

static void close_control(struct front_device *d)
{
	front_watch_close(d->watch);
	d->watch = NULL;
	front_control_close(d->control);
	d->control = NULL;
}

static void free_locks(struct front_context *c)
{
	struct front_channel *channel;
	struct front_object *o;
	struct front_qp *qp;

	pthread_mutex_init(&c->verbs.context.mutex, NULL);
	pthread_mutex_init(&c->async.lock, NULL);
	/* The lists can be followed at any moment: objects enter and leave them by one store. */
	for (o = c->channels; o; o = o->next) {
		channel = container_of(o, struct front_channel, object);
		pthread_mutex_init(&channel->queue.lock, NULL);
	}
	for (o = c->cqs; o; o = o->next)
		container_of(o, struct front_cq, object)->polling = (struct dp_lock){ 0 };
	for (o = c->qps; o; o = o->next) {
		qp = container_of(o, struct front_qp, object);
		if (qp->has_wr_ops)
			qp->batch.lock = (struct dp_lock){ 0 };
	}
}

/* The child has none of the parent's threads.  Whatever they hold, it opens devices anew. */
static void forget_in_child(void)
{
	struct front_context *c;
	struct front_device *d;

	pthread_mutex_init(&open_lock, NULL);
	for (d = devices; d; d = d->next) {
		pthread_mutex_init(&d->contexts_lock, NULL);
		for (c = d->contexts; c; c = c->next)
			free_locks(c);
		d->contexts = NULL;
		d->channels = 0;
		d->dm_lent = 0;
		d->stats = NULL; /* the parent's */
		close_control(d);
	}
}

static void register_handlers(void)
{
	atexit(leave_numbers_at_exit);
	pthread_atfork(NULL, NULL, forget_in_child);
}

/* Call with open_lock held. */
static int first_open(struct front_device *d)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct dp_device_options options = {
		.name = d->config.name,
		.standard = d->config.standard,
		.ecn = d->config.ecn,
		.path_mtu_max = d->config.path_mtu,
		.segment = d->config.segment,
		.alone = d->config.alone,
		.telemetry = d->config.telemetry,
		.paths = d->config.paths,
		.window_psns = d->config.window,
		.min_rto_ns = d->config.min_rto_us * UINT64_C(1000),
		.cnp_ns = d->config.cnp_us * UINT64_C(1000),
		.on_event = front_on_event,
	};
	char error[512] = "";
	int err;

	pthread_once(&once, register_handlers);
	err = load_algorithm(d);
	if (err)
		return err;
	d->qps = NULL;
	d->end = &d->qps;
	if (!d->stats)
		d->stats = front_stats_create(d);
	if (!d->stats) {
		err = -ENOMEM;
		goto unload;
	}
	d->control = front_control_open(d);
	err = front_watch_open(d, &d->watch);
	if (err) {
		refuse_for(d, err, "cannot watch its network device");
		goto close_control;
	}
	options.on_control = front_watch_serve;
	options.control = d->watch;
	options.control_fd = front_watch_fd(d->watch);
	err = dp_device_open(d->config.spec, &options, &d->dev, error, sizeof(error));
	if (err) {
		refuse(d, err, error);
		goto close_control;
	}
	d->pid = getpid();
	d->series = front_series_start(d->dev, d->config.name);
	return 0;

close_control:
	close_control(d);
unload:
	unload_algorithm(d);
	return err;
}

/* Call with open_lock held. */
static void last_close(struct front_device *d)
{
	/* A child after fork() has no threads, and its parent's files are not its own. */
	if (d->pid == getpid()) {
		leave_numbers(d);
		front_stats_keep(d->stats, d->dev);
		if (d->series)
			front_series_stop(d->series);
	}
	d->series = NULL;
	dp_device_close(d->dev);
	d->dev = NULL;
	close_control(d);
	unload_algorithm(d);
}

struct ibv_context *front_open_device(struct ibv_device *device)
{
	struct front_device *d = container_of(device, struct front_device, ibv);
	struct front_context *context = NULL;
	int err = 0;

	pthread_mutex_lock(&open_lock);
	/* The parent opened the device before fork(): the child opens it anew. */
	if (d->opens && d->pid != getpid()) {
		d->opens = 0;
		d->dev = NULL;
		d->series = NULL;
		front_cc_put(d->cc);
		d->cc = NULL;
	}
	if (!d->opens)
		err = first_open(d);
	if (!err) {
		err = front_context_create(d, &context);
		if (!err)
			d->opens++;
		else
			refuse_for(d, err, "cannot make a context");
		if (!d->opens)
			last_close(d);
	}
	pthread_mutex_unlock(&open_lock);
	if (!err)
		return &context->verbs.context;
	errno = -err;
	return NULL;
}

/* Call with open_lock held. */
static struct front_qp *qp_of(struct front_device *d, uint32_t qpn)
{
	struct front_qp *qp;

	if (!d->opens || d->pid != getpid() || dp_device_lock(d->dev))
		return NULL;
	for (qp = d->qps; qp && dp_qp_qpn(qp->qp) != qpn; qp = qp->next)
		;
	dp_device_unlock(d->dev);
	return qp;
}

int front_find_qp(const char *device, uint32_t qpn, struct front_qp **out)
{
	struct front_qp *qp, *found = NULL;
	struct front_device *d;
	int n = 0;

	pthread_mutex_lock(&open_lock);
	for (d = front_devices(); d; d = d->next) {
		qp = !device || !strcmp(d->config.name, device) ? qp_of(d, qpn) : NULL;
		if (qp) {
			found = qp;
			n++;
		}
	}
	pthread_mutex_unlock(&open_lock);
	if (n == 1)
		*out = found;
	return n == 1 ? 0 : n ? ENOTUNIQ : ENOENT;
}

int front_close_device(struct ibv_context *ibv)
{
	struct front_context *context = to_context(ibv);
	struct front_device *d = context->device;

	pthread_mutex_lock(&open_lock);
	front_end_objects(context);
	if (context->dev == d->dev && !--d->opens)
		last_close(d);
	front_context_destroy(context);
	pthread_mutex_unlock(&open_lock);
	return 0;
}
