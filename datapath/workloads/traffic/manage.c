// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * How the hosts find each other, over TCP on the management network.
 *
 * Host 0 is the hub: every host has a connection to it.  Facts for all hosts go to
 * host 0 and from there to all, in one piece (gather).  Host 0 also compares the
 * clocks, names the instant at which the schedule begins, collects which hosts are
 * done, and tells when all are, or which one went away.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "manage.h"
#include "posix/number.h"

enum {
	LEAD_NS = 20000000, /* from the word to start until the start, beside the way there */
};

#define GATHER_BYTES_MAX (1ULL << 30)

static struct clocks clocks;

/* The others as they stand in run.peer. */
static uint32_t peers(const struct run *run)
{
	return run->opt.host ? 1 : run->table->hosts;
}

int manage_open(struct run *run)
{
	return manage_meet(run, &clocks);
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

		err = manage_receive_whole(run, i, &more, sizeof(more));
		if (err)
			break;
		if (more > GATHER_BYTES_MAX)
			return complain(EPROTO, "host %u sends %llu bytes", i,
					(unsigned long long)more);
		buffer = realloc(*all, *total + more + 1);
		if (!buffer)
			return complain(ENOMEM, "no memory");
		*all = buffer;
		err = manage_receive_whole(run, i, buffer + *total, more);
		*total += more;
	}
	for (uint32_t i = 1; i < peers(run) && !err; i++) {
		err = manage_send_whole(run, i, total, sizeof(*total));
		if (!err)
			err = manage_send_whole(run, i, *all, *total);
	}
	return err;
}

static int gather_from_hub(struct run *run, const void *mine, uint64_t bytes, char **all,
			   uint64_t *total)
{
	int err = manage_send_whole(run, 0, &bytes, sizeof(bytes));

	if (!err)
		err = manage_send_whole(run, 0, mine, bytes);
	if (!err)
		err = manage_receive_whole(run, 0, total, sizeof(*total));
	if (err)
		return err;
	*all = *total <= GATHER_BYTES_MAX ? malloc(*total + 1) : NULL;
	if (!*all)
		return complain(ENOMEM, "no memory for %llu bytes of records",
				(unsigned long long)*total);
	return manage_receive_whole(run, 0, *all, *total);
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

static int tell_ready(const struct run *run)
{
	int fd;

	if (!run->opt.ready)
		return 0;
	fd = open(run->opt.ready, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return complain(errno, "%s: %s", run->opt.ready, strerror(errno));
	close(fd);
	return 0;
}

/* Waits for a file with the schedule's zero, and reads its line. */
static int read_zero(struct run *run)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t until = dp_now_ns() + run->opt.setup_ns;
	char line[32];

	for (;;) {
		FILE *file = fopen(run->opt.zero, "re");
		bool whole = file && fgets(line, sizeof(line), file) && strchr(line, '\n');

		if (file)
			fclose(file);
		if (whole)
			break;
		if (dp_now_ns() > until)
			return complain(ETIMEDOUT, "%s: nobody says when to begin", run->opt.zero);
		nanosleep(&pause, NULL);
	}
	*strchr(line, '\n') = 0;
	if (dp_read_number(line, 0, UINT64_MAX, &run->zero_ns))
		return complain(EINVAL, "%s: %s is not a time", run->opt.zero, line);
	return 0;
}

static int name_zero(struct run *run)
{
	int err = tell_ready(run);

	if (err || run->opt.zero)
		return err ? err : read_zero(run);
	run->zero_ns = dp_now_ns() + LEAD_NS + 4 * clocks.longest_way_ns;
	return 0;
}

/* Name the instant at which the schedule begins, on each host's own clock. */
int manage_start(struct run *run)
{
	struct word word;
	int err;

	if (run->opt.host) {
		err = manage_hear(run, 0, &word);
		run->zero_ns = word.value;
		return err;
	}
	err = name_zero(run);
	for (uint32_t i = 1; i < peers(run) && !err; i++)
		err = manage_say(run, i, WORD_GO, run->zero_ns + clocks.offset[i]);
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
		err = manage_say(run, i, WORD_ALL_DONE, 0);
	return err;
}

int manage_done(struct run *run)
{
	return run->opt.host ? manage_say(run, 0, WORD_DONE, 0) : count_done(run);
}

/* Tells the other hosts, if they still listen, which host went away. */
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
		manage_gone(peer);
		return tell_gone(run, peer);
	}
	err = manage_hear(run, peer, &word);
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
	free(clocks.offset);
	clocks.offset = NULL;
}
