// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A program that posts all the time and never polls: its posts must serve the device.  The device has
 * no thread that could do so, and two QPs that are connected to each other.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/to_rts.h"
#include "io/device.h"

enum {
	SIZE = 64,
	POSTS = 256, /* far more than those after which the program counts as one that serves */
	GAP_US = 200,
	RESOLVE_MS = 2000,
};

static uint8_t memory[2 * SIZE];

static void must(int status)
{
	if (status >= 0)
		return;
	fprintf(stderr, "posts_check: %s\n", strerror(-status));
	exit(1);
}

static void ignore(const struct dp_event *event)
{
	(void)event;
}

static struct dp_qp *make_qp(struct dp_device *dev, struct dp_pd *pd, struct dp_cq *cq)
{
	struct dp_qp *qp;

	must(dp_qp_create(dp_device_engine(dev),
			  &(struct dp_qp_config){ .pd = pd,
						  .send_cq = cq,
						  .recv_cq = cq,
						  .max_send_wr = POSTS,
						  .max_recv_wr = 1,
						  .max_send_sge = 1,
						  .max_recv_sge = 1,
						  .sq_sig_all = true },
			  &qp));
	return qp;
}

static void connect_qp(struct dp_device *dev, struct dp_qp *qp, const struct dp_qp *peer)
{
	struct dp_qp_attr a = {
		.access = DP_ACCESS_REMOTE_WRITE,
		.raddr = dp_device_port(dev)->addr,
		.path_mtu = 1024,
		.dest_qpn = dp_qp_qpn(peer),
		.timeout = 20,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};

	must(dp_device_resolve(dev, &a.raddr, RESOLVE_MS, &a.path_id));
	must(dp_device_lock(dev));
	must(bring_to_rts(qp, a, dp_device_now_ns()));
	dp_device_unlock(dev);
}

static void post_write(struct dp_device *dev, struct dp_qp *qp, const struct dp_mr *mr)
{
	const struct dp_sge sge = { .addr = (uintptr_t)memory,
				    .length = SIZE,
				    .lkey = dp_mr_key(mr) };
	const struct dp_send_wr wr = {
		.opcode = DP_WR_RDMA_WRITE,
		.num_sge = 1,
		.sge = &sge,
		.remote_addr = (uintptr_t)memory + SIZE,
		.rkey = dp_mr_key(mr),
	};

	must(dp_device_lock(dev));
	must(dp_qp_post_send(qp, &wr));
	dp_device_posted(dev);
	dp_device_unlock(dev);
}

int main(void)
{
	const struct dp_device_options options = { .name = "posts",
						   .on_event = ignore,
						   .no_thread = true };
	struct dp_wc wc[POSTS];
	char error[256] = "";
	struct dp_device *dev;
	struct dp_qp *qp[2];
	struct dp_pd *pd;
	struct dp_cq *cq;
	struct dp_mr *mr;
	int i, n;

	if (dp_device_open("udp:127.0.0.10", &options, &dev, error, sizeof(error))) {
		fprintf(stderr, "posts_check: %s\n", error);
		return 1;
	}
	must(dp_device_lock(dev));
	must(dp_pd_create(dp_device_engine(dev), &pd));
	must(dp_cq_create(dp_device_engine(dev), POSTS, NULL, &cq));
	must(dp_mr_create(pd, memory, sizeof(memory), (uintptr_t)memory,
			  DP_ACCESS_LOCAL_WRITE | DP_ACCESS_REMOTE_WRITE, &mr));
	for (i = 0; i < 2; i++)
		qp[i] = make_qp(dev, pd, cq);
	dp_device_unlock(dev);
	for (i = 0; i < 2; i++)
		connect_qp(dev, qp[i], qp[1 - i]);
	for (i = 0; i < POSTS; i++) {
		post_write(dev, qp[0], mr);
		usleep(GAP_US);
	}
	must(dp_device_lock(dev));
	n = dp_cq_poll(cq, POSTS, wc); /* of the engine: moves no packet */
	for (i = 0; i < n; i++)
		assert(wc[i].status == DP_WC_SUCCESS);
	assert(n > 0);
	for (i = 0; i < 2; i++) {
		must(dp_qp_destroy(qp[i]));
		dp_device_release(dev, 0);
	}
	must(dp_mr_destroy(mr));
	must(dp_cq_destroy(cq));
	must(dp_pd_destroy(pd));
	dp_device_unlock(dev);
	dp_device_close(dev);
	return 0;
}
