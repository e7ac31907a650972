/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads that wait in ibv_get_cq_event() on the only channel of a device, and serve the device
 * meanwhile: with messages from another device, signals, cancellation and other threads.
 *
 * dp0 sends, dp1 has the channel.
 */
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #condition,  \
				errno);                                                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum {
	BYTES = 100,
	ROUNDS = 40,
	MANY_ROUNDS = 400,
	EVENTS = 25,
	MOMENT_US = 20000,
	CALM_US = 150000
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int impatient; /* gives a silent peer up after milliseconds */
	uint8_t memory[2 * BYTES];
};

static struct side near, far;		  /* of dp0, and of dp1 */
static struct side other_near, other_far; /* the same devices, other queues */
static struct side lost[2], lonely[2];	  /* again; each `lost` has left its peer `lonely` */
static struct ibv_comp_channel *channel;

/* ---- the vocabulary --------------------------------------------------------------- */

/* CQ, QP and memory in the side's context. */
static void make_queues(struct side *s, struct ibv_comp_channel *events)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	s->pd = ibv_alloc_pd(s->context);
	s->cq = ibv_create_cq(s->context, 32, NULL, events, 0);
	s->mr = ibv_reg_mr(s->pd, s->memory, sizeof(s->memory),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	EXPECT(s->pd && s->cq && s->mr);
	attr.send_cq = attr.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &attr);
	EXPECT(s->qp);
}

static void make_side(struct side *s, struct ibv_device *device, int has_channel)
{
	s->context = ibv_open_device(device);
	EXPECT(s->context);
	if (has_channel)
		channel = ibv_create_comp_channel(s->context);
	make_queues(s, has_channel ? channel : NULL);
}

static void connect_to(struct side *s, const struct side *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.timeout = s->impatient ? 8 : 14,
		.retry_cnt = s->impatient ? 1 : 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};

	EXPECT(!ibv_query_gid(peer->context, 1, 0, &attr.ah_attr.grh.dgid));
	EXPECT(!ibv_modify_qp(s->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				      IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	EXPECT(!ibv_modify_qp(s->qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	EXPECT(!ibv_modify_qp(s->qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void post_recv_to(struct side *s)
{
	struct ibv_sge sge = { (uintptr_t)s->memory + BYTES, BYTES, s->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	EXPECT(!ibv_post_recv(s->qp, &wr, &bad));
}

static void post_recv(void)
{
	post_recv_to(&far);
}

static void post(struct side *from, enum ibv_wr_opcode opcode, const struct side *to)
{
	struct ibv_sge sge = { (uintptr_t)from->memory, BYTES, from->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)to->memory, .rkey = to->mr->rkey },
	};
	struct ibv_send_wr *bad;

	EXPECT(!ibv_post_send(from->qp, &wr, &bad));
}

/* A message that dp1 is going to receive. */
static void send_message(void)
{
	post(&near, IBV_WR_SEND, &far);
}

static void finish(struct side *s)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(s->cq, 1, &wc);
	while (!n);
	EXPECT(n == 1 && wc.status == IBV_WC_SUCCESS);
}

/* Returns 0, or errno. */
static int take_event(void)
{
	struct ibv_cq *cq;
	void *user;

	if (ibv_get_cq_event(channel, &cq, &user))
		return errno;
	EXPECT(cq == far.cq || cq == other_far.cq || cq == lonely[0].cq || cq == lonely[1].cq);
	ibv_ack_cq_events(cq, 1);
	return 0;
}

static void arm(void)
{
	EXPECT(!ibv_req_notify_cq(far.cq, 0));
}

static void *wait_for_event(void *ended)
{
	int err = take_event();

	if (ended)
		atomic_store((atomic_int *)ended, 1);
	return (void *)(intptr_t)err;
}

static pthread_t start_waiting(atomic_int *ended)
{
	pthread_t thread;

	EXPECT(!pthread_create(&thread, NULL, wait_for_event, ended));
	usleep(MOMENT_US); /* by now it waits; if it does not yet, the case is the same */
	return thread;
}

static int joined(pthread_t thread)
{
	void *out;

	EXPECT(!pthread_join(thread, &out));
	return out == PTHREAD_CANCELED ? ECANCELED : (int)(intptr_t)out;
}

/* One message is sent, waited for and taken. */
static void exchange(void)
{
	post_recv();
	arm();
	send_message();
	EXPECT(!take_event());
	finish(&far);
	finish(&near);
}

/* ---- the process's threads ---------------------------------------------------------- */

/* How often dp1's own thread has gone to sleep; -1: it has not got its name yet. */
static long read_sleeps(void)
{
	char path[300], line[100];
	struct dirent *entry;
	long found = -1, n;
	DIR *folder = opendir("/proc/self/task");
	FILE *file;
	int ours;

	EXPECT(folder);
	while (found < 0 && (entry = readdir(folder))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		for (ours = 0; file && fgets(line, sizeof(line), file);) {
			ours |= !strcmp(line, "Name:\tdp:dp1\n");
			if (ours && sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
				found = n;
		}
		if (file)
			fclose(file);
	}
	closedir(folder);
	return found;
}

static long sleeps_of_thread(void)
{
	long sleeps;

	while ((sleeps = read_sleeps()) < 0)
		usleep(MOMENT_US);
	return sleeps;
}

static void run_on(const cpu_set_t *cpus)
{
	struct dirent *entry;
	DIR *folder = opendir("/proc/self/task");

	EXPECT(folder);
	while ((entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			sched_setaffinity(atoi(entry->d_name), sizeof(*cpus), cpus);
	closedir(folder);
}

/* There a thread of the policy SCHED_IDLE runs after all others.  Returns where the threads ran. */
static cpu_set_t run_on_one_cpu(void)
{
	cpu_set_t before, one;
	int cpu = 0;

	EXPECT(!sched_getaffinity(0, sizeof(before), &before));
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	run_on(&one);
	return before;
}

/* ---- cases ------------------------------------------------------------------------- */

static void *send_when_asked(void *pipe)
{
	char byte;

	while (read(*(int *)pipe, &byte, 1) == 1) {
		send_message();
		finish(&near);
	}
	return NULL;
}

/* A message wakes the thread that waits, and not dp1's own, which would sleep 24 or 25 times in a round.
 * It does wake from time to time, to look after the program: up to 7 times, with ThreadSanitizer 17.  Of
 * many rounds, one at least goes without interruption by other work on the machine; it is the last. */
static void the_thread_that_waits_serves(void)
{
	long before, sleeps = EVENTS;
	int ends[2], round, i;
	pthread_t sender;

	EXPECT(!pipe(ends) && !pthread_create(&sender, NULL, send_when_asked, &ends[0]));
	for (round = 0; round < MANY_ROUNDS && 4 * sleeps >= 3 * EVENTS; round++) {
		before = sleeps_of_thread();
		for (i = 0; i < EVENTS; i++) {
			post_recv();
			arm();
			EXPECT(write(ends[1], "", 1) == 1 && !take_event());
			finish(&far);
		}
		sleeps = sleeps_of_thread() - before;
	}
	EXPECT(4 * sleeps < 3 * EVENTS);
	close(ends[1]);
	EXPECT(!pthread_join(sender, NULL));
	close(ends[0]);
}

/* ThreadSanitizer ignores the lock that a cleanup handler takes when the thread was cancelled in a
 * blocking call, and would report what the lock guards. */
#ifdef __SANITIZE_THREAD__
#define SEES_CANCELLED_THREADS 0
#else
#define SEES_CANCELLED_THREADS 1
#endif

/* The device answers without the thread that has been cancelled. */
static void a_cancelled_wait(void)
{
	pthread_t thread = start_waiting(NULL);

	EXPECT(!pthread_cancel(thread) && joined(thread) == ECANCELED);
	post(&near, IBV_WR_RDMA_READ, &far);
	finish(&near);
	exchange();
}

static void on_signal(int signal)
{
	(void)signal;
}

static void handle(int signal, int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };

	EXPECT(!sigaction(signal, &action, NULL));
}

static void unhandle(int signal)
{
	struct sigaction action = { .sa_handler = SIG_DFL };

	EXPECT(!sigaction(signal, &action, NULL));
}

/* As read() on the channel's descriptor does. */
static void a_signal_ends_the_wait(void)
{
	atomic_int ended = 0;
	pthread_t thread;

	handle(SIGUSR1, 0);
	thread = start_waiting(&ended);
	while (!ended) {
		EXPECT(!pthread_kill(thread, SIGUSR1));
		usleep(MOMENT_US);
	}
	EXPECT(joined(thread) == EINTR);
	unhandle(SIGUSR1);
	exchange();
}

static void a_signal_does_not_end_the_wait(void)
{
	atomic_int ended = 0;
	pthread_t thread;

	handle(SIGUSR1, SA_RESTART);
	post_recv();
	arm();
	thread = start_waiting(&ended);
	EXPECT(!pthread_kill(thread, SIGUSR1));
	usleep(MOMENT_US);
	EXPECT(!ended);
	send_message();
	EXPECT(!joined(thread));
	finish(&far);
	finish(&near);
	unhandle(SIGUSR1);
}

/* With handlers of both kinds, a second signal at the latest ends the wait. */
static void signals_of_both_kinds(void)
{
	atomic_int ended = 0;
	pthread_t thread;

	handle(SIGUSR1, 0);
	handle(SIGUSR2, SA_RESTART);
	thread = start_waiting(&ended);
	EXPECT(!pthread_kill(thread, SIGUSR2));
	usleep(MOMENT_US);
	EXPECT(!ended);
	while (!ended) {
		EXPECT(!pthread_kill(thread, SIGUSR1));
		usleep(MOMENT_US);
	}
	EXPECT(joined(thread) == EINTR);
	unhandle(SIGUSR1);
	unhandle(SIGUSR2);
	exchange();
}

/* dp1 sends while its other thread waits. */
static void another_thread_posts(void)
{
	pthread_t thread;

	arm();
	thread = start_waiting(NULL);
	post(&far, IBV_WR_RDMA_READ, &near);
	EXPECT(!joined(thread));
	finish(&far);
}

/* The next message of lonely[i] gets no answer.  Until then it is silent: it knows its peer. */
static void make_lonely(int i)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	lost[i].context = near.context;
	lonely[i].context = far.context;
	make_queues(&lost[i], NULL);
	make_queues(&lonely[i], channel);
	lonely[i].impatient = 1;
	connect_to(&lost[i], &lonely[i]);
	connect_to(&lonely[i], &lost[i]);
	post(&lost[i], IBV_WR_RDMA_READ, &lonely[i]);
	finish(&lost[i]);
	EXPECT(!ibv_modify_qp(lost[i].qp, &attr, IBV_QP_STATE));
	EXPECT(!ibv_req_notify_cq(lonely[i].cq, 0));
}

static void expect_given_up(int i)
{
	struct ibv_wc wc;

	EXPECT(ibv_poll_cq(lonely[i].cq, 1, &wc) == 1 && wc.status == IBV_WC_RETRY_EXC_ERR);
}

static void *wait_behind_others(void *unused)
{
	struct sched_param none = {};

	EXPECT(!sched_setscheduler(0, SCHED_IDLE, &none));
	return wait_for_event(unused);
}

/* The wait began without a deadline, and dp1's own thread is quicker to wake.  After the wait, that
 * thread has the next deadline: it has slept for a packet since before the wait, and none came. */
static void a_deadline_is_heard_of(void)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	cpu_set_t before = run_on_one_cpu();
	pthread_t thread;

	make_lonely(0);
	make_lonely(1);
	usleep(CALM_US);
	EXPECT(!pthread_create(&thread, NULL, wait_behind_others, NULL));
	usleep(CALM_US);
	post(&lonely[0], IBV_WR_SEND, &lost[0]);
	EXPECT(!joined(thread));
	post(&lonely[1], IBV_WR_SEND, &lost[1]);
	EXPECT(poll(&fd, 1, -1) == 1 && !take_event());
	expect_given_up(0);
	expect_given_up(1);
	run_on(&before);
}

/* A program that has waited in the verb waits in poll() now. */
static void a_program_changes_its_way(void)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	int i;

	for (i = 0; i < 3; i++)
		exchange();
	post_recv();
	arm();
	send_message();
	EXPECT(poll(&fd, 1, -1) == 1 && !take_event());
	finish(&far);
	finish(&near);
}

static void make_other_queues(void)
{
	other_near.context = near.context;
	other_far.context = far.context;
	make_queues(&other_near, NULL);
	make_queues(&other_far, channel);
	connect_to(&other_near, &other_far);
	connect_to(&other_far, &other_near);
}

/* What the thread that serves leaves behind, others see on the descriptor. */
static void two_events_at_a_time(void)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	int round;

	make_other_queues();
	for (round = 0; round < ROUNDS; round++) {
		exchange(); /* the program waits in the verb */
		post_recv();
		post_recv_to(&other_far);
		arm();
		EXPECT(!ibv_req_notify_cq(other_far.cq, 0));
		send_message();
		post(&other_near, IBV_WR_SEND, &other_far);
		EXPECT(!take_event() && poll(&fd, 1, -1) == 1 && !take_event());
		EXPECT(!poll(&fd, 1, 0));
		finish(&far);
		finish(&other_far);
		finish(&near);
		finish(&other_near);
	}
}

/* The last case: from here on, dp1's own thread serves both. */
static void two_threads_wait(void)
{
	pthread_t threads[2] = { start_waiting(NULL), start_waiting(NULL) };
	int i;

	for (i = 0; i < 2; i++) {
		post_recv();
		arm();
		send_message();
		finish(&far);
		finish(&near);
	}
	for (i = 0; i < 2; i++)
		EXPECT(!joined(threads[i]));
	exchange();
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	EXPECT(devices && devices[0] && devices[1]);
	make_side(&near, devices[0], 0);
	make_side(&far, devices[1], 1);
	connect_to(&near, &far);
	connect_to(&far, &near);
	exchange();
	the_thread_that_waits_serves();
	if (SEES_CANCELLED_THREADS)
		a_cancelled_wait();
	a_signal_ends_the_wait();
	a_signal_does_not_end_the_wait();
	signals_of_both_kinds();
	another_thread_posts();
	a_deadline_is_heard_of();
	a_program_changes_its_way();
	two_events_at_a_time();
	two_threads_wait();
	EXPECT(!ibv_close_device(near.context) && !ibv_close_device(far.context));
	ibv_free_device_list(devices);
	return 0;
}
