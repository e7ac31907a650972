// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * How the hosts find each other, over TCP on the management network.
 *
 * Host 0 is the hub: everybody has a connection to it.  What all have to know
 * goes to host 0 and from there to all, in one piece (gather).  Host 0 also
 * compares the clocks, names the instant at which the schedule begins, collects
 * who is done, and tells when everybody is, or who went away.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "generator.h"

enum {
	PINGS = 8,
	LEAD_NS = 20000000, /* from the word to start until the start, beside the way there */
	BOOT_ID_BYTES = 40,
};

#define GATHER_BYTES_MAX (1ULL << 30)

struct hello {
	uint8_t token[TOKEN_BYTES];
	char magic[8];
	uint32_t abi, host;
	uint64_t rows, seed, digest;
	char boot_id[BOOT_ID_BYTES]; /* equal: the same clock */
};

enum word_kind {
	WORD_PING = 1,
	WORD_GO,
	WORD_DONE,
	WORD_ALL_DONE,
	WORD_GONE, /* value: which host */
};

struct word {
	uint64_t kind, value;
};

static uint64_t digest_of(const struct run *run)
{
	const uint8_t *at = (const uint8_t *)run->table;
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < run->table_bytes; i++)
		hash = (hash ^ at[i]) * 0x100000001b3ULL;
	return hash;
}

static void read_boot_id(char out[BOOT_ID_BYTES])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(out, 0, BOOT_ID_BYTES);
	if (fd >= 0) {
		if (read(fd, out, BOOT_ID_BYTES - 1) < 0)
			out[0] = 0;
		close(fd);
	}
}

/* The others as they stand in run.peer. */
static uint32_t peers(const struct run *run)
{
	return run->opt.host ? 1 : run->table->hosts;
}

static int gone(uint32_t peer)
{
	return complain(ECONNRESET, "host %u went away", peer);
}

/* ---- whole pieces ---------------------------------------------------------- */

static int wait_for(struct run *run, uint32_t peer, short events, uint64_t until_ns)
{
	struct pollfd pfd = { .fd = run->peer[peer], .events = events };
	uint64_t now = clock_ns();
	int n;

	if (now >= until_ns)
		return complain(ETIMEDOUT, "host %u does not answer", peer);
	n = poll(&pfd, 1, (int)((until_ns - now) / 1000000 + 1));
	return n < 0 && errno != EINTR ? complain(errno, "poll: %s", strerror(errno)) : 0;
}

static int send_whole(struct run *run, uint32_t peer, const void *from, size_t bytes)
{
	uint64_t until = clock_ns() + run->opt.setup_ns;
	const char *at = from;

	while (bytes) {
		ssize_t n = send(run->peer[peer], at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			return gone(peer);
		if (n < 0) {
			int err = wait_for(run, peer, POLLOUT, until);

			if (err)
				return err;
			continue;
		}
		at += n;
		bytes -= n;
	}
	return 0;
}

static int receive_whole(struct run *run, uint32_t peer, void *to, size_t bytes)
{
	uint64_t until = clock_ns() + run->opt.setup_ns;
	char *at = to;

	while (bytes) {
		ssize_t n = recv(run->peer[peer], at, bytes, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN))
			return gone(peer);
		if (n < 0) {
			int err = wait_for(run, peer, POLLIN, until);

			if (err)
				return err;
			continue;
		}
		at += n;
		bytes -= n;
	}
	return 0;
}

static int say(struct run *run, uint32_t peer, uint64_t kind, uint64_t value)
{
	struct word word = { kind, value };

	return send_whole(run, peer, &word, sizeof(word));
}

/* The next word; WORD_GONE is an error of its own. */
static int hear(struct run *run, uint32_t peer, struct word *word)
{
	int err = receive_whole(run, peer, word, sizeof(*word));

	if (!err && word->kind == WORD_GONE)
		return complain(ECONNRESET, "host %llu went away", (unsigned long long)word->value);
	return err;
}

/* ---- meeting --------------------------------------------------------------- */

static void no_delay(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static struct hello greeting(const struct run *run)
{
	struct hello hello = {
		.magic = DP_FLOW_TABLE_MAGIC,
		.abi = DP_FLOW_ABI,
		.host = run->opt.host,
		.rows = run->table->rows,
		.seed = run->table->seed,
		.digest = digest_of(run),
	};

	memcpy(hello.token, run->opt.token, TOKEN_BYTES);
	read_boot_id(hello.boot_id);
	return hello;
}

/* Take one host in: its greeting says which. */
static int admit(struct run *run, int fd, const struct hello *theirs, const struct hello *mine,
		 char (*boot_id)[BOOT_ID_BYTES])
{
	if (memcmp(theirs->magic, mine->magic, sizeof(mine->magic)) ||
	    theirs->host >= run->table->hosts || !theirs->host || run->peer[theirs->host] >= 0) {
		close(fd); /* whoever scans ports must not end the run */
		run->strangers++;
		return 0;
	}
	no_delay(fd);
	run->peer[theirs->host] = fd;
	if (theirs->abi != mine->abi || theirs->rows != mine->rows || theirs->seed != mine->seed ||
	    theirs->digest != mine->digest)
		return complain(EPROTO, "host %u has another table", theirs->host);
	memcpy(boot_id[theirs->host], theirs->boot_id, BOOT_ID_BYTES);
	return 1;
}

static int listen_at(struct run *run)
{
	struct addrinfo *found;
	int on = 1, fd, err = resolve(run->opt.management[0], run->opt.port, &found);

	if (err)
		return err;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, HOSTS_MAX)) {
		err = complain(errno, "management address %s port %u: %s", run->opt.management[0],
			       run->opt.port, strerror(errno));
		if (fd >= 0)
			close(fd);
		fd = err;
	}
	freeaddrinfo(found);
	return fd;
}

static int accept_all(struct run *run, const struct hello *mine, char (*boot_id)[BOOT_ID_BYTES])
{
	uint64_t until = clock_ns() + run->opt.setup_ns;
	uint32_t missing = run->table->hosts - 1;
	int listener = listen_at(run), err = 0;
	struct door *door;

	if (listener < 0)
		return listener;
	door = door_open(run, listener, sizeof(*mine), missing);
	if (!door)
		err = complain(ENOMEM, "no memory");
	while (missing && !err) {
		struct hello theirs;
		int fd = door_next(door, until, &theirs);

		if (fd == -ETIMEDOUT)
			complain(ETIMEDOUT, "%u of %u hosts did not come", missing,
				 run->table->hosts - 1);
		err = fd < 0 ? fd : admit(run, fd, &theirs, mine, boot_id);
		if (err == 1) {
			missing--;
			err = 0;
		}
	}
	if (door)
		door_close(door);
	close(listener);
	return err;
}

static int join_hub(struct run *run, const struct hello *mine)
{
	uint64_t until = clock_ns() + run->opt.setup_ns;
	const struct timespec pause = { .tv_nsec = 10000000 };
	struct addrinfo *found;
	int err = resolve(run->opt.management[0], run->opt.port, &found);

	if (err)
		return err;
	for (;;) {
		int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd >= 0 && !connect(fd, found->ai_addr, found->ai_addrlen)) {
			no_delay(fd);
			run->peer[0] = fd;
			break;
		}
		err = errno;
		if (fd >= 0)
			close(fd);
		if (clock_ns() > until) {
			freeaddrinfo(found);
			return complain(err, "host 0 at %s port %u: %s", run->opt.management[0],
					run->opt.port, strerror(err));
		}
		nanosleep(&pause, NULL);
	}
	freeaddrinfo(found);
	return send_whole(run, 0, mine, sizeof(*mine));
}

/* Offset of each clock to host 0's, and the longest way: the shortest of some round trips. */
static int compare_clock(struct run *run, uint32_t peer, bool same, int64_t *offset,
			 uint64_t *longest_ns)
{
	uint64_t best = NEVER;

	*offset = 0;
	for (int i = 0; i < PINGS; i++) {
		uint64_t sent = clock_ns(), back;
		struct word word;
		int err = say(run, peer, WORD_PING, 0);

		if (!err)
			err = hear(run, peer, &word);
		if (err)
			return err;
		back = clock_ns();
		if (back - sent < best) {
			best = back - sent;
			*offset = (int64_t)(word.value - (sent + best / 2));
		}
		if (back - sent > *longest_ns)
			*longest_ns = back - sent;
	}
	if (same)
		*offset = 0;
	return 0;
}

static int64_t *offsets; /* of host 0, by host */
static uint64_t longest_way_ns;

static int compare_clocks(struct run *run, const char *mine, char (*boot_id)[BOOT_ID_BYTES])
{
	int err = 0;

	offsets = calloc(run->table->hosts, sizeof(*offsets));
	if (!offsets)
		return complain(ENOMEM, "no memory");
	for (uint32_t i = 1; i < run->table->hosts && !err; i++)
		err = compare_clock(run, i, !memcmp(mine, boot_id[i], BOOT_ID_BYTES), &offsets[i],
				    &longest_way_ns);
	return err;
}

static int answer_pings(struct run *run)
{
	for (int i = 0; i < PINGS; i++) {
		struct word word;
		int err = hear(run, 0, &word);

		if (!err)
			err = say(run, 0, WORD_PING, clock_ns());
		if (err)
			return err;
	}
	return 0;
}

int manage_open(struct run *run)
{
	struct hello mine = greeting(run);
	char(*boot_id)[BOOT_ID_BYTES];
	int err;

	run->peer = malloc(sizeof(*run->peer) * run->table->hosts);
	boot_id = calloc(run->table->hosts, BOOT_ID_BYTES);
	if (!run->peer || !boot_id) {
		free(boot_id);
		return complain(ENOMEM, "no memory");
	}
	for (uint32_t i = 0; i < run->table->hosts; i++)
		run->peer[i] = -1;
	if (run->opt.host) {
		err = join_hub(run, &mine);
		if (!err)
			err = answer_pings(run);
	} else {
		err = accept_all(run, &mine, boot_id);
		if (!err)
			err = compare_clocks(run, mine.boot_id, boot_id);
	}
	free(boot_id);
	return err;
}

/* ---- exchange -------------------------------------------------------------- */

static int gather_at_hub(struct run *run, const void *mine, size_t bytes, char **all,
			 uint64_t *total)
{
	char *buffer = malloc(bytes + 1);
	int err = 0;

	if (!buffer)
		return complain(ENOMEM, "no memory");
	if (bytes)
		memcpy(buffer, mine, bytes);
	*total = bytes;
	*all = buffer;
	for (uint32_t i = 1; i < peers(run) && !err; i++) {
		uint64_t more;

		err = receive_whole(run, i, &more, sizeof(more));
		if (err)
			break;
		if (more > GATHER_BYTES_MAX)
			return complain(EPROTO, "host %u sends %llu bytes", i,
					(unsigned long long)more);
		buffer = realloc(*all, *total + more + 1);
		if (!buffer)
			return complain(ENOMEM, "no memory");
		*all = buffer;
		err = receive_whole(run, i, buffer + *total, more);
		*total += more;
	}
	for (uint32_t i = 1; i < peers(run) && !err; i++) {
		err = send_whole(run, i, total, sizeof(*total));
		if (!err)
			err = send_whole(run, i, *all, *total);
	}
	return err;
}

static int gather_from_hub(struct run *run, const void *mine, uint64_t bytes, char **all,
			   uint64_t *total)
{
	int err = send_whole(run, 0, &bytes, sizeof(bytes));

	if (!err)
		err = send_whole(run, 0, mine, bytes);
	if (!err)
		err = receive_whole(run, 0, total, sizeof(*total));
	if (err)
		return err;
	*all = *total <= GATHER_BYTES_MAX ? malloc(*total + 1) : NULL;
	if (!*all)
		return complain(ENOMEM, "no memory for %llu bytes of records",
				(unsigned long long)*total);
	return receive_whole(run, 0, *all, *total);
}

int manage_gather(struct run *run, const void *mine, size_t bytes, void **all, size_t *total)
{
	char *buffer = NULL;
	uint64_t sum = 0;
	int err = run->opt.host ? gather_from_hub(run, mine, bytes, &buffer, &sum) :
				  gather_at_hub(run, mine, bytes, &buffer, &sum);

	if (err) {
		free(buffer);
		return err;
	}
	*all = buffer;
	*total = sum;
	return 0;
}

int manage_barrier(struct run *run)
{
	void *nothing = NULL;
	size_t bytes;
	int err = manage_gather(run, NULL, 0, &nothing, &bytes);

	free(nothing);
	return err;
}

/* Name the instant at which the schedule begins, on each host's own clock. */
int manage_start(struct run *run)
{
	struct word word;
	int err = 0;

	if (run->opt.host) {
		err = hear(run, 0, &word);
		run->zero_ns = word.value;
		return err;
	}
	run->zero_ns = clock_ns() + LEAD_NS + 4 * longest_way_ns;
	for (uint32_t i = 1; i < peers(run) && !err; i++)
		err = say(run, i, WORD_GO, run->zero_ns + offsets[i]);
	return err;
}

/* ---- the end --------------------------------------------------------------- */

static int count_done(struct run *run)
{
	int err = 0;

	if (++run->n_done < run->table->hosts)
		return 0;
	run->all_done = true;
	for (uint32_t i = 1; i < peers(run) && !err; i++)
		err = say(run, i, WORD_ALL_DONE, 0);
	return err;
}

int manage_done(struct run *run)
{
	return run->opt.host ? say(run, 0, WORD_DONE, 0) : count_done(run);
}

/* Tell the others who went away, as far as they listen. */
static int tell_gone(struct run *run, uint32_t who)
{
	struct word word = { WORD_GONE, who };

	for (uint32_t i = 1; i < peers(run); i++) {
		if (i != who && !run->opt.host)
			send(run->peer[i], &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	return -ECONNRESET;
}

static int poll_peer(struct run *run, uint32_t peer)
{
	struct word word;
	char some;
	ssize_t n = recv(run->peer[peer], &some, 1, MSG_PEEK | MSG_DONTWAIT);
	int err;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		if (run->all_done)
			return 0;
		gone(peer);
		return tell_gone(run, peer);
	}
	err = hear(run, peer, &word);
	if (err)
		return err;
	if (word.kind == WORD_ALL_DONE)
		run->all_done = true;
	return word.kind == WORD_DONE ? count_done(run) : 0;
}

int manage_poll(struct run *run)
{
	int err = 0;

	for (uint32_t i = run->opt.host ? 0 : 1; i < peers(run) && !err && !run->all_done; i++)
		err = poll_peer(run, i);
	return err;
}

int manage_watch(struct run *run)
{
	for (uint32_t i = 0; i < peers(run); i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u64 = NEVER };

		if (run->peer[i] >= 0 &&
		    epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, run->peer[i], &event))
			return complain(errno, "epoll: %s", strerror(errno));
	}
	return 0;
}

void manage_close(struct run *run)
{
	for (uint32_t i = 0; run->peer && i < run->table->hosts; i++) {
		if (run->peer[i] >= 0)
			close(run->peer[i]);
	}
	free(run->peer);
	free(offsets);
	offsets = NULL;
}
