// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A listening socket at which others than the hosts of the run may call.
 *
 * A connection begins with a greeting of fixed length, and that with the run's
 * token.  Until it is there whole the caller waits in the lobby, and everybody
 * else is served meanwhile.  Who sends another token, hangs up or stays silent
 * is dropped and counted.  When the lobby is full the longest there has to go.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "generator.h"

#define PATIENCE_NS 5000000000ULL

enum { STRANGERS = 64 }; /* in the lobby beside those who are expected */

struct caller {
	uint64_t until_ns;
	uint32_t got;
	int fd;
	uint8_t greeting[GREETING_MAX];
};

struct door {
	struct run *run;
	uint32_t greeting_bytes;
	int listener;
	uint32_t n_callers, room;
	struct caller *caller; /* the longest there first */
	struct pollfd *pfd;    /* the listener, then the callers */
};

/* ---- the token ------------------------------------------------------------- */

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

int token_read(const char *path, uint8_t token[TOKEN_BYTES])
{
	char text[2 * TOKEN_BYTES + 2];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return complain(errno, "--token: %s: %s", path, strerror(errno));
	n = read(fd, text, sizeof(text));
	close(fd);
	if (n == 2 * TOKEN_BYTES + 1 && text[n - 1] == '\n')
		n--;
	for (int i = 0; n == 2 * TOKEN_BYTES && i < TOKEN_BYTES; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			n = -1;
		else
			token[i] = (uint8_t)(high << 4 | low);
	}
	if (n != 2 * TOKEN_BYTES)
		return complain(EINVAL, "--token: %s does not hold %d hexadecimal digits", path,
				2 * TOKEN_BYTES);
	return 0;
}

bool token_fits(const struct run *run, const uint8_t token[TOKEN_BYTES])
{
	uint8_t differs = 0;

	for (int i = 0; i < TOKEN_BYTES; i++) /* all bytes, so the time tells nothing */
		differs |= run->opt.token[i] ^ token[i];
	return !differs;
}

/* ---- the lobby ------------------------------------------------------------- */

static void leave(struct door *door, uint32_t which)
{
	door->n_callers--;
	memmove(&door->caller[which], &door->caller[which + 1],
		(door->n_callers - which) * sizeof(*door->caller));
}

static void drop(struct door *door, uint32_t which)
{
	close(door->caller[which].fd);
	door->run->strangers++;
	leave(door, which);
}

static void let_in(struct door *door)
{
	int fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (door->n_callers == door->room)
		drop(door, 0);
	door->caller[door->n_callers++] =
		(struct caller){ .fd = fd, .until_ns = dp_now_ns() + PATIENCE_NS };
}

/* 1: the greeting is whole and has the token; -errno: a stranger. */
static int listen_to(struct door *door, struct caller *caller)
{
	ssize_t n = recv(caller->fd, caller->greeting + caller->got,
			 door->greeting_bytes - caller->got, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return -ECONNRESET;
	caller->got += n;
	if (caller->got >= TOKEN_BYTES && !token_fits(door->run, caller->greeting))
		return -EPROTO;
	return caller->got == door->greeting_bytes;
}

/* Sleeps until a caller connects or sends, or until the patience with one ends. */
static int wait_at(struct door *door, uint64_t now, uint64_t until_ns)
{
	int n;

	if (door->n_callers && door->caller[0].until_ns < until_ns)
		until_ns = door->caller[0].until_ns;
	door->pfd[0] = (struct pollfd){ .fd = door->listener, .events = POLLIN };
	for (uint32_t i = 0; i < door->n_callers; i++)
		door->pfd[1 + i] = (struct pollfd){ .fd = door->caller[i].fd, .events = POLLIN };
	n = poll(door->pfd, 1 + door->n_callers,
		 until_ns > now ? (int)((until_ns - now) / 1000000 + 1) : 0);
	return n < 0 && errno != EINTR ? complain(errno, "poll: %s", strerror(errno)) : 0;
}

int door_next(struct door *door, uint64_t until_ns, void *greeting)
{
	for (;;) {
		uint64_t now = dp_now_ns();

		while (door->n_callers && door->caller[0].until_ns <= now)
			drop(door, 0);
		for (uint32_t i = 0; i < door->n_callers;) {
			int found = listen_to(door, &door->caller[i]), fd = door->caller[i].fd;

			if (found < 0) {
				drop(door, i);
			} else if (found) {
				memcpy(greeting, door->caller[i].greeting, door->greeting_bytes);
				leave(door, i);
				return fd;
			} else {
				i++;
			}
		}
		if (now >= until_ns)
			return -ETIMEDOUT;
		if (wait_at(door, now, until_ns))
			return -EIO;
		if (door->pfd[0].revents)
			let_in(door);
	}
}

struct door *door_open(struct run *run, int listener, uint32_t greeting_bytes, uint32_t expected)
{
	struct door *door = calloc(1, sizeof(*door));

	if (!door)
		return NULL;
	*door = (struct door){ .run = run,
			       .greeting_bytes = greeting_bytes,
			       .listener = listener,
			       .room = expected + STRANGERS };
	door->caller = calloc(door->room, sizeof(*door->caller));
	door->pfd = calloc(door->room + 1, sizeof(*door->pfd));
	if (door->caller && door->pfd)
		return door;
	door_close(door);
	return NULL;
}

void door_close(struct door *door)
{
	while (door->n_callers)
		drop(door, 0);
	free(door->caller);
	free(door->pfd);
	free(door);
}

/* ---- listening ------------------------------------------------------------- */

int resolve(const char *address, uint16_t port, struct addrinfo **out)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	char service[8];
	int err;

	snprintf(service, sizeof(service), "%u", port);
	err = getaddrinfo(address, service, &hints, out);
	return err ? complain(EINVAL, "address %s: %s", address, gai_strerror(err)) : 0;
}
