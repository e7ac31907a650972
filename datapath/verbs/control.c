/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The QPs of a running program and their congestion control, seen and changed from outside
 * (control.py, `dpctl cc set` and `of`, `dpctl top`).
 *
 * Each open device has a Unix datagram socket with the abstract name
 * "datapath-verbs:<pid>:<device>:<n>".  The kernel removes it when the process ends.  Only the
 * device's thread serves the socket; the packet path does not know it.  The thread does nothing
 * else while it loads an algorithm, which takes less than a millisecond.  A user who may trace the
 * process may send requests: the user of the process, and root.
 *
 *   list NUMBER      the QPs made after QP NUMBER, as many as fit in an answer. "next" is the
 *                    NUMBER of the next request; 0: there are no more QPs
 *   set QPN PATH     sets the algorithm of one QP
 *   set all PATH     sets the algorithm of all QPs, and of those made later
 *
 * An answer is one JSON object in one datagram. {"error": "..."}: nothing was changed, unless
 * memory ran out halfway.
 */
#include "verbs/watch.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "posix/number.h"

enum {
	REQUEST_MAX = DP_PATH_MAX + 64,
	ANSWER_BYTES = 48 << 10, /* an answer of this size takes no further QP */
	NAMES = 64, /* devices of one name in processes of one PID, in several PID namespaces */
};

struct front_control {
	struct front_device *device;
	int fd;
};

/* ---- answers ---------------------------------------------------------------------------- */

static void put_head(FILE *f, const struct front_device *d)
{
	fprintf(f, "{\"pid\": %d, ", (int)getpid());
	front_put_string(f, "device", d->config.name);
}

static void put_algorithm(FILE *f, const struct front_cc *cc)
{
	front_put_string(f, "cc", front_cc_name(cc));
	fputs(", ", f);
	front_put_string(f, "params", front_cc_params(cc));
	fputs(", ", f);
	front_put_string(f, "object", front_cc_object(cc));
}

static void put_qp(FILE *f, const struct front_qp *qp)
{
	const struct dp_cc_flow *flow = dp_qp_flow(qp->qp);
	struct dp_qp_stats counters;

	fprintf(f, "{\"qpn\": %u, ", dp_qp_qpn(qp->qp));
	put_algorithm(f, qp->cc);
	fprintf(f, ", \"changes\": %u", qp->cc_changes);
	if (flow) {
		dp_qp_stats(qp->qp, &counters);
		fprintf(f,
			", \"cwnd_bytes\": %.0f, \"pacing_rate_bps\": %.0f, \"srtt_ns\": %.0f, "
			"\"min_rtt_ns\": %.0f, \"inflight_bytes\": %.0f, "
			"\"delivered_bytes\": %.0f, \"sent_packets\": %llu, "
			"\"retransmitted_packets\": %llu, \"marked_packets\": %llu",
			flow->cwnd_bytes, flow->pacing_rate_bps, flow->srtt_ns, flow->min_rtt_ns,
			flow->inflight_bytes, flow->delivered_bytes,
			(unsigned long long)counters.tx_packets,
			(unsigned long long)counters.retransmits,
			(unsigned long long)counters.ecn_marked);
	}
	fputs("}", f);
}

/* Call with the device locked. */
static void put_qps(FILE *f, const struct front_device *d, uint64_t after)
{
	const struct front_qp *qp;
	const char *comma = "";
	uint64_t last = after;

	put_head(f, d);
	fputs(", \"default\": {", f);
	put_algorithm(f, d->cc);
	fputs("}, \"qps\": [", f);
	for (qp = d->qps; qp; qp = qp->next) {
		if (qp->number <= after)
			continue;
		if (ftell(f) > ANSWER_BYTES)
			break;
		fputs(comma, f);
		put_qp(f, qp);
		comma = ", ";
		last = qp->number;
	}
	fprintf(f, "], \"next\": %llu}", qp ? (unsigned long long)last : 0ull);
}

static int refuse(FILE *f, const char *why)
{
	fputs("{", f);
	front_put_string(f, "error", why);
	fputs("}", f);
	return -EINVAL;
}

/* ---- requests --------------------------------------------------------------------------- */

static void list(struct dp_device *dev, const struct front_device *d, const char *text, FILE *f)
{
	uint64_t after;

	if (dp_read_number(text, 0, UINT64_MAX, &after))
		after = 0; /* all QPs */
	if (dp_device_lock(dev)) {
		refuse(f, "the device belongs to the parent process");
		return;
	}
	put_qps(f, d, after);
	dp_device_unlock(dev);
}

/* Call with the device locked.  Returns how many QPs were changed; -ENOMEM: not all were. */
static int set_all(struct front_device *d, struct front_cc *cc)
{
	struct front_cc *before = d->cc;
	struct front_qp *qp;
	int n = 0;

	for (qp = d->qps; qp; qp = qp->next) {
		if (front_cc_set(qp, cc))
			return -ENOMEM;
		n++;
	}
	d->cc = front_cc_hold(cc);
	front_cc_put(before);
	return n;
}

static int set_one(struct front_device *d, uint32_t qpn, struct front_cc *cc)
{
	struct front_qp *qp;
	int err;

	for (qp = d->qps; qp && dp_qp_qpn(qp->qp) != qpn; qp = qp->next)
		;
	if (!qp)
		return -ENOENT;
	err = front_cc_set(qp, cc);
	return err ? err : 1;
}

static void set(struct dp_device *dev, struct front_device *d, const char *text, FILE *f)
{
	char which[16], error[DP_PATH_MAX + 256];
	const char *path = strchr(text, ' ');
	struct front_cc *cc = NULL;
	uint32_t qpn;
	int n = -EINVAL;

	if (!path || path - text >= (int)sizeof(which)) {
		refuse(f, "the request is not known");
		return;
	}
	snprintf(which, sizeof(which), "%.*s", (int)(path - text), text);
	if (front_cc_load(path + 1, &cc, error, sizeof(error))) {
		refuse(f, error);
		return;
	}
	if (!dp_device_lock(dev)) {
		if (!strcmp(which, "all"))
			n = set_all(d, cc);
		else
			n = dp_read_u32(which, 0, UINT32_MAX, &qpn) ? -ENOENT : set_one(d, qpn, cc);
		dp_device_flush(dev); /* the new windows may allow more packets */
		dp_device_unlock(dev);
	}
	front_cc_put(cc);
	front_cc_sweep();
	if (n < 0) {
		snprintf(error, sizeof(error),
			 n == -ENOENT ? "%s has no QP %s" : "%s: no memory to change QP %s",
			 d->config.name, which);
		refuse(f, error);
		return;
	}
	put_head(f, d);
	fprintf(f, ", \"changed\": %d}", n);
}

static void answer(struct dp_device *dev, struct front_device *d, const char *request, FILE *f)
{
	if (!strncmp(request, "list ", 5))
		list(dev, d, request + 5, f);
	else if (!strncmp(request, "set ", 4))
		set(dev, d, request + 4, f);
	else
		refuse(f, "the request is not known");
}

/* ---- the socket -------------------------------------------------------------------------- */

/* The check that the kernel makes before a process may trace another. */
static bool may_ask(const struct msghdr *msg)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	const struct ucred *who;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
		return false;
	who = (const struct ucred *)CMSG_DATA(c);
	return !who->uid || (who->uid == geteuid() && prctl(PR_GET_DUMPABLE) == 1);
}

void front_control_serve(struct dp_device *dev, void *arg)
{
	char request[REQUEST_MAX],
		control[CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8)));
	struct front_control *c = arg;
	struct sockaddr_un from;
	struct iovec iov = { .iov_base = request, .iov_len = sizeof(request) - 1 };
	struct msghdr msg = {
		.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(c->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	char *text = NULL;
	size_t len = 0;
	FILE *f;

	if (n < 0 || !msg.msg_namelen)
		return;
	f = open_memstream(&text, &len);
	if (!f)
		return;
	request[n] = 0;
	if (!may_ask(&msg))
		refuse(f, "the process belongs to another user");
	else if (msg.msg_flags & MSG_TRUNC)
		refuse(f, "the path is too long");
	else
		answer(dev, c->device, request, f);
	/* A client that does not read its answers loses this one. */
	if (!fclose(f))
		sendto(c->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&from,
		       msg.msg_namelen);
	free(text);
}

static int bind_name(int fd, const char *device)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	const int one = 1;
	int n, i;

	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)))
		return -errno;
	for (i = 0; i < NAMES; i++) {
		/* a leading zero byte: an abstract name, not a file */
		n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
			     "datapath-verbs:%d:%s:%d", (int)getpid(), device, i);
		if (!bind(fd, (struct sockaddr *)&name,
			  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)))
			return 0;
		if (errno != EADDRINUSE)
			return -errno;
	}
	return -EADDRINUSE;
}

struct front_control *front_control_open(struct front_device *d)
{
	struct front_control *c = malloc(sizeof(*c));
	int err = -ENOMEM;

	if (c) {
		c->device = d;
		c->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		err = c->fd < 0 ? -errno : bind_name(c->fd, d->config.name);
	}
	if (!err)
		return c;
	fprintf(stderr, "libdpverbs: dpctl cc will not reach %s: %s\n", d->config.name,
		strerror(-err));
	if (c && c->fd >= 0)
		close(c->fd);
	free(c);
	return NULL;
}

int front_control_fd(const struct front_control *c)
{
	return c->fd;
}

void front_control_close(struct front_control *c)
{
	if (c)
		close(c->fd);
	free(c);
}
