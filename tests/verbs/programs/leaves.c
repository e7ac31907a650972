/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connects, waits for the end of its input, and ends while it is connected.  Each usleep() of the
 * process takes 50 ms, as on a busy machine; says how many there were in the end.  While exit()
 * waits for the peer, a thread asks for an event of a channel that is closed, as rping's may.
 *
 *   leaves ADDRESS PORT
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_int sleeps;
static sem_t waiting; /* exit() does */
static struct rdma_event_channel closed;

/* In place of libc's, for the front as well. */
int usleep(useconds_t us)
{
	struct timespec longer = { .tv_nsec = 50000000 };

	(void)us;
	sleeps++;
	if (closed.fd)
		sem_post(&waiting);
	return nanosleep(&longer, NULL);
}

static void *ask(void *unused)
{
	struct rdma_cm_event *event;

	while (sem_wait(&waiting))
		;
	rdma_get_cm_event(&closed, &event);
	_exit(3);
	return unused;
}

/* The descriptor's number is not used again before exit(). */
static void close_a_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	pthread_t thread;

	if (!channel || sem_init(&waiting, 0, 0) || pthread_create(&thread, NULL, ask, NULL))
		exit(2);
	closed.fd = channel->fd;
	rdma_destroy_event_channel(channel);
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
	close_a_channel();
	return 0;
}
