// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dp_vnic
 *
 * Says `ready {...}`, then obeys control.c until standard input ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "posix/clock.h"
#include "posix/priority.h"
#include "vnic/card.h"

#define NS_PER_S 1000000000ull
#define CONTROL_NS 2000000ull
/* A device whose ring was full is tried again after this time. */
#define RETRY_NS 50000ull

enum { GATHER_PART = 8 }; /* frames may wait for others for RTT / GATHER_PART */

static bool is_pending(const struct card *card)
{
	for (uint32_t i = 0; i < card->n_local; i++)
		if (card->port[i].pending)
			return true;
	return false;
}

/* Moves all frames that can move now; returns when to do so again at the latest. */
static uint64_t move(struct card *card)
{
	uint64_t wake_ns, turn_ns;

	guests_receive(card);
	queue_run(card);
	wake_ns = dp_device_attend(card->device);
	tunnel_reap(card);
	turn_ns = queue_run(card);
	if (turn_ns < wake_ns)
		wake_ns = turn_ns;
	if (card->plain_waits)
		vxlan_receive(card);
	guests_flush(card);
	tunnel_feed(card);
	if ((is_pending(card) || card->hungry) && wake_ns > dp_now_ns() + RETRY_NS)
		wake_ns = dp_now_ns() + RETRY_NS;
	/* Frames may have been posted. */
	return dp_engine_deadline(card->engine) < wake_ns ? dp_engine_deadline(card->engine) :
							    wake_ns;
}

static void sleep_until(struct card *card, uint64_t wake_ns)
{
	enum { PLAIN = 2 };
	struct pollfd fds[LOCAL_MAX + 3] = { { .fd = STDIN_FILENO, .events = POLLIN } };
	struct timespec wait, *limit = NULL;
	uint64_t now = dp_now_ns();
	nfds_t n = 1;

	if (wake_ns <= now)
		return;
	if (wake_ns != DP_NEVER) {
		wait.tv_sec = (time_t)((wake_ns - now) / NS_PER_S);
		wait.tv_nsec = (long)((wake_ns - now) % NS_PER_S);
		limit = &wait;
	}
	if (card->started) {
		fds[n++] = (struct pollfd){ .fd = dp_device_fd(card->device), .events = POLLIN };
		fds[n++] = (struct pollfd){ .fd = card->vxlan_fd, .events = POLLIN };
	}
	/* A guest with too many frames under way does not wake the card. */
	for (uint32_t i = 0; card->started && i < card->n_local; i++)
		if (!card->guest[card->local[i]].stopped)
			fds[n++] = (struct pollfd){ .fd = card->port[i].fd, .events = POLLIN };
	if (ppoll(fds, n, limit, NULL) <= 0)
		return;
	if (fds[0].revents)
		control_read(card);
	if (card->started && fds[PLAIN].revents)
		card->plain_waits = true;
}

/* Waits for further frames, since each wake-up costs CPU time, here and in the guest that gets a
 * frame.  Acknowledgements wait as well, so the wait is a small part of the RTT: otherwise a window
 * of few packets would be used up meanwhile. */
static void let_gather(const struct card *card, uint64_t woke_ns, uint64_t now)
{
	uint64_t wait_ns = card->coalesce_ns, until;
	struct timespec at;

	if (card->rtt_ns > 0 && card->rtt_ns / GATHER_PART < (double)wait_ns)
		wait_ns = (uint64_t)(card->rtt_ns / GATHER_PART);
	until = woke_ns + wait_ns;
	at = (struct timespec){ (time_t)(until / NS_PER_S), (long)(until % NS_PER_S) };
	if (until > now)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void run(struct card *card)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t controlled = 0, woke_ns = 0, wake_ns = DP_NEVER, sample_ns, now;

	while (!card->quit) {
		if (card->started)
			wake_ns = move(card);
		now = dp_now_ns();
		sample_ns = sample_take(card, now);
		if (sample_ns < wake_ns)
			wake_ns = sample_ns;
		/* Control requests are served even if the card never sleeps. */
		if (now - controlled > CONTROL_NS) {
			controlled = now;
			card->plain_waits = true;
			if (poll(&in, 1, 0) > 0)
				control_read(card);
		}
		if (wake_ns > now) {
			let_gather(card, woke_ns, now);
			sleep_until(card, wake_ns);
			woke_ns = dp_now_ns();
			card->counters.wakes++;
		}
	}
}

int main(void)
{
	struct card *card = calloc(1, sizeof(*card));

	if (!card)
		return 1;
	fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
	printf("ready {\"priority\":\"%s\",\"pid\":%d}\n", dp_take_priority(), getpid());
	fflush(stdout);
	run(card);
	card_close(card);
	dp_lines_free(&card->lines);
	free(card);
	return 0;
}
