/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What ibv_query_device() promises, reached: many queue pairs, many work requests, a large
 * memory region.  QPs of dp0 are connected in pairs.
 *
 *   limits qps N        makes N QPs, each receives a message; says bytes and QPs
 *   limits requests     2^20 receives are outstanding; says how many, then messages take some
 *   limits idle N       N QPs have received a message each; says the CPU time (us) and the context
 *                       switches of the process in two seconds: the first two in which hardly
 *                       anything was done, of ten
 *   limits region GIB   registers that much, and a peer reads its last bytes
 */
#include <infiniband/verbs.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what);                         \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum { QUEUE = 4, BATCH = 64, FIRST = 512, REQUESTS_QPS = 64, REQUESTS_EACH = 16384 };
enum { SWITCHES_FEW = 10, CPU_FEW_US = 10000 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static union ibv_gid gid;
static char memory[4096];

static size_t allocated(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static struct ibv_qp *make_qp(unsigned receives)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = QUEUE,
			 .max_recv_wr = receives,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	MUST(qp);
	return qp;
}

static void connect_to(struct ibv_qp *qp, const struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = gid, .hop_limit = 1 } },
	};

	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_qp **make_qps(int n, unsigned receives)
{
	struct ibv_qp **qps = calloc((size_t)n, sizeof(*qps));

	MUST(qps);
	for (int i = 0; i < n; i++)
		qps[i] = make_qp(receives);
	for (int i = 0; i < n; i++)
		connect_to(qps[i], qps[i ^ 1]);
	return qps;
}

static void post_receive(struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(!ibv_post_recv(qp, &wr, &bad));
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t address, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)memory + 1024, 8, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = key;
	MUST(!ibv_post_send(qp, &wr, &bad));
}

static void complete(int n)
{
	struct ibv_wc wc[BATCH];
	int got;

	for (; n > 0; n -= got) {
		MUST((got = ibv_poll_cq(cq, BATCH, wc)) >= 0);
		for (int i = 0; i < got; i++)
			MUST(wc[i].status == IBV_WC_SUCCESS);
	}
}

/* Every QP sends one, and its peer receives it. */
static void exchange(struct ibv_qp **qps, int n)
{
	for (int i = 0; i < n; i += BATCH) {
		int end = i + BATCH < n ? i + BATCH : n;

		for (int k = i; k < end; k++)
			post_receive(qps[k]);
		for (int k = i; k < end; k++)
			post(qps[k], IBV_WR_SEND, 0, 0);
		complete(2 * (end - i));
	}
}

/* The first ones have memory set aside, so the others tell what an idle QP costs. */
static void many_qps(int n)
{
	struct ibv_qp **first = make_qps(FIRST, QUEUE);
	size_t before = allocated();
	struct ibv_qp **qps = make_qps(n - FIRST, QUEUE);

	printf("%zu %d\n", (allocated() - before) / (size_t)(n - FIRST), n);
	exchange(qps, n - FIRST);
	MUST(first[0]);
}

static long cpu_us(const struct rusage *usage)
{
	return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
	       usage->ru_utime.tv_usec + usage->ru_stime.tv_usec;
}

/* A busy host is still at the last acknowledgements and offers for a while. */
static void idle_qps(int n)
{
	struct rusage before, after;
	long cpu, switches;
	int left = 5;

	exchange(make_qps(n, QUEUE), n);
	sleep(1);
	do {
		getrusage(RUSAGE_SELF, &before);
		sleep(2);
		getrusage(RUSAGE_SELF, &after);
		cpu = cpu_us(&after) - cpu_us(&before);
		switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw;
	} while ((cpu > CPU_FEW_US || switches > SWITCHES_FEW) && --left);
	printf("%ld %ld\n", cpu, switches);
}

static void many_requests(void)
{
	struct ibv_qp **qps = make_qps(REQUESTS_QPS, REQUESTS_EACH);

	for (int i = 0; i < REQUESTS_QPS; i++)
		for (int k = 0; k < REQUESTS_EACH; k++)
			post_receive(qps[i]);
	printf("%d\n", REQUESTS_QPS * REQUESTS_EACH);
	for (int i = 0; i < REQUESTS_QPS; i++)
		post(qps[i], IBV_WR_SEND, 0, 0);
	complete(2 * REQUESTS_QPS);
}

/* Of pages that were never written the kernel has one for all. */
static void large_region(size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_qp **qps = make_qps(2, QUEUE);
	struct ibv_mr *large;

	MUST(at != MAP_FAILED);
	memcpy(at + bytes - 8, "the end", 8);
	MUST((large = ibv_reg_mr(pd, at, bytes, IBV_ACCESS_REMOTE_READ)));
	post(qps[0], IBV_WR_RDMA_READ, (uintptr_t)at + bytes - 8, large->rkey);
	complete(1);
	printf("%s\n", memory + 1024);
}

int main(int argc, char **argv)
{
	struct ibv_device **all = ibv_get_device_list(NULL);

	MUST(argc > 1 && all && (context = ibv_open_device(all[0])));
	MUST((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 4096, NULL, NULL, 0)));
	MUST((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	MUST(!ibv_query_gid(context, 1, 0, &gid));
	if (!strcmp(argv[1], "qps"))
		many_qps(atoi(argv[2]));
	else if (!strcmp(argv[1], "idle"))
		idle_qps(atoi(argv[2]));
	else if (!strcmp(argv[1], "requests"))
		many_requests();
	else
		large_region((size_t)atoi(argv[2]) << 30);
	return 0;
}
