// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fabric/sim/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#define MEMORY_BYTES DP_FLOW_MESSAGE_MAX
/* The CPU's caches do not hold the state of so many links. */
#define MANY_LINKS 4096

void sim_fail(struct dp_sim *s, int error, const char *format, ...)
{
	va_list args;

	if (s->broken)
		return;
	s->broken = error;
	va_start(args, format);
	vsnprintf(s->failure, sizeof(s->failure), format, args);
	va_end(args);
}

const char *dp_sim_failure(const struct dp_sim *s)
{
	return s->failure;
}

/* ---- life cycle ----------------------------------------------------------------------- */

static bool config_valid(const struct dp_sim_config *c)
{
	return c->stall_ns && !(c->trace_events & (c->trace_events - 1)) &&
	       c->trace_events <= 1u << 20 && c->path_mtu <= c->engine.path_mtu_max &&
	       (!c->preset_extended || c->engine.extended) && sim_wakeup_valid(&c->wakeup);
}

/* Tries whether an engine accepts its part of the configuration. */
static int probe_engine(const struct dp_sim_config *c)
{
	struct dp_engine *e;
	int err = dp_engine_create(&c->engine, &e);

	if (!err)
		dp_engine_destroy(e);
	return err;
}

static int make_queue(struct dp_sim *s, bool buffers)
{
	s->first_worker = sim_pause_id(s, buffers ? s->n_links : 0);
	return sim_queue_init(&s->queue, sim_worker_id(s, s->cfg.workers ? s->n_hosts : 0));
}

int dp_sim_create(const struct dp_sim_graph *graph, const struct dp_sim_config *config,
		  struct dp_sim **out)
{
	struct dp_sim *s;
	int err;

	if (!config_valid(config))
		return -EINVAL;
	err = probe_engine(config);
	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->cfg = *config;
	s->latency_min = UINT64_MAX;
	s->digest = 0xcbf29ce484222325ull;
	s->memory = mmap(NULL, MEMORY_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	err = s->memory == MAP_FAILED ? -ENOMEM : sim_graph_create(s, graph);
	if (!err)
		sim_emulate_links(s);
	if (!err)
		err = dp_store_create(s->cfg.engine.window_psns, &s->store);
	if (!err)
		err = make_queue(s, graph->buffers);
	if (err) {
		dp_sim_destroy(s);
		return err;
	}
	sim_queue_set(&s->queue, sim_clock_id(s, SIM_WATCH), s->cfg.stall_ns);
	*out = s;
	return 0;
}

void dp_sim_destroy(struct dp_sim *s)
{
	uint32_t i;

	sim_traffic_free(s);
	sim_steps_free(s);
	for (i = 0; i < s->n_hosts; i++)
		sim_host_free(s, &s->host[i]);
	if (s->store)
		dp_store_destroy(s->store);
	s->cfg.trace_events = 0;
	sim_graph_free(s);
	sim_sample_free(s);
	sim_pool_free(&s->pool);
	sim_queue_free(&s->queue);
	if (s->memory != MAP_FAILED)
		munmap(s->memory, MEMORY_BYTES);
	free(s);
}

int dp_sim_set_link(struct dp_sim *s, uint32_t link, const struct dp_link_config *config)
{
	struct dp_link_config c = *config;
	int err;

	if (link >= s->n_links)
		return -EINVAL;
	c.seed = sim_link_seed(s, link);
	c.telemetry &= s->link[link].from >= s->n_hosts; /* switches stamp, NICs do not */
	err = dp_link_configure(s->link[link].link, &c, s->now);
	if (err)
		return err;
	sim_set_reverse(s, link ^ 1, &c);
	sim_requeue_link(s, link);
	if (s->link[link].from < s->n_hosts)
		sim_host_run(s, &s->host[s->link[link].from]);
	return 0;
}

int dp_sim_pause(struct dp_sim *s, uint32_t link, uint32_t class_mask, bool paused)
{
	if (link >= s->n_links)
		return -EINVAL;
	sim_pause_link(s, link, class_mask, paused);
	return 0;
}

/* ---- invariants of a run ------------------------------------------------------------- */

static uint64_t in_flight(const struct dp_sim *s)
{
	uint64_t n = s->pool.used;
	uint32_t i;

	for (i = 0; i < s->n_hosts; i++)
		n -= s->host[i].spare != NULL;
	return n;
}

/* The sum over all links. */
static void sum_links(const struct dp_sim *s, struct dp_link_stats *sum)
{
	struct dp_link_stats one;
	uint32_t i;

	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < s->n_links; i++) {
		dp_link_stats(s->link[i].link, s->now, &one);
#define X(name) sum->name += one.name;
		DP_LINK_COUNTERS(X)
#undef X
	}
}

static uint64_t dropped_by_links(const struct dp_link_stats *l)
{
	return l->lost + l->overflowed + l->policed + l->aqm_dropped + l->shaped;
}

/* Checks that the packets that hosts were told of add up, for each reason. */
static void check_reasons(struct dp_sim *s, const struct dp_link_stats *l)
{
	const uint64_t *d = s->dropped;

	if (l->lost != d[DP_DROP_LOSS] || l->policed != d[DP_DROP_POLICER] ||
	    l->aqm_dropped != d[DP_DROP_AQM] || l->shaped != d[DP_DROP_SHAPED] ||
	    l->overflowed != d[DP_DROP_QUEUE] + d[DP_DROP_BUFFER])
		sim_fail(s, -EPROTO,
			 "links counted %llu packets lost, %llu overflowed, %llu policed, %llu "
			 "dropped by an AQM and %llu by shaped classes, and gave back others",
			 (unsigned long long)l->lost, (unsigned long long)l->overflowed,
			 (unsigned long long)l->policed, (unsigned long long)l->aqm_dropped,
			 (unsigned long long)l->shaped);
}

static uint64_t dropped_packets(const struct dp_sim *s)
{
	uint64_t sum = 0;

	for (unsigned why = 0; why < DP_DROPS; why++)
		sum += s->dropped[why];
	return sum;
}

/* Checks three separate accounts of the same packets: those of hosts, of links, of memory. */
static void check_conservation(struct dp_sim *s)
{
	uint64_t dropped = dropped_packets(s);
	uint64_t out = s->delivered + s->corrupted + dropped, held = in_flight(s);
	struct dp_link_stats l;

	sum_links(s, &l);
	if (s->injected + s->duplicated != out + held)
		sim_fail(s, -EPROTO,
			 "%llu packets sent and %llu copied, but %llu ended and %llu "
			 "are under way",
			 (unsigned long long)s->injected, (unsigned long long)s->duplicated,
			 (unsigned long long)out, (unsigned long long)held);
	check_reasons(s, &l);
	held -= s->unread;
	if (l.offered + l.duplicated != l.delivered + dropped_by_links(&l) + held)
		sim_fail(s, -EPROTO,
			 "links were offered %llu frames and made %llu, but gave back "
			 "%llu, dropped %llu and hold %llu",
			 (unsigned long long)l.offered, (unsigned long long)l.duplicated,
			 (unsigned long long)l.delivered, (unsigned long long)dropped_by_links(&l),
			 (unsigned long long)held);
}

/* The first link that holds frames, for an error message. */
static uint32_t holding(const struct dp_sim *s)
{
	uint32_t i;

	for (i = 0; i < s->n_links; i++)
		if (dp_link_queue_bytes(s->link[i].link))
			return i;
	return SIM_NONE;
}

static void deadlock(struct dp_sim *s)
{
	uint32_t link = holding(s);

	if (link == SIM_NONE)
		sim_fail(s, -EDEADLK, "%llu of %llu flows have not ended, and nothing will happen",
			 (unsigned long long)(s->n_flows - s->ended),
			 (unsigned long long)s->n_flows);
	else
		sim_fail(s, -EDEADLK,
			 "deadlock: %llu packets stand still, link %u (node %u to %u) holds %llu "
			 "bytes, and %llu of %llu flows have not ended",
			 (unsigned long long)in_flight(s), link, s->link[link].from,
			 s->link[link].to,
			 (unsigned long long)dp_link_queue_bytes(s->link[link].link),
			 (unsigned long long)(s->n_flows - s->ended),
			 (unsigned long long)s->n_flows);
}

/* Whether a link has a next time to act, however far away: a frame is being sent or is on the wire,
 * or a shaped class opens.  A link whose waiting frames are all paused has none.  A pause frame on
 * its way may change that. */
static bool goes_on(const struct dp_sim *s)
{
	uint32_t i;

	for (i = 0; i < s->n_links; i++)
		if (s->link[i].pauses || dp_link_deadline(s->link[i].link) != DP_NEVER)
			return true;
	return false;
}

/* Called every stall_ns.  Checks that no packet was lost from the accounts and that a packet has
 * moved or is going to.  If none has and none is, queues that hold packets are in a deadlock. */
static void watch(struct dp_sim *s)
{
	struct dp_link_stats l;
	uint64_t moved;

	check_conservation(s);
	sum_links(s, &l);
	moved = s->injected + l.delivered + dropped_by_links(&l);
	if (moved == s->moved && s->ended < s->n_flows && !goes_on(s) && holding(s) != SIM_NONE)
		deadlock(s);
	s->moved = moved;
	sim_queue_set(&s->queue, sim_clock_id(s, SIM_WATCH), s->now + s->cfg.stall_ns);
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void clock_act(struct dp_sim *s, enum sim_clock clock)
{
	switch (clock) {
	case SIM_STARTS:
		sim_start_flows(s);
		break;
	case SIM_STOPS:
		sim_stop_flows(s);
		break;
	case SIM_SAMPLES:
		sim_take_sample(s);
		break;
	default:
		watch(s);
	}
}

static void act(struct dp_sim *s, uint32_t id)
{
	if (id < s->n_links) {
		sim_link_act(s, id);
		return;
	}
	id -= s->n_links;
	if (id < s->n_hosts) {
		sim_host_act(s, &s->host[id]);
		return;
	}
	id -= s->n_hosts;
	if (id < SIM_CLOCKS)
		clock_act(s, (enum sim_clock)id);
	else if (id < s->first_worker - s->n_links - s->n_hosts)
		sim_pause_act(s, id - SIM_CLOCKS);
	else
		sim_worker_act(s, id - (s->first_worker - s->n_links - s->n_hosts));
}

/* Whether only clocks that never end are left: samples and the watch.  An order for a held flow may
 * come at until_ns. */
static bool nothing_left(const struct dp_sim *s, uint64_t until_ns)
{
	const struct sim_queue *q = &s->queue;
	uint32_t idle = 1u + (s->sample_ns != 0);

	return q->waiting == idle && s->started == s->n_flows && s->stopped == s->n_stops &&
	       (!s->held || until_ns >= q->horizon_ns);
}

/* Most turns without a nanosecond passing: two of the largest windows over six links, and for each
 * flow a window of the usual size.  More mean a network in which nothing takes time. */
static uint64_t standstill(const struct dp_sim *s)
{
	return (1ull << 22) + (s->n_flows << 14);
}

/* Loads the link that most likely acts after `id`, while `id` acts. */
static void foresee(const struct dp_sim *s, uint32_t id)
{
	uint32_t then = sim_queue_second(&s->queue, id);

	if (then < s->n_links)
		dp_link_prefetch(s->link[then].link);
}

static void turn(struct dp_sim *s, struct sim_turn next)
{
	if (next.at_ns != s->now)
		s->arrived_at = s->turns;
	else if (s->turns - s->arrived_at > standstill(s))
		sim_fail(s, -ELOOP,
			 "time does not pass: hosts send to each other over links without a rate");
	if (next.at_ns == s->queue.horizon_ns)
		sim_fail(s, -ERANGE,
			 "simulated time ends after %llu s with so many hosts and links",
			 (unsigned long long)(next.at_ns / 1000000000));
	if (next.at_ns < s->now)
		sim_fail(s, -EPROTO, "time goes back by %llu ns for object %u",
			 (unsigned long long)(s->now - next.at_ns), next.id);
	s->now = next.at_ns;
	s->turns++;
	if (s->n_links >= MANY_LINKS)
		foresee(s, next.id);
	act(s, next.id);
	if (s->steps)
		sim_run_steps(s);
}

/* Ends a call of dp_sim_run().  Links catch up on their turns late, and may duplicate frames
 * then.  Here all but emulated links with PFC are brought up to date, so that totals and the links'
 * counters are of the same moment. */
static int stop(struct dp_sim *s, int how)
{
	uint32_t i;

	for (i = 0; !s->broken && i < s->n_links; i++)
		sim_look_at_link(s, i);
	if (!s->broken)
		check_conservation(s);
	return s->broken ? s->broken : how;
}

int dp_sim_run(struct dp_sim *s, uint64_t until_ns, uint64_t events)
{
	struct sim_turn next;

	if (dp_routes_renew(&s->routes))
		sim_fail(s, -ENOMEM, "no memory for routes");
	while (!s->broken && (s->ended < s->n_flows || s->steps_ended < s->n_steps)) {
		if (!events--)
			return DP_SIM_MORE;
		next = sim_queue_first(&s->queue);
		if (next.at_ns > until_ns) {
			s->now = until_ns;
			return stop(s, DP_SIM_UNTIL);
		}
		if (nothing_left(s, until_ns)) {
			deadlock(s);
			break;
		}
		turn(s, next);
	}
	return stop(s, DP_SIM_DONE);
}

/* ---- results --------------------------------------------------------------------------------- */

void dp_sim_totals(const struct dp_sim *s, struct dp_sim_totals *out)
{
	*out = (struct dp_sim_totals){
		.now_ns = s->now,
		.packet_events = s->packet_events,
		.turns = s->turns,
		.injected = s->injected,
		.duplicated = s->duplicated,
		.delivered = s->delivered,
		.corrupted = s->corrupted,
		.lost = s->dropped[DP_DROP_LOSS],
		.overflowed = s->dropped[DP_DROP_QUEUE] + s->dropped[DP_DROP_BUFFER],
		.policed = s->dropped[DP_DROP_POLICER],
		.aqm_dropped = s->dropped[DP_DROP_AQM],
		.shaped = s->dropped[DP_DROP_SHAPED],
		.in_flight = in_flight(s),
		.flows = s->n_flows,
		.ended = s->ended,
		.failed = s->failed,
		.messages = s->messages,
		.bytes = s->bytes,
		.qps = s->qps,
		.digest = s->digest,
	};
}

const struct dp_flow_result *dp_sim_results(const struct dp_sim *s)
{
	return s->result;
}

const uint64_t *dp_sim_latencies(const struct dp_sim *s, uint64_t *limits)
{
	limits[0] = s->latency_sum ? s->latency_min : 0;
	limits[1] = s->latency_max;
	limits[2] = s->latency_sum;
	return s->latency;
}

int dp_sim_link_stats(const struct dp_sim *s, uint32_t link, struct dp_link_stats *out)
{
	if (link >= s->n_links)
		return -EINVAL;
	sim_look_at_link(s, link);
	dp_link_stats(s->link[link].link, s->now, out);
	return 0;
}

int dp_sim_qp_stats(const struct dp_sim *s, uint64_t flow, uint32_t end, struct dp_qp_stats *out)
{
	const struct sim_channel *c;

	if (flow >= s->n_flows || end > 1)
		return -EINVAL;
	c = &s->channel[s->flow[flow].channel];
	if (!c->responder)
		return -ENOENT;
	dp_qp_stats(end ? c->responder : c->requester, out);
	return 0;
}

static void add_stats(const struct dp_qp *qp, struct dp_qp_stats *sum)
{
	struct dp_qp_stats one;

	if (!qp)
		return;
	dp_qp_stats(qp, &one);
#define X(name) sum->name += one.name;
	DP_QP_COUNTERS(X)
#undef X
#define X(name)                                                                                    \
	if (one.name > sum->name)                                                                  \
		sum->name = one.name;
	DP_QP_PEAKS(X)
#undef X
}

void dp_sim_qp_totals(const struct dp_sim *s, struct dp_qp_stats *out)
{
	uint32_t i;

	memset(out, 0, sizeof(*out));
	for (i = 0; i < s->n_channels; i++) {
		add_stats(s->channel[i].requester, out);
		add_stats(s->channel[i].responder, out);
	}
}
