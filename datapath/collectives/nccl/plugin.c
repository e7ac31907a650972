// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The calls of each version of the interface, in terms of those of the newest one. */
#include "collectives/nccl/net.h"

#define PLUGIN __attribute__((visibility("default"))) const struct

/* ---- beginning and end -------------------------------------------------------------------- */

/* Before version 11, init() is called once, and nothing ends the plug-in. */
static enum nccl_result init_v8(nccl_logger logger)
{
	return net_open_devices(logger);
}

static enum nccl_result init_v10(nccl_logger logger, nccl_profiler profiler)
{
	(void)profiler;
	return net_open_devices(logger);
}

/* The context of a communicator of NCCL's is its configuration. */
static enum nccl_result init_v11(void **context, uint64_t comm_id, struct nccl_config *config,
				 nccl_logger logger, nccl_profiler profiler)
{
	struct nccl_config *own = calloc(1, sizeof(*own));
	enum nccl_result result = own ? net_open_devices(logger) : NCCL_SYSTEM_ERROR;

	(void)comm_id;
	(void)profiler;
	if (result) {
		free(own);
		return result;
	}
	own->traffic_class = config ? config->traffic_class : NCCL_UNDEFINED;
	*context = own;
	return NCCL_SUCCESS;
}

static enum nccl_result finalize(void *context)
{
	free(context);
	net_close_devices();
	return NCCL_SUCCESS;
}

/* ---- devices ------------------------------------------------------------------------------ */

static enum nccl_result devices(int *n)
{
	*n = net_device_count();
	return NCCL_SUCCESS;
}

static struct net_device *known_device(int index)
{
	struct net_device *dev = net_device(index);

	if (!dev)
		net_fail(NCCL_INTERNAL_ERROR, "there is no device %d", index);
	return dev;
}

/* Members of all versions, and of those since 9. */
#define PROPERTIES_V8(dev)                                                                         \
	.name = (dev)->name, .pci_path = (dev)->pci_path, .guid = (dev)->attr.sys_image_guid,      \
	.pointers = NCCL_PTR_HOST, .speed_mbps = (dev)->speed_mbps, .port = 1,                     \
	.max_comms = (dev)->attr.max_qp, .max_receives = NET_GROUP, .offload = NCCL_DEVICE_HOST
#define PROPERTIES_V9(dev, index)                                                                  \
	PROPERTIES_V8(dev), .parts = { .n = 1, .device = { index } },                              \
			    .max_p2p_bytes = NET_MAX_BYTES, .max_collective_bytes = NET_MAX_BYTES

static enum nccl_result properties_v8(int index, struct nccl_properties_v8 *out)
{
	struct net_device *dev = known_device(index);

	if (!dev)
		return NCCL_INTERNAL_ERROR;
	*out = (struct nccl_properties_v8){ PROPERTIES_V8(dev) };
	return NCCL_SUCCESS;
}

static enum nccl_result properties_v9(int index, struct nccl_properties_v9 *out)
{
	struct net_device *dev = known_device(index);

	if (!dev)
		return NCCL_INTERNAL_ERROR;
	*out = (struct nccl_properties_v9){ PROPERTIES_V9(dev, index) };
	return NCCL_SUCCESS;
}

static enum nccl_result properties_v11(int index, struct nccl_properties_v11 *out)
{
	out->max_requests_at_once = 1;
	return properties_v9(index, &out->v9);
}

static enum nccl_result properties_v12(int index, struct nccl_properties_v12 *out)
{
	struct net_device *dev = known_device(index);

	if (!dev)
		return NCCL_INTERNAL_ERROR;
	*out = (struct nccl_properties_v12){
		PROPERTIES_V9(dev, index),
		.max_requests_at_once = 1,
		.rail = NCCL_UNDEFINED,
		.plane = NCCL_UNDEFINED,
	};
	return NCCL_SUCCESS;
}

/* ---- connections -------------------------------------------------------------------------- */

static enum nccl_result listen_v11(void *context, int device, void *handle, void **listener)
{
	(void)context;
	return net_listen(device, handle, listener);
}

static enum nccl_result connect_v8(int device, void *handle, void **comm, void **offload)
{
	(void)offload;
	return net_connect(device, NCCL_UNDEFINED, handle, comm);
}

static enum nccl_result connect_v10(int device, struct nccl_config *config, void *handle,
				    void **comm, void **offload)
{
	(void)offload;
	return net_connect(device, config ? config->traffic_class : NCCL_UNDEFINED, handle, comm);
}

static enum nccl_result connect_v11(void *context, int device, void *handle, void **comm,
				    void **offload)
{
	return connect_v10(device, context, handle, comm, offload);
}

static enum nccl_result accept_comm(void *listener, void **comm, void **offload)
{
	(void)offload;
	return net_accept(listener, comm);
}

static enum nccl_result close_comm(void *comm)
{
	net_comm_close(comm);
	return NCCL_SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------- */

static enum nccl_result register_memory(void *comm, void *data, size_t bytes, int pointer,
					void **memory)
{
	return net_register(((struct net_comm *)comm)->device, data, bytes, pointer, memory);
}

static enum nccl_result deregister(void *comm, void *memory)
{
	(void)comm;
	return ibv_dereg_mr(memory) ? net_fail(NCCL_SYSTEM_ERROR, "memory cannot be deregistered") :
				      NCCL_SUCCESS;
}

/* ---- data --------------------------------------------------------------------------------- */

static enum nccl_result isend_v9(void *comm, void *data, size_t bytes, int tag, void *memory,
				 void **request)
{
	return net_isend(comm, data, bytes, tag, memory, request);
}

static enum nccl_result isend_v8(void *comm, void *data, int bytes, int tag, void *memory,
				 void **request)
{
	return net_isend(comm, data, (size_t)bytes, tag, memory, request);
}

static enum nccl_result isend_v10(void *comm, void *data, size_t bytes, int tag, void *memory,
				  void *event, void **request)
{
	(void)event;
	return net_isend(comm, data, bytes, tag, memory, request);
}

static enum nccl_result irecv_v9(void *comm, int n, void **data, size_t *bytes, int *tags,
				 void **memory, void **request)
{
	return net_irecv(comm, n, data, bytes, tags, memory, request);
}

static enum nccl_result irecv_v8(void *comm, int n, void **data, int *bytes, int *tags,
				 void **memory, void **request)
{
	size_t wide[NET_GROUP];

	for (int i = 0; i < n && i < NET_GROUP; i++)
		wide[i] = (size_t)bytes[i];
	return net_irecv(comm, n, data, wide, tags, memory, request);
}

static enum nccl_result irecv_v10(void *comm, int n, void **data, size_t *bytes, int *tags,
				  void **memory, void **events, void **request)
{
	(void)events;
	return net_irecv(comm, n, data, bytes, tags, memory, request);
}

/* Data lies in host memory: there is nothing to flush. */
static enum nccl_result iflush(void *comm, int n, void **data, int *bytes, void **memory,
			       void **request)
{
	(void)comm, (void)n, (void)data, (void)bytes, (void)memory;
	*request = NULL;
	return NCCL_SUCCESS;
}

static enum nccl_result test(void *request, int *done, int *bytes)
{
	return net_test(request, done, bytes);
}

/* ---- what NCCL looks for ------------------------------------------------------------------ */

#define SAME_IN_ALL                                                                                \
	.name = "dp", .devices = devices, .accept = accept_comm,                                   \
	.register_memory = register_memory, .deregister = deregister, .iflush = iflush,            \
	.test = test, .close_send = close_comm, .close_receive = close_comm,                       \
	.close_listen = net_close_listen

PLUGIN nccl_net_v8 ncclNetPlugin_v8 = {
	SAME_IN_ALL,	       .init = init_v8,	  .properties = properties_v8, .listen = net_listen,
	.connect = connect_v8, .isend = isend_v8, .irecv = irecv_v8,
};

PLUGIN nccl_net_v9 ncclNetPlugin_v9 = {
	SAME_IN_ALL,	       .init = init_v8,	  .properties = properties_v9, .listen = net_listen,
	.connect = connect_v8, .isend = isend_v9, .irecv = irecv_v9,
};

PLUGIN nccl_net_v10 ncclNetPlugin_v10 = {
	SAME_IN_ALL,	      .init = init_v10,	      .properties = properties_v9,
	.listen = net_listen, .connect = connect_v10, .isend = isend_v10,
	.irecv = irecv_v10,
};

PLUGIN nccl_net_v11 ncclNetPlugin_v11 = {
	SAME_IN_ALL,	      .init = init_v11,	      .properties = properties_v11,
	.listen = listen_v11, .connect = connect_v11, .isend = isend_v10,
	.irecv = irecv_v10,   .finalize = finalize,
};

PLUGIN nccl_net_v12 ncclNetPlugin_v12 = {
	SAME_IN_ALL,	      .init = init_v11,	      .properties = properties_v12,
	.listen = listen_v11, .connect = connect_v11, .isend = isend_v10,
	.irecv = irecv_v10,   .finalize = finalize,
};
