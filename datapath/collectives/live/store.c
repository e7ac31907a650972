// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Ranks meet: rank 0 listens, and takes in who shows the job's token.  Whoever connects and says
 * nothing keeps nobody out.  Rank 0 gathers a record of each rank and hands all of them out, as often
 * as it is asked to.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/live/coll.h"
#include "posix/forked.h"

struct hello {
	char magic[8];
	char token[COLL_TOKEN_BYTES];
	uint32_t rank, ranks;
};

#define MAGIC "DPCOLL2"

enum {
	RETRY_MS = 20,
	LOOK_MS = 100, /* how often a rank that waits looks whether its communicator has failed */
	CALLERS = 64,  /* who have connected and not said yet who they are */
	MS_NS = 1000000,
};

static int left_ms(uint64_t until_ns)
{
	uint64_t now = dp_now_ns(), left = now < until_ns ? (until_ns - now) / MS_NS + 1 : 0;

	return left < INT_MAX ? (int)left : INT_MAX;
}

/* Waits until the socket is ready; 0, or -errno. */
static int await(struct dpcoll *comm, struct pollfd *wait, uint64_t until_ns)
{
	for (;;) {
		int left = left_ms(until_ns);
		int n = poll(wait, 1, left < LOOK_MS ? left : LOOK_MS);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (!left_ms(until_ns))
			return -ETIMEDOUT;
		if (coll_has_failed(comm))
			return -ECONNABORTED;
	}
}

/* Sends or receives all bytes, until a time at most; 0, or -errno. */
static int move(struct dpcoll *comm, int fd, void *data, size_t bytes, bool out, uint64_t until_ns)
{
	struct pollfd wait = { .fd = fd, .events = out ? POLLOUT : POLLIN };
	char *at = data;

	while (bytes) {
		ssize_t n;
		int err = await(comm, &wait, until_ns);

		if (err)
			return err;
		n = out ? send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) :
			  recv(fd, at, bytes, MSG_DONTWAIT);
		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

static uint64_t deadline(const struct dpcoll *comm)
{
	return dp_now_ns() + (uint64_t)comm->cfg.meet_ms * MS_NS;
}

static struct sockaddr_in address_of(const struct dpcoll *comm)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(comm->cfg.store_port) };

	inet_pton(AF_INET, comm->address, &address.sin_addr);
	return address;
}

/* 0, or an errno. */
static int connect_until(struct dpcoll *comm, const struct sockaddr_in *address, uint64_t until_ns)
{
	struct pollfd wait = { .fd = comm->store_fd, .events = POLLOUT };
	socklen_t bytes = sizeof(int);
	int err;

	if (!connect(comm->store_fd, (const struct sockaddr *)address, sizeof(*address)))
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	err = -await(comm, &wait, until_ns);
	if (!err && getsockopt(comm->store_fd, SOL_SOCKET, SO_ERROR, &err, &bytes))
		err = errno;
	return err;
}

static int join(struct dpcoll *comm)
{
	struct sockaddr_in address = address_of(comm);
	struct hello hello = { .magic = MAGIC, .rank = comm->cfg.rank, .ranks = comm->cfg.ranks };
	uint64_t until = deadline(comm);
	int on = 1, err;

	memcpy(hello.token, comm->token, sizeof(hello.token));
	for (;;) {
		comm->store_fd =
			dp_own_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
		if (comm->store_fd < 0)
			return coll_fail(comm, errno, "socket: %s", strerror(errno));
		err = connect_until(comm, &address, until);
		if (!err)
			break;
		dp_close_own_fd(comm->store_fd);
		comm->store_fd = -1;
		if (dp_now_ns() > until)
			return coll_fail(comm, err, "rank %u: rank 0 is not at %s port %u: %s",
					 comm->cfg.rank, comm->address, comm->cfg.store_port,
					 strerror(err));
		usleep(RETRY_MS * 1000);
	}
	setsockopt(comm->store_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	err = move(comm, comm->store_fd, &hello, sizeof(hello), true, until);
	return err ? coll_fail(comm, -err, "rank 0 hung up: %s", strerror(-err)) : 0;
}

/* Takes one rank in, whose greeting is here, or turns a stranger away. */
static int admit(struct dpcoll *comm, int fd)
{
	struct hello hello;
	int on = 1;

	if (recv(fd, &hello, sizeof(hello), MSG_DONTWAIT) != sizeof(hello) ||
	    memcmp(hello.magic, MAGIC, sizeof(hello.magic)) ||
	    memcmp(hello.token, comm->token, sizeof(hello.token))) {
		dp_close_own_fd(fd);
		return 0;
	}
	if (hello.ranks != comm->cfg.ranks || !hello.rank || hello.rank >= hello.ranks ||
	    comm->store_peer[hello.rank] >= 0) {
		dp_close_own_fd(fd);
		return coll_fail(comm, EPROTO,
				 "rank %u of %u came to a job of %u ranks, or came twice",
				 hello.rank, hello.ranks, comm->cfg.ranks);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &on, sizeof(on));
	comm->store_peer[hello.rank] = fd;
	return 1;
}

/* Names some of the ranks that have not come. */
static int missing(struct dpcoll *comm)
{
	char names[64] = "";
	size_t used = 0;

	for (uint32_t r = 1; r < comm->cfg.ranks && used + 16 < sizeof(names); r++)
		if (comm->store_peer[r] < 0)
			used += (size_t)snprintf(names + used, sizeof(names) - used, " %u", r);
	return coll_fail(comm, ETIMEDOUT, "these ranks have not come to %s port %u within %u ms:%s",
			 comm->address, comm->cfg.store_port, comm->cfg.meet_ms, names);
}

/* The socket that the caller has, or one of our own. */
static int listen_at(struct dpcoll *comm)
{
	struct sockaddr_in address = address_of(comm);
	bool given = comm->cfg.store_fd > 0;
	int on = 1, fd = dp_own_fd(given ? fcntl(comm->cfg.store_fd, F_DUPFD_CLOEXEC, 0) :
					   socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));

	comm->store_fd = fd;
	if (fd < 0)
		return coll_fail(comm, errno, "socket: %s", strerror(errno));
	if (given)
		return 0;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(fd, (int)comm->cfg.ranks))
		return coll_fail(comm, errno, "rank 0 cannot listen at %s port %u: %s",
				 comm->address, comm->cfg.store_port, strerror(errno));
	return 0;
}

/* Who has connected; slot 0 is the socket that listens. */
struct callers {
	struct pollfd fd[1 + CALLERS];
	uint32_t next; /* the one that has waited longest, if all are taken */
};

static int welcome(struct dpcoll *comm, struct callers *callers)
{
	int fd = dp_own_fd(accept4(callers->fd[0].fd, NULL, NULL, SOCK_CLOEXEC));
	struct pollfd *place = NULL;
	int all = sizeof(struct hello); /* poll() tells of a greeting when all of it is here */

	if (fd < 0 && dp_accept_lacks(errno))
		return coll_fail(comm, errno, "rank 0: accepting a connection: %s",
				 strerror(errno));
	if (fd < 0)
		return 0;
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &all, sizeof(all));
	for (uint32_t i = 1; i <= CALLERS && !place; i++)
		if (callers->fd[i].fd < 0)
			place = &callers->fd[i];
	if (!place) {
		place = &callers->fd[1 + callers->next++ % CALLERS];
		dp_close_own_fd(place->fd);
	}
	*place = (struct pollfd){ .fd = fd, .events = POLLIN };
	return 0;
}

/* Looks at all who have said something; how many ranks came, or -errno. */
static int admit_callers(struct dpcoll *comm, struct callers *callers)
{
	int came = 0;

	for (uint32_t i = 1; i <= CALLERS; i++) {
		int n;

		if (callers->fd[i].fd < 0 || !callers->fd[i].revents)
			continue;
		n = admit(comm, callers->fd[i].fd);
		callers->fd[i] = (struct pollfd){ .fd = -1 };
		if (n < 0)
			return n;
		came += n;
	}
	return came;
}

static int gather_ranks(struct dpcoll *comm)
{
	struct callers callers = { .next = 0 };
	uint64_t until = deadline(comm);
	uint32_t came = 1;
	int err = listen_at(comm);

	for (uint32_t i = 0; i <= CALLERS; i++)
		callers.fd[i].fd = -1;
	callers.fd[0] = (struct pollfd){ .fd = comm->store_fd, .events = POLLIN };
	while (!err && came < comm->cfg.ranks) {
		int ready = poll(callers.fd, 1 + CALLERS, left_ms(until));
		int n = ready > 0 ? admit_callers(comm, &callers) : 0;

		if (ready < 0 && errno != EINTR)
			err = coll_fail(comm, errno, "poll: %s", strerror(errno));
		else if (n < 0)
			err = n;
		else
			came += (uint32_t)n;
		if (!err && ready > 0 && callers.fd[0].revents)
			err = welcome(comm, &callers);
		if (!err && came < comm->cfg.ranks && !left_ms(until))
			err = missing(comm);
	}
	for (uint32_t i = 1; i <= CALLERS; i++)
		if (callers.fd[i].fd >= 0)
			dp_close_own_fd(callers.fd[i].fd);
	return err;
}

int coll_store_open(struct dpcoll *comm)
{
	if (comm->cfg.ranks == 1)
		return 0;
	comm->store_peer = malloc(comm->cfg.ranks * sizeof(*comm->store_peer));
	if (!comm->store_peer)
		return coll_fail(comm, ENOMEM, "no memory");
	for (uint32_t r = 0; r < comm->cfg.ranks; r++)
		comm->store_peer[r] = -1;
	return comm->cfg.rank ? join(comm) : gather_ranks(comm);
}

/* A rank that closes its communicator while others use theirs: its words reach them. */
static int did_not_meet(struct dpcoll *comm, uint32_t peer, int err)
{
	/* Not ETIMEDOUT, by which dpcoll_wait() says that a collective goes on. */
	if (comm->leaving && err == -ETIMEDOUT)
		return coll_fail(comm, ECONNABORTED, "rank %u has left", comm->cfg.rank);
	return coll_fail(comm, -err, "rank %u: rank %u has gone while ranks met: %s",
			 comm->cfg.rank, peer, strerror(-err));
}

static int exchange_at_root(struct dpcoll *comm, void *all, uint32_t bytes, uint64_t until)
{
	size_t whole = (size_t)bytes * comm->cfg.ranks;
	int err = 0;
	uint32_t r;

	for (r = 1; r < comm->cfg.ranks && !err; r++)
		err = move(comm, comm->store_peer[r], (char *)all + (size_t)r * bytes, bytes, false,
			   until);
	if (err)
		return did_not_meet(comm, r - 1, err);
	for (r = 1; r < comm->cfg.ranks && !err; r++)
		err = move(comm, comm->store_peer[r], all, whole, true, until);
	return err ? did_not_meet(comm, r - 1, err) : 0;
}

int coll_store_exchange(struct dpcoll *comm, const void *own, void *all, uint32_t bytes)
{
	uint64_t until = deadline(comm);
	int err;

	memcpy((char *)all + (size_t)comm->cfg.rank * bytes, own, bytes);
	if (comm->cfg.ranks == 1)
		return 0;
	if (!comm->cfg.rank)
		return exchange_at_root(comm, all, bytes, until);
	err = move(comm, comm->store_fd, (char *)all + (size_t)comm->cfg.rank * bytes, bytes, true,
		   until);
	if (!err)
		err = move(comm, comm->store_fd, all, (size_t)bytes * comm->cfg.ranks, false,
			   until);
	return err ? did_not_meet(comm, 0, err) : 0;
}

int coll_store_meet(struct dpcoll *comm)
{
	uint32_t *all = calloc(comm->cfg.ranks, sizeof(*all));
	int err = all ? coll_store_exchange(comm, &comm->cfg.rank, all, sizeof(*all)) : -ENOMEM;

	free(all);
	return err;
}

void coll_store_close(struct dpcoll *comm)
{
	for (uint32_t r = 1; comm->store_peer && r < comm->cfg.ranks; r++)
		if (comm->store_peer[r] >= 0)
			dp_close_own_fd(comm->store_peer[r]);
	free(comm->store_peer);
	comm->store_peer = NULL;
	if (comm->store_fd >= 0)
		dp_close_own_fd(comm->store_fd);
	comm->store_fd = -1;
}
