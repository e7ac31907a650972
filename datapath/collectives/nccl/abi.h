/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The binary interface between NCCL (or RCCL) and a network plug-in, versions 8 to 12.
 *
 * NCCL opens the plug-in and takes the newest struct ncclNetPlugin_vN that both know.  These are
 * definitions of our own with the layout of src/include/plugin/net/net_vN.h of NCCL 2.30.  What
 * each version brought:
 *
 *   8   NCCL 2.20: registrations of any size
 *   9   NCCL 2.24: sizes of 64 bits, virtual devices, the largest sizes of a transfer
 *   10  NCCL 2.26: events for the profiler, a traffic class
 *   11  NCCL 2.28: a context for each communicator, finalize, attributes
 *   12  NCCL 2.30: rail and plane of a device, up to 8 devices in one
 */
#ifndef DP_NCCL_ABI_H
#define DP_NCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_SYSTEM_ERROR = 2,	   /* a call to the system or to verbs failed */
	NCCL_INTERNAL_ERROR = 3,   /* the caller breaks the rules of this interface */
	NCCL_INVALID_ARGUMENT = 4, /* of a function */
	NCCL_INVALID_USAGE = 5,	   /* the user's mistake, or ranks that do not fit together */
	NCCL_REMOTE_ERROR = 6,	   /* the peer is gone */
};

enum {
	NCCL_HANDLE_BYTES = 128,
	NCCL_REQUESTS = 32, /* of a communicator, at a time; of a sender times maxRecvs */
	NCCL_PTR_HOST = 1,
	NCCL_DEVICE_HOST = 0, /* no offload to a GPU's kernels */
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_INIT = 0x1,
	NCCL_LOG_NET = 0x10,
	NCCL_UNDEFINED = -1, /* of a traffic class, a rail or a plane */
};

typedef void (*nccl_logger)(int level, unsigned long subsystems, const char *file, int line,
			    const char *format, ...);
typedef enum nccl_result (*nccl_profiler)(void **event, int type, void *parent, int64_t plugin,
					  void *data);

struct nccl_devices_v9 {
	int n;
	int device[4];
};

struct nccl_devices_v12 {
	int n;
	int device[8];
};

struct nccl_config {
	int traffic_class;
};

struct nccl_peers {
	int32_t max_peers, min_peers, max_flows, min_flows;
};

struct nccl_attributes {
	struct nccl_peers send, receive;
	uint32_t operation, algorithm, protocol;
};

struct nccl_properties_v8 {
	char *name;
	char *pci_path; /* the device's folder in /sys; NULL: it has none */
	uint64_t guid;
	int pointers; /* kinds of memory that can be registered */
	int registration_is_global;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_receives; /* in a group */
	int offload, offload_version;
};

struct nccl_properties_v9 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_receives;
	int offload, offload_version;
	struct nccl_devices_v9 parts;
	size_t max_p2p_bytes, max_collective_bytes;
};

struct nccl_properties_v11 {
	struct nccl_properties_v9 v9;
	int max_requests_at_once;
};

struct nccl_properties_v12 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_receives;
	int offload, offload_version;
	struct nccl_devices_v12 parts;
	size_t max_p2p_bytes, max_collective_bytes;
	int max_requests_at_once;
	int16_t rail, plane;
};

/* ---- the calls; a type has the version that brought it ------------------------------------ */

typedef enum nccl_result (*nccl_init_v8)(nccl_logger);
typedef enum nccl_result (*nccl_init_v10)(nccl_logger, nccl_profiler);
typedef enum nccl_result (*nccl_init_v11)(void **context, uint64_t comm_id,
					  struct nccl_config *config, nccl_logger, nccl_profiler);
typedef enum nccl_result (*nccl_devices)(int *n);
typedef enum nccl_result (*nccl_get_v8)(int device, struct nccl_properties_v8 *);
typedef enum nccl_result (*nccl_get_v9)(int device, struct nccl_properties_v9 *);
typedef enum nccl_result (*nccl_get_v11)(int device, struct nccl_properties_v11 *);
typedef enum nccl_result (*nccl_get_v12)(int device, struct nccl_properties_v12 *);

/* Listen never blocks.  Connect and accept neither: without a *comm they are called again, with
 * the same handle, which connect may change.  `offload` is for kernels of GPUs. */
typedef enum nccl_result (*nccl_listen_v8)(int device, void *handle, void **listener);
typedef enum nccl_result (*nccl_listen_v11)(void *context, int device, void *handle,
					    void **listener);
typedef enum nccl_result (*nccl_connect_v8)(int device, void *handle, void **comm, void **offload);
typedef enum nccl_result (*nccl_connect_v10)(int device, struct nccl_config *, void *handle,
					     void **comm, void **offload);
typedef enum nccl_result (*nccl_connect_v11)(void *context, int device, void *handle, void **comm,
					     void **offload);
typedef enum nccl_result (*nccl_accept)(void *listener, void **comm, void **offload);

typedef enum nccl_result (*nccl_register)(void *comm, void *data, size_t bytes, int pointer,
					  void **memory);
typedef enum nccl_result (*nccl_register_dmabuf)(void *comm, void *data, size_t bytes, int pointer,
						 uint64_t offset, int fd, void **memory);
typedef enum nccl_result (*nccl_deregister)(void *comm, void *memory);

/* Sends and receives match in the order in which they are posted.  Of a group of n receives each
 * takes the send with its tag.  Without a *request: not now, call again. */
typedef enum nccl_result (*nccl_isend_v8)(void *comm, void *data, int bytes, int tag, void *memory,
					  void **request);
typedef enum nccl_result (*nccl_isend_v9)(void *comm, void *data, size_t bytes, int tag,
					  void *memory, void **request);
typedef enum nccl_result (*nccl_isend_v10)(void *comm, void *data, size_t bytes, int tag,
					   void *memory, void *event, void **request);
typedef enum nccl_result (*nccl_irecv_v8)(void *comm, int n, void **data, int *bytes, int *tags,
					  void **memory, void **request);
typedef enum nccl_result (*nccl_irecv_v9)(void *comm, int n, void **data, size_t *bytes, int *tags,
					  void **memory, void **request);
typedef enum nccl_result (*nccl_irecv_v10)(void *comm, int n, void **data, size_t *bytes, int *tags,
					   void **memory, void **events, void **request);
typedef enum nccl_result (*nccl_iflush)(void *comm, int n, void **data, int *bytes, void **memory,
					void **request);
/* bytes: what was sent or received, of each of a group; may be NULL. */
typedef enum nccl_result (*nccl_test)(void *request, int *done, int *bytes);

typedef enum nccl_result (*nccl_close)(void *comm);
typedef enum nccl_result (*nccl_device_memory)(void *comm, void *memory, void **out);
typedef enum nccl_result (*nccl_receive_consumed)(void *comm, int n, void *request);
typedef enum nccl_result (*nccl_merge_v9)(int *device, struct nccl_devices_v9 *parts);
typedef enum nccl_result (*nccl_merge_v12)(int *device, struct nccl_devices_v12 *parts);
typedef enum nccl_result (*nccl_finalize)(void *context);
typedef enum nccl_result (*nccl_set_attributes)(void *context, struct nccl_attributes *);

struct nccl_net_v8 {
	const char *name;
	nccl_init_v8 init;
	nccl_devices devices;
	nccl_get_v8 properties;
	nccl_listen_v8 listen;
	nccl_connect_v8 connect;
	nccl_accept accept;
	nccl_register register_memory;
	nccl_register_dmabuf register_dmabuf;
	nccl_deregister deregister;
	nccl_isend_v8 isend;
	nccl_irecv_v8 irecv;
	nccl_iflush iflush;
	nccl_test test;
	nccl_close close_send, close_receive, close_listen;
	nccl_device_memory device_memory;
	nccl_receive_consumed receive_consumed;
};

struct nccl_net_v9 {
	const char *name;
	nccl_init_v8 init;
	nccl_devices devices;
	nccl_get_v9 properties;
	nccl_listen_v8 listen;
	nccl_connect_v8 connect;
	nccl_accept accept;
	nccl_register register_memory;
	nccl_register_dmabuf register_dmabuf;
	nccl_deregister deregister;
	nccl_isend_v9 isend;
	nccl_irecv_v9 irecv;
	nccl_iflush iflush;
	nccl_test test;
	nccl_close close_send, close_receive, close_listen;
	nccl_device_memory device_memory;
	nccl_receive_consumed receive_consumed;
	nccl_merge_v9 merge;
};

struct nccl_net_v10 {
	const char *name;
	nccl_init_v10 init;
	nccl_devices devices;
	nccl_get_v9 properties;
	nccl_listen_v8 listen;
	nccl_connect_v10 connect;
	nccl_accept accept;
	nccl_register register_memory;
	nccl_register_dmabuf register_dmabuf;
	nccl_deregister deregister;
	nccl_isend_v10 isend;
	nccl_irecv_v10 irecv;
	nccl_iflush iflush;
	nccl_test test;
	nccl_close close_send, close_receive, close_listen;
	nccl_device_memory device_memory;
	nccl_receive_consumed receive_consumed;
	nccl_merge_v9 merge;
};

struct nccl_net_v11 {
	const char *name;
	nccl_init_v11 init;
	nccl_devices devices;
	nccl_get_v11 properties;
	nccl_listen_v11 listen;
	nccl_connect_v11 connect;
	nccl_accept accept;
	nccl_register register_memory;
	nccl_register_dmabuf register_dmabuf;
	nccl_deregister deregister;
	nccl_isend_v10 isend;
	nccl_irecv_v10 irecv;
	nccl_iflush iflush;
	nccl_test test;
	nccl_close close_send, close_receive, close_listen;
	nccl_device_memory device_memory;
	nccl_receive_consumed receive_consumed;
	nccl_merge_v9 merge;
	nccl_finalize finalize;
	nccl_set_attributes set_attributes;
};

struct nccl_net_v12 {
	const char *name;
	nccl_init_v11 init;
	nccl_devices devices;
	nccl_get_v12 properties;
	nccl_listen_v11 listen;
	nccl_connect_v11 connect;
	nccl_accept accept;
	nccl_register register_memory;
	nccl_register_dmabuf register_dmabuf;
	nccl_deregister deregister;
	nccl_isend_v10 isend;
	nccl_irecv_v10 irecv;
	nccl_iflush iflush;
	nccl_test test;
	nccl_close close_send, close_receive, close_listen;
	nccl_device_memory device_memory;
	nccl_receive_consumed receive_consumed;
	nccl_merge_v12 merge;
	nccl_finalize finalize;
	nccl_set_attributes set_attributes;
};

#endif
