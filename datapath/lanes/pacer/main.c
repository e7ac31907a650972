/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dp-rxe-pacer NETDEV ALGORITHM [--ecn]
 *
 * Runs a compiled congestion-control algorithm (docs/cc.md) for the reliable connections of the
 * soft-RoCE device on NETDEV, until SIGTERM.  The qdisc of NETDEV has to be fq, which obeys the
 * times of departure that the BPF program gives to packets.  --ecn: requests leave as ECT(0), and
 * acknowledgements tell the peer of its packets that arrived with CE.
 *
 * Prints `{"ready": PID}` at first and its counters at the end.  Errors go to standard error.
 */
#include "lanes/pacer/pacer.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WHY_ROOM = 300 };

static volatile sig_atomic_t ended;

static void end(int number)
{
	(void)number;
	ended = 1;
}

static const struct dp_cc_algo *load(const char *path)
{
	void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const struct dp_cc_algo *algo = object ? dlsym(object, "dp_cc_algo") : NULL;

	if (!algo)
		fprintf(stderr, "dp-rxe-pacer: %s\n", dlerror());
	else if (algo->abi == DP_CC_ABI)
		return algo;
	else
		fprintf(stderr, "dp-rxe-pacer: %s is of another version\n", path);
	return NULL;
}

static uint32_t mtu_of(const char *netdev)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { 0 };
	uint32_t mtu = 0;

	if (fd < 0)
		return 0;
	strncpy(request.ifr_name, netdev, sizeof(request.ifr_name) - 1);
	if (!ioctl(fd, SIOCGIFMTU, &request) && request.ifr_mtu > 0)
		mtu = (uint32_t)request.ifr_mtu;
	close(fd);
	return mtu;
}

static void tell(const struct hooks *h, const struct control *c)
{
	struct dp_pace_counters n;

	hooks_counters(h, &n);
	printf("{\"connections\": %" PRIu64 ", \"acks\": %" PRIu64 ", \"marked_acks\": %" PRIu64
	       ", \"losses\": %" PRIu64 ", \"timeouts\": %" PRIu64 ", \"min_rtt_ns\": %" PRIu64
	       ", \"cwnd_bytes\": %.0f, \"rate_bps\": %.0f, \"srtt_ns\": %.0f"
	       ", \"paced_packets\": %llu, \"held_acks\": %llu, \"no_room_packets\": %llu"
	       ", \"unknown_acks\": %llu, \"lost_events\": %llu}\n",
	       c->connections, c->acks, c->marked_acks, c->losses, c->timeouts, c->min_rtt_ns,
	       c->last_cwnd_bytes, c->last_rate_bps, c->last_srtt_ns, n.paced_packets, n.held_acks,
	       n.no_room_packets, n.unknown_acks, n.lost_events);
	fflush(stdout);
}

static int serve(const char *netdev, const struct dp_cc_algo *algo, bool ecn)
{
	unsigned int ifindex = if_nametoindex(netdev);
	struct control *control = calloc(1, sizeof(*control));
	char why[WHY_ROOM];
	struct hooks *hooks;
	int status = 1;

	if (!control || !ifindex) {
		fprintf(stderr, "dp-rxe-pacer: there is no device %s\n", netdev);
		free(control);
		return 1;
	}
	control_init(control, algo, control_mss(mtu_of(netdev)));
	hooks = hooks_open(ifindex, ecn, control, why, sizeof(why));
	if (hooks) {
		printf("{\"ready\": %d}\n", getpid());
		fflush(stdout);
		while (!ended)
			hooks_serve(hooks);
		tell(hooks, control);
		hooks_close(hooks);
		status = 0;
	} else {
		fprintf(stderr, "dp-rxe-pacer: %s\n", why);
	}
	control_free(control);
	free(control);
	return status;
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = end };
	const struct dp_cc_algo *algo;
	bool ecn = argc == 4 && !strcmp(argv[3], "--ecn");

	if (argc != 3 && !ecn) {
		fprintf(stderr, "usage: dp-rxe-pacer NETDEV ALGORITHM [--ecn]\n");
		return 2;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	algo = load(argv[2]);
	return algo ? serve(argv[1], algo, ecn) : 1;
}
