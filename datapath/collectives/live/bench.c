// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dp-collective: one rank of a benchmark of collectives.  All ranks have the same plan.
 *
 * The first collective is compared with what it should give.  Before the measured ones the ranks meet.
 * The report has a line with the time at which these began, and one for each with the time at which
 * it had ended here, ns of CLOCK_MONOTONIC.
 */
#include <getopt.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/live/coll.h"
#include "posix/number.h"

struct options {
	struct dpcoll_config config;
	const char *plan, *token_file, *report, *record, *steps;
	char token[COLL_TOKEN_BYTES];
	uint32_t iterations, warm_up;
	enum dpcoll_type type;
	enum dpcoll_op op;
};

static const char *const types[DPCOLL_TYPES] = {
	[DPCOLL_INT8] = "int8",	      [DPCOLL_INT32] = "int32",	      [DPCOLL_INT64] = "int64",
	[DPCOLL_FLOAT16] = "float16", [DPCOLL_BFLOAT16] = "bfloat16", [DPCOLL_FLOAT32] = "float32",
	[DPCOLL_FLOAT64] = "float64", [DPCOLL_UINT8] = "uint8",
};

static const char *const ops[DPCOLL_OPS] = {
	[DPCOLL_SUM] = "sum",
	[DPCOLL_PRODUCT] = "product",
	[DPCOLL_MIN] = "min",
	[DPCOLL_MAX] = "max",
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "error: %s: %s\n", what, why);
	return -1;
}

/* ---- content ---------------------------------------------------------------------- */

/* Small enough that half precision holds every sum; and every type holds the product of any number
 * of ranks, to whose sign each of them counts. */
static int value(uint32_t rank, uint64_t i, enum dpcoll_op op)
{
	return op == DPCOLL_PRODUCT ? 1 - 2 * (int)((rank + i) % 2) : 1 + (int)((rank + i) % 5);
}

static void set(void *at, uint64_t i, enum dpcoll_type type, int number)
{
	union {
		float f;
		uint32_t bits;
	} single = { .f = (float)number };

	switch (type) {
	case DPCOLL_INT8:
		((int8_t *)at)[i] = (int8_t)number;
		break;
	case DPCOLL_UINT8:
		((uint8_t *)at)[i] = (uint8_t)number;
		break;
	case DPCOLL_INT32:
		((int32_t *)at)[i] = number;
		break;
	case DPCOLL_INT64:
		((int64_t *)at)[i] = number;
		break;
	case DPCOLL_FLOAT16:
		((_Float16 *)at)[i] = (_Float16)number;
		break;
	case DPCOLL_BFLOAT16:
		((uint16_t *)at)[i] = (uint16_t)(single.bits >> 16);
		break;
	case DPCOLL_FLOAT32:
		((float *)at)[i] = (float)number;
		break;
	default:
		((double *)at)[i] = number;
	}
}

static int combined(uint32_t ranks, uint64_t i, enum dpcoll_op op)
{
	int all = value(0, i, op);

	for (uint32_t r = 1; r < ranks; r++) {
		int one = value(r, i, op);

		switch (op) {
		case DPCOLL_SUM:
			all += one;
			break;
		case DPCOLL_PRODUCT:
			all *= one;
			break;
		case DPCOLL_MIN:
			all = one < all ? one : all;
			break;
		default:
			all = one > all ? one : all;
		}
	}
	return all;
}

static int expected(const struct options *o, const struct dp_plan_head *h, uint64_t i,
		    uint64_t part)
{
	uint32_t owner = part ? (uint32_t)(i / part) : 0;

	switch (h->collective) {
	case DP_PLAN_BROADCAST:
	case DP_PLAN_SCATTER:
		return value(h->root, i, o->op);
	case DP_PLAN_ALLGATHER:
	case DP_PLAN_GATHER:
		return value(owner, i, o->op);
	case DP_PLAN_ALLTOALL:
		return value(owner, o->config.rank * part + i % part, o->op);
	default:
		return combined(h->ranks, i, o->op);
	}
}

/* Numbers repeat after 2 or 5 items within a part, so a tile of 1000 repeats as well. */
enum { TILE_ITEMS = 1000, ITEM_BYTES_MAX = 8 };

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void fill(const struct options *o, const struct dp_plan_head *h, char *data)
{
	size_t item = dpcoll_type_bytes(o->type);
	uint64_t items = h->data_bytes / item;
	_Alignas(ITEM_BYTES_MAX) char tile[TILE_ITEMS * ITEM_BYTES_MAX];

	for (uint64_t i = 0; i < TILE_ITEMS; i++)
		set(tile, i, o->type, value(o->config.rank, i, o->op));
	for (uint64_t i = 0; i < items; i += TILE_ITEMS)
		memcpy(data + i * item, tile, least(TILE_ITEMS, items - i) * item);
}

/* Compares items of one part. */
static int check_part(const struct options *o, const struct dp_plan_head *h, const char *data,
		      uint64_t from, uint64_t to, uint64_t part)
{
	size_t item = dpcoll_type_bytes(o->type);
	_Alignas(ITEM_BYTES_MAX) char tile[TILE_ITEMS * ITEM_BYTES_MAX];
	uint64_t i, wrong;

	for (i = 0; i < TILE_ITEMS; i++)
		set(tile, i, o->type, expected(o, h, from + i, part));
	for (i = from; i < to; i += TILE_ITEMS)
		if (memcmp(tile, data + i * item, least(TILE_ITEMS, to - i) * item))
			break;
	if (i >= to)
		return 0;
	for (wrong = 0; !memcmp(tile + wrong * item, data + (i + wrong) * item, item);)
		wrong++;
	fprintf(stderr, "error: rank %u: item %llu is not what it should be\n", o->config.rank,
		(unsigned long long)(i + wrong));
	return -1;
}

static int check(const struct options *o, const struct dp_plan_head *h, const char *data)
{
	uint64_t items = h->data_bytes / dpcoll_type_bytes(o->type), part = items / h->ranks;
	uint64_t from = 0, to = items, end;
	int err = 0;

	if (h->collective == DP_PLAN_REDUCE_SCATTER || h->collective == DP_PLAN_SCATTER) {
		from = o->config.rank * part;
		to = from + part;
	}
	if ((h->collective == DP_PLAN_REDUCE_TO_ROOT || h->collective == DP_PLAN_GATHER) &&
	    o->config.rank != h->root)
		to = from;
	for (; from < to && !err; from = end) {
		end = part ? least(to, (from / part + 1) * part) : to;
		err = check_part(o, h, data, from, end, part);
	}
	return err;
}

/* ---- options ---------------------------------------------------------------------- */

static int find(const char *const *names, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return i;
	return complain(name, "there is no such type or operation");
}

static int read_number(const char *text, uint32_t *out)
{
	return dp_read_u32(text, 0, UINT32_MAX, out) ? complain(text, "not a number") : 0;
}

static int read_token(struct options *o)
{
	FILE *file = fopen(o->token_file, "r");
	bool got = file && fgets(o->token, sizeof(o->token), file);

	if (file)
		fclose(file);
	o->config.token = o->token;
	return got ? 0 : complain(o->token_file, "cannot be read");
}

static int option(struct options *o, int which, const char *text)
{
	uint32_t number;
	int found;

	switch (which) {
	case 'r':
		return read_number(text, &o->config.rank);
	case 'n':
		return read_number(text, &o->config.ranks);
	case 'd':
		o->config.device = text;
		return 0;
	case 'a':
		o->config.store_address = text;
		return 0;
	case 'p':
		found = read_number(text, &number);
		o->config.store_port = (uint16_t)number;
		return found;
	case 't':
		o->token_file = text;
		return 0;
	case 'P':
		o->plan = text;
		return 0;
	case 'i':
		return read_number(text, &o->iterations);
	case 'w':
		return read_number(text, &o->warm_up);
	case 'T':
		found = find(types, DPCOLL_TYPES, text);
		o->type = (enum dpcoll_type)found;
		return found < 0 ? found : 0;
	case 'O':
		found = find(ops, DPCOLL_OPS, text);
		o->op = (enum dpcoll_op)found;
		return found < 0 ? found : 0;
	case 'o':
		o->report = text;
		return 0;
	case 'R':
		o->record = text;
		return 0;
	case 'S':
		o->steps = text;
		return 0;
	case 's':
		return read_number(text, &o->config.silence_ms);
	case 'A':
		return read_number(text, &o->config.ack_timeout);
	case 'C':
		return read_number(text, &o->config.retry_count);
	case 'u':
		return read_number(text, &o->config.spin_us);
	case 'm':
		return read_number(text, &o->config.meet_ms);
	case 'N':
		o->config.node = DPCOLL_NODE_ALONE;
		return strcmp(text, "alone") ? read_number(text, &o->config.node) : 0;
	case 'c':
		o->config.flags |= DPCOLL_BY_CM;
		return 0;
	case 'I':
		o->config.flags |= DPCOLL_NO_IMMEDIATE;
		return 0;
	case 'f':
		found = read_number(text, &number);
		o->config.store_fd = (int32_t)number;
		return found;
	default:
		return -1;
	}
}

static int read_options(struct options *o, int argc, char **argv)
{
	static const struct option names[] = {
		{ "rank", 1, NULL, 'r' },	  { "ranks", 1, NULL, 'n' },
		{ "device", 1, NULL, 'd' },	  { "store", 1, NULL, 'a' },
		{ "store-port", 1, NULL, 'p' },	  { "token", 1, NULL, 't' },
		{ "plan", 1, NULL, 'P' },	  { "iterations", 1, NULL, 'i' },
		{ "warm-up", 1, NULL, 'w' },	  { "type", 1, NULL, 'T' },
		{ "op", 1, NULL, 'O' },		  { "report", 1, NULL, 'o' },
		{ "record", 1, NULL, 'R' },	  { "steps", 1, NULL, 'S' },
		{ "silence-ms", 1, NULL, 's' },	  { "ack-timeout", 1, NULL, 'A' },
		{ "retry-count", 1, NULL, 'C' },  { "spin-us", 1, NULL, 'u' },
		{ "meet-ms", 1, NULL, 'm' },	  { "node", 1, NULL, 'N' },
		{ "store-fd", 1, NULL, 'f' },	  { "rdma-cm", 0, NULL, 'c' },
		{ "no-immediate", 0, NULL, 'I' }, { NULL, 0, NULL, 0 },
	};
	int which;

	*o = (struct options){ .config = { .gid_index = -1, .store_port = 29400 },
			       .iterations = 1,
			       .type = DPCOLL_FLOAT32 };
	while ((which = getopt_long(argc, argv, "", names, NULL)) != -1)
		if (option(o, which, optarg))
			return -1;
	if (optind != argc || !o->plan || !o->token_file || !o->report)
		return complain("usage", "dp-collective --rank N --ranks N --device NAME --store "
					 "ADDRESS --token FILE --plan FILE --report FILE ...");
	return read_token(o);
}

/* ---- the benchmark ---------------------------------------------------------------- */

static void *read_file(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	void *data = NULL;
	long size;

	if (file && !fseek(file, 0, SEEK_END) && (size = ftell(file)) > 0) {
		rewind(file);
		*bytes = (size_t)size;
		data = malloc(*bytes);
		if (data && fread(data, 1, *bytes, file) != *bytes) {
			free(data);
			data = NULL;
		}
	}
	if (file)
		fclose(file);
	return data;
}

static int once(struct dpcoll *comm, struct dpcoll_plan *plan, const struct options *o, char *data,
		const char *input)
{
	struct dpcoll_work *work;
	int err = dpcoll_start(comm, plan, data, input, o->type, o->op, 0, &work);

	return err ? err : dpcoll_wait(work, -1);
}

/* A report that is not whole is an error, such as on a disk that is full. */
static int close_report(FILE *report, const char *path)
{
	bool whole = !ferror(report);

	if (fclose(report))
		return complain(path, strerror(errno));
	return whole ? 0 : complain(path, "not all of it could be written");
}

static int measure(struct dpcoll *comm, struct dpcoll_plan *plan, const struct options *o,
		   const struct dp_plan_head *h, char *data, char *input)
{
	FILE *report = fopen(o->report, "w");
	int err = 0;

	if (!report)
		return complain(o->report, strerror(errno));
	fill(o, h, input ? input : data);
	for (uint32_t i = 0; i <= o->iterations + o->warm_up && !err; i++) {
		err = once(comm, plan, o, data, input);
		if (!err && !i)
			err = check(o, h, data);
		if (!err && i == o->warm_up) /* what others still do is no part of our times */
			err = coll_store_meet(comm);
		if (!err && i >= o->warm_up)
			fprintf(report, "%llu\n", (unsigned long long)dp_now_ns());
	}
	return close_report(report, o->report) && !err ? -EIO : err;
}

static void write_record(struct dpcoll *comm, const char *path)
{
	FILE *file = path && comm ? fopen(path, "w") : NULL;

	if (!file)
		return;
	dpcoll_record(comm, fileno(file));
	fclose(file);
}

static void write_steps(const struct dpcoll *comm, const struct dpcoll_plan *plan, const char *path)
{
	FILE *file = path && plan ? fopen(path, "w") : NULL;

	if (!file)
		return;
	dpcoll_steps(comm, plan, fileno(file));
	fclose(file);
}

int main(int argc, char **argv)
{
	struct options o;
	struct dpcoll_plan *plan = NULL;
	struct dpcoll *comm = NULL;
	const struct dp_plan_head *h;
	char *data = NULL, *input = NULL;
	size_t bytes = 0;
	const void *blob;
	int err;

	if (read_options(&o, argc, argv))
		return 2;
	blob = read_file(o.plan, &bytes);
	if (!blob) {
		complain(o.plan, "cannot be read");
		return 2;
	}
	h = blob;
	if (h->item_bytes % dpcoll_type_bytes(o.type)) {
		complain(o.plan, "its items are of another size than the type");
		return 2;
	}
	err = dpcoll_open(&o.config, &blob, &bytes, 1, &comm);
	if (!err)
		err = dpcoll_plan(comm, blob, bytes, &plan);
	if (!err) {
		data = calloc(1, h->data_bytes);
		input = h->input_bytes ? calloc(1, h->input_bytes) : NULL;
		err = data && (input || !h->input_bytes) ? measure(comm, plan, &o, h, data, input) :
							   -ENOMEM;
	}
	if (err && dpcoll_error(comm)[0])
		complain("collective", dpcoll_error(comm));
	else if (err)
		complain("collective", strerror(-err));
	write_record(comm, o.record);
	if (!err)
		write_steps(comm, plan, o.steps);
	dpcoll_close(comm);
	free(data);
	free(input);
	free((void *)blob);
	return err ? 1 : 0;
}
