/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lanes/pacer/pacer.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pace.skel.h"
#include "posix/clock.h"

enum {
	WAIT_MS = 200,
	STALL_MS = 10,	       /* between two looks while rxe has not seen all acknowledgements */
	STALLED_NS = 30000000, /* without an acknowledgement: no other will come */
	STALLED_RTTS = 4,
};

struct hooks {
	struct pace *skel;
	int packets; /* a socket that sends to the device; -1: none */
	struct sockaddr_ll device;
	struct ring_buffer *ring;
	struct control *control;
	uint32_t n_flows;	 /* those with an event have lower numbers */
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
	struct control_limits limits;

	if (bytes < sizeof(*event) || !control_event(h->control, event, &limits))
		return 0;
	if (event->flow >= h->n_flows)
		h->n_flows = event->flow + 1;
	__atomic_store_n(&h->skel->bss->pace_rate_bps[event->flow], limits.rate_bps,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&h->skel->bss->pace_cwnd_bytes[event->flow], limits.cwnd_bytes,
			 __ATOMIC_RELAXED);
	return 0;
}

/* Numbers for flows to come; their first packets have left before there is an event of them. */
static int fill(struct hooks *h)
{
	int fd = bpf_map__fd(h->skel->maps.numbers), err = 0;
	uint64_t rate = control_first_rate(h->control);

	for (uint32_t i = 0; i < DP_PACE_FLOWS && !err; i++) {
		h->skel->bss->pace_rate_bps[i] = rate;
		err = bpf_map_update_elem(fd, NULL, &i, BPF_ANY);
	}
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

/* A socket without a protocol receives nothing. */
static int open_packets(struct hooks *h, int ifindex, const char **what)
{
	struct sockaddr *address = (struct sockaddr *)&h->device;
	socklen_t len = sizeof(h->device);
	int mark = DP_PACE_SHOWN;

	*what = "no socket for packets (AF_PACKET, SO_MARK)";
	h->device = (struct sockaddr_ll){ .sll_family = AF_PACKET, .sll_ifindex = ifindex };
	h->packets = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (h->packets < 0 || bind(h->packets, address, len) ||
	    getsockname(h->packets, address, &len) ||
	    setsockopt(h->packets, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)))
		return -errno;
	return 0;
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
	h->packets = -1;
	h->skel = pace__open();
	err = h->skel ? open_packets(h, (int)ifindex, &what) : -errno;
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

/* Lets rxe see the newest acknowledgement of a flow, which tells all that others before it do.  The
 * BPF program turns it around at the egress. */
static void show_newest(struct hooks *h, uint32_t flow, uint32_t end)
{
	uint32_t place = flow * DP_PACE_KEPT + (end - 1) % DP_PACE_KEPT;
	struct {
		struct ethhdr eth;
		struct dp_pace_kept ack;
	} __attribute__((packed)) frame = { 0 };
	bool v6;

	if (bpf_map_lookup_elem(bpf_map__fd(h->skel->maps.kept_acks), &place, &frame.ack))
		return;
	v6 = frame.ack.bytes[0] >> 4 == 6;
	frame.eth.h_proto = htons(v6 ? ETH_P_IPV6 : ETH_P_IP);
	memcpy(frame.eth.h_dest, h->device.sll_addr, ETH_ALEN);
	send(h->packets, &frame, sizeof(frame.eth) + (v6 ? DP_PACE_ACK6_LEN : DP_PACE_ACK4_LEN), 0);
}

/* Whether no acknowledgement has come for so long that none will. */
static bool has_stalled(const struct hooks *h, uint32_t flow)
{
	uint64_t kept_ns =
		__atomic_load_n(&h->skel->bss->pace_unseen[flow].kept_ns, __ATOMIC_RELAXED);
	uint64_t patience = STALLED_RTTS * control_srtt_ns(h->control, flow);

	return dp_now_ns() > kept_ns + (patience > STALLED_NS ? patience : STALLED_NS);
}

/* Lets rxe see what is kept from it, of flows that have stalled or of all.  Returns whether something
 * was kept. */
static bool show_rest(struct hooks *h, bool all)
{
	bool some = false;

	for (uint32_t i = 0; i < h->n_flows; i++) {
		const struct dp_pace_unseen *u = &h->skel->bss->pace_unseen[i];
		uint32_t end = __atomic_load_n(&u->end, __ATOMIC_RELAXED);

		if (end == __atomic_load_n(&u->first, __ATOMIC_RELAXED))
			continue;
		some = true;
		if (all || has_stalled(h, i))
			show_newest(h, i, end);
	}
	return some;
}

void hooks_serve(struct hooks *h)
{
	ring_buffer__poll(h->ring, show_rest(h, false) ? STALL_MS : WAIT_MS);
}

void hooks_counters(const struct hooks *h, struct dp_pace_counters *counters)
{
	*counters = h->skel->bss->pace_counters;
}

void hooks_close(struct hooks *h)
{
	h->hook.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS;
	if (h->ring)
		show_rest(h, true);
	if (h->hook.sz)
		bpf_tc_hook_destroy(&h->hook);
	if (h->packets >= 0)
		close(h->packets);
	ring_buffer__free(h->ring);
	pace__destroy(h->skel);
	free(h);
}
