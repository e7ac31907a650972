// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The communicator's thread: completions, messages, new work and signs of life.
 *
 * Each rank writes a counter to its peers, from this thread, whether or not a collective runs.  A
 * peer whose counter stands still for silence_ms is gone: it has ended, has been stopped, or cannot
 * be reached.  So a rank that only receives notices it as well as one that sends.
 */
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "collectives/live/coll.h"
#include "posix/thread.h"

enum {
	BEATS = 8,	 /* signs of life in silence_ms */
	LEAVE_MS = 1000, /* longest wait for DATA ahead of a farewell */
	MS_NS = 1000000,
};

static uint64_t silence_ns(const struct dpcoll *comm)
{
	return (uint64_t)comm->cfg.silence_ms * MS_NS;
}

/* ---- completions ------------------------------------------------------------------ */

static int failed(struct dpcoll *comm, struct coll_conn *conn, const struct ibv_wc *wc)
{
	bool sends = wc->wr_id >> 56 != COLL_RECEIVED;
	char where[160], ends[64];

	coll_note(comm, "failed", conn, wc->status);
	coll_step_name(comm, conn, sends, where, sizeof(where));
	coll_conn_name(conn, "to", ends, sizeof(ends));
	return coll_fail(comm, ECONNABORTED, "rank %u is gone: %s, %s it on channel %u, %s: %s",
			 conn->peer, where, sends ? "sending to" : "receiving from", conn->channel,
			 ends, ibv_wc_status_str(wc->status));
}

/* A peer closes, or has failed.  What it sent before is taken first: a collective may end by it. */
static int told_farewell(struct dpcoll *comm)
{
	struct coll_conn *conn = comm->parted;
	char *text = conn->memory->mailbox, where[160];

	text[COLL_ERROR_BYTES - 1] = 0;
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	coll_note(comm, "farewell", conn, 0);
	coll_step_name(comm, conn, false, where, sizeof(where));
	return coll_fail(comm, ECONNABORTED, "%.*s; rank %u told %s", COLL_ERROR_BYTES - 200, text,
			 conn->peer, where);
}

static int heard(struct dpcoll *comm, struct coll_conn *conn, uint64_t message)
{
	uint32_t imm = (uint32_t)message, number = imm & 0xffffff;

	switch (imm >> 24) {
	case COLL_DATA:
		if (conn->arrived - conn->taken >= COLL_SLOTS)
			return coll_fail(comm, EPROTO, "rank %u sends more than it may",
					 conn->peer);
		conn->arrival[conn->arrived++ % COLL_SLOTS] = (struct coll_arrival){
			.number = number, .bytes = (uint32_t)(message >> 32), .at_ns = comm->now_ns
		};
		comm->stirred[conn - comm->conn] = true;
		break;
	case COLL_CREDIT:
		conn->credits += (number - (conn->credits - COLL_SLOTS)) & 0xffffff;
		comm->stirred[conn - comm->conn] = true;
		break;
	case COLL_FAREWELL:
		if (!comm->parted)
			comm->parted = conn;
		break;
	case COLL_GREETING:
		conn->greeted = true;
		if (conn->peer < comm->cfg.rank)
			return coll_tell(comm, conn, COLL_GREETING, 0);
		break;
	default:
		return coll_fail(comm, EPROTO, "rank %u sends what this rank does not know: 0x%x",
				 conn->peer, imm);
	}
	/* A message on any channel is a sign of life: the watched one may be busy with long
	 * DATA. */
	comm->conn[conn->watched].seen_ns = comm->now_ns;
	return 0;
}

static int complete(struct dpcoll *comm, const struct ibv_wc *wc)
{
	struct coll_conn *conn = &comm->conn[(uint32_t)wc->wr_id];

	bool sent = wc->wr_id >> 56 == COLL_SENT;
	int err;

	if (sent || wc->wr_id >> 56 == COLL_TOLD)
		conn->outstanding--;
	if (wc->status != IBV_WC_SUCCESS)
		return comm->parted ? told_farewell(comm) : failed(comm, conn, wc);
	if (wc->wr_id >> 56 == COLL_RECEIVED) {
		err = heard(comm, conn, coll_said(conn, wc));
		return err ? err : coll_post_receive(comm, conn, wc->wr_id >> 32 & 0xffff);
	}
	if (sent)
		coll_run_sent(comm, conn);
	return 0;
}

static int poll_device(struct dpcoll *comm, struct coll_device *device)
{
	struct ibv_wc wc[COLL_BATCH];
	int n = ibv_poll_cq(device->cq, COLL_BATCH, wc), err = 0;

	if (n < 0)
		return coll_fail(comm, EIO, "polling the CQ of %s failed", device->name);
	if (n)
		comm->now_ns = dp_now_ns();
	for (int i = 0; i < n && !err; i++)
		err = complete(comm, &wc[i]);
	return err ? err : n;
}

static int left_memory(struct dpcoll *comm, const struct coll_conn *conn)
{
	char where[160];

	coll_note(comm, "process ended", conn, conn->neighbour->pid);
	coll_step_name(comm, conn, false, where, sizeof(where));
	return coll_fail(comm, ECONNABORTED,
			 "rank %u is gone: %s, its process %u, which shared memory with this one, "
			 "has ended",
			 conn->peer, where, conn->neighbour->pid);
}

static int poll_memory(struct dpcoll *comm, struct coll_conn *conn)
{
	bool gone = conn->neighbour->gone; /* what it wrote before comes first */
	uint64_t message;
	int n = 0, got;

	while ((got = coll_shared_receive(comm, conn, &message)) > 0) {
		if (!n++)
			comm->now_ns = dp_now_ns();
		got = heard(comm, conn, message);
		if (got)
			return got;
	}
	if (!got && !n && gone)
		return comm->parted ? told_farewell(comm) : left_memory(comm, conn);
	return got ? got : n;
}

int coll_poll(struct dpcoll *comm)
{
	int moved = 0, n = 0;

	for (uint32_t i = 0; i < comm->n_devices && n >= 0; i++) {
		n = poll_device(comm, &comm->device[i]);
		moved += n;
	}
	for (uint32_t i = 0; comm->n_neighbours && i < comm->n_conns && n >= 0; i++) {
		if (!comm->conn[i].neighbour)
			continue;
		n = poll_memory(comm, &comm->conn[i]);
		moved += n;
	}
	return n < 0 ? n : moved;
}

/* ---- signs of life ---------------------------------------------------------------- */

static int look_at(struct dpcoll *comm, struct coll_conn *conn)
{
	uint64_t alive = __atomic_load_n(&conn->memory->alive, __ATOMIC_RELAXED);
	char where[160], ends[64];

	if (alive != conn->seen_alive) {
		conn->seen_alive = alive;
		conn->seen_ns = comm->now_ns;
	}
	if (comm->now_ns - conn->seen_ns < silence_ns(comm))
		return 0;
	coll_step_name(comm, conn, false, where, sizeof(where));
	coll_conn_name(conn, "from", ends, sizeof(ends));
	return coll_fail(comm, ECONNABORTED,
			 "rank %u is gone: %s, no sign of life for %llu ms on %s", conn->peer,
			 where, (unsigned long long)(comm->now_ns - conn->seen_ns) / MS_NS, ends);
}

static int beat(struct dpcoll *comm)
{
	uint64_t late = comm->now_ns - comm->beat_ns;
	int err = 0;

	comm->beat_ns = comm->now_ns + silence_ns(comm) / BEATS;
	__atomic_add_fetch(comm->alive, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < comm->n_conns && !err; i++) {
		struct coll_conn *conn = &comm->conn[i];

		if (!coll_is_watched(comm, conn))
			continue;
		/* This process stood still itself, so it cannot tell what peers did meanwhile. */
		if (late > silence_ns(comm) / 2)
			conn->seen_ns = comm->now_ns;
		err = look_at(comm, conn);
		if (!err && conn->outstanding < COLL_SENDS - 2)
			err = coll_tell(comm, conn, COLL_ALIVE, 0);
	}
	return err;
}

/* ---- the loop --------------------------------------------------------------------- */

static int next_work(struct dpcoll *comm)
{
	struct dpcoll_work *work;

	pthread_mutex_lock(&comm->lock);
	work = comm->first;
	if (work) {
		comm->first = work->next;
		if (!comm->first)
			comm->last = NULL;
	}
	pthread_mutex_unlock(&comm->lock);
	return work ? coll_run_begin(comm, work) : 0;
}

/* Whether a collective waits that nobody will ring for: take_events() may have taken its ring
 * together with that of an earlier one, which has ended in this turn. */
static bool has_next(struct dpcoll *comm)
{
	bool next;

	pthread_mutex_lock(&comm->lock);
	next = comm->first && !comm->work;
	pthread_mutex_unlock(&comm->lock);
	return next;
}

static bool is_closing(struct dpcoll *comm)
{
	bool closing;

	pthread_mutex_lock(&comm->lock);
	closing = comm->closing;
	pthread_mutex_unlock(&comm->lock);
	return closing;
}

static int turn(struct dpcoll *comm)
{
	int n = coll_poll(comm), err = n < 0 ? n : 0;

	if (!err && !comm->work)
		err = next_work(comm);
	if (!err)
		err = coll_run_on(comm);
	if (err > 0) {
		n++;
		err = 0;
	} else if (!err && comm->parted && !has_next(comm)) {
		err = told_farewell(comm);
	}
	if (!err && comm->now_ns >= comm->beat_ns)
		err = beat(comm);
	if (err || n || !comm->idle_ns)
		comm->idle_ns = comm->now_ns + (uint64_t)comm->cfg.spin_us * 1000;
	if (!err && !n && (comm->now_ns = dp_now_ns()) >= comm->idle_ns && !has_next(comm))
		err = coll_sleep(comm);
	return err < 0 ? err : 0;
}

static void drain(struct dpcoll *comm, struct ibv_cq *cq)
{
	struct ibv_wc wc[COLL_BATCH];
	int n;

	while ((n = ibv_poll_cq(cq, COLL_BATCH, wc)) > 0)
		for (int i = 0; i < n; i++)
			if (wc[i].wr_id >> 56 == COLL_SENT || wc[i].wr_id >> 56 == COLL_TOLD)
				comm->conn[(uint32_t)wc[i].wr_id].outstanding--;
}

/* Whether all farewells have been delivered, or cannot be. */
static bool all_told(struct dpcoll *comm)
{
	bool told = true;

	for (uint32_t i = 0; i < comm->n_devices; i++)
		drain(comm, comm->device[i].cq);
	for (uint32_t i = 0; i < comm->n_conns; i++)
		told &= !comm->conn[i].leaving || !comm->conn[i].outstanding;
	return told;
}

static void nap(uint64_t ms)
{
	struct timespec time = { .tv_nsec = (long)(ms * MS_NS) };

	nanosleep(&time, NULL);
}

/* Whether DATA is under way to a peer that was alive not long before a time. */
static bool is_sending(struct dpcoll *comm, uint64_t at_ns)
{
	bool sending = false;

	for (uint32_t i = 0; i < comm->n_devices; i++)
		drain(comm, comm->device[i].cq);
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		const struct coll_conn *conn = &comm->conn[i];
		uint64_t seen_ns = comm->conn[conn->watched].seen_ns;

		sending |= conn->next_sent < conn->next_send && conn->outstanding &&
			   at_ns - seen_ns < silence_ns(comm) / 2;
	}
	return sending;
}

/*
 * A farewell waits in the send queue behind DATA, which is read from the caller's memory until work
 * ends.  If that memory is taken away before, the QP fails, and the farewell with it.
 */
static void leave(struct dpcoll *comm)
{
	uint64_t now = dp_now_ns(), patience = silence_ns(comm) / 2;

	if (patience > LEAVE_MS * MS_NS)
		patience = LEAVE_MS * MS_NS;
	coll_bid_farewell(comm);
	while (is_sending(comm, now) && dp_now_ns() < now + patience)
		nap(1);
	coll_end_all(comm);
}

/* After a failure: until the communicator is closed, and farewells have left. */
static void linger(struct dpcoll *comm)
{
	uint64_t until = dp_now_ns() + silence_ns(comm) / 2;
	bool told = all_told(comm);

	while (!is_closing(comm) || (!told && dp_now_ns() < until)) {
		nap(10);
		told = all_told(comm);
	}
}

static void *run(void *argument)
{
	struct dpcoll *comm = argument;
	int err = 0;

	comm->now_ns = comm->beat_ns = dp_now_ns();
	/* Peers beat from here on: a rank that came late has held up all of them until now. */
	for (uint32_t i = 0; i < comm->n_conns; i++)
		comm->conn[i].seen_ns = comm->now_ns;
	while (!err && !is_closing(comm) && !coll_has_failed(comm))
		err = turn(comm);
	if (coll_has_failed(comm)) {
		leave(comm);
		linger(comm);
	}
	return NULL;
}

int coll_thread_start(struct dpcoll *comm)
{
	int err;

	comm->stirred = calloc(comm->n_conns + 1, sizeof(*comm->stirred));
	comm->wait = calloc(2 + COLL_DEVICES + comm->n_neighbours, sizeof(*comm->wait));
	if (!comm->stirred || !comm->wait)
		return coll_fail(comm, ENOMEM, "no memory for a thread");
	comm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (comm->wake_fd < 0)
		return coll_fail(comm, errno, "eventfd: %s", strerror(errno));
	err = dp_thread_start(&comm->thread, run, comm);
	if (err)
		return coll_fail(comm, -err, "thread: %s", strerror(-err));
	comm->running = true;
	return 0;
}

void coll_wake(struct dpcoll *comm)
{
	uint64_t one = 1;

	if (write(comm->wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: the thread will wake */
}

void coll_thread_stop(struct dpcoll *comm)
{
	if (comm->running) {
		pthread_mutex_lock(&comm->lock);
		comm->closing = true;
		pthread_mutex_unlock(&comm->lock);
		coll_wake(comm);
		pthread_join(comm->thread, NULL);
	}
	if (comm->wake_fd >= 0)
		close(comm->wake_fd);
}
