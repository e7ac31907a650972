// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The calls of the library. */
#include <arpa/inet.h>
#include <stdio.h>

#include "collectives/live/coll.h"

enum {
	DEFAULT_ACK_TIMEOUT = 14,
	DEFAULT_RETRY_COUNT = 7,
	DEFAULT_MEET_MS = 30000,
	DEFAULT_SILENCE_MS = 2500,
};

static void set_default(uint32_t *value, uint32_t otherwise)
{
	if (!*value)
		*value = otherwise;
}

static int copy_text(struct dpcoll *comm, char *to, size_t room, const char *from, const char *what)
{
	if (!from || strlen(from) >= room)
		return coll_fail(comm, EINVAL, "%s is missing or too long", what);
	memcpy(to, from, strlen(from));
	return 0;
}

/* Names between commas, of which "shm" is no device. */
static int name_devices(struct dpcoll *comm, const char *names)
{
	size_t length;

	comm->shared_at = UINT32_MAX;
	for (const char *at = names ? names : ""; *at; at += length + (at[length] == ',')) {
		length = strcspn(at, ",");
		if (length == 3 && !memcmp(at, "shm", 3)) {
			if (comm->shared_at != UINT32_MAX)
				return coll_fail(comm, EINVAL, "shm is named twice");
			comm->shared_at = comm->links++;
			continue;
		}
		if (!length || length >= COLL_NAME_BYTES || comm->n_devices == COLL_DEVICES)
			return coll_fail(comm, EINVAL,
					 "devices %s: at most %d names, between commas", names,
					 COLL_DEVICES);
		memcpy(comm->device[comm->n_devices++].name, at, length);
		comm->links++;
	}
	return comm->links ? 0 : coll_fail(comm, EINVAL, "no device is named");
}

static int configure(struct dpcoll *comm, const struct dpcoll_config *config)
{
	struct in_addr address;
	int err;

	comm->cfg = *config;
	set_default(&comm->cfg.ack_timeout, DEFAULT_ACK_TIMEOUT);
	set_default(&comm->cfg.retry_count, DEFAULT_RETRY_COUNT);
	set_default(&comm->cfg.meet_ms, DEFAULT_MEET_MS);
	set_default(&comm->cfg.silence_ms, DEFAULT_SILENCE_MS);
	if (!config->ranks || config->rank >= config->ranks)
		return coll_fail(comm, EINVAL, "rank %u of %u ranks", config->rank, config->ranks);
	err = name_devices(comm, config->device);
	if (!err)
		err = copy_text(comm, comm->address, sizeof(comm->address), config->store_address,
				"the address of rank 0");
	if (!err)
		err = copy_text(comm, comm->token, sizeof(comm->token), config->token, "the token");
	if (!err && inet_pton(AF_INET, comm->address, &address) != 1)
		err = coll_fail(comm, EINVAL, "%s is no IPv4 address", comm->address);
	return err;
}

int dpcoll_open(const struct dpcoll_config *config, const void *const *plans,
		const size_t *plan_bytes, uint32_t n_plans, struct dpcoll **out)
{
	struct dpcoll *comm = calloc(1, sizeof(*comm));
	pthread_condattr_t clock;
	int err;

	*out = comm;
	if (!comm)
		return -ENOMEM;
	comm->wake_fd = comm->store_fd = comm->memory_fd = comm->bell[0] = comm->bell[1] = -1;
	pthread_mutex_init(&comm->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&comm->ended, &clock);
	pthread_condattr_destroy(&clock);
	err = configure(comm, config);
	if (!err)
		err = coll_find_connections(comm, plans, plan_bytes, n_plans);
	if (!err)
		err = coll_devices_open(comm);
	if (!err)
		err = coll_devices_prepare(comm);
	if (!err)
		err = coll_store_open(comm);
	if (!err)
		err = coll_connect(comm);
	return err ? err : coll_thread_start(comm);
}

static void free_work(struct dpcoll_work *work)
{
	struct dpcoll *comm = work->comm;

	pthread_mutex_lock(&comm->lock);
	if (work->at) {
		*work->at = work->beside;
		if (work->beside)
			work->beside->at = work->at;
	}
	pthread_mutex_unlock(&comm->lock);
	for (int i = 0; i < DP_PLAN_SCRATCH; i++)
		coll_deregister(work->mr[i]);
	free(work);
}

/* Ends what the thread has left, and returns when nobody waits for it any more.  No QP reads the
 * callers' memory by then. */
static void end_work(struct dpcoll *comm)
{
	coll_fail(comm, ECONNABORTED, "rank %u: the communicator is closed", comm->cfg.rank);
	coll_end_all(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->waiters)
		pthread_cond_wait(&comm->ended, &comm->lock);
	pthread_mutex_unlock(&comm->lock);
	while (comm->works)
		free_work(comm->works);
}

void dpcoll_close(struct dpcoll *comm)
{
	bool meet;

	if (!comm)
		return;
	pthread_mutex_lock(&comm->lock);
	comm->leaving = true;
	meet = comm->running && !comm->failed;
	pthread_mutex_unlock(&comm->lock);
	/* Others may still need our acknowledgements: all leave together. */
	if (meet)
		coll_store_meet(comm);
	coll_thread_stop(comm);
	coll_disconnect(comm);
	end_work(comm);
	while (comm->plans) {
		struct dpcoll_plan *plan = comm->plans;

		comm->plans = plan->next;
		coll_plan_free(plan);
	}
	coll_devices_close(comm);
	coll_store_close(comm);
	free(comm->stirred);
	free(comm->wait);
	free(comm->waits);
	free(comm->todo);
	pthread_cond_destroy(&comm->ended);
	pthread_mutex_destroy(&comm->lock);
	free(comm);
}

void dpcoll_hurry(struct dpcoll *comm, uint32_t ms)
{
	comm->cfg.meet_ms = ms;
}

void dpcoll_abort(struct dpcoll *comm, const char *why)
{
	coll_fail(comm, ECONNABORTED, "rank %u: %s", comm->cfg.rank, why);
	coll_wake(comm);
}

const char *dpcoll_error(struct dpcoll *comm)
{
	if (!comm)
		return "no memory";
	return coll_has_failed(comm) ? comm->error : comm->refusal;
}

int dpcoll_plan(struct dpcoll *comm, const void *plan, size_t bytes, struct dpcoll_plan **out)
{
	const struct dp_plan_head *head = coll_plan_head(comm, plan, bytes);
	int err = head ? coll_plan_make(comm, head, out) : -EINVAL;

	if (err)
		return err;
	(*out)->next = comm->plans;
	comm->plans = *out;
	return 0;
}

void dpcoll_forget(struct dpcoll *comm, struct dpcoll_plan *plan)
{
	struct dpcoll_plan **at = &comm->plans;

	while (*at && *at != plan)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = plan->next;
	coll_plan_free(plan);
}

/* ---- work ------------------------------------------------------------------------- */

static int register_buffer(struct dpcoll *comm, struct dpcoll_work *work, enum dp_plan_buffer which,
			   const void *at, size_t bytes)
{
	int err;

	work->buffer[which] = (char *)(uintptr_t)at;
	if (!bytes)
		return 0;
	err = coll_register(comm, work->buffer[which], bytes, work->mr[which]);
	return err ? coll_refuse(comm, -err, "registering %zu bytes: %s", bytes, strerror(-err)) :
		     0;
}

static int queue(struct dpcoll *comm, struct dpcoll_work *work)
{
	int err;

	pthread_mutex_lock(&comm->lock);
	err = comm->failed;
	if (!err) {
		work->number = comm->started++;
		if (comm->last)
			comm->last->next = work;
		else
			comm->first = work;
		comm->last = work;
		work->beside = comm->works;
		work->at = &comm->works;
		if (comm->works)
			comm->works->at = &work->beside;
		comm->works = work;
	}
	pthread_mutex_unlock(&comm->lock);
	return err;
}

int dpcoll_start(struct dpcoll *comm, struct dpcoll_plan *plan, void *data, const void *input,
		 enum dpcoll_type type, enum dpcoll_op op, uint32_t tag, struct dpcoll_work **out)
{
	size_t item = dpcoll_type_bytes(type);
	struct dpcoll_work *work;
	int err;

	if (!item || plan->head.item_bytes % item || (unsigned)op >= DPCOLL_OPS || !data ||
	    (plan->head.input_bytes && !input))
		return coll_refuse(comm, EINVAL,
				   "type %d, operation %d or the buffers do not suit a plan with "
				   "items of %u bytes",
				   type, op, plan->head.item_bytes);
	work = calloc(1, sizeof(*work));
	if (!work)
		return coll_refuse(comm, ENOMEM, "no memory for a collective");
	work->comm = comm;
	work->plan = plan;
	work->type = type;
	work->op = op;
	work->tag = tag;
	work->buffer[DP_PLAN_SCRATCH] = plan->scratch;
	memcpy(work->mr[DP_PLAN_SCRATCH], plan->scratch_mr, sizeof(plan->scratch_mr));
	err = register_buffer(comm, work, DP_PLAN_DATA, data, plan->head.data_bytes);
	if (!err)
		err = register_buffer(comm, work, DP_PLAN_INPUT, input, plan->head.input_bytes);
	if (!err)
		err = queue(comm, work);
	if (err) {
		free_work(work);
		return err;
	}
	coll_wake(comm);
	*out = work;
	return 0;
}

int dpcoll_wait(struct dpcoll_work *work, int timeout_ms)
{
	struct dpcoll *comm = work->comm;
	uint64_t until_ns = dp_now_ns() + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000 : 0);
	struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
				  .tv_nsec = (long)(until_ns % 1000000000) };
	int err = 0, status;

	pthread_mutex_lock(&comm->lock);
	comm->waiters++;
	while (!work->ended && !err)
		err = timeout_ms < 0 ? pthread_cond_wait(&comm->ended, &comm->lock) :
				       pthread_cond_timedwait(&comm->ended, &comm->lock, &until);
	status = work->status;
	err = work->ended ? 0 : -err;
	pthread_mutex_unlock(&comm->lock);
	if (!err)
		free_work(work);
	pthread_mutex_lock(&comm->lock);
	comm->waiters--;
	pthread_cond_broadcast(&comm->ended);
	pthread_mutex_unlock(&comm->lock);
	return err ? err : status;
}
