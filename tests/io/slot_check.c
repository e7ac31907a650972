// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Ports of several processes on one address: closed connections, and packets that are handed on. */
#include "io/slot.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/addr.h"
#include "io/port.h"
#include "wire/headers.h"
#include "wire/mad.h"

#define ADDRESS "127.0.91.1"

enum { CALLS = 1000, BURST = 8, PAYLOAD = 64, GROUPS = 3, ROCE_PORT = 4791, SERVICE = 7 };

static const struct dp_slot_header header = { .segment_len = PAYLOAD, .sport = 1 };
static const char *const groups[GROUPS] = { "239.91.0.1", "239.91.0.2", "239.91.0.3" };
static uint8_t payload[PAYLOAD];

static void claim(struct dp_slot *s)
{
	char text[256] = "";
	struct dp_error error = { text, sizeof(text) };
	struct dp_addr addr;

	dp_slot_init(s);
	assert(!dp_addr_parse(ADDRESS, &addr));
	assert(!dp_slot_claim(s, &addr, &error));
	dp_slot_settled(s);
}

static int receive(struct dp_slot *s)
{
	struct dp_slot_header h;
	uint8_t data[2 * PAYLOAD];

	return dp_slot_receive(s, &h, data, sizeof(data));
}

/* A child that has all descriptors, as between vfork() and exec(). */
static pid_t keep_open(void)
{
	pid_t parent = getpid(), child = fork();

	assert(child >= 0);
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == parent)
		pause();
	_exit(0);
}

static void end(pid_t child)
{
	assert(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
}

static void check_connection_that_a_child_keeps(void)
{
	struct dp_slot a, b;
	pid_t child;

	claim(&a);
	claim(&b);
	assert(!dp_slot_hand_on(&b, a.number, &header, payload, sizeof(payload)));
	assert(receive(&a) == sizeof(payload) && a.n_from == 1);
	child = keep_open();
	shutdown(b.to[a.number], SHUT_RDWR);
	dp_slot_release(&b);
	for (int i = 0; i < 3; i++)
		assert(receive(&a) == -EAGAIN && !a.n_from);
	end(child);
	dp_slot_release(&a);
}

/* The number of a service's descriptor is soon another's. */
static void check_service_that_a_child_keeps(void)
{
	struct dp_slot a, b;
	pid_t child;
	int other;

	claim(&a);
	claim(&b);
	assert(!dp_slot_serve(&a, SERVICE));
	child = keep_open();
	assert(!dp_slot_hand_on_request(&b, SERVICE, &header, payload, sizeof(payload)));
	dp_slot_unserve(&a, SERVICE);
	other = open("/dev/null", O_RDONLY);
	assert(receive(&a) == -EAGAIN);
	assert(fcntl(other, F_GETFD) >= 0);
	close(other);
	end(child);
	dp_slot_release(&b);
	dp_slot_release(&a);
}

/* The connection waits, and wakes nobody as long as it cannot be taken. */
static void check_no_descriptor_is_left(void)
{
	struct rlimit before, none = { .rlim_cur = 3 };
	struct epoll_event woken;
	struct pollfd readable;
	struct dp_slot a, b;

	claim(&a);
	claim(&b);
	readable = (struct pollfd){ .fd = a.poll_fd, .events = POLLIN };
	assert(!dp_slot_hand_on(&b, a.number, &header, payload, sizeof(payload)));
	assert(!getrlimit(RLIMIT_NOFILE, &before));
	none.rlim_max = before.rlim_max;
	assert(!setrlimit(RLIMIT_NOFILE, &none));
	assert(receive(&a) == -EAGAIN);
	/* Only time wakes the thread now. */
	assert(epoll_wait(a.poll_fd, &woken, 1, -1) == 1 && woken.data.fd == a.timer_fd);
	for (int i = 0; i < 2; i++)
		assert(poll(&readable, 1, -1) == 1 && receive(&a) == -EAGAIN && !a.n_from);
	assert(!setrlimit(RLIMIT_NOFILE, &before));
	assert(poll(&readable, 1, -1) == 1);
	assert(receive(&a) == sizeof(payload) && a.n_from == 1);
	dp_slot_release(&b);
	dp_slot_release(&a);
}

static void send_to(int fd, const char *address, const void *data, size_t len)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(ROCE_PORT) };

	assert(inet_pton(AF_INET, address, &to.sin_addr) == 1);
	assert(sendto(fd, data, len, 0, (void *)&to, sizeof(to)) > 0);
}

static struct dp_port *open_port(void)
{
	struct dp_port *port;
	char error[256];

	assert(!dp_port_open("udp:" ADDRESS, &port, error, sizeof(error)));
	return port;
}

/* Where a packet came from: 0, the port's own socket; 1, another process; above, a group. */
static int source_of(const struct dp_packet *packet)
{
	struct dp_addr group;

	for (int i = 0; i < GROUPS; i++) {
		assert(!dp_addr_parse(groups[i], &group));
		if (dp_addr_equal(&group, &packet->dst))
			return 2 + i;
	}
	return packet->sport == header.sport;
}

/* No source ever pauses: the port's own socket, a process that hands packets on, and groups.  Those
 * of each come all the same. */
static void check_others_under_load(void)
{
	struct in_addr through = { .s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), n, err, found[2 + GROUPS] = { 0 };
	struct dp_packet packets[DP_PORT_BATCH];
	struct dp_port *port = open_port();
	struct dp_port_info info;
	struct dp_addr group;
	struct dp_slot other;

	assert(fd >= 0);
	assert(!setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &through, sizeof(through)));
	for (int i = 0; i < GROUPS; i++)
		assert(!dp_addr_parse(groups[i], &group) && !dp_port_join(port, &group));
	claim(&other);
	dp_port_info(port, &info);
	payload[DP_SLOT_BYTE] = (uint8_t)info.qpn_prefix;
	for (int calls = 0; calls < CALLS; calls++) {
		err = dp_slot_hand_on(&other, info.qpn_prefix, &header, payload, PAYLOAD);
		assert(!err || err == -EAGAIN);
		for (int i = 0; i < GROUPS; i++)
			send_to(fd, groups[i], payload, sizeof(payload));
		for (int i = 0; i < BURST; i++)
			send_to(fd, ADDRESS, payload, sizeof(payload));
		n = dp_port_rx(port, packets, DP_PORT_BATCH);
		assert(n > 0);
		for (int i = 0; i < n; i++)
			found[source_of(&packets[i])]++;
		dp_port_rx_release(port, packets, n);
	}
	for (int i = 0; i < 2 + GROUPS; i++)
		assert(found[i]);
	dp_slot_release(&other);
	dp_port_close(port);
	close(fd);
}

/* Until nothing more can be there. */
static int count_packets(struct dp_port *port)
{
	struct dp_packet packets[DP_PORT_BATCH];
	int n, found = 0;

	for (int calls = 0; calls < CALLS; calls++) {
		n = dp_port_rx(port, packets, DP_PORT_BATCH);
		found += n;
		dp_port_rx_release(port, packets, n);
	}
	return found;
}

/* A REJ of a peer that does not know our id is for whichever port knows the peer's.  A slot between
 * the two is free. */
static void check_refusal_without_our_id(void)
{
	uint8_t rej[DP_MAD_AT + DP_MAD_LEN + DP_ICRC_LEN] = { 0 }, *mad = rej + DP_MAD_AT;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct dp_port *first = open_port(), *third;
	struct dp_port_info info;
	struct dp_slot second;

	claim(&second);
	third = open_port();
	dp_slot_release(&second);
	dp_port_info(third, &info);
	assert(fd >= 0 && info.qpn_prefix == 2);
	rej[DP_SLOT_BYTE + 2] = DP_MAD_QPN;
	dp_mad_start(mad, DP_CM_REJ, 1);
	dp_cm_set(mad, DP_CM_LOCAL_ID, 1);
	send_to(fd, ADDRESS, rej, sizeof(rej));
	assert(count_packets(first) == 1 && count_packets(third) == 1);
	dp_cm_set(mad, DP_CM_REMOTE_ID, 1); /* an id of the first port */
	send_to(fd, ADDRESS, rej, sizeof(rej));
	assert(count_packets(first) == 1 && !count_packets(third));
	dp_port_close(third);
	dp_port_close(first);
	close(fd);
}

int main(void)
{
	check_connection_that_a_child_keeps();
	check_service_that_a_child_keeps();
	check_no_descriptor_is_left();
	check_others_under_load();
	check_refusal_without_our_id();
	puts("ok");
	return 0;
}
