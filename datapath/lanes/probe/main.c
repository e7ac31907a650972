// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dp-wakeup OWN PEER GAP_NS BYTES SECONDS
 *
 * How late a program wakes.  One runs on each of two hosts, and does what the thread of
 * a device does: it sleeps until a packet comes or its own time has come, whichever is
 * first.  At its times, GAP_NS apart in the mean, it sends a datagram of BYTES to the
 * peer.  OWN and PEER are IPv4 addresses.
 *
 * It begins when it has heard of the peer, so that both measure at the same time.
 *
 * Prints `packet NS` or `timer NS` for each sleep: what ended it, and how long before
 * the program ran.  A packet's time is that at which the kernel saw it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "posix/clock.h"
#include "posix/number.h"
#include "wire/random.h"

enum {
	PORT = 9797,
	BYTES_MAX = 65536,
	BUFFER = 1 << 22,   /* bytes of datagrams that may lie unread */
	SLACK_NS = 1000,    /* of a sleep's end, as the thread of a device has it */
	NAPS_MAX = 1 << 20, /* at most */
	PATIENCE_S = 1000,  /* the longest measurement */
	CALL_NS = 1000000,  /* between two calls for a peer that is not there yet */
	CALLS = 30000,
};

struct nap {
	bool packet; /* a packet ended the sleep; otherwise the timer */
	uint32_t late_ns;
};

static uint8_t payload[BYTES_MAX];
static struct nap naps[NAPS_MAX];
static uint32_t n_naps;

/* The clock that the kernel stamps packets by. */
static uint64_t stamp_clock_ns(void)
{
	return dp_clock_ns(CLOCK_REALTIME);
}

static int fail(const char *what)
{
	fprintf(stderr, "dp-wakeup: %s: %s\n", what, strerror(errno));
	return 1;
}

/* A datagram socket between the two, whose packets are stamped; -1: errno. */
static int open_socket(const char *own, const char *peer)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(PORT) }, to = from;
	int one = 1, bytes = BUFFER, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (inet_pton(AF_INET, own, &from.sin_addr) != 1 ||
	    inet_pton(AF_INET, peer, &to.sin_addr) != 1) {
		errno = EINVAL;
		return -1;
	}
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) ||
	    bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)))
		return -1;
	return fd;
}

/* Reads all that lies there; when the oldest came, or 0 if there is none. */
static uint64_t drain(int fd)
{
	union {
		struct cmsghdr header;
		uint8_t room[CMSG_SPACE(sizeof(struct timespec))];
	} control;
	struct iovec nothing = { payload, 0 };
	struct msghdr m = { .msg_iov = &nothing, .msg_iovlen = 1, .msg_control = &control };
	struct timespec t;
	uint64_t oldest = 0;

	for (;;) {
		m.msg_controllen = sizeof(control);
		/* ECONNREFUSED: the peer is not there yet, or not any more. */
		if (recvmsg(fd, &m, MSG_DONTWAIT | MSG_TRUNC) < 0)
			return oldest;
		if (oldest || m.msg_controllen < CMSG_LEN(sizeof(t)))
			continue;
		memcpy(&t, CMSG_DATA(&control.header), sizeof(t));
		oldest = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	}
}

static void sleep_until(int fd, uint64_t at_ns, uint64_t now)
{
	struct pollfd in = { .fd = fd, .events = POLLIN };
	uint64_t left = at_ns > now ? at_ns - now : 0;
	struct timespec t = { (time_t)(left / 1000000000), (long)(left % 1000000000) };

	ppoll(&in, 1, &t, NULL);
}

/* What came first ended the sleep, unless it had come before it began. */
static void note(uint64_t slept_ns, uint64_t arrived_ns, uint64_t timer_ns, uint64_t woke_ns)
{
	bool packet = arrived_ns && arrived_ns < timer_ns;
	uint64_t due = packet ? arrived_ns : timer_ns;

	if (due < slept_ns || due > woke_ns || woke_ns - due > UINT32_MAX || n_naps == NAPS_MAX)
		return;
	naps[n_naps++] = (struct nap){ packet, (uint32_t)(woke_ns - due) };
}

/* Calls until the peer does; false: it never did. */
static bool meet(int fd)
{
	bool met = false;
	int calls;

	for (calls = 0; calls < CALLS && !met; calls++) {
		sleep_until(fd, CALL_NS, 0);
		met = drain(fd) > 0;
		/* Also to a peer that was met: it may not have been there for the last one. */
		if (send(fd, payload, 1, 0) < 0) {
			/* ECONNREFUSED: as above. */
		}
	}
	return met;
}

/* Between half and one and a half times the mean. */
static uint64_t next_gap(uint64_t mean_ns, uint64_t *random)
{
	return mean_ns / 2 + dp_random64(random) % (mean_ns + 1);
}

static void measure(int fd, uint64_t gap_ns, size_t bytes, uint64_t seconds)
{
	uint64_t now = stamp_clock_ns(), end = now + seconds * 1000000000, random = now;
	uint64_t timer = now + gap_ns, slept, arrived;

	while (now < end) {
		slept = stamp_clock_ns();
		sleep_until(fd, timer, slept);
		now = stamp_clock_ns();
		arrived = drain(fd);
		note(slept, arrived, timer, now);
		if (now < timer)
			continue;
		if (send(fd, payload, bytes, 0) < 0) {
			/* ECONNREFUSED: as above. */
		}
		timer += next_gap(gap_ns, &random);
		if (timer < now)
			timer = now + gap_ns;
	}
}

int main(int argc, char **argv)
{
	uint64_t gap_ns, bytes, seconds;
	uint32_t i;
	int fd;

	if (argc != 6 || dp_read_number(argv[3], 1000, 1000000000, &gap_ns) ||
	    dp_read_number(argv[4], 1, BYTES_MAX - 1, &bytes) ||
	    dp_read_number(argv[5], 1, PATIENCE_S, &seconds)) {
		fprintf(stderr, "usage: dp-wakeup OWN PEER GAP_NS BYTES SECONDS\n");
		return 2;
	}
	fd = open_socket(argv[1], argv[2]);
	if (fd < 0)
		return fail("socket");
	prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
	memset(naps, 1, sizeof(naps)); /* no page is missing later */
	if (!meet(fd)) {
		fprintf(stderr, "dp-wakeup: the peer does not call\n");
		return 1;
	}
	measure(fd, gap_ns, bytes, seconds);
	for (i = 0; i < n_naps; i++)
		printf("%s %u\n", naps[i].packet ? "packet" : "timer", naps[i].late_ns);
	close(fd);
	return fflush(stdout) ? fail("output") : 0;
}
