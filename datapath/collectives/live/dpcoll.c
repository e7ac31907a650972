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
	err = copy_text(comm, comm->device, sizeof(comm->device), config->device, "the device");
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
	comm->wake_fd = comm->store_fd = -1;
	pthread_mutex_init(&comm->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&comm->ended, &clock);
	pthread_condattr_destroy(&clock);
	err = configure(comm, config);
	if (!err)
		err = coll_find_connections(comm, plans, plan_bytes, n_plans);
	if (!err)
		err = coll_device_open(comm);
	if (!err)
		err = coll_device_prepare(comm);
	if (!err)
		err = coll_store_open(comm);
	if (!err)
		err = coll_connect(comm);
	return err ? err : coll_thread_start(comm);
}

void dpcoll_close(struct dpcoll *comm)
{
	uint32_t *all;

	if (!comm)
		return;
	pthread_mutex_lock(&comm->lock);
	all = comm->running && !comm->failed ? malloc(comm->cfg.ranks * sizeof(*all)) : NULL;
	pthread_mutex_unlock(&comm->lock);
	/* Others may still need our acknowledgements: all leave together. */
	if (all)
		coll_store_exchange(comm, &comm->cfg.rank, all, sizeof(*all));
	free(all);
	coll_thread_stop(comm);
	coll_disconnect(comm);
	while (comm->plans) {
		struct dpcoll_plan *plan = comm->plans;

		comm->plans = plan->next;
		coll_plan_free(plan);
	}
	coll_device_close(comm);
	coll_store_close(comm);
	free(comm->stirred);
	free(comm->waits);
	free(comm->todo);
	pthread_cond_destroy(&comm->ended);
	pthread_mutex_destroy(&comm->lock);
	free(comm);
}

void dpcoll_abort(struct dpcoll *comm, const char *why)
{
	coll_fail(comm, ECONNABORTED, "rank %u: %s", comm->cfg.rank, why);
	coll_wake(comm);
}

const char *dpcoll_error(struct dpcoll *comm)
{
	return comm ? comm->error : "no memory";
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
	work->buffer[which] = (char *)(uintptr_t)at;
	if (!bytes)
		return 0;
	work->mr[which] = ibv_reg_mr(comm->pd, work->buffer[which], bytes, 0);
	return work->mr[which] ? 0 : -errno;
}

static void free_work(struct dpcoll_work *work)
{
	for (int i = 0; i < DP_PLAN_SCRATCH; i++)
		if (work->mr[i])
			ibv_dereg_mr(work->mr[i]);
	free(work);
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
	}
	pthread_mutex_unlock(&comm->lock);
	return err;
}

int dpcoll_start(struct dpcoll *comm, struct dpcoll_plan *plan, void *data, const void *input,
		 enum dpcoll_type type, enum dpcoll_op op, struct dpcoll_work **out)
{
	size_t item = dpcoll_type_bytes(type);
	struct dpcoll_work *work;
	int err;

	if (!item || plan->head.item_bytes % item || (unsigned)op >= DPCOLL_OPS || !data ||
	    (plan->head.input_bytes && !input))
		return -EINVAL;
	work = calloc(1, sizeof(*work));
	if (!work)
		return -ENOMEM;
	work->comm = comm;
	work->plan = plan;
	work->type = type;
	work->op = op;
	work->buffer[DP_PLAN_SCRATCH] = plan->scratch;
	work->mr[DP_PLAN_SCRATCH] = plan->scratch_mr;
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
	while (!work->ended && !err)
		err = timeout_ms < 0 ? pthread_cond_wait(&comm->ended, &comm->lock) :
				       pthread_cond_timedwait(&comm->ended, &comm->lock, &until);
	status = work->status;
	err = work->ended ? 0 : -err;
	pthread_mutex_unlock(&comm->lock);
	if (err)
		return err;
	free_work(work);
	return status;
}
