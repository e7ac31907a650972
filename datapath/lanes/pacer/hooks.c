/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lanes/pacer/pacer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pace.skel.h"

struct hooks {
	struct pace *skel;
	struct ring_buffer *ring;
	struct control *control;
	struct bpf_tc_hook hook; /* of the device; size 0: not made */
};

static int quiet(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level, (void)format, (void)arguments;
	return 0;
}

static int take(void *arg, void *data, size_t bytes)
{
	struct hooks *h = arg;
	const struct dp_pace_event *event = data;
	uint64_t rate;

	if (bytes < sizeof(*event))
		return 0;
	rate = control_event(h->control, event);
	if (rate)
		__atomic_store_n(&h->skel->bss->pace_rate_bps[event->flow], rate, __ATOMIC_RELAXED);
	return 0;
}

static int fill(struct hooks *h)
{
	int fd = bpf_map__fd(h->skel->maps.numbers), err = 0;

	for (uint32_t i = 0; i < DP_PACE_FLOWS && !err; i++)
		err = bpf_map_update_elem(fd, NULL, &i, BPF_ANY);
	return err;
}

static int attach_one(struct hooks *h, enum bpf_tc_attach_point point, struct bpf_program *program)
{
	LIBBPF_OPTS(bpf_tc_opts, options, .prog_fd = bpf_program__fd(program));

	h->hook.attach_point = point;
	return bpf_tc_attach(&h->hook, &options);
}

static int attach(struct hooks *h, int ifindex, const char **what)
{
	int err = pace__load(h->skel);

	*what = "the kernel does not take the BPF program that paces";
	if (!err)
		err = fill(h);
	if (err)
		return err;
	*what = "the kernel has no qdisc clsact for BPF programs (CONFIG_NET_CLS_ACT, CONFIG_NET_CLS_BPF)";
	h->hook = (struct bpf_tc_hook){
		.sz = sizeof(h->hook),
		.ifindex = ifindex,
		.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS,
	};
	err = bpf_tc_hook_create(&h->hook);
	if (err) {
		h->hook.sz = 0;
		if (err == -EEXIST)
			*what = "another program has its qdisc clsact at the device";
		return err;
	}
	err = attach_one(h, BPF_TC_INGRESS, h->skel->progs.dp_pace_in);
	if (!err)
		err = attach_one(h, BPF_TC_EGRESS, h->skel->progs.dp_pace_out);
	if (err)
		return err;
	*what = "the ring of events cannot be opened";
	h->ring = ring_buffer__new(bpf_map__fd(h->skel->maps.events), take, h, NULL);
	return h->ring ? 0 : -errno;
}

struct hooks *hooks_open(unsigned int ifindex, bool ecn, struct control *control, char *why,
			 size_t room)
{
	struct hooks *h = calloc(1, sizeof(*h));
	const char *what = "the BPF program that paces cannot be opened";
	int err;

	if (!h) {
		snprintf(why, room, "no memory");
		return NULL;
	}
	libbpf_set_print(quiet);
	h->control = control;
	h->skel = pace__open();
	err = h->skel ? 0 : -errno;
	if (!err) {
		h->skel->rodata->pace_ecn = ecn;
		err = attach(h, (int)ifindex, &what);
	}
	if (!err)
		return h;
	snprintf(why, room, "%s: %s", what, strerror(-err));
	hooks_close(h);
	return NULL;
}

void hooks_serve(struct hooks *h, int timeout_ms)
{
	ring_buffer__poll(h->ring, timeout_ms);
}

void hooks_counters(const struct hooks *h, struct dp_pace_counters *counters)
{
	*counters = h->skel->bss->pace_counters;
}

void hooks_close(struct hooks *h)
{
	h->hook.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS;
	if (h->hook.sz)
		bpf_tc_hook_destroy(&h->hook);
	ring_buffer__free(h->ring);
	pace__destroy(h->skel);
	free(h);
}
