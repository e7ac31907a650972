// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Addresses.  An id that is bound to an address uses the device with this address.  An id that is
 * bound to no address uses all devices.  For a destination, the kernel's routes choose a source
 * address, and the device with this address is used.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "posix/clock.h"
#include "verbs/ucm/ucm.h"

enum {
	PORT_FIRST = 32768, /* ports for programs that let us choose begin here */
	PORT_TRIES = 1000,
	PORT_ASK = 4791, /* port of the datagram socket of source_for(), which sends nothing */
	RESOLVE_STEP_NS = 5000000,
};

static const struct dp_addr any;

static bool is_any(const struct dp_addr *addr)
{
	return !memcmp(addr, &any, sizeof(any));
}

/* Returns 0 or -EAFNOSUPPORT. */
static int read_sockaddr(const struct sockaddr_in6 *in, struct ucm_id *id, struct dp_addr *addr,
			 uint16_t *port)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)in;

	memset(addr, 0, sizeof(*addr));
	if (in->sin6_family == AF_INET) {
		*port = ntohs(v4->sin_port);
		if (v4->sin_addr.s_addr)
			dp_addr_from_v4(addr, &v4->sin_addr);
	} else if (in->sin6_family == AF_INET6) {
		*port = ntohs(in->sin6_port);
		memcpy(addr->b, &in->sin6_addr, 16);
		if (in->sin6_scope_id)
			id->scope = in->sin6_scope_id;
	} else {
		return -EAFNOSUPPORT;
	}
	if (id->family != AF_INET6)
		id->family = in->sin6_family;
	return 0;
}

/* ---- devices and addresses ------------------------------------------------------------------ */

static bool is_at(const struct dp_addr *device, const struct dp_addr *addr)
{
	return dp_addr_equal(device, addr);
}

static bool is_of_family(const struct dp_addr *device, const struct dp_addr *addr)
{
	return dp_addr_is_v4(device) == dp_addr_is_v4(addr);
}

/* Finds the agent of the first device whose address suits, and opens no other: another process may
 * want it.  Returns -EADDRNOTAVAIL if there is none. */
static int agent_of(bool (*suits)(const struct dp_addr *, const struct dp_addr *),
		    const struct dp_addr *addr, struct ucm_agent **out)
{
	struct dp_port_info place;
	struct front_device *d;

	for (d = front_devices(); d; d = d->next) {
		if (d->agent ? !suits(&d->agent->addr, addr) :
			       front_find_place(d, &place) || !suits(&place.addr, addr))
			continue;
		if (!ucm_agent_open(d, out))
			return 0;
	}
	return -EADDRNOTAVAIL;
}

/* Returns the source address that the kernel would choose: that of a socket connected to `to`. */
static int source_for(const struct ucm_id *id, const struct dp_addr *to, struct dp_addr *out)
{
	union dp_sockaddr sa;
	socklen_t len = dp_addr_to_sockaddr(to, PORT_ASK, id->scope, &sa);
	int fd = socket(sa.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, &sa.sa, len)) {
		err = -errno;
	} else {
		len = sizeof(sa);
		err = getsockname(fd, &sa.sa, &len) ? -errno : 0;
		dp_addr_from_sockaddr(&sa.sa, out);
	}
	close(fd);
	return err;
}

static int choose_agent(struct ucm_id *id)
{
	struct dp_addr source;
	int err;

	if (id->agent)
		return 0;
	if (dp_addr_is_loopback(&id->dst)) {
		/* A loopback address means this host: use any device. */
		err = agent_of(is_of_family, &id->dst, &id->agent);
		if (!err)
			id->dst = id->agent->addr;
	} else {
		err = source_for(id, &id->dst, &source);
		if (!err)
			err = agent_of(is_at, &source, &id->agent);
		/* The kernel may have a device there. */
		if (err == -EADDRNOTAVAIL && !id->has_kernel)
			err = agent_of(is_of_family, &id->dst, &id->agent);
	}
	if (!err)
		id->src = id->agent->addr;
	return err;
}

/* ---- ports -------------------------------------------------------------------------------------- */

static void drop_services(struct ucm_id *id)
{
	struct ucm_service *s;

	while ((s = id->services)) {
		id->services = s->next;
		if (s->service)
			dp_cm_unlisten(s->service, dp_now_ns());
		ucm_agent_unclaim(s->agent, s->service_id);
		free(s);
	}
}

static int claim_on(struct ucm_id *id, struct ucm_agent *agent, uint16_t port)
{
	struct ucm_service *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->id = id;
	s->agent = agent;
	s->service_id = dp_cm_service_id(id->port_space, port);
	err = ucm_agent_claim(agent, s->service_id);
	if (err) {
		free(s);
		return err;
	}
	s->next = id->services;
	id->services = s;
	return 0;
}

static int claim_port(struct ucm_id *id, uint16_t port)
{
	struct ucm_agent *agent;
	int err = 0;

	if (id->agent) {
		err = claim_on(id, id->agent, port);
	} else {
		for (agent = ucm_agents(); agent && !err; agent = agent->next)
			err = claim_on(id, agent, port);
	}
	if (err)
		drop_services(id);
	else
		id->src_port = port;
	return err;
}

static uint16_t random_port(void)
{
	uint16_t n = 0;

	if (getrandom(&n, sizeof(n), 0) < 0)
		n = (uint16_t)dp_now_ns();
	return (uint16_t)(PORT_FIRST + n % (65536 - PORT_FIRST));
}

static int claim_any_port(struct ucm_id *id)
{
	int tries, err = -EADDRINUSE;

	for (tries = 0; tries < PORT_TRIES && err == -EADDRINUSE; tries++)
		err = claim_port(id, random_port());
	return err;
}

static int open_all_agents(void)
{
	struct ucm_agent *agent;
	struct front_device *d;
	int err = -ENODEV;

	for (d = front_devices(); d; d = d->next)
		if (!ucm_agent_open(d, &agent))
			err = 0;
	return err;
}

static int bind_to(struct ucm_id *id, uint16_t port)
{
	int err;

	err = is_any(&id->src) ? open_all_agents() : agent_of(is_at, &id->src, &id->agent);
	if (err == -EADDRNOTAVAIL && dp_addr_is_loopback(&id->src)) {
		err = agent_of(is_of_family, &id->src, &id->agent);
		if (!err)
			id->src = id->agent->addr;
	}
	if (!err)
		err = port ? claim_port(id, port) : claim_any_port(id);
	if (!err)
		id->state = UCM_BOUND;
	else
		id->agent = NULL;
	return err;
}

enum { ID_OF_BIND = offsetof(struct rdma_ucm_bind_ip, id) };

/* An id that is bound to any address has the same port in the kernel. */
static int bind_twin(struct ucm_id *id, const struct ucm_command *c)
{
	struct rdma_ucm_bind_ip in = *(const struct rdma_ucm_bind_ip *)c->in;
	int err;

	in.addr.sin6_port = htons(id->src_port); /* same place as sin_port of struct sockaddr_in */
	err = ucm_kernel_forward(id, c->header, &in, ID_OF_BIND);
	if (err) {
		drop_services(id);
		id->state = UCM_IDLE;
	}
	return err;
}

int ucm_bind_ip(const struct ucm_command *c)
{
	const struct rdma_ucm_bind_ip *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	uint16_t port;
	int err;

	if (!id)
		return -ENOENT;
	if (id->state != UCM_IDLE || id->port_space == RDMA_PS_IB)
		return -EINVAL;
	err = read_sockaddr(&in->addr, id, &id->src, &port);
	if (!err)
		err = bind_to(id, port);
	/* No device of ours has the address, or its device cannot be opened. */
	if ((err == -EADDRNOTAVAIL || err == -ENODEV) && id->has_kernel) {
		id->foreign = true;
		return ucm_kernel_forward(id, c->header, in, ID_OF_BIND);
	}
	return err || !is_any(&id->src) || !id->has_kernel ? err : bind_twin(id, c);
}

int ucm_listen(const struct ucm_command *c)
{
	const struct rdma_ucm_listen *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	struct ucm_service *s;
	int err = 0;

	if (!id)
		return -ENOENT;
	if (id->state == UCM_IDLE) {
		id->family = AF_INET;
		err = bind_to(id, 0);
	}
	if (!err && id->state != UCM_BOUND)
		return -EINVAL; /* it may be listening, and goes on */
	for (s = id->services; s && !err; s = s->next)
		err = dp_cm_listen(s->agent->cm, s->service_id, in->backlog, id, &s->service);
	if (!err && id->has_kernel && !id->agent)
		err = ucm_kernel_forward(id, c->header, in, offsetof(struct rdma_ucm_listen, id));
	if (!err) {
		id->state = UCM_LISTENING;
		ucm_thread_wake();
		return 0;
	}
	for (s = id->services; s; s = s->next) {
		if (s->service)
			dp_cm_unlisten(s->service, dp_now_ns());
		s->service = NULL;
	}
	return err;
}

void ucm_stop_listening(struct ucm_id *id)
{
	drop_services(id);
}

/* ---- resolving ------------------------------------------------------------------------------------ */

static struct ucm_id *resolving;

void ucm_forget_resolving(void)
{
	resolving = NULL;
}

void ucm_stop_resolving(struct ucm_id *id)
{
	struct ucm_id **at;

	for (at = &resolving; *at && *at != id; at = &(*at)->next_resolving)
		;
	if (*at)
		*at = id->next_resolving;
}

static void end_resolving(struct ucm_id *id, int err)
{
	bool addr = id->resolved == UCM_ADDR_RESOLVED;

	if (err) {
		id->state = addr ? UCM_BOUND : UCM_ADDR_RESOLVED;
		ucm_raise(id, addr ? UCM_EVENT_ADDR_ERROR : UCM_EVENT_ROUTE_ERROR, err);
	} else {
		id->state = id->resolved;
		ucm_raise(id, addr ? UCM_EVENT_ADDR_RESOLVED : UCM_EVENT_ROUTE_RESOLVED, 0);
	}
}

/* Returns true when the resolution has ended. */
static bool try_to_resolve(struct ucm_id *id, uint64_t now)
{
	int err = ucm_agent_reach(id->agent, &id->dst);

	if (err == -EAGAIN && now < id->resolve_until_ns)
		return false;
	end_resolving(id, err == -EAGAIN ? -ETIMEDOUT : err);
	return true;
}

uint64_t ucm_serve_resolving(uint64_t now)
{
	struct ucm_id **at = &resolving, *id;

	while ((id = *at)) {
		if (try_to_resolve(id, now))
			*at = id->next_resolving;
		else
			at = &id->next_resolving;
	}
	return resolving ? now + RESOLVE_STEP_NS : DP_NEVER;
}

static int resolve(struct ucm_id *id, enum ucm_state next, uint32_t timeout_ms)
{
	uint64_t now = dp_now_ns();

	id->resolved = next;
	id->state = UCM_RESOLVING;
	id->resolve_until_ns = now + timeout_ms * UINT64_C(1000000);
	if (try_to_resolve(id, now))
		return 0;
	id->next_resolving = resolving;
	resolving = id;
	ucm_thread_wake();
	return 0;
}

/* The route leads to no device of ours: the kernel takes over. */
static int resolve_abroad(struct ucm_id *id, const struct ucm_command *c)
{
	id->foreign = true;
	return ucm_kernel_forward(id, c->header, c->in, offsetof(struct rdma_ucm_resolve_ip, id));
}

int ucm_resolve_ip(const struct ucm_command *c)
{
	const struct rdma_ucm_resolve_ip *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	uint16_t port = 0;
	int err;

	if (!id)
		return -ENOENT;
	if ((id->state != UCM_IDLE && id->state != UCM_BOUND) || id->port_space == RDMA_PS_IB)
		return -EINVAL;
	if (id->state == UCM_IDLE && in->src_addr.sin6_family) {
		err = read_sockaddr(&in->src_addr, id, &id->src, &port);
		if (!err && !is_any(&id->src))
			err = agent_of(is_at, &id->src, &id->agent);
		if (err == -EADDRNOTAVAIL && id->has_kernel)
			return resolve_abroad(id, c);
		if (!err && port)
			err = claim_port(id, port);
		if (err)
			return err;
	}
	err = read_sockaddr(&in->dst_addr, id, &id->dst, &id->dst_port);
	if (!err && is_any(&id->dst))
		err = -EINVAL;
	if (!err)
		err = choose_agent(id);
	if (err == -EADDRNOTAVAIL && id->has_kernel)
		return resolve_abroad(id, c);
	if (err)
		return err;
	if (!id->src_port)
		id->src_port = random_port();
	return resolve(id, UCM_ADDR_RESOLVED, in->timeout_ms);
}

int ucm_resolve_route(const struct ucm_command *c)
{
	const struct rdma_ucm_resolve_route *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);

	if (!id)
		return -ENOENT;
	if (id->state != UCM_ADDR_RESOLVED)
		return -EINVAL;
	return resolve(id, UCM_ROUTE_RESOLVED, in->timeout_ms);
}
