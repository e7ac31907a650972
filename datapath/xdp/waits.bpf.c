// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Adds up how long the threads of one PID namespace ran, and waited for a CPU, as
 * they end: /proc/PID/task/TID/schedstat goes with the thread.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "xdp/waits.h"

/* The parts of the kernel's structures that are read; libbpf finds their places in
 * the running kernel (CO-RE). */
struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct sched_entity {
	unsigned long long sum_exec_runtime;
} __attribute__((preserve_access_index));

struct task_struct {
	struct sched_entity se;
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

/* The namespace, as stat(2) has /proc/self/ns/pid. */
const volatile __u64 waits_dev = 0, waits_ino = 0;

struct dp_waits waits = {};

SEC("tp_btf/sched_process_exit")
int dp_waits(const unsigned long long *ctx)
{
	const struct task_struct *task = (const void *)ctx[0];
	struct bpf_pidns_info in;

	if (bpf_get_ns_current_pid_tgid(waits_dev, waits_ino, &in, sizeof(in)))
		return 0;
	__sync_fetch_and_add(&waits.ran_ns, task->se.sum_exec_runtime);
	__sync_fetch_and_add(&waits.waited_ns, task->sched_info.run_delay);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
