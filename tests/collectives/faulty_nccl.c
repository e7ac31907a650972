// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A plug-in with a fault: the one that NCCL_SOUND names, and what NCCL_FAULT names done wrong.
 * Only for tests of the check.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/nccl/abi.h"

enum {
	OPEN = 64, /* receives that are watched; the tests have fewer */
	OWN = 256,
};

__attribute__((visibility("default"))) struct nccl_net_v12 ncclNetPlugin_v12;
static struct nccl_net_v12 sound;

/* Posted receives. */
static struct {
	void *request;
	int n;
	size_t bytes[8];
	char *data;
} posted[OPEN];

static enum nccl_result watched_irecv(void *comm, int n, void **data, size_t *bytes, int *tags,
				      void **memory, void **events, void **request)
{
	enum nccl_result result = sound.irecv(comm, n, data, bytes, tags, memory, events, request);

	for (int i = 0; i < OPEN && *request; i++)
		if (!posted[i].request) {
			posted[i].request = *request;
			posted[i].n = n;
			posted[i].data = data[0];
			memcpy(posted[i].bytes, bytes, (size_t)n * sizeof(*bytes));
			break;
		}
	return result;
}

/* The place of a receive that is done now; -1: it is a send, or not done. */
static int ended(void *request, const int *done)
{
	for (int i = 0; i < OPEN && *done; i++)
		if (posted[i].request == request) {
			posted[i].request = NULL;
			return i;
		}
	return -1;
}

static enum nccl_result test_tells_room(void *request, int *done, int *bytes)
{
	enum nccl_result result = sound.test(request, done, bytes);
	int at = ended(request, done);

	for (int i = 0; at >= 0 && bytes && i < posted[at].n; i++)
		bytes[i] = (int)posted[at].bytes[i];
	return result;
}

static enum nccl_result test_tells_one_as_none(void *request, int *done, int *bytes)
{
	enum nccl_result result = sound.test(request, done, bytes);

	if (*done && bytes && bytes[0] == 1)
		bytes[0] = 0;
	return result;
}

static enum nccl_result test_needs_sizes(void *request, int *done, int *bytes)
{
	volatile int *place = bytes;

	place[0] = 0;
	return sound.test(request, done, bytes);
}

static enum nccl_result test_spoils_data(void *request, int *done, int *bytes)
{
	enum nccl_result result = sound.test(request, done, bytes);
	int at = ended(request, done);

	if (at >= 0 && posted[at].bytes[0])
		posted[at].data[0] ^= 1;
	return result;
}

static enum nccl_result test_hides_errors(void *request, int *done, int *bytes)
{
	*done = 0;
	sound.test(request, done, bytes);
	return NCCL_SUCCESS;
}

/* Requests of its own, of which each second one is never free again. */
static struct own {
	void *request;
} own[OWN];

static enum nccl_result wrapped(enum nccl_result result, void **request)
{
	for (int i = 0; i < OWN && *request; i++)
		if (!own[i].request) {
			own[i].request = *request;
			*request = &own[i];
			return result;
		}
	*request = NULL;
	return result;
}

static enum nccl_result isend_wrapped(void *comm, void *data, size_t bytes, int tag, void *memory,
				      void *event, void **request)
{
	return wrapped(sound.isend(comm, data, bytes, tag, memory, event, request), request);
}

static enum nccl_result irecv_wrapped(void *comm, int n, void **data, size_t *bytes, int *tags,
				      void **memory, void **events, void **request)
{
	return wrapped(sound.irecv(comm, n, data, bytes, tags, memory, events, request), request);
}

static enum nccl_result test_leaks(void *request, int *done, int *bytes)
{
	static int turn;
	struct own *at = request;
	enum nccl_result result = sound.test(at->request, done, bytes);

	if (*done && turn++ % 2)
		at->request = NULL;
	return result;
}

/* Let the other end go on, which may have no CPU of its own. */
static bool not_yet(enum nccl_result result, const void *made)
{
	if (result || made)
		return false;
	usleep(100);
	return true;
}

static enum nccl_result accept_blocks(void *listener, void **comm, void **offload)
{
	enum nccl_result result;

	do
		result = sound.accept(listener, comm, offload);
	while (not_yet(result, *comm));
	return result;
}

static enum nccl_result connect_blocks(void *context, int device, void *handle, void **comm,
				       void **offload)
{
	enum nccl_result result;

	do
		result = sound.connect(context, device, handle, comm, offload);
	while (not_yet(result, *comm));
	return result;
}

static enum nccl_result isend_blocks(void *comm, void *data, size_t bytes, int tag, void *memory,
				     void *event, void **request)
{
	enum nccl_result result;

	do
		result = sound.isend(comm, data, bytes, tag, memory, event, request);
	while (not_yet(result, *request));
	return result;
}

static enum nccl_result isend_refuses(void *comm, void *data, size_t bytes, int tag, void *memory,
				      void *event, void **request)
{
	enum nccl_result result = sound.isend(comm, data, bytes, tag, memory, event, request);

	return result || *request ? result : NCCL_INTERNAL_ERROR;
}

/* Threads count together, without a lock. */
static enum nccl_result isend_counts(void *comm, void *data, size_t bytes, int tag, void *memory,
				     void *event, void **request)
{
	static volatile int sends;

	sends = sends + 1;
	return sound.isend(comm, data, bytes, tag, memory, event, request);
}

static enum nccl_result isend_without_tag(void *comm, void *data, size_t bytes, int tag,
					  void *memory, void *event, void **request)
{
	(void)tag;
	return sound.isend(comm, data, bytes, 0, memory, event, request);
}

static enum nccl_result irecv_without_tag(void *comm, int n, void **data, size_t *bytes, int *tags,
					  void **memory, void **events, void **request)
{
	int none[8] = { 0 };

	(void)tags;
	return sound.irecv(comm, n, data, bytes, none, memory, events, request);
}

static enum nccl_result listen_writes_more(void *context, int device, void *handle, void **listener)
{
	enum nccl_result result = sound.listen(context, device, handle, listener);

	((char *)handle)[NCCL_HANDLE_BYTES] = 1;
	return result;
}

static enum nccl_result close_nothing(void *comm)
{
	(void)comm;
	return NCCL_SUCCESS;
}

static enum nccl_result no_devices(int *n)
{
	*n = 0;
	return NCCL_SUCCESS;
}

static enum nccl_result many_devices(int *n)
{
	*n = 1000000000;
	return NCCL_SUCCESS;
}

/* For calls that leave what they have to give as it was. */
static enum nccl_result nothing_given(void)
{
	return NCCL_SUCCESS;
}

static enum nccl_result ends_the_process(void)
{
	exit(0);
}

__attribute__((constructor)) static void prepare(void)
{
	const char *fault = getenv("NCCL_FAULT"), *path = getenv("NCCL_SOUND");
	void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	struct nccl_net_v12 *net = &ncclNetPlugin_v12;

	if (!library || !fault)
		return;
	sound = *(struct nccl_net_v12 *)dlsym(library, "ncclNetPlugin_v12");
	*net = sound;
	const struct {
		const char *name;
		void **member, *with;
	} faults[] = {
		{ "room-told", (void **)&net->test, (void *)test_tells_room },
		{ "room-told", (void **)&net->irecv, (void *)watched_irecv },
		{ "one-told-as-none", (void **)&net->test, (void *)test_tells_one_as_none },
		{ "needs-sizes", (void **)&net->test, (void *)test_needs_sizes },
		{ "data-spoilt", (void **)&net->test, (void *)test_spoils_data },
		{ "data-spoilt", (void **)&net->irecv, (void *)watched_irecv },
		{ "errors-hidden", (void **)&net->test, (void *)test_hides_errors },
		{ "request-leaked", (void **)&net->test, (void *)test_leaks },
		{ "request-leaked", (void **)&net->isend, (void *)isend_wrapped },
		{ "request-leaked", (void **)&net->irecv, (void *)irecv_wrapped },
		{ "accept-blocks", (void **)&net->accept, (void *)accept_blocks },
		{ "connect-blocks", (void **)&net->connect, (void *)connect_blocks },
		{ "send-blocks", (void **)&net->isend, (void *)isend_blocks },
		{ "send-refused", (void **)&net->isend, (void *)isend_refuses },
		{ "data-race", (void **)&net->isend, (void *)isend_counts },
		{ "tags-ignored", (void **)&net->isend, (void *)isend_without_tag },
		{ "tags-ignored", (void **)&net->irecv, (void *)irecv_without_tag },
		{ "handle-too-long", (void **)&net->listen, (void *)listen_writes_more },
		{ "nothing-closed", (void **)&net->close_send, (void *)close_nothing },
		{ "nothing-closed", (void **)&net->close_receive, (void *)close_nothing },
		{ "no-devices", (void **)&net->devices, (void *)no_devices },
		{ "many-devices", (void **)&net->devices, (void *)many_devices },
		{ "devices-unset", (void **)&net->devices, (void *)nothing_given },
		{ "properties-unset", (void **)&net->properties, (void *)nothing_given },
		{ "listener-unset", (void **)&net->listen, (void *)nothing_given },
		{ "init-exits", (void **)&net->init, (void *)ends_the_process },
		{ "send-exits", (void **)&net->isend, (void *)ends_the_process },
		{ "close-exits", (void **)&net->close_send, (void *)ends_the_process },
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (!strcmp(faults[i].name, fault))
			*faults[i].member = faults[i].with;
}
