/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Idle CPUs that poll in the kernel do not go to sleep, and nobody has to interrupt them to wake a
 * program there: they see it themselves.  A virtual CPU's interrupt takes a visit to the hypervisor.
 * The kernel's cpuidle lets them poll while somebody asks for a wake-up latency of 0
 * (Documentation/power/pm_qos_interface.rst), if it has a state that polls.  The request is for all
 * CPUs of the machine, and ends with the descriptor.
 */
#include "lanes/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define REQUEST "/dev/cpu_dma_latency"

static int request = -1;

/* Whether a file about the first idle state of a CPU has this line. */
static bool state_says(int cpu, const char *file, const char *line)
{
	char path[80], text[32];
	bool same;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cpuidle/state0/%s", cpu, file);
	f = fopen(path, "re");
	if (!f)
		return false;
	same = fgets(text, sizeof(text), f) && !strcmp(text, line);
	fclose(f);
	return same;
}

static bool can_poll(int cpu)
{
	return state_says(cpu, "name", "POLL\n") && state_says(cpu, "disable", "0\n");
}

int poll_begin(void)
{
	const int32_t latency_us = 0;
	cpu_set_t allowed;
	int cpu;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return -errno;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &allowed) && !can_poll(cpu))
			return -ENOTSUP;
	}
	request = open(REQUEST, O_WRONLY | O_CLOEXEC);
	if (request < 0)
		return -errno;
	if (write(request, &latency_us, sizeof(latency_us)) != sizeof(latency_us)) {
		poll_end();
		return -EIO;
	}
	return CPU_COUNT(&allowed);
}

void poll_end(void)
{
	if (request >= 0)
		close(request);
	request = -1;
}
