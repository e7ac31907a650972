// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What an algorithm is told when a host does not read for a while.  Two devices in one
 * process, each in a network namespace of its own:
 *
 *   late_reader SPEC NETNS SPEC NETNS      NETNS: a path, or - for this one
 *
 * The first device writes to the second; then it does so once while nobody may read the
 * first, and twice while nobody may read the second, for STOP_MS.  Prints one line of JSON:
 * RTT and time in the hosts of the acknowledgement that took longest, of each of the four.
 */
#include <assert.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/to_rts.h"
#include "io/device.h"

enum {
	STOP_MS = 50,
	SIZE = 64,
	RESOLVE_MS = 2000,
	USUAL = 32, /* writes that nobody disturbs */
	GIVE_UP_S = 10,
};

/* What the algorithm was told. */
static struct {
	double rtt_ns, host_ns;
} told;

/* A WRITE that fills the window is probed for once.  One in a wide window is probed for again and
 * again, and the acknowledgement tells the times of the last probe. */
static const struct dp_cc_flow full = { .cwnd_bytes = SIZE }, wide = { .cwnd_bytes = 1 << 20 };

static void on_init(void *flow)
{
	(void)flow;
}

static void on_ack(void *flow, const struct dp_cc_ack *ack)
{
	(void)flow;
	if (ack->rtt_ns + ack->host_ns < told.rtt_ns + told.host_ns)
		return;
	told.rtt_ns = ack->rtt_ns;
	told.host_ns = ack->host_ns;
}

static void on_loss(void *flow, const struct dp_cc_loss *loss)
{
	(void)flow, (void)loss;
}

static void on_timeout(void *flow, double now_ns)
{
	(void)flow, (void)now_ns;
}

static struct dp_cc_algo witness = {
	.abi = DP_CC_ABI,
	.name = "witness",
	.flow_bytes = sizeof(full),
	.on_init = on_init,
	.on_ack = on_ack,
	.on_loss = on_loss,
	.on_timeout = on_timeout,
};

struct end {
	const char *netns;
	struct dp_device *dev;
	struct dp_pd *pd;
	struct dp_cq *cq;
	struct dp_mr *mr;
	struct dp_qp *qp;
	uint8_t memory[SIZE];
};

static void must(int status)
{
	if (status >= 0)
		return;
	fprintf(stderr, "late_reader: %s\n", strerror(-status));
	exit(1);
}

static void enter(const char *netns)
{
	int fd;

	if (!strcmp(netns, "-"))
		return;
	fd = open(netns, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET)) {
		perror(netns);
		exit(1);
	}
	close(fd);
}

static void ignore(const struct dp_event *event)
{
	(void)event;
}

static void open_end(struct end *e, const char *spec, const char *netns)
{
	/* No time-out may send again what only lies unread. */
	const struct dp_device_options options = { .name = "late",
						   .on_event = ignore,
						   .min_rto_ns = GIVE_UP_S * 1000000000ull };
	char error[256] = "";

	e->netns = netns;
	enter(netns);
	if (dp_device_open(spec, &options, &e->dev, error, sizeof(error))) {
		fprintf(stderr, "late_reader: %s\n", error);
		exit(1);
	}
	must(dp_device_lock(e->dev));
	must(dp_pd_create(dp_device_engine(e->dev), &e->pd));
	must(dp_cq_create(dp_device_engine(e->dev), 64, NULL, &e->cq));
	must(dp_mr_create(e->pd, e->memory, SIZE, (uintptr_t)e->memory,
			  DP_ACCESS_LOCAL_WRITE | DP_ACCESS_REMOTE_WRITE, &e->mr));
	must(dp_qp_create(dp_device_engine(e->dev),
			  &(struct dp_qp_config){ .pd = e->pd,
						  .send_cq = e->cq,
						  .recv_cq = e->cq,
						  .max_send_wr = 64,
						  .max_recv_wr = 1,
						  .max_send_sge = 1,
						  .max_recv_sge = 1,
						  .sq_sig_all = true },
			  &e->qp));
	dp_device_unlock(e->dev);
}

static void connect_end(struct end *e, const struct end *peer)
{
	struct dp_qp_attr a = {
		.access = DP_ACCESS_REMOTE_WRITE,
		.raddr = dp_device_port(peer->dev)->addr,
		.path_mtu = 1024,
		.dest_qpn = dp_qp_qpn(peer->qp),
		.timeout = 20,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};

	enter(e->netns);
	must(dp_device_resolve(e->dev, &a.raddr, RESOLVE_MS, &a.path_id));
	must(dp_device_lock(e->dev));
	must(bring_to_rts(e->qp, a, dp_device_now_ns()));
	dp_device_unlock(e->dev);
}

static void close_end(struct end *e)
{
	struct dp_qp_attr a;

	must(dp_device_lock(e->dev));
	dp_qp_query(e->qp, &a);
	must(dp_qp_destroy(e->qp));
	dp_device_release(e->dev, a.path_id);
	must(dp_mr_destroy(e->mr));
	must(dp_cq_destroy(e->cq));
	must(dp_pd_destroy(e->pd));
	dp_device_unlock(e->dev);
	dp_device_close(e->dev);
}

/* Under the lock of `from`. */
static void post_write(struct end *from, const struct end *to)
{
	const struct dp_sge sge = { .addr = (uintptr_t)from->memory,
				    .length = SIZE,
				    .lkey = dp_mr_key(from->mr) };
	const struct dp_send_wr wr = {
		.opcode = DP_WR_RDMA_WRITE,
		.num_sge = 1,
		.sge = &sge,
		.remote_addr = (uintptr_t)to->memory,
		.rkey = dp_mr_key(to->mr),
	};

	must(dp_qp_post_send(from->qp, &wr));
	dp_device_posted(from->dev);
}

static void wait_for_completion(struct end *e)
{
	uint64_t give_up_ns = dp_device_now_ns() + GIVE_UP_S * 1000000000ull;
	struct dp_wc wc;
	int n;

	while (!(n = dp_device_poll_cq(e->dev, e->cq, 1, &wc)) && dp_device_now_ns() < give_up_ns)
		usleep(10);
	must(n);
	if (!n || wc.status != DP_WC_SUCCESS) {
		fprintf(stderr, "late_reader: a WRITE %s\n", n ? "failed" : "does not complete");
		exit(1);
	}
}

/* One WRITE; while it is on its way nobody reads `stopped` (NULL: all do). */
static void write_once(struct end *from, const struct end *to, struct end *stopped)
{
	if (stopped)
		must(dp_device_lock(stopped->dev));
	if (stopped != from)
		must(dp_device_lock(from->dev));
	post_write(from, to);
	if (stopped != from)
		dp_device_unlock(from->dev);
	if (stopped) {
		usleep(STOP_MS * 1000);
		dp_device_unlock(stopped->dev);
	}
	wait_for_completion(from);
}

static void become_extended(struct end *from, const struct end *to)
{
	for (int tries = 0; tries < 1000; tries++) {
		write_once(from, to, NULL);
		if (dp_qp_extended(from->qp))
			return;
		usleep(1000);
	}
	fprintf(stderr, "late_reader: the two do not agree on extended mode\n");
	exit(1);
}

static void begin_with(struct end *from, const struct dp_cc_flow *initial)
{
	witness.initial = initial;
	must(dp_device_lock(from->dev));
	must(dp_qp_set_cc(from->qp, &witness, dp_device_now_ns()));
	dp_device_unlock(from->dev);
}

static void print_told(const char *name, const char *after)
{
	printf("\"%s\": {\"rtt_ns\": %.0f, \"host_ns\": %.0f}%s", name, told.rtt_ns, told.host_ns,
	       after);
	memset(&told, 0, sizeof(told));
}

int main(int argc, char **argv)
{
	struct end a, b;

	if (argc != 5) {
		fprintf(stderr, "usage: late_reader SPEC NETNS SPEC NETNS\n");
		return 2;
	}
	open_end(&a, argv[1], argv[2]);
	open_end(&b, argv[3], argv[4]);
	connect_end(&a, &b);
	connect_end(&b, &a);
	become_extended(&a, &b);
	begin_with(&a, &full);
	for (int i = 0; i < USUAL; i++)
		write_once(&a, &b, NULL);
	printf("{");
	print_told("nobody", ", ");
	write_once(&a, &b, &a);
	print_told("requester", ", ");
	write_once(&a, &b, &b);
	print_told("responder", ", ");
	begin_with(&a, &wide);
	write_once(&a, &b, &b);
	print_told("responder probed", "}\n");
	close_end(&a);
	close_end(&b);
	return 0;
}
