// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * QPs that RDMA-CM connects: iWARP's only way, and a way of other devices.
 *
 * Each rank listens at the address of the device, and tells the others where, with a secret.  Of
 * two ranks the one with the lower number calls.  All calls are under way at once; each event moves
 * one of them a step further.  Whoever calls sends a greeting first, since iWARP wants the called end
 * to send nothing before, and gets one back.  Until then the greeting is repeated: siw leaves what
 * arrives between its answer and the end of accept() unread until more arrives.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "collectives/live/coll.h"

enum {
	BACKLOG = 1024,
	LOOK_MS = 100,
	MS_NS = 1000000,
};

/* Private data of a call and of its answer: whose it is. */
struct purpose {
	uint8_t secret[COLL_SECRET_BYTES];
	uint32_t rank, channel;
	uint32_t qpn; /* for error messages */
};

/* ---- devices ---------------------------------------------------------------------- */

int coll_cm_open(struct dpcoll *comm, struct coll_device *device)
{
	int n = 0;

	if (!comm->cm)
		comm->cm = rdma_create_event_channel();
	if (!comm->cm)
		return coll_fail(comm, errno, "RDMA-CM: %s; is the module rdma_ucm loaded?",
				 strerror(errno));
	if (!comm->cm_contexts)
		comm->cm_contexts = rdma_get_devices(&n);
	for (int i = 0; comm->cm_contexts && comm->cm_contexts[i]; i++)
		if (!strcmp(ibv_get_device_name(comm->cm_contexts[i]->device), device->name))
			device->context = comm->cm_contexts[i];
	return device->context ? 0 :
				 coll_fail(comm, ENODEV, "RDMA-CM has no device %s", device->name);
}

/* The IPv4 address in a GID, or that of the GID's network device. */
static bool address_of(const struct coll_device *device, struct in_addr *out)
{
	char path[160], name[IFNAMSIZ] = "";
	struct ifreq request = { .ifr_addr.sa_family = AF_INET };
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	FILE *file;
	int fd, err;

	if (!memcmp(device->gid.raw, mapped, sizeof(mapped))) {
		memcpy(out, device->gid.raw + sizeof(mapped), sizeof(*out));
		return true;
	}
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/%d",
		 device->name, device->gid_index);
	file = fopen(path, "re");
	if (!file)
		return false;
	err = !fgets(name, sizeof(name), file);
	fclose(file);
	name[strcspn(name, "\n")] = 0;
	memcpy(request.ifr_name, name, sizeof(name));
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	err |= fd < 0 || ioctl(fd, SIOCGIFADDR, &request);
	if (fd >= 0)
		close(fd);
	if (!err)
		*out = ((struct sockaddr_in *)&request.ifr_addr)->sin_addr;
	return !err;
}

static struct sockaddr_in socket_address(struct in_addr address, uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_addr = address,
				     .sin_port = htons(port) };
}

int coll_cm_listen(struct dpcoll *comm, struct coll_device *device)
{
	struct sockaddr_in at;

	if (!address_of(device, &device->address))
		return coll_fail(comm, EADDRNOTAVAIL,
				 "device %s: its network device has no IPv4 address, which RDMA-CM "
				 "needs",
				 device->name);
	if (getrandom(device->secret, sizeof(device->secret), 0) != sizeof(device->secret))
		return coll_fail(comm, errno, "random number: %s", strerror(errno));
	at = socket_address(device->address, 0);
	if (rdma_create_id(comm->cm, &device->listener, device, RDMA_PS_TCP) ||
	    rdma_bind_addr(device->listener, (struct sockaddr *)&at) ||
	    rdma_listen(device->listener, BACKLOG))
		return coll_fail(comm, errno, "device %s: RDMA-CM at its address: %s", device->name,
				 strerror(errno));
	return 0;
}

/* ---- calls ------------------------------------------------------------------------ */

static int make_qp(struct dpcoll *comm, struct coll_conn *conn, struct rdma_cm_id *id)
{
	struct coll_device *device = &comm->device[conn->device];
	struct ibv_qp_init_attr init = coll_qp_attributes(device);
	uint8_t ack_timeout = (uint8_t)comm->cfg.ack_timeout;

	if (id->verbs != device->context)
		return coll_fail(comm, EHOSTUNREACH,
				 "the route to rank %u, channel %u, is not by device %s",
				 conn->peer, conn->channel, device->name);
	/* iWARP has no such time-out. */
	rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
			sizeof(ack_timeout));
	if (rdma_create_qp(id, device->pd, &init))
		return coll_fail(comm, errno, "creating a QP for rank %u: %s", conn->peer,
				 strerror(errno));
	conn->qp = id->qp;
	conn->own.qpn = id->qp->qp_num;
	return coll_post_receives(comm, conn);
}

static struct rdma_conn_param parameters(const struct dpcoll *comm, const void *data, size_t bytes)
{
	return (struct rdma_conn_param){ .private_data = data,
					 .private_data_len = (uint8_t)bytes,
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = (uint8_t)comm->cfg.retry_count,
					 .rnr_retry_count = 7 };
}

static int resolve(struct dpcoll *comm, struct coll_conn *conn)
{
	struct in_addr address = { .s_addr = conn->theirs.cm_address };
	struct sockaddr_in to = socket_address(address, conn->theirs.cm_port);
	struct sockaddr_in from = socket_address(comm->device[conn->device].address, 0);

	if (rdma_create_id(comm->cm, &conn->id, conn, RDMA_PS_TCP) ||
	    rdma_resolve_addr(conn->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
			      (int)comm->cfg.meet_ms))
		return coll_fail(comm, errno, "RDMA-CM to rank %u: %s", conn->peer,
				 strerror(errno));
	return 0;
}

static int call(struct dpcoll *comm, struct coll_conn *conn)
{
	struct purpose purpose = { .rank = comm->cfg.rank, .channel = conn->channel };
	struct rdma_conn_param param = parameters(comm, &purpose, sizeof(purpose));
	int err = make_qp(comm, conn, conn->id);

	purpose.qpn = conn->own.qpn;
	memcpy(purpose.secret, conn->theirs.cm_secret, sizeof(purpose.secret));
	if (!err && rdma_connect(conn->id, &param))
		err = coll_fail(comm, errno, "RDMA-CM connect to rank %u: %s", conn->peer,
				strerror(errno));
	return err;
}

/* The connection that a call is for; NULL: it is a stranger's. */
static struct coll_conn *wanted(struct dpcoll *comm, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *asked = &event->param.conn;
	const struct coll_device *device = event->listen_id->context;
	struct coll_conn *conn;
	struct purpose purpose;

	if (asked->private_data_len < sizeof(purpose))
		return NULL;
	memcpy(&purpose, asked->private_data, sizeof(purpose));
	if (memcmp(purpose.secret, device->secret, sizeof(purpose.secret)))
		return NULL;
	conn = coll_conn_of(comm, purpose.rank, purpose.channel);
	if (!conn || conn->neighbour || conn->id || &comm->device[conn->device] != device)
		return NULL;
	conn->theirs.qpn = purpose.qpn;
	return conn;
}

/* stranger: an id to be destroyed once the event is acknowledged. */
static int accept_call(struct dpcoll *comm, const struct rdma_cm_event *event,
		       struct rdma_cm_id **stranger)
{
	struct purpose answer = { .rank = comm->cfg.rank };
	struct rdma_conn_param param = parameters(comm, &answer, sizeof(answer));
	struct coll_conn *conn = wanted(comm, event);
	int err;

	if (!conn) {
		rdma_reject(event->id, NULL, 0);
		*stranger = event->id;
		return 0;
	}
	conn->id = event->id;
	conn->id->context = conn;
	err = make_qp(comm, conn, conn->id);
	answer.channel = conn->channel;
	answer.qpn = conn->own.qpn;
	if (!err && rdma_accept(conn->id, &param))
		err = coll_fail(comm, errno, "RDMA-CM accept of rank %u: %s", conn->peer,
				strerror(errno));
	return err;
}

static int established(struct dpcoll *comm, struct coll_conn *conn,
		       const struct rdma_conn_param *said)
{
	struct purpose answer;

	conn->established = true;
	if (conn->peer < comm->cfg.rank)
		return 0;
	if (said->private_data_len >= sizeof(answer)) {
		memcpy(&answer, said->private_data, sizeof(answer));
		conn->theirs.qpn = answer.qpn;
	}
	conn->greet_every_ns = LOOK_MS * MS_NS;
	conn->greet_ns = dp_now_ns() + conn->greet_every_ns;
	return coll_tell(comm, conn, COLL_GREETING, 0);
}

/* Ever more seldom, so that the receives that are posted last. */
static int greet_again(struct dpcoll *comm)
{
	uint64_t now = dp_now_ns();
	int err = 0;

	for (uint32_t i = 0; i < comm->n_conns && !err; i++) {
		struct coll_conn *conn = &comm->conn[i];

		if (!conn->greet_every_ns || conn->greeted || now < conn->greet_ns)
			continue;
		conn->greet_every_ns *= 2;
		conn->greet_ns = now + conn->greet_every_ns;
		err = coll_tell(comm, conn, COLL_GREETING, 0);
	}
	return err;
}

static int handle(struct dpcoll *comm, const struct rdma_cm_event *event,
		  struct rdma_cm_id **stranger)
{
	struct coll_conn *conn = event->id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return accept_call(comm, event, stranger);
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return rdma_resolve_route(conn->id, (int)comm->cfg.meet_ms) ?
			       coll_fail(comm, errno, "RDMA-CM route to rank %u: %s", conn->peer,
					 strerror(errno)) :
			       0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return call(comm, conn);
	case RDMA_CM_EVENT_ESTABLISHED:
		return established(comm, conn, &event->param.conn);
	default:
		return coll_fail(comm, ECONNREFUSED,
				 "RDMA-CM with rank %u, channel %u: %s, status %d", conn->peer,
				 conn->channel, rdma_event_str(event->event), event->status);
	}
}

/* A connection that is not there yet; NULL: all are. */
static const struct coll_conn *not_joined(const struct dpcoll *comm)
{
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		const struct coll_conn *conn = &comm->conn[i];

		if (!conn->neighbour && comm->device[conn->device].by_cm &&
		    (!conn->established || !conn->greeted))
			return conn;
	}
	return NULL;
}

/* An event, or nothing for a while. */
static int step(struct dpcoll *comm)
{
	struct pollfd wait = { .fd = comm->cm->fd, .events = POLLIN };
	struct rdma_cm_id *stranger = NULL;
	struct rdma_cm_event *event;
	int err;

	if (poll(&wait, 1, LOOK_MS) > 0) {
		if (rdma_get_cm_event(comm->cm, &event))
			return coll_fail(comm, errno, "RDMA-CM: %s", strerror(errno));
		err = handle(comm, event, &stranger);
		rdma_ack_cm_event(event);
		if (stranger)
			rdma_destroy_id(stranger);
		if (err)
			return err;
	}
	err = coll_poll(comm); /* greetings */
	return err < 0 ? err : greet_again(comm);
}

int coll_cm_connect(struct dpcoll *comm)
{
	uint64_t until = dp_now_ns() + (uint64_t)comm->cfg.meet_ms * MS_NS;
	const struct coll_conn *missing;
	int err = 0;

	for (uint32_t i = 0; i < comm->n_conns && !err; i++) {
		struct coll_conn *conn = &comm->conn[i];

		if (!conn->neighbour && comm->device[conn->device].by_cm &&
		    conn->peer > comm->cfg.rank)
			err = resolve(comm, conn);
	}
	while (!err && (missing = not_joined(comm))) {
		err = step(comm);
		if (!err && dp_now_ns() > until)
			err = coll_fail(comm, ETIMEDOUT,
					"rank %u: RDMA-CM has not joined it with rank %u, channel "
					"%u, within %u ms: %s",
					comm->cfg.rank, missing->peer, missing->channel,
					comm->cfg.meet_ms,
					missing->established ? "no greeting" : "no connection");
	}
	return err;
}

/* ---- the end ---------------------------------------------------------------------- */

void coll_cm_disconnect(struct coll_conn *conn)
{
	if (conn->qp)
		rdma_destroy_qp(conn->id);
	rdma_destroy_id(conn->id);
}

void coll_cm_close(struct dpcoll *comm)
{
	for (uint32_t i = 0; i < comm->n_devices; i++)
		if (comm->device[i].listener)
			rdma_destroy_id(comm->device[i].listener);
	if (comm->cm)
		rdma_destroy_event_channel(comm->cm);
	if (comm->cm_contexts)
		rdma_free_devices(comm->cm_contexts);
}
