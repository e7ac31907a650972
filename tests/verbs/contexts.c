/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Contexts of one device that open, close and share it, in any order.
 *
 *   contexts            the cases below, those with children, then some random runs
 *   contexts cases      the cases that fork no child: to valgrind, the memory of the parent's threads
 *                       is a leak in a child
 *   contexts SEED       one random run, told step by step
 *
 * A random run makes, connects, uses and destroys objects over two contexts,
 * forgets some, and closes contexts while their objects are alive.  It knows
 * which call must be refused.  AddressSanitizer sees what is used after it was
 * freed, LeakSanitizer what a closed context leaves behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d, seed %u, step %u: not so: %s (errno %d)\n",      \
				__LINE__, seed, step, #condition, errno);                          \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum {
	CONTEXTS = 2,
	OBJECTS = 64, /* of each kind */
	BYTES = 4096,
	RUNS = 100,
	STEPS = 400,
	FORKS = 200,
	PEERS = 1500,	   /* more than a port has places for (io/peers.h) */
	HANGS_S = 60,	   /* a child that takes so long waits for ever */
	TIMEOUT = 14,	   /* 67 ms, tried 8 times: no busy machine fails a request */
	TIMEOUT_SHORT = 6, /* 0.26 ms, tried twice: one to a peer that is gone fails soon */
};

static unsigned seed, step;
static int is_random;
static uint64_t state;
static uint8_t memory[2 * BYTES];
static struct ibv_device **devices;

/* ---- the vocabulary -------------------------------------------------------------- */

static struct ibv_context *open_device(void)
{
	struct ibv_context *context = ibv_open_device(devices[0]);

	EXPECT(context);
	return context;
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *send_cq, struct ibv_cq *recv_cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &attr);
}

/* From whatever state to RTS, towards a QP of that address. */
static void connect_far(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t dest_qpn)
{
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest_qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.timeout = is_random ? TIMEOUT_SHORT : TIMEOUT,
		.retry_cnt = is_random ? 1 : 7,
		.rnr_retry = is_random ? 1 : 7,
		.max_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid } },
	};

	attr.qp_state = IBV_QPS_RESET;
	EXPECT(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_INIT;
	EXPECT(!ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	EXPECT(!ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	EXPECT(!ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Towards a QP of the same device. */
static void connect_to(struct ibv_qp *qp, uint32_t dest_qpn)
{
	union ibv_gid gid;

	EXPECT(!ibv_query_gid(qp->context, 1, 0, &gid));
	connect_far(qp, &gid, dest_qpn);
}

static int post_recv(struct ibv_qp *qp, const struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)memory + BYTES, BYTES, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int post_send(struct ibv_qp *qp, const struct ibv_mr *mr, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, &wr, &bad);
}

static void wait_for(struct ibv_cq *cq, int completions)
{
	struct ibv_wc wc;
	int n;

	while (completions > 0) {
		n = ibv_poll_cq(cq, 1, &wc);
		EXPECT(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS));
		completions -= n;
	}
}

static int is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* One of each, all in one context. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct side make_side(void)
{
	struct side s = { .context = open_device() };

	s.pd = ibv_alloc_pd(s.context);
	s.mr = ibv_reg_mr(s.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	s.channel = ibv_create_comp_channel(s.context);
	s.cq = ibv_create_cq(s.context, 16, NULL, s.channel, 0);
	s.qp = make_qp(s.pd, s.cq, s.cq);
	EXPECT(s.pd && s.mr && s.channel && s.cq && s.qp);
	return s;
}

static void connect_sides(struct side *a, struct side *b)
{
	connect_to(a->qp, b->qp->qp_num);
	connect_to(b->qp, a->qp->qp_num);
}

static void exchange(struct side *a, struct side *b)
{
	EXPECT(!post_recv(b->qp, b->mr) && !post_send(a->qp, a->mr, 100));
	wait_for(a->cq, 1);
	wait_for(b->cq, 1);
}

/* ---- cases ------------------------------------------------------------------------- */

static void a_closed_context_ends_its_objects(void)
{
	struct side a = make_side(), b = make_side(), c = make_side();
	struct ibv_wc wc;

	connect_sides(&a, &b);
	exchange(&a, &b);
	/* An event of A's CQ is due when A is gone. */
	EXPECT(!ibv_req_notify_cq(a.cq, 0) && !post_recv(a.qp, a.mr));
	EXPECT(!ibv_close_device(a.context));
	EXPECT(!post_send(b.qp, b.mr, 100));
	while (!ibv_poll_cq(b.cq, 1, &wc))
		;
	EXPECT(wc.status == IBV_WC_RETRY_EXC_ERR);
	/* What others of the device do goes on. */
	connect_sides(&b, &c);
	exchange(&b, &c);
	EXPECT(!ibv_close_device(b.context) && !ibv_close_device(c.context));
}

static void events_that_nobody_took_go_with_their_context(void)
{
	struct side a = make_side(), b = make_side();

	connect_sides(&a, &b);
	EXPECT(!ibv_req_notify_cq(b.cq, 0) && !post_recv(b.qp, b.mr));
	EXPECT(!post_send(a.qp, a.mr, 100));
	wait_for(a.cq, 1);
	EXPECT(is_readable(b.channel->fd));
	EXPECT(!ibv_close_device(b.context) && !ibv_close_device(a.context));
}

static void an_event_that_is_not_acknowledged_does_not_stop_close(void)
{
	struct side a = make_side(), b = make_side();
	struct ibv_cq *cq;
	void *user;

	connect_sides(&a, &b);
	EXPECT(!ibv_req_notify_cq(b.cq, 0) && !post_recv(b.qp, b.mr));
	EXPECT(!post_send(a.qp, a.mr, 100));
	EXPECT(!ibv_get_cq_event(b.channel, &cq, &user) && cq == b.cq);
	EXPECT(!ibv_close_device(b.context) && !ibv_close_device(a.context));
}

/* As the kernel does, which knows objects by the context that made them. */
static void objects_of_two_contexts_do_not_mix(void)
{
	struct side a = make_side(), b = make_side();

	errno = 0;
	EXPECT(!make_qp(a.pd, b.cq, b.cq) && errno == EINVAL);
	errno = 0;
	EXPECT(!make_qp(a.pd, a.cq, b.cq) && errno == EINVAL);
	errno = 0;
	EXPECT(!ibv_create_cq(a.context, 4, NULL, b.channel, 0) && errno == EINVAL);
	EXPECT(!ibv_close_device(a.context) && !ibv_close_device(b.context));
}

/* A route goes with the last QP that uses it, whether that is destroyed, connected
 * to another peer, or closed with its context. */
static void a_device_may_see_any_number_of_peers(void)
{
	struct side a = make_side(), b = make_side();
	union ibv_gid gid;
	struct ibv_qp *qp;
	unsigned i;

	connect_sides(&a, &b);
	EXPECT(!ibv_query_gid(a.context, 1, 0, &gid));
	for (i = 0; i < PEERS; i++) {
		gid.raw[13] = 1;
		gid.raw[14] = (uint8_t)(i >> 8);
		gid.raw[15] = (uint8_t)i;
		qp = make_qp(a.pd, a.cq, a.cq);
		connect_far(qp, &gid, 1);
		gid.raw[13] = 2;
		connect_far(qp, &gid, 1);
		if (i % 2)
			EXPECT(!ibv_destroy_qp(qp));
		if (i % 500 == 499) {
			EXPECT(!ibv_close_device(a.context));
			a = make_side();
			connect_sides(&a, &b);
		}
	}
	exchange(&a, &b);
	EXPECT(!ibv_close_device(b.context) && !ibv_close_device(a.context));
}

/* ---- datagrams, shared receives, windows, parent domains ---------------------------- */

static unsigned allocated;

static void *take(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	(void)pd, (void)type;
	++*(unsigned *)context;
	return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void give_back(struct ibv_pd *pd, void *context, void *at, uint64_t type)
{
	(void)pd, (void)type;
	--*(unsigned *)context;
	free(at);
}

static struct ibv_pd *make_parent(struct ibv_pd *pd)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = take,
		.free = give_back,
		.pd_context = &allocated,
	};

	return ibv_alloc_parent_domain(pd->context, &attr);
}

static struct ibv_srq *make_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };

	return ibv_create_srq(pd, &attr);
}

static struct ibv_qp *make_datagram_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	EXPECT(qp && !ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	EXPECT(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	EXPECT(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static struct ibv_ah *make_ah(struct ibv_pd *pd, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid } };

	return ibv_create_ah(pd, &attr);
}

static void post_datagram(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = 1 },
	};

	EXPECT(!ibv_post_send(qp, &wr, &bad));
}

static void bind_window(struct side *s, struct ibv_mw *mw, const struct ibv_mr *mr)
{
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { (struct ibv_mr *)mr, (uintptr_t)memory, 10,
			       IBV_ACCESS_REMOTE_WRITE },
	};

	EXPECT(mw && !ibv_bind_mw(s->qp, mw, &bind));
	wait_for(s->cq, 1);
}

static void a_closed_context_ends_all_kinds(void)
{
	struct side a = make_side(), b = make_side();
	struct ibv_pd *parent = make_parent(a.pd);
	struct ibv_srq *srq = make_srq(a.pd);
	struct ibv_qp *datagrams, *lent;
	struct ibv_mr *mr;
	union ibv_gid gid;
	struct ibv_ah *ah;

	EXPECT(parent && srq && !ibv_query_gid(a.context, 1, 0, &gid));
	connect_sides(&a, &b);
	mr = ibv_reg_mr(a.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	EXPECT(mr);
	bind_window(&a, ibv_alloc_mw(a.pd, IBV_MW_TYPE_1), mr);
	EXPECT(ibv_dereg_mr(mr) == EBUSY); /* a window is bound to it */
	lent = make_qp(parent, a.cq, a.cq);
	EXPECT(lent && allocated == 1 && ibv_dealloc_pd(parent) == EBUSY);
	datagrams = make_datagram_qp(a.pd, a.cq, srq);
	ah = make_ah(a.pd, &gid);
	EXPECT(ah && ibv_destroy_srq(srq) == EBUSY && ibv_dealloc_pd(a.pd) == EBUSY);
	post_datagram(datagrams, ah, datagrams->qp_num);
	wait_for(a.cq, 1);
	EXPECT(!ibv_close_device(a.context) && !allocated);
	EXPECT(!ibv_close_device(b.context));
}

/* An address handle holds a route as a QP does. */
static void address_handles_to_any_number_of_peers(void)
{
	struct side a = make_side();
	struct ibv_qp *qp = make_datagram_qp(a.pd, a.cq, NULL);
	union ibv_gid gid;
	struct ibv_ah *ah;
	unsigned i;

	EXPECT(!ibv_query_gid(a.context, 1, 0, &gid));
	for (i = 0; i < PEERS; i++) {
		gid.raw[13] = 3;
		gid.raw[14] = (uint8_t)(i >> 8);
		gid.raw[15] = (uint8_t)i;
		ah = make_ah(a.pd, &gid);
		EXPECT(ah);
		post_datagram(qp, ah, 1);
		EXPECT(!ibv_destroy_ah(ah)); /* whether it was sent or still waited */
		wait_for(a.cq, 1);
	}
	EXPECT(!ibv_close_device(a.context));
}

/* ---- fork -------------------------------------------------------------------------------- */

static void ends_well(pid_t child)
{
	int status;

	EXPECT(waitpid(child, &status, 0) == child && !status);
}

/* The lists of a context: another thread might have added an object while this one forks. */
static void a_child_waits_for_no_context(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct side a = make_side();
	struct ibv_dm *dm = ibv_alloc_dm(a.context, &attr);
	pid_t child;

	EXPECT(dm && !pthread_mutex_lock(&a.context->mutex));
	child = fork();
	EXPECT(child >= 0);
	if (!child) {
		alarm(HANGS_S);
		EXPECT(!ibv_free_dm(dm) && ibv_dealloc_pd(a.pd) == EIO);
		_exit(0);
	}
	EXPECT(!pthread_mutex_unlock(&a.context->mutex));
	ends_well(child);
	EXPECT(!ibv_close_device(a.context));
}

static atomic_int asks;

static void ask(const struct side *s)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *user;

	EXPECT(ibv_get_async_event(s->context, &event) && errno == EAGAIN);
	EXPECT(ibv_get_cq_event(s->channel, &cq, &user) && errno == EAGAIN);
}

static void *go_on_asking(void *side)
{
	while (asks)
		ask(side);
	return NULL;
}

static void a_child_waits_for_no_queue(void)
{
	struct side a = make_side();
	pthread_t other;
	pid_t child;
	int i;

	EXPECT(!fcntl(a.context->async_fd, F_SETFL, O_NONBLOCK));
	EXPECT(!fcntl(a.channel->fd, F_SETFL, O_NONBLOCK));
	asks = 1;
	EXPECT(!pthread_create(&other, NULL, go_on_asking, &a));
	for (i = 0; i < FORKS; i++) {
		child = fork();
		EXPECT(child >= 0);
		if (!child) {
			alarm(HANGS_S);
			ask(&a);
			_exit(0);
		}
		ends_well(child);
	}
	asks = 0;
	EXPECT(!pthread_join(other, NULL) && !ibv_close_device(a.context));
}

/* ---- random runs --------------------------------------------------------------------- */

struct object {
	int context;
	void *verbs; /* NULL: this place is free */
	struct object *uses[3];
	unsigned users;
};

static struct ibv_context *contexts[CONTEXTS];
static struct object pds[OBJECTS], mrs[OBJECTS], channels[OBJECTS], cqs[OBJECTS], qps[OBJECTS];
static struct object *const all[] = { pds, mrs, channels, cqs, qps };

static uint32_t pick(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32) % n;
}

/* One that is alive, of the context (-1: of any). */
static struct object *pick_of(struct object *kind, int context)
{
	uint32_t start = pick(OBJECTS), i;
	struct object *o;

	for (i = 0; i < OBJECTS; i++) {
		o = &kind[(start + i) % OBJECTS];
		if (o->verbs && (context < 0 || o->context == context))
			return o;
	}
	return NULL;
}

static void add(struct object *kind, int context, void *verbs, struct object *a, struct object *b,
		struct object *c)
{
	struct object fresh = { .context = context, .verbs = verbs, .uses = { a, b, c } };
	int i;

	EXPECT(verbs);
	for (i = 0; i < 3; i++)
		if (fresh.uses[i])
			fresh.uses[i]->users++;
	for (i = 0; kind[i].verbs; i++)
		;
	kind[i] = fresh;
}

static int is_full(const struct object *kind)
{
	int i, n = 0;

	for (i = 0; i < OBJECTS; i++)
		n += kind[i].verbs != NULL;
	return n == OBJECTS;
}

static void make_pd(int c)
{
	if (!is_full(pds))
		add(pds, c, ibv_alloc_pd(contexts[c]), NULL, NULL, NULL);
}

static void make_mr(int c)
{
	struct object *pd = pick_of(pds, c);

	if (pd && !is_full(mrs))
		add(mrs, c, ibv_reg_mr(pd->verbs, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE),
		    pd, NULL, NULL);
}

static void make_channel(int c)
{
	if (!is_full(channels))
		add(channels, c, ibv_create_comp_channel(contexts[c]), NULL, NULL, NULL);
}

static void make_cq(int c)
{
	struct object *channel = pick(2) ? pick_of(channels, c) : NULL;

	if (!is_full(cqs))
		add(cqs, c,
		    ibv_create_cq(contexts[c], 1 + (int)pick(8), NULL,
				  channel ? channel->verbs : NULL, 0),
		    channel, NULL, NULL);
}

static void make_random_qp(int c)
{
	struct object *pd = pick_of(pds, c), *a = pick_of(cqs, c), *b = pick_of(cqs, c);

	if (pd && a && !is_full(qps))
		add(qps, c, make_qp(pd->verbs, a->verbs, b->verbs), pd, a, b);
}

static void connect_random(int c)
{
	struct object *a = pick_of(qps, c), *b = pick_of(qps, -1);

	if (!a)
		return;
	connect_to(a->verbs, ((struct ibv_qp *)b->verbs)->qp_num);
	connect_to(b->verbs, ((struct ibv_qp *)a->verbs)->qp_num);
}

/* Posting may be refused for many reasons; using freed memory has none. */
static void use_random(int c)
{
	struct object *qp = pick_of(qps, c), *mr = pick_of(mrs, c), *cq = pick_of(cqs, c);
	struct ibv_wc wc[4];

	if (qp && mr) {
		post_recv(qp->verbs, mr->verbs);
		post_send(qp->verbs, mr->verbs, pick(BYTES));
	}
	if (cq && pick(2))
		EXPECT(!ibv_req_notify_cq(cq->verbs, (int)pick(2)));
	if (cq)
		EXPECT(ibv_poll_cq(cq->verbs, 4, wc) >= 0);
}

static void take_events(int c)
{
	struct object *o = pick_of(channels, c);
	struct ibv_comp_channel *channel = o ? o->verbs : NULL;
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *user;

	if (channel && is_readable(channel->fd)) {
		EXPECT(!ibv_get_cq_event(channel, &cq, &user));
		ibv_ack_cq_events(cq, 1);
	}
	if (is_readable(contexts[c]->async_fd)) {
		EXPECT(!ibv_get_async_event(contexts[c], &event));
		ibv_ack_async_event(&event);
	}
}

static int end(struct object *kind, void *verbs)
{
	return kind == pds	? ibv_dealloc_pd(verbs) :
	       kind == mrs	? ibv_dereg_mr(verbs) :
	       kind == channels ? ibv_destroy_comp_channel(verbs) :
	       kind == cqs	? ibv_destroy_cq(verbs) :
				  ibv_destroy_qp(verbs);
}

static void forget(struct object *o)
{
	int i;

	for (i = 0; i < 3; i++)
		if (o->uses[i])
			o->uses[i]->users--;
	o->verbs = NULL;
}

static void destroy_random(int c)
{
	struct object *kind = all[pick(sizeof(all) / sizeof(all[0]))], *o = pick_of(kind, c);

	if (!o)
		return;
	EXPECT(end(kind, o->verbs) == (o->users ? EBUSY : 0));
	if (!o->users)
		forget(o);
}

static void close_context(int c)
{
	struct object *o;
	size_t kind;

	EXPECT(!ibv_close_device(contexts[c]));
	contexts[c] = NULL;
	for (kind = 0; kind < sizeof(all) / sizeof(all[0]); kind++)
		while ((o = pick_of(all[kind], c)))
			forget(o);
}

static void close_sometimes(int c)
{
	if (!pick(8))
		close_context(c);
}

static const struct {
	const char *name;
	void (*act)(int context);
} acts[] = {
	{ "make a PD", make_pd },
	{ "make an MR", make_mr },
	{ "make a channel", make_channel },
	{ "make a CQ", make_cq },
	{ "make a QP", make_random_qp },
	{ "connect", connect_random },
	{ "use", use_random },
	{ "use", use_random },
	{ "use", use_random },
	{ "take events", take_events },
	{ "destroy", destroy_random },
	{ "destroy", destroy_random },
	{ "close", close_sometimes },
};

static void run(unsigned with_seed, int verbose)
{
	uint32_t what;
	int c;

	seed = with_seed;
	state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	is_random = 1;
	for (step = 1; step <= STEPS; step++) {
		c = (int)pick(CONTEXTS);
		what = pick(sizeof(acts) / sizeof(acts[0]));
		if (verbose)
			fprintf(stderr, "%u: context %d: %s\n", step, c, acts[what].name);
		if (!contexts[c])
			contexts[c] = open_device();
		acts[what].act(c);
	}
	for (c = 0; c < CONTEXTS; c++)
		if (contexts[c])
			close_context(c);
}

static void run_cases(void)
{
	a_closed_context_ends_its_objects();
	events_that_nobody_took_go_with_their_context();
	an_event_that_is_not_acknowledged_does_not_stop_close();
	objects_of_two_contexts_do_not_mix();
	a_device_may_see_any_number_of_peers();
	a_closed_context_ends_all_kinds();
	address_handles_to_any_number_of_peers();
}

int main(int argc, char **argv)
{
	devices = ibv_get_device_list(NULL);
	EXPECT(devices && devices[0]);
	if (argc > 1 && strcmp(argv[1], "cases"))
		run((unsigned)atoi(argv[1]), 1);
	else
		run_cases();
	if (argc == 1) {
		a_child_waits_for_no_context();
		a_child_waits_for_no_queue();
	}
	while (argc == 1 && seed < RUNS)
		run(seed + 1, 0);
	ibv_free_device_list(devices);
	return 0;
}
