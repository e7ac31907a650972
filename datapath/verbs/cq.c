/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queues, the ibv_start_poll() calls, and events. */
#include "verbs/channel.h"

#include <errno.h>
#include <stdlib.h>

#include "posix/clock.h"

/* ---- events -------------------------------------------------------------------- */

static const int async_types[] = {
	[DP_EVENT_QP_ACCESS] = IBV_EVENT_QP_ACCESS_ERR,
	[DP_EVENT_QP_REQUEST] = IBV_EVENT_QP_REQ_ERR,
	[DP_EVENT_COMM_EST] = IBV_EVENT_COMM_EST,
	[DP_EVENT_CQ_OVERRUN] = IBV_EVENT_CQ_ERR, /* its value is 0 */
	[DP_EVENT_SQ_DRAINED] = IBV_EVENT_SQ_DRAINED,
	[DP_EVENT_LAST_WQE] = IBV_EVENT_QP_LAST_WQE_REACHED,
	[DP_EVENT_SRQ_LIMIT] = IBV_EVENT_SRQ_LIMIT_REACHED,
};

static void on_completion(struct front_cq *cq)
{
	struct front_event event = { .object = cq, .popped = &cq->events_popped };

	if (cq->ex.channel)
		front_queue_push(&((struct front_channel *)cq->ex.channel)->queue, &event);
}

void front_on_event(const struct dp_event *e)
{
	struct front_event event;
	struct front_srq *srq;
	struct front_qp *qp;
	struct front_cq *cq;

	if (e->type == DP_EVENT_CQ) {
		on_completion(dp_cq_user(e->cq));
		return;
	}
	if (e->type == DP_EVENT_QP_FAILED)
		return; /* a completion has told it */
	event.type = async_types[e->type];
	if (e->cq) {
		cq = dp_cq_user(e->cq);
		event.object = cq;
		event.popped = &cq->async_popped;
		front_queue_push(&cq->context->async, &event);
		return;
	}
	if (e->srq) {
		srq = dp_srq_user(e->srq);
		event.object = srq;
		event.popped = &srq->events_popped;
		front_queue_push(&srq->context->async, &event);
		return;
	}
	qp = dp_qp_user(e->qp);
	event.object = qp;
	event.popped = &qp->events_popped;
	front_queue_push(&front_context_of(qp)->async, &event);
}

int front_get_async_event(struct ibv_context *ibv, struct ibv_async_event *out)
{
	struct front_event event;

	if (front_queue_pop(&to_context(ibv)->async, &event))
		return -1;
	out->event_type = (enum ibv_event_type)event.type;
	if (event.type == IBV_EVENT_CQ_ERR)
		out->element.cq = ibv_cq_ex_to_cq(&((struct front_cq *)event.object)->ex);
	else if (event.type == IBV_EVENT_SRQ_LIMIT_REACHED)
		out->element.srq = &((struct front_srq *)event.object)->ibv;
	else if (!event.object)
		out->element.port_num = FRONT_PORT;
	else
		out->element.qp = &((struct front_qp *)event.object)->ex.qp_base;
	return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *acked, uint32_t n)
{
	pthread_mutex_lock(mutex);
	*acked += n;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void front_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_qp *qp = event->element.qp;
	struct ibv_cq *cq = event->element.cq;
	struct ibv_srq *srq = event->element.srq;

	if (event->event_type == IBV_EVENT_CQ_ERR)
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
	else if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed, 1);
	else
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed, 1);
}

void front_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	if (n)
		acknowledge(&cq->mutex, &cq->cond, &cq->comp_events_completed, n);
}

/* ---- extended polling: one completion at a time ---------------------------------- */

static struct front_cq *of_ex(struct ibv_cq_ex *ex)
{
	return (struct front_cq *)ex;
}

static int ex_next_poll(struct ibv_cq_ex *ex)
{
	struct front_cq *cq = of_ex(ex);
	int n = dp_device_poll_cq(cq->context->dev, cq->cq, 1, &cq->wc);

	if (n < 0)
		return -n;
	if (n == 0)
		return ENOENT;
	ex->wr_id = cq->wc.wr_id;
	ex->status = (enum ibv_wc_status)cq->wc.status;
	return 0;
}

static void ex_end_poll(struct ibv_cq_ex *ex)
{
	if (!of_ex(ex)->one_thread)
		dp_unlock(&of_ex(ex)->polling);
}

static int ex_start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	int err;

	if (attr->comp_mask)
		return EINVAL;
	if (!of_ex(ex)->one_thread)
		dp_lock(&of_ex(ex)->polling);
	err = ex_next_poll(ex);
	if (err)
		ex_end_poll(ex);
	return err;
}

static enum ibv_wc_opcode ex_opcode(struct ibv_cq_ex *ex)
{
	return (enum ibv_wc_opcode)of_ex(ex)->wc.opcode;
}

static uint32_t ex_vendor_err(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->wc.vendor_err;
}

static uint32_t ex_byte_len(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->wc.byte_len;
}

static __be32 ex_imm(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->wc.imm;
}

static uint32_t ex_qp_num(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->wc.qpn;
}

static uint32_t ex_src_qp(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->wc.src_qpn;
}

static unsigned int ex_wc_flags(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->wc.flags;
}

/* CLOCK_MONOTONIC, in nanoseconds as hca_core_clock says. */
static uint64_t ex_timestamp(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->wc.completed_ns;
}

static uint64_t ex_wallclock(struct ibv_cq_ex *ex)
{
	uint64_t age_ns = dp_device_now_ns() - of_ex(ex)->wc.completed_ns;

	return dp_clock_ns(CLOCK_REALTIME) - age_ns;
}

static uint32_t ex_slid(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0; /* Ethernet has no LIDs */
}

/*
 * Ethernet has no service levels.  In this field mlx5 tells which header a datagram had, and UCX
 * reads it there: bit 3 means RoCE v2; bits 2 to 0 are 1 for IPv6 and 2 for IPv4.  (Annex A17.4.5.1
 * wants the program to learn it, and verbs have no other field for it.)
 */
static uint8_t header_kind(const struct front_cq *cq, uint32_t wc_flags)
{
	if (!(wc_flags & DP_WC_GRH))
		return 0;
	return dp_addr_is_v4(&dp_device_port(cq->context->dev)->addr) ? 0xa : 0x9;
}

static uint8_t ex_sl(struct ibv_cq_ex *ex)
{
	return header_kind(of_ex(ex), of_ex(ex)->wc.flags);
}

static uint8_t ex_zero(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static void set_ex_ops(struct ibv_cq_ex *ex, uint64_t wc_flags)
{
	ex->start_poll = ex_start_poll;
	ex->next_poll = ex_next_poll;
	ex->end_poll = ex_end_poll;
	ex->read_opcode = ex_opcode;
	ex->read_vendor_err = ex_vendor_err;
	ex->read_wc_flags = ex_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ex->read_byte_len = ex_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ex->read_imm_data = ex_imm;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ex->read_qp_num = ex_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ex->read_src_qp = ex_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ex->read_completion_ts = ex_timestamp;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		ex->read_completion_wallclock_ns = ex_wallclock;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ex->read_slid = ex_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ex->read_sl = ex_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ex->read_dlid_path_bits = ex_zero;
}

/* ---- queues ------------------------------------------------------------------------ */

static int check_cq_attr(const struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t fields = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
				IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

	if (attr->wc_flags & ~fields)
		return -EOPNOTSUPP;
	/* A parent domain's allocator is asked only for the queues of QPs. */
	if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return -EOPNOTSUPP;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	    attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > FRONT_CQE_MAX || attr->comp_vector)
		return -EINVAL;
	if (attr->channel && attr->channel->context != context)
		return -EINVAL;
	return 0;
}

/*
 * Drivers round the number of entries up, and programs have come to rely on it.  perftest before
 * 23.07 with --events asks for one entry, and may have two completions in the CQ: it takes an event
 * of its receive CQ for one of its send CQ, when an answer overtakes an acknowledgement.
 */
static int create_in_engine(struct front_cq *cq, uint32_t entries)
{
	struct dp_device *dev = cq->context->dev;
	int err;

	if (entries < FRONT_CQE_MIN)
		entries = FRONT_CQE_MIN;
	err = dp_device_lock(dev);
	if (err)
		return err;
	err = dp_cq_create(dp_device_engine(dev), entries, cq, &cq->cq);
	if (!err)
		cq->ex.cqe = (int)dp_cq_entries(cq->cq);
	dp_device_unlock(dev);
	return err;
}

struct ibv_cq_ex *front_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct front_cq *cq;
	int err;

	err = check_cq_attr(context, attr);
	if (err)
		goto fail;
	cq = calloc(1, sizeof(*cq));
	err = -ENOMEM;
	if (!cq)
		goto fail;
	cq->context = to_context(context);
	err = create_in_engine(cq, attr->cqe);
	if (err) {
		free(cq);
		goto fail;
	}
	cq->ex.context = context;
	cq->ex.channel = attr->channel;
	cq->ex.cq_context = attr->cq_context;
	cq->one_thread = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
			 attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	pthread_mutex_init(&cq->ex.mutex, NULL);
	pthread_cond_init(&cq->ex.cond, NULL);
	set_ex_ops(&cq->ex, attr->wc_flags);
	front_hold_channel(attr->channel, 1);
	front_enter(context, &cq->context->cqs, &cq->object);
	return &cq->ex;

fail:
	errno = -err;
	return NULL;
}

struct ibv_cq *front_create_cq(struct ibv_context *context, int entries, void *cq_context,
			       struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = entries < 0 ? 0 : (uint32_t)entries,
		.cq_context = cq_context,
		.channel = channel,
		.comp_vector = (uint32_t)vector,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_cq_ex *cq = front_create_cq_ex(context, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

void front_free_cq(struct front_cq *cq)
{
	pthread_mutex_destroy(&cq->ex.mutex);
	pthread_cond_destroy(&cq->ex.cond);
	free(cq);
}

int front_destroy_cq(struct ibv_cq *ibv)
{
	struct front_cq *cq = to_cq(ibv);
	int err;

	err = dp_device_lock(cq->context->dev);
	if (err)
		return -err;
	err = dp_cq_destroy(cq->cq);
	dp_device_unlock(cq->context->dev);
	if (err)
		return -err;
	if (ibv->channel)
		front_queue_purge(&((struct front_channel *)ibv->channel)->queue, cq);
	front_queue_purge(&cq->context->async, cq);
	front_wait_acked(&ibv->mutex, &ibv->cond, &ibv->comp_events_completed, &cq->events_popped);
	front_wait_acked(&ibv->mutex, &ibv->cond, &ibv->async_events_completed, &cq->async_popped);
	front_hold_channel(ibv->channel, -1);
	front_leave(ibv->context, &cq->object);
	front_free_cq(cq);
	return 0;
}

int front_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct front_cq *cq = to_cq(ibv);
	int err;

	err = dp_device_lock(cq->context->dev);
	if (err)
		return -err;
	dp_cq_arm(cq->cq, solicited_only);
	dp_device_armed(cq->context->dev);
	dp_device_unlock(cq->context->dev);
	return 0;
}

static void to_ibv(const struct front_cq *cq, const struct dp_wc *in, struct ibv_wc *out)
{
	out->wr_id = in->wr_id;
	out->status = (enum ibv_wc_status)in->status;
	out->opcode = (enum ibv_wc_opcode)in->opcode;
	out->vendor_err = in->vendor_err;
	out->byte_len = in->byte_len;
	out->imm_data = in->imm;
	out->qp_num = in->qpn;
	out->src_qp = in->src_qpn;
	out->wc_flags = in->flags;
	out->pkey_index = 0;
	out->slid = 0;
	out->sl = header_kind(cq, in->flags);
	out->dlid_path_bits = 0;
}

int front_poll_cq(struct ibv_cq *ibv, int max, struct ibv_wc *out)
{
	struct front_cq *cq = to_cq(ibv);
	struct dp_wc wcs[16];
	int done = 0, want, n, i;

	do {
		want = max - done < 16 ? max - done : 16;
		n = want > 0 ? dp_device_poll_cq(cq->context->dev, cq->cq, want, wcs) : 0;
		if (n < 0)
			return done ? done : n;
		for (i = 0; i < n; i++)
			to_ibv(cq, &wcs[i], &out[done + i]);
		done += n;
	} while (n == 16);
	return done;
}
