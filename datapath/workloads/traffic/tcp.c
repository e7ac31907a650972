// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Messages over TCP, measured as RC measures them.
 *
 * One TCP connection stands for one QP.  A message is a header and its payload.
 * The receiving program reads it and answers with the number of messages that it
 * has read whole; that completes them at the sender, as the acknowledgement of
 * the receiver's transport completes a WRITE or SEND.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "generator.h"

enum {
	CHUNK = 1 << 18,
	EVENTS = 64,
	READS = 4, /* of one socket in turn */
	BACKLOG = 4096,
};

/* The first bytes of a connection. */
struct opening {
	uint8_t token[TOKEN_BYTES];
	uint32_t conn;
};

struct header {
	uint64_t number, bytes;
};

struct stream {
	int fd;
	/* sending end */
	uint32_t writing; /* free-running index of the ring */
	uint64_t written; /* bytes of that message, header included */
	/* receiving end */
	struct header header;
	uint64_t got;	   /* bytes of the message, header included */
	uint64_t answered; /* messages acknowledged */
	/* both: an acknowledgement in parts */
	uint64_t ack;
	uint32_t ack_bytes;
	bool wants_out;
};

struct tcp {
	struct stream *stream; /* by connection */
	int listener;
	char *chunk;
	uint64_t packets, retransmitted;
};

/* ---- sockets --------------------------------------------------------------- */

static int set_congestion_control(int fd, const char *name)
{
	if (!name || !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)))
		return 0;
	return complain(errno,
			"TCP congestion control %s: %s; net.ipv4.tcp_available_congestion_control "
			"has what this kernel knows",
			name, strerror(errno));
}

static int tcp_set_cc(struct run *run, struct conn *conn, const char *name)
{
	struct tcp *tcp = run->state;

	return set_congestion_control(tcp->stream[conn - run->conn].fd, name);
}

static int listen_here(struct run *run, struct tcp *tcp)
{
	struct addrinfo *found;
	int on = 1, err = resolve(run->opt.address[run->opt.host], run->opt.port + 1, &found);

	if (err)
		return err;
	tcp->listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(tcp->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* Before listen() and connect(), so that it holds from the first packet. */
	err = set_congestion_control(tcp->listener, run->opt.tcp_cc);
	if (!err && (tcp->listener < 0 || bind(tcp->listener, found->ai_addr, found->ai_addrlen) ||
		     listen(tcp->listener, BACKLOG)))
		err = complain(errno, "address %s port %u: %s", run->opt.address[run->opt.host],
			       run->opt.port + 1, strerror(errno));
	freeaddrinfo(found);
	return err;
}

static int tcp_open(struct run *run, struct record *records, uint32_t *n)
{
	struct tcp *tcp = calloc(1, sizeof(*tcp));

	run->state = tcp;
	if (tcp)
		tcp->listener = -1;
	if (tcp)
		tcp->stream = calloc(run->n_conns + 1, sizeof(*tcp->stream));
	if (!tcp || !tcp->stream)
		return complain(ENOMEM, "no memory");
	*n = 0;
	for (uint32_t i = 0; i < run->n_conns; i++) {
		tcp->stream[i].fd = -1;
		if (conn_mine(run, &run->conn[i]))
			records[(*n)++] =
				(struct record){ .conn = i, .end = conn_in(run, &run->conn[i]) };
	}
	tcp->chunk = calloc(1, CHUNK);
	if (!tcp->chunk)
		return complain(ENOMEM, "no memory");
	return listen_here(run, tcp);
}

static void prepare(int fd, uint32_t dscp)
{
	int on = 1, tos = (int)dscp << 2;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos)); /* fails on IPv4 sockets */
}

static int connect_one(struct run *run, struct tcp *tcp, uint32_t i)
{
	struct opening opening = { .conn = i };
	struct addrinfo *found;
	int fd, err = resolve(run->opt.address[run->conn[i].dst], run->opt.port + 1, &found);

	if (err)
		return err;
	memcpy(opening.token, run->opt.token, TOKEN_BYTES);
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	tcp->stream[i].fd = fd;
	prepare(fd, run->conn[i].dscp);
	err = set_congestion_control(fd, run->opt.tcp_cc);
	if (!err && (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) ||
		     send(fd, &opening, sizeof(opening), MSG_NOSIGNAL) != sizeof(opening)))
		err = complain(errno, "TCP to host %u at %s: %s", run->conn[i].dst,
			       run->opt.address[run->conn[i].dst], strerror(errno));
	freeaddrinfo(found);
	return err;
}

static int accept_one(struct run *run, struct tcp *tcp, struct door *door, uint64_t until)
{
	struct opening opening;
	int fd = door_next(door, until, &opening);
	uint32_t i;

	if (fd == -ETIMEDOUT)
		return complain(ETIMEDOUT, "a TCP connection did not come");
	if (fd < 0)
		return fd;
	i = opening.conn;
	if (i >= run->n_conns || !conn_in(run, &run->conn[i]) || tcp->stream[i].fd >= 0) {
		close(fd);
		return complain(EPROTO, "a host opened connection %u, which is not due", i);
	}
	prepare(fd, run->conn[i].dscp);
	tcp->stream[i].fd = fd;
	return 0;
}

/* Waits as long as the set-up may; a lost packet may cost seconds here. */
static int accept_all(struct run *run, struct tcp *tcp, uint32_t missing)
{
	uint64_t until = dp_now_ns() + run->opt.setup_ns;
	struct door *door = door_open(run, tcp->listener, sizeof(struct opening), missing);
	int err = door ? 0 : complain(ENOMEM, "no memory");

	for (; missing && !err; missing--)
		err = accept_one(run, tcp, door, until);
	if (door)
		door_close(door);
	close(tcp->listener); /* all peers are connected */
	tcp->listener = -1;
	return err;
}

static int watch(struct run *run, struct tcp *tcp, uint32_t i, int operation, bool out)
{
	struct epoll_event event = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.u64 = i };

	tcp->stream[i].wants_out = out;
	if (epoll_ctl(run->epoll_fd, operation, tcp->stream[i].fd, &event))
		return complain(errno, "epoll: %s", strerror(errno));
	return 0;
}

/*
 * Connecting blocks only for the handshake, which the kernel of the other end
 * answers without its program: so all may connect before anybody accepts.
 */
static int tcp_connect(struct run *run, const struct record *all)
{
	struct tcp *tcp = run->state;
	uint32_t missing = 0;
	int err = 0;

	(void)all;
	for (uint32_t i = 0; i < run->n_conns && !err; i++) {
		if (conn_out(run, &run->conn[i]))
			err = connect_one(run, tcp, i);
		missing += conn_in(run, &run->conn[i]);
	}
	if (!err)
		err = accept_all(run, tcp, missing);
	for (uint32_t i = 0; i < run->n_conns && !err; i++) {
		if (conn_mine(run, &run->conn[i]))
			err = watch(run, tcp, i, EPOLL_CTL_ADD, false);
	}
	return err;
}

static int broken(struct run *run, struct tcp *tcp, uint32_t i, const char *why)
{
	struct conn *conn = &run->conn[i];
	int err = manage_poll(run); /* it may be the whole host that is gone */

	if (err)
		return err;
	epoll_ctl(run->epoll_fd, EPOLL_CTL_DEL, tcp->stream[i].fd, NULL);
	if (pump_failed(run, conn, STATUS_GENERAL))
		complain(EIO, "connection %u from host %u to host %u failed: %s", conn->qp,
			 conn->src, conn->dst, why);
	return 0;
}

/* ---- sending --------------------------------------------------------------- */

/* Write until the socket is full or nothing is left; the socket then tells when it has room. */
static int write_some(struct run *run, struct tcp *tcp, uint32_t i)
{
	struct conn *conn = &run->conn[i];
	struct stream *s = &tcp->stream[i];

	while (s->writing != conn->head) {
		const struct message *message = &conn->ring[s->writing & conn->mask];
		struct header header = { message->number, message->bytes };
		uint64_t total = sizeof(header) + message->bytes;
		uint64_t payload = s->written > sizeof(header) ? s->written - sizeof(header) : 0;
		uint64_t left = message->bytes - payload;
		size_t skip = s->written < sizeof(header) ? s->written : sizeof(header);
		size_t part = left < CHUNK ? left : CHUNK;
		struct iovec iov[] = { { (char *)&header + skip, sizeof(header) - skip },
				       { tcp->chunk, part } };
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
		ssize_t n;

		if (run->opt.verify)
			pattern_fill(tcp->chunk, i, message->number, payload, part);
		n = sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			return s->wants_out ? 0 : watch(run, tcp, i, EPOLL_CTL_MOD, true);
		if (n < 0)
			return broken(run, tcp, i, strerror(errno));
		s->written += n;
		if (s->written == total) {
			s->written = 0;
			s->writing++;
		}
	}
	return s->wants_out ? watch(run, tcp, i, EPOLL_CTL_MOD, false) : 0;
}

static int tcp_post(struct run *run, struct conn *conn, const struct message *message)
{
	struct tcp *tcp = run->state;
	uint32_t i = conn - run->conn;

	(void)message;
	return tcp->stream[i].wants_out ? 0 : write_some(run, tcp, i);
}

/* Reads the receiver's counts; only the last one matters. */
static int read_acks(struct run *run, struct tcp *tcp, uint32_t i)
{
	struct conn *conn = &run->conn[i];
	struct stream *s = &tcp->stream[i];
	int found = 0, err = 0;

	for (;;) {
		ssize_t n = recv(s->fd, (char *)&s->ack + s->ack_bytes,
				 sizeof(s->ack) - s->ack_bytes, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return found;
		if (n <= 0)
			return broken(run, tcp, i, n ? strerror(errno) : "closed by the peer");
		s->ack_bytes += n;
		if (s->ack_bytes < sizeof(s->ack))
			continue;
		s->ack_bytes = 0;
		if (s->ack > conn->posted)
			return complain(EPROTO, "connection %u: too many acknowledgements", i);
		for (; s->answered < s->ack && !err; s->answered++) {
			err = pump_completed(run, conn);
			found++;
		}
		if (err)
			return err;
	}
}

/* ---- receiving ------------------------------------------------------------- */

static int answer(struct run *run, struct tcp *tcp, uint32_t i)
{
	struct stream *s = &tcp->stream[i];

	while (s->ack_bytes || s->answered != run->conn[i].arrived) {
		ssize_t n;

		if (!s->ack_bytes) {
			s->ack = s->answered = run->conn[i].arrived;
			s->ack_bytes = sizeof(s->ack);
		}
		n = send(s->fd, (char *)&s->ack + sizeof(s->ack) - s->ack_bytes, s->ack_bytes,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			return s->wants_out ? 0 : watch(run, tcp, i, EPOLL_CTL_MOD, true);
		if (n < 0)
			return broken(run, tcp, i, strerror(errno));
		s->ack_bytes -= n;
	}
	return s->wants_out ? watch(run, tcp, i, EPOLL_CTL_MOD, false) : 0;
}

static int compare(uint32_t i, const struct stream *s, const char *from, size_t bytes)
{
	int64_t wrong =
		pattern_compare(from, i, s->header.number, s->got - sizeof(s->header), bytes);

	if (wrong < 0)
		return 0;
	return complain(EBADMSG, "connection %u, message %llu: byte %lld is not what was sent", i,
			(unsigned long long)s->header.number, (long long)wrong);
}

static int take_header(struct run *run, uint32_t i, struct stream *s)
{
	const struct conn *conn = &run->conn[i];

	if (s->header.number == conn->arrived && s->header.bytes <= conn->max_message &&
	    s->header.bytes)
		return 0;
	return complain(EBADMSG, "connection %u: message %llu of %llu bytes where %llu was next", i,
			(unsigned long long)s->header.number, (unsigned long long)s->header.bytes,
			(unsigned long long)conn->arrived);
}

/* Cuts the bytes that were read into messages. */
static int take(struct run *run, uint32_t i, struct stream *s, const char *from, size_t bytes)
{
	while (bytes) {
		size_t n = bytes;
		int err = 0;

		if (s->got < sizeof(s->header)) {
			if (n > sizeof(s->header) - s->got)
				n = sizeof(s->header) - s->got;
			memcpy((char *)&s->header + s->got, from, n);
			if (s->got + n == sizeof(s->header))
				err = take_header(run, i, s);
		} else {
			uint64_t left = sizeof(s->header) + s->header.bytes - s->got;

			if (n > left)
				n = left;
			if (run->opt.verify)
				err = compare(i, s, from, n);
		}
		if (err)
			return err;
		s->got += n;
		from += n;
		bytes -= n;
		if (s->got > sizeof(s->header) && s->got == sizeof(s->header) + s->header.bytes) {
			s->got = 0;
			run->conn[i].arrived++;
		}
	}
	return 0;
}

static int read_messages(struct run *run, struct tcp *tcp, uint32_t i)
{
	struct stream *s = &tcp->stream[i];

	for (int k = 0; k < READS; k++) {
		ssize_t n = recv(s->fd, tcp->chunk, CHUNK, MSG_DONTWAIT);
		int err;

		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0)
			return broken(run, tcp, i, n ? strerror(errno) : "closed by the peer");
		err = take(run, i, s, tcp->chunk, n);
		if (err)
			return err;
	}
	return answer(run, tcp, i);
}

static int move(struct run *run, struct tcp *tcp, uint32_t i, uint32_t events)
{
	int err = 0;

	if (conn_in(run, &run->conn[i]))
		return read_messages(run, tcp, i);
	if (events & EPOLLOUT)
		err = write_some(run, tcp, i);
	return err ? err : read_acks(run, tcp, i);
}

static int tcp_poll(struct run *run)
{
	struct tcp *tcp = run->state;
	struct epoll_event events[EVENTS];
	int n = epoll_wait(run->epoll_fd, events, EVENTS, 0), found = 0;

	for (int k = 0; k < n; k++) {
		int err;

		if (events[k].data.u64 == NEVER) { /* the management network */
			err = manage_poll(run);
		} else {
			err = move(run, tcp, (uint32_t)events[k].data.u64, events[k].events);
			found++;
		}
		if (err < 0)
			return err;
	}
	return found;
}

static int tcp_arm(struct run *run)
{
	(void)run; /* epoll is level-triggered */
	return 0;
}

static void tcp_counters(struct run *run, uint64_t *packets, uint64_t *retransmitted)
{
	struct tcp *tcp = run->state;

	*packets = *retransmitted = 0;
	for (uint32_t i = 0; i < run->n_conns; i++) {
		struct tcp_info info = { 0 };
		socklen_t bytes = sizeof(info);

		if (!conn_out(run, &run->conn[i]) ||
		    getsockopt(tcp->stream[i].fd, IPPROTO_TCP, TCP_INFO, &info, &bytes))
			continue;
		*packets += info.tcpi_data_segs_out;
		*retransmitted += info.tcpi_total_retrans;
	}
}

static void tcp_close(struct run *run)
{
	struct tcp *tcp = run->state;

	if (!tcp)
		return;
	for (uint32_t i = 0; tcp->stream && i < run->n_conns; i++) {
		if (tcp->stream[i].fd >= 0)
			close(tcp->stream[i].fd);
	}
	if (tcp->listener >= 0)
		close(tcp->listener);
	free(tcp->stream);
	free(tcp->chunk);
	free(tcp);
}

const struct transport tcp_transport = {
	.name = "tcp",
	.open = tcp_open,
	.connect = tcp_connect,
	.post = tcp_post,
	.set_cc = tcp_set_cc,
	.poll = tcp_poll,
	.arm = tcp_arm,
	.counters = tcp_counters,
	.close = tcp_close,
};
