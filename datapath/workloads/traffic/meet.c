// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The hosts find each other.  Host 0 listens, and takes in who shows the run's token and the
 * same table; then it compares the clocks.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "manage.h"

enum {
	PINGS = 8,
	BOOT_ID_BYTES = 40,
};

struct hello {
	uint8_t token[TOKEN_BYTES];
	char magic[8];
	uint32_t abi, host;
	uint64_t rows, seed, digest;
	char boot_id[BOOT_ID_BYTES]; /* equal: the same clock */
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

/* Accepts one host; its greeting says which. */
static int admit(struct run *run, int fd, const struct hello *theirs, const struct hello *mine,
		 char (*boot_id)[BOOT_ID_BYTES])
{
	if (memcmp(theirs->magic, mine->magic, sizeof(mine->magic)) ||
	    theirs->host >= run->table->hosts || !theirs->host || run->peer[theirs->host] >= 0) {
		close(fd); /* a port scan must not end the run */
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
	uint64_t until = dp_now_ns() + run->opt.setup_ns;
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
	uint64_t until = dp_now_ns() + run->opt.setup_ns;
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
		if (dp_now_ns() > until) {
			freeaddrinfo(found);
			return complain(err, "host 0 at %s port %u: %s", run->opt.management[0],
					run->opt.port, strerror(err));
		}
		nanosleep(&pause, NULL);
	}
	freeaddrinfo(found);
	return manage_send_whole(run, 0, mine, sizeof(*mine));
}

/* Offset of each clock to host 0's, and the longest way: the shortest of some round trips. */
static int compare_clock(struct run *run, uint32_t peer, bool same, int64_t *offset,
			 uint64_t *longest_ns)
{
	uint64_t best = NEVER;

	*offset = 0;
	for (int i = 0; i < PINGS; i++) {
		uint64_t sent = dp_now_ns(), back;
		struct word word;
		int err = manage_say(run, peer, WORD_PING, 0);

		if (!err)
			err = manage_hear(run, peer, &word);
		if (err)
			return err;
		back = dp_now_ns();
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

static int compare_clocks(struct run *run, struct clocks *clocks, const char *mine,
			  char (*boot_id)[BOOT_ID_BYTES])
{
	int err = 0;

	clocks->offset = calloc(run->table->hosts, sizeof(*clocks->offset));
	if (!clocks->offset)
		return complain(ENOMEM, "no memory");
	for (uint32_t i = 1; i < run->table->hosts && !err; i++)
		err = compare_clock(run, i, !memcmp(mine, boot_id[i], BOOT_ID_BYTES),
				    &clocks->offset[i], &clocks->longest_way_ns);
	return err;
}

static int answer_pings(struct run *run)
{
	for (int i = 0; i < PINGS; i++) {
		struct word word;
		int err = manage_hear(run, 0, &word);

		if (!err)
			err = manage_say(run, 0, WORD_PING, dp_now_ns());
		if (err)
			return err;
	}
	return 0;
}

int manage_meet(struct run *run, struct clocks *clocks)
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
			err = compare_clocks(run, clocks, mine.boot_id, boot_id);
	}
	free(boot_id);
	return err;
}
