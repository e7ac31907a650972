// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Orders: what becomes of flows while the run goes on.
 *
 * Events of an experiment may wait for something to happen, so the table cannot have their times.
 * Whoever makes them writes struct dp_flow_order into a FIFO.  A FIFO takes each record whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "generator.h"

enum { ORDERS = 256 }; /* taken at once */

int orders_open(struct run *run)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = NEVER };

	if (!run->opt.orders)
		return 0;
	/* For writing, too: a FIFO without a writer would wake the program again and again. */
	run->orders_fd = open(run->opt.orders, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (run->orders_fd < 0 || epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, run->orders_fd, &event))
		return complain(errno, "%s: %s", run->opt.orders, strerror(errno));
	return 0;
}

int orders_poll(struct run *run)
{
	struct dp_flow_order orders[ORDERS];
	uint64_t clock = dp_now_ns();
	ssize_t n;
	int err = 0;

	if (run->orders_fd < 0 || clock < run->zero_ns)
		return 0;
	n = read(run->orders_fd, orders, sizeof(orders));
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ?
			       0 :
			       complain(errno, "%s: %s", run->opt.orders, strerror(errno));
	if (n % sizeof(*orders))
		return complain(EPROTO, "%s: half an order", run->opt.orders);
	run->now_ns = clock - run->zero_ns;
	for (size_t i = 0; i < n / sizeof(*orders) && !err; i++)
		err = pump_order(run, &orders[i]);
	return err;
}
