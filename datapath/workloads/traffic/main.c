// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dp-traffic: options, and the life of a run.
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "generator.h"
#include "posix/number.h"

static const char usage[] =
	"usage: dp-traffic --table FILE --report FILE --host N --management A0,A1,... [options]\n"
	"\n"
	"Runs the flows of a traffic table (datapath/fabric/flows.h) whose source is host N, and\n"
	"takes those whose destination it is.  One process for each host; they find each other\n"
	"at the management address of host 0.\n"
	"\n"
	"  --table FILE          the schedule; the same file at every host\n"
	"  --report FILE         where the results go\n"
	"  --ready FILE          is made when all hosts are ready to begin\n"
	"  --zero FILE           has a line with the schedule's zero (ns of CLOCK_MONOTONIC of host 0)\n"
	"                        as soon as somebody writes it; without it, host 0 begins when all\n"
	"                        are ready\n"
	"  --progress FILE       is made; has the results of the flows of this host so far\n"
	"  --orders FIFO         struct dp_flow_order: what becomes of flows while the run goes on\n"
	"  --host N              which host of the table this is, from 0\n"
	"  --management A0,A1..  management addresses of all hosts, in their order\n"
	"  --port P              management port of host 0 (18600); TCP and --cm use P + 1 of the\n"
	"                        network under test\n"
	"  --token FILE          32 hexadecimal digits, the same at every host of a run and no\n"
	"                        other's: connections without them are dropped\n"
	"\n"
	"  --device NAME         verbs device (dp0)\n"
	"  --gid-index I         GID of the port; otherwise the first that is an IPv4 address\n"
	"  --cm                  connect QPs by RDMA-CM, which iWARP needs; wants --address\n"
	"  --retry-count N       retry_cnt of the QPs, 0 to 7 (7)\n"
	"  --ack-timeout T       timeout of the QPs, 4.096 us * 2^T, 0 to 31 (14); 0: for ever\n"
	"  --rnr-retry N         rnr_retry of the QPs, 0 to 7 (7: any number of times)\n"
	"  --tcp                 TCP in place of verbs; wants --address\n"
	"  --tcp-cc NAME         its congestion control: cubic, bbr, reno ...\n"
	"  --cc OBJECT           an algorithm that flows of the table name by its number, from 1: a\n"
	"                        compiled algorithm (devices of datapath), or with --tcp a name\n"
	"  --address A0,A1..     addresses of all hosts on the network under test\n"
	"\n"
	"  --spin US             poll that long without success before sleeping; `always`: never\n"
	"                        sleep, 0: sleep at once (20)\n"
	"  --deadline SECONDS    flows that have not ended by then stay unfinished\n"
	"  --setup SECONDS       how long hosts are waited for (20)\n"
	"  --verify              fill every message with a pattern, and compare it on arrival\n"
	"\n"
	"A message's latency is from its post until it has completed.  Over TCP the receiving\n"
	"program acknowledges each message when it has read it all, and that completes it: as with\n"
	"an RC WRITE or SEND, the sender then knows that everything has arrived.\n"
	"\n"
	"Status: 0 all went well, 1 a flow failed (the report says which), 2 wrong use, 3 the run\n"
	"failed and there is no report.\n"
	"\n"
	"Examples, two hosts on one machine:\n"
	"  dpctl exec --device dp0=udp:10.0.0.1 -- dp-traffic --table t --report r0 --host 0 \\\n"
	"      --management 10.0.0.1,10.0.0.2\n"
	"  dpctl exec --device dp0=udp:10.0.0.2 -- dp-traffic --table t --report r1 --host 1 \\\n"
	"      --management 10.0.0.1,10.0.0.2\n"
	"  dp-traffic --table t --report r0 --host 0 --management 10.0.0.1,10.0.0.2 \\\n"
	"      --tcp --tcp-cc bbr --address 10.0.0.1,10.0.0.2\n";

enum { EXIT_FLOW = 1, EXIT_USE = 2, EXIT_RUN = 3 };

enum {
	OPT_TABLE = 256,
	OPT_REPORT,
	OPT_READY,
	OPT_ZERO,
	OPT_HOST,
	OPT_MANAGEMENT,
	OPT_PORT,
	OPT_TOKEN,
	OPT_DEVICE,
	OPT_GID_INDEX,
	OPT_CM,
	OPT_RETRY_COUNT,
	OPT_ACK_TIMEOUT,
	OPT_RNR_RETRY,
	OPT_TCP,
	OPT_TCP_CC,
	OPT_CC,
	OPT_ADDRESS,
	OPT_SPIN,
	OPT_DEADLINE,
	OPT_SETUP,
	OPT_VERIFY,
	OPT_PROGRESS,
	OPT_ORDERS,
	OPT_HELP,
};

static const struct option known[] = {
	{ "table", required_argument, NULL, OPT_TABLE },
	{ "report", required_argument, NULL, OPT_REPORT },
	{ "ready", required_argument, NULL, OPT_READY },
	{ "zero", required_argument, NULL, OPT_ZERO },
	{ "progress", required_argument, NULL, OPT_PROGRESS },
	{ "orders", required_argument, NULL, OPT_ORDERS },
	{ "host", required_argument, NULL, OPT_HOST },
	{ "management", required_argument, NULL, OPT_MANAGEMENT },
	{ "port", required_argument, NULL, OPT_PORT },
	{ "token", required_argument, NULL, OPT_TOKEN },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "gid-index", required_argument, NULL, OPT_GID_INDEX },
	{ "cm", no_argument, NULL, OPT_CM },
	{ "retry-count", required_argument, NULL, OPT_RETRY_COUNT },
	{ "ack-timeout", required_argument, NULL, OPT_ACK_TIMEOUT },
	{ "rnr-retry", required_argument, NULL, OPT_RNR_RETRY },
	{ "tcp", no_argument, NULL, OPT_TCP },
	{ "tcp-cc", required_argument, NULL, OPT_TCP_CC },
	{ "cc", required_argument, NULL, OPT_CC },
	{ "address", required_argument, NULL, OPT_ADDRESS },
	{ "spin", required_argument, NULL, OPT_SPIN },
	{ "deadline", required_argument, NULL, OPT_DEADLINE },
	{ "setup", required_argument, NULL, OPT_SETUP },
	{ "verify", no_argument, NULL, OPT_VERIFY },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

int complain(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("dp-traffic: error: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return error > 0 ? -error : error ? error : -EIO;
}

/* ---- options --------------------------------------------------------------- */

static int number(const char *name, const char *text, uint64_t max, uint64_t *out)
{
	if (dp_read_number(text, 0, max, out))
		return complain(EINVAL, "--%s: %s is not a number up to %llu", name, text,
				(unsigned long long)max);
	return 0;
}

static int seconds(const char *name, const char *text, uint64_t *out_ns)
{
	double value;

	if (dp_read_real(text, &value) || value <= 0 || value >= 1e9)
		return complain(EINVAL, "--%s: %s is not a number of seconds", name, text);
	*out_ns = (uint64_t)(value * 1e9);
	return 0;
}

/* Splits in place; the list is freed at the end of the program. */
static int split(const char *name, char *text, char ***out, uint32_t *n)
{
	char *rest = text, *item;

	free(*out);
	*n = 0;
	*out = calloc(HOSTS_MAX, sizeof(**out));
	if (!*out)
		return complain(ENOMEM, "no memory");
	while ((item = strsep(&rest, ","))) {
		if (!*item || *n == HOSTS_MAX)
			return complain(EINVAL, "--%s: %s", name,
					*item ? "too many addresses" : "an empty address");
		(*out)[(*n)++] = item;
	}
	return 0;
}

static int spin(struct options *opt, const char *text)
{
	uint64_t us = 0;
	int err;

	if (!strcmp(text, "always")) {
		opt->spin_ns = NEVER;
		return 0;
	}
	err = number("spin", text, 1000000000, &us);
	opt->spin_ns = us * 1000;
	return err;
}

static int add_cc(struct options *opt, const char *name)
{
	if (opt->n_cc == CC_MAX)
		return complain(EINVAL, "--cc: %d algorithms at most", CC_MAX);
	opt->cc[opt->n_cc++] = name;
	return 0;
}

static int take_number(struct options *opt, int which, const char *text)
{
	static const struct {
		const char *name;
		uint64_t max;
	} limits[] = {
		[OPT_HOST - OPT_TABLE] = { "host", HOSTS_MAX - 1 },
		[OPT_PORT - OPT_TABLE] = { "port", 65534 },
		[OPT_GID_INDEX - OPT_TABLE] = { "gid-index", 255 },
		[OPT_RETRY_COUNT - OPT_TABLE] = { "retry-count", 7 },
		[OPT_ACK_TIMEOUT - OPT_TABLE] = { "ack-timeout", 31 },
		[OPT_RNR_RETRY - OPT_TABLE] = { "rnr-retry", RNR_FOREVER },
	};
	uint64_t value = 0;
	int err =
		number(limits[which - OPT_TABLE].name, text, limits[which - OPT_TABLE].max, &value);

	if (err)
		return err;
	switch (which) {
	case OPT_HOST:
		opt->host = value;
		break;
	case OPT_PORT:
		opt->port = value;
		break;
	case OPT_GID_INDEX:
		opt->gid_index = value;
		break;
	case OPT_RETRY_COUNT:
		opt->retry_count = value;
		break;
	case OPT_RNR_RETRY:
		opt->rnr_retry = value;
		break;
	default:
		opt->ack_timeout = value;
	}
	return 0;
}

static int take_option(struct options *opt, int which, char *value)
{
	switch (which) {
	case OPT_TABLE:
		opt->table = value;
		return 0;
	case OPT_REPORT:
		opt->report = value;
		return 0;
	case OPT_READY:
		opt->ready = value;
		return 0;
	case OPT_ZERO:
		opt->zero = value;
		return 0;
	case OPT_PROGRESS:
		opt->progress = value;
		return 0;
	case OPT_ORDERS:
		opt->orders = value;
		return 0;
	case OPT_TOKEN:
		return token_read(value, opt->token);
	case OPT_DEVICE:
		opt->device = value;
		return 0;
	case OPT_TCP_CC:
		opt->tcp_cc = value;
		return 0;
	case OPT_CC:
		return add_cc(opt, value);
	case OPT_TCP:
		opt->tcp = true;
		return 0;
	case OPT_CM:
		opt->cm = true;
		return 0;
	case OPT_VERIFY:
		opt->verify = true;
		return 0;
	case OPT_MANAGEMENT:
		return split("management", value, &opt->management, &opt->n_management);
	case OPT_ADDRESS:
		return split("address", value, &opt->address, &opt->n_address);
	case OPT_SPIN:
		return spin(opt, value);
	case OPT_DEADLINE:
		return seconds("deadline", value, &opt->deadline_ns);
	case OPT_SETUP:
		return seconds("setup", value, &opt->setup_ns);
	case '?':
		return -EINVAL; /* getopt has said why */
	default:
		return take_number(opt, which, value);
	}
}

static int parse(int argc, char **argv, struct options *opt)
{
	int which, err = 0;

	while (!err && (which = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (which == OPT_HELP) {
			fputs(usage, stdout);
			exit(0);
		}
		err = take_option(opt, which, optarg);
	}
	if (err)
		return err;
	if (optind < argc)
		return complain(EINVAL, "unexpected argument %s", argv[optind]);
	if (!opt->table || !opt->report || !opt->management || opt->host == UINT32_MAX)
		return complain(EINVAL, "--table, --report, --host and --management are needed");
	if ((opt->tcp || opt->cm) && !opt->address)
		return complain(EINVAL, "--tcp and --cm need --address");
	if (opt->tcp && opt->cm)
		return complain(EINVAL, "--cm is for verbs, not for --tcp");
	if (opt->tcp_cc && !opt->tcp)
		return complain(EINVAL, "--tcp-cc is for --tcp");
	return 0;
}

static int check_hosts(const struct run *run)
{
	const struct options *opt = &run->opt;
	uint32_t hosts = run->table->hosts;

	if (opt->n_management != hosts)
		return complain(EINVAL, "--management has %u addresses, the table %u hosts",
				opt->n_management, hosts);
	if (opt->address && opt->n_address != hosts)
		return complain(EINVAL, "--address has %u addresses, the table %u hosts",
				opt->n_address, hosts);
	if (opt->host >= hosts)
		return complain(EINVAL, "--host %u, but the table has %u hosts", opt->host, hosts);
	return 0;
}

/* ---- the run --------------------------------------------------------------- */

static int place_records(struct run *run, const struct record *got, size_t n, struct record *all)
{
	uint8_t *seen = calloc(2, run->n_conns + 1);
	int err = seen ? 0 : complain(ENOMEM, "no memory");

	for (size_t i = 0; i < n && !err; i++) {
		if (got[i].conn >= run->n_conns || got[i].end > 1)
			err = complain(EPROTO, "a record of connection %u", got[i].conn);
		else
			all[2 * got[i].conn + got[i].end] = got[i];
		if (!err)
			seen[2 * got[i].conn + got[i].end] = 1;
	}
	for (uint32_t i = 0; i < 2 * run->n_conns && !err; i++) {
		if (!seen[i])
			err = complain(EPROTO, "connection %u has but one end", i / 2);
	}
	free(seen);
	return err;
}

/* Opens devices, exchanges addresses and connects; then all hosts are ready. */
static int join(struct run *run)
{
	struct record *mine = calloc(run->n_conns + 1, sizeof(*mine)), *got = NULL;
	struct record *all = calloc(2 * (size_t)run->n_conns + 1, sizeof(*all));
	size_t bytes = 0;
	uint32_t n = 0;
	int err = mine && all ? 0 : complain(ENOMEM, "no memory");

	if (!err)
		err = run->transport->open(run, mine, &n);
	if (!err)
		err = manage_gather(run, mine, n * sizeof(*mine), (void **)&got, &bytes);
	if (!err)
		err = place_records(run, got, bytes / sizeof(*got), all);
	if (!err)
		err = run->transport->connect(run, all);
	if (!err)
		err = manage_barrier(run);
	free(got);
	free(mine);
	free(all);
	return err;
}

static int drive(struct run *run)
{
	int err = manage_open(run);

	run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!err && run->epoll_fd < 0)
		err = complain(errno, "epoll: %s", strerror(errno));
	if (!err)
		err = join(run);
	if (!err)
		err = manage_start(run);
	if (!err)
		err = manage_watch(run);
	if (!err)
		err = orders_open(run);
	if (!err)
		err = pump_run(run);
	if (!err && run->opt.verify)
		err = pump_verify(run);
	if (!err)
		err = manage_barrier(run); /* no host leaves while another still reads from it */
	return err ? err : schedule_report(run);
}

static void tell_strangers(const struct run *run)
{
	if (run->strangers)
		fprintf(stderr, "dp-traffic: dropped %u connection%s not of this run\n",
			run->strangers, run->strangers == 1 ? " that is" : "s that are");
}

static int failed_flows(const struct run *run)
{
	uint32_t failed = 0;

	for (uint32_t i = 0; i < run->n_mine; i++)
		failed += run->result[i].failed != 0;
	if (failed)
		complain(EIO, "%u of %u flows of host %u failed", failed, run->n_mine,
			 run->opt.host);
	return failed ? EXIT_FLOW : 0;
}

int main(int argc, char **argv)
{
	struct run run = {
		.opt = { .device = "dp0",
			 .host = UINT32_MAX,
			 .port = 18600,
			 .gid_index = -1,
			 .spin_ns = 20000,
			 .deadline_ns = NEVER,
			 .setup_ns = 20000000000ULL,
			 .retry_count = 7,
			 .ack_timeout = 14,
			 .rnr_retry = RNR_FOREVER },
		.epoll_fd = -1,
		.orders_fd = -1,
	};
	int status = EXIT_USE;

	/* Without the timer slack of 50 us, sleeps end in time. */
	prctl(PR_SET_TIMERSLACK, 1);
	if (!parse(argc, argv, &run.opt) && !schedule_load(&run) && !check_hosts(&run)) {
		run.transport = run.opt.tcp ? &tcp_transport : &verbs_transport;
		status = drive(&run) ? EXIT_RUN : failed_flows(&run);
		tell_strangers(&run);
		run.transport->close(&run);
		manage_close(&run);
		if (run.orders_fd >= 0)
			close(run.orders_fd);
		if (run.epoll_fd >= 0)
			close(run.epoll_fd);
	}
	schedule_free(&run);
	free(run.opt.management);
	free(run.opt.address);
	return status;
}
