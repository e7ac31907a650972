/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The symbols of libibverbs that we define ("own" in symbols.txt).  Each checks whether the object
 * is ours; if not, it calls the real library.  unsupported.c has those that our device refuses.
 *
 * librdmacm passes on null pointers where an id is without a device, PD, QP or SRQ: the calls that
 * it makes so have EINVAL for them.
 */
#include "verbs/front.h"
#include "verbs/ucm/ucm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* Private to rdma-core; perftest and providers use it. */
enum ibv_gid_type_sysfs { GID_TYPE_IB_ROCE_V1, GID_TYPE_ROCE_V2 };
int ibv_query_gid_type(struct ibv_context *, uint8_t port, unsigned int index,
		       enum ibv_gid_type_sysfs *);

/* ---- device list: ours first, behind a head that keeps the real list ------------- */

struct device_list {
	struct ibv_device **real;
	struct ibv_device *devices[];
};

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct front_device *own = front_devices(), *d;
	struct ibv_device **real = NULL;
	struct device_list *list;
	int n = 0, n_real = 0, i;

	if (own)
		ucm_take_over(); /* librdmacm calls this first */
	if (REAL(ibv_get_device_list))
		real = REAL(ibv_get_device_list)(&n_real);
	else
		errno = ENOSYS;
	/* Without the kernel's RDMA the real list fails.  Our devices are listed all the same. */
	if (!real)
		n_real = 0;
	if (!real && !own) {
		if (num_devices)
			*num_devices = 0;
		return NULL;
	}
	for (d = own; d; d = d->next)
		n++;
	list = calloc(1, sizeof(*list) + sizeof(list->devices[0]) * (size_t)(n + n_real + 1));
	if (!list) {
		if (real)
			REAL(ibv_free_device_list)(real);
		errno = ENOMEM;
		return NULL;
	}
	list->real = real;
	for (i = 0, d = own; d; d = d->next)
		list->devices[i++] = &d->ibv;
	if (n_real)
		memcpy(&list->devices[n], real, sizeof(*real) * (size_t)n_real);
	if (num_devices)
		*num_devices = n + n_real;
	return list->devices;
}

void ibv_free_device_list(struct ibv_device **devices)
{
	struct device_list *list = container_of(devices, struct device_list, devices);

	if (list->real)
		REAL(ibv_free_device_list)(list->real);
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	if (!front_owns_device(device))
		return REAL(ibv_get_device_guid)(device);
	return front_device_guid(container_of(device, struct front_device, ibv));
}

int ibv_get_device_index(struct ibv_device *device)
{
	if (!front_owns_device(device))
		return REAL(ibv_get_device_index)(device);
	return front_device_index(container_of(device, struct front_device, ibv));
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return front_owns_device(device) ? front_open_device(device) :
					   REAL(ibv_open_device)(device);
}

int ibv_close_device(struct ibv_context *context)
{
	return front_owns(context) ? front_close_device(context) : REAL(ibv_close_device)(context);
}

/* ---- attributes -------------------------------------------------------------------- */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return front_owns(context) ? front_query_device(context, attr) :
				     REAL(ibv_query_device)(context, attr);
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	/* The old struct ends before port_cap_flags2. */
	if (front_owns(context))
		return front_query_port(context, port, (struct ibv_port_attr *)attr,
					offsetof(struct ibv_port_attr, port_cap_flags2));
	return REAL(ibv_query_port)(context, port, attr);
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;

	if (!front_owns(context))
		return REAL(ibv_query_gid)(context, port, index, gid);
	errno = front_query_gid_entry(context, port, (uint32_t)index, &entry);
	if (errno && errno != ENODATA)
		return -1;
	*gid = errno ? (union ibv_gid){ 0 } : entry.gid; /* an empty entry is zero */
	return 0;
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
		       enum ibv_gid_type_sysfs *type)
{
	struct ibv_gid_entry entry;

	if (!front_owns(context))
		return REAL(ibv_query_gid_type)(context, port, index, type);
	errno = front_query_gid_entry(context, port, index, &entry);
	if (errno && errno != ENODATA)
		return -1;
	*type = errno ? GID_TYPE_IB_ROCE_V1 : GID_TYPE_ROCE_V2; /* as libibverbs answers */
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	if (!front_owns(context))
		return REAL(_ibv_query_gid_ex)(context, port, index, entry, flags, entry_size);
	if (flags || entry_size < sizeof(*entry))
		return EINVAL;
	return front_query_gid_entry(context, port, index, entry);
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t entry_size)
{
	uint32_t i;

	if (!front_owns(context))
		return REAL(_ibv_query_gid_table)(context, entries, max, flags, entry_size);
	if (flags || entry_size < sizeof(*entries) || max < FRONT_GIDS)
		return -EINVAL;
	for (i = 0; i < FRONT_GIDS; i++)
		front_query_gid_entry(context, FRONT_PORT, i,
				      (struct ibv_gid_entry *)((char *)entries + i * entry_size));
	return FRONT_GIDS;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (!front_owns(context))
		return REAL(ibv_query_pkey)(context, port, index, pkey);
	if (port != FRONT_PORT || index) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	if (!front_owns(context))
		return REAL(ibv_get_pkey_index)(context, port, pkey);
	if (port == FRONT_PORT && pkey == 0xffff)
		return 0;
	errno = EINVAL;
	return -1;
}

/* ---- events --------------------------------------------------------------------------- */

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	return front_owns(context) ? front_get_async_event(context, event) :
				     REAL(ibv_get_async_event)(context, event);
}

static struct ibv_context *context_of_event(const struct ibv_async_event *event)
{
	/* Our events name a CQ, QP or SRQ, structs that begin with their context. */
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.qp->context;
	default:
		return NULL;
	}
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_context *context = context_of_event(event);

	if (event->event_type == IBV_EVENT_PORT_ACTIVE || event->event_type == IBV_EVENT_PORT_ERR ||
	    event->event_type == IBV_EVENT_DEVICE_FATAL)
		return; /* of no object that could be destroyed */
	if (context && front_owns(context))
		front_ack_async_event(event);
	else
		REAL(ibv_ack_async_event)(event);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	if (!context)
		return front_fail(EINVAL);
	return front_owns(context) ? front_create_channel(context) :
				     REAL(ibv_create_comp_channel)(context);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return front_owns(channel->context) ? front_destroy_channel(channel) :
					      REAL(ibv_destroy_comp_channel)(channel);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	return front_owns(channel->context) ? front_get_cq_event(channel, cq, cq_context) :
					      REAL(ibv_get_cq_event)(channel, cq, cq_context);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	if (front_owns(cq->context))
		front_ack_cq_events(cq, n);
	else
		REAL(ibv_ack_cq_events)(cq, n);
}

/* ---- objects ---------------------------------------------------------------------------- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	return front_owns(context) ? front_alloc_pd(context) : REAL(ibv_alloc_pd)(context);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return front_owns(pd->context) ? front_dealloc_pd(pd) : REAL(ibv_dealloc_pd)(pd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!pd)
		return front_fail(EINVAL);
	return front_owns(pd->context) ?
		       front_reg_mr(pd, addr, length, (uintptr_t)addr, (unsigned)access) :
		       REAL(ibv_reg_mr)(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	return front_owns(pd->context) ? front_reg_mr(pd, addr, length, iova, (unsigned)access) :
					 REAL(ibv_reg_mr_iova)(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	return front_owns(pd->context) ? front_reg_mr(pd, addr, length, iova, access) :
					 REAL(ibv_reg_mr_iova2)(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	return front_owns(pd->context) ?
		       front_reg_dmabuf_mr(pd, offset, length, iova, fd, (unsigned)access) :
		       REAL(ibv_reg_dmabuf_mr)(pd, offset, length, iova, fd, access);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	return front_owns(mr->context) ?
		       front_rereg_mr(mr, flags, pd, addr, length, (unsigned)access) :
		       REAL(ibv_rereg_mr)(mr, flags, pd, addr, length, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	return front_owns(mr->context) ? front_dereg_mr(mr) : REAL(ibv_dereg_mr)(mr);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	return front_owns(context) ?
		       front_create_cq(context, cqe, cq_context, channel, comp_vector) :
		       REAL(ibv_create_cq)(context, cqe, cq_context, channel, comp_vector);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	return front_owns(cq->context) ? front_resize_cq(cq, cqe) : REAL(ibv_resize_cq)(cq, cqe);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return front_owns(cq->context) ? front_destroy_cq(cq) : REAL(ibv_destroy_cq)(cq);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (!pd)
		return front_fail(EINVAL);
	return front_owns(pd->context) ? front_create_qp(pd, attr) : REAL(ibv_create_qp)(pd, attr);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	if (!front_owns(qp->context))
		return REAL(ibv_qp_to_qp_ex)(qp);
	/* Only QPs made with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS have these calls. */
	return to_qp(qp)->has_wr_ops ? &to_qp(qp)->ex : NULL;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return front_owns(qp->context) ? front_modify_qp(qp, attr, mask) :
					 REAL(ibv_modify_qp)(qp, attr, mask);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	return front_owns(qp->context) ? front_query_qp(qp, attr, mask, init) :
					 REAL(ibv_query_qp)(qp, attr, mask, init);
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	/* 0: no promise, as extended mode places packets in the order of their arrival. */
	return front_owns(qp->context) ? 0 : REAL(ibv_query_qp_data_in_order)(qp, op, flags);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	if (!qp)
		return EINVAL;
	return front_owns(qp->context) ? front_destroy_qp(qp) : REAL(ibv_destroy_qp)(qp);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (!pd)
		return front_fail(EINVAL);
	return front_owns(pd->context) ? front_create_srq(pd, attr) :
					 REAL(ibv_create_srq)(pd, attr);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return front_owns(srq->context) ? front_modify_srq(srq, attr, mask) :
					  REAL(ibv_modify_srq)(srq, attr, mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	return front_owns(srq->context) ? front_query_srq(srq, attr) :
					  REAL(ibv_query_srq)(srq, attr);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	if (!srq)
		return EINVAL;
	return front_owns(srq->context) ? front_destroy_srq(srq) : REAL(ibv_destroy_srq)(srq);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return front_owns(pd->context) ? front_create_ah(pd, attr) : REAL(ibv_create_ah)(pd, attr);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	return front_owns(context) ? front_init_ah_from_wc(context, port, wc, grh, attr) :
				     REAL(ibv_init_ah_from_wc)(context, port, wc, grh, attr);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port)
{
	return front_owns(pd->context) ? front_create_ah_from_wc(pd, wc, grh, port) :
					 REAL(ibv_create_ah_from_wc)(pd, wc, grh, port);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	return front_owns(ah->context) ? front_destroy_ah(ah) : REAL(ibv_destroy_ah)(ah);
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return front_owns(qp->context) ? front_attach_mcast(qp, gid) :
					 REAL(ibv_attach_mcast)(qp, gid, lid);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return front_owns(qp->context) ? front_detach_mcast(qp, gid) :
					 REAL(ibv_detach_mcast)(qp, gid, lid);
}
