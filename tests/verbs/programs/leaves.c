/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connects, waits for the end of its input, and ends while it is connected.  Each usleep() of the
 * process takes 50 ms, as on a busy machine; says how many there were in the end.
 *
 *   leaves ADDRESS PORT
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_int sleeps;

/* In place of libc's, for the front as well. */
int usleep(useconds_t us)
{
	struct timespec longer = { .tv_nsec = 50000000 };

	(void)us;
	sleeps++;
	return nanosleep(&longer, NULL);
}

static void tell(void)
{
	printf("%d sleeps\n", sleeps);
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *to;
	struct rdma_conn_param param = { .private_data = "",
					 .private_data_len = 1,
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 7 };
	struct ibv_qp_init_attr qp = { .cap = { 4, 4, 1, 1 } };
	struct rdma_cm_id *id;

	atexit(tell); /* the first to be registered is the last to run */
	if (argc != 3 || rdma_getaddrinfo(argv[1], argv[2], &hints, &to) ||
	    rdma_create_ep(&id, to, NULL, &qp) || rdma_connect(id, &param)) {
		perror("leaves");
		return 1;
	}
	puts("connected");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
