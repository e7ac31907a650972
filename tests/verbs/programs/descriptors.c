// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Opens the device under every limit of descriptors that is too low, and prints each error once. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { ENOUGH = 64 };

static struct ibv_context *open_under(struct ibv_device *device, rlim_t limit, int *error)
{
	struct ibv_context *context;
	struct rlimit most;

	getrlimit(RLIMIT_NOFILE, &most);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ limit, most.rlim_max });
	errno = 0;
	context = ibv_open_device(device);
	*error = errno;
	setrlimit(RLIMIT_NOFILE, &most);
	return context;
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL, *second;
	int error, told = 0;
	rlim_t limit;

	if (!devices || !devices[0])
		return 1;
	for (limit = 3; limit < ENOUGH && !context; limit++) {
		context = open_under(devices[0], limit, &error);
		if (!context && error != told)
			printf("%s\n", strerror(error));
		told = error;
	}
	if (!context || limit < 8) {
		printf("limit %u\n", (unsigned)limit);
		return 1;
	}
	second = open_under(devices[0], 3, &error);
	printf("second: %s\n", second ? "opened" : strerror(error));
	ibv_close_device(context);
	ibv_free_device_list(devices);
	return 0;
}
