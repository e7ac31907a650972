// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The table, the connections that it needs, and the report.
 *
 * Connections are the distinct (src, dst, qp), sorted, so that all hosts number
 * them alike without exchanging them.  A host that is neither end of a connection
 * numbers it but does not make it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator.h"

static int map_table(struct run *run)
{
	const char *path = run->opt.table;
	const struct dp_flow_table *table;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return complain(errno, "table %s: %s", path, strerror(errno));
	if (fstat(fd, &st) < 0 || (size_t)st.st_size < sizeof(*table)) {
		close(fd);
		return complain(EINVAL, "table %s: shorter than its head", path);
	}
	table = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (table == MAP_FAILED)
		return complain(errno, "table %s: %s", path, strerror(errno));
	run->table = table;
	run->table_bytes = st.st_size;
	run->row = (const struct dp_flow *)(table + 1);
	if (memcmp(table->magic, DP_FLOW_TABLE_MAGIC, sizeof(DP_FLOW_TABLE_MAGIC)))
		return complain(EINVAL, "table %s: not a traffic table", path);
	if (table->abi != DP_FLOW_ABI || table->row_bytes != sizeof(struct dp_flow))
		return complain(EINVAL, "table %s: version %u, this program reads version %u", path,
				table->abi, DP_FLOW_ABI);
	if (table->rows > UINT32_MAX / 2 ||
	    run->table_bytes != sizeof(*table) + table->rows * sizeof(struct dp_flow))
		return complain(EINVAL, "table %s: its length is not that of %llu rows", path,
				(unsigned long long)table->rows);
	return 0;
}

/* A host knows the end of its own flows only. */
static const char *wait_fault(const struct run *run, const struct dp_flow *row)
{
	if (!row->after)
		return NULL;
	if (row->after > row - run->row)
		return "it does not wait for an earlier row";
	return run->row[row->after - 1].src == row->src ? NULL :
							  "it waits for a flow of another source";
}

static const char *fault_of(const struct run *run, const struct dp_flow *row)
{
	uint64_t message = row->message_bytes ? row->message_bytes : row->bytes;

	if (row->src >= run->table->hosts || row->dst >= run->table->hosts || row->src == row->dst)
		return "src and dst are not two of the hosts";
	if (!row->bytes || !row->depth)
		return "bytes or depth is 0";
	if (row->depth > DP_FLOW_DEPTH_MAX)
		return "depth is above 2^20";
	if (row->bytes == DP_FLOW_UNTIL_STOP && (!row->stop_ns || !row->message_bytes))
		return "it has no end, or no message size";
	if (message > DP_FLOW_MESSAGE_MAX)
		return "a message is at most 1 GiB";
	if (row->opcode != OP_WRITE && row->opcode != OP_SEND && row->opcode != OP_READ)
		return "opcode is not WRITE, SEND or READ";
	if (run->opt.tcp && row->opcode == OP_READ)
		return "TCP has no READ";
	if (row->dscp > 63)
		return "dscp is above 63";
	if (row->cc > run->opt.n_cc)
		return "its algorithm is not one of --cc";
	return wait_fault(run, row);
}

static int check_rows(struct run *run)
{
	for (uint64_t i = 0; i < run->table->rows; i++) {
		const char *fault = fault_of(run, &run->row[i]);

		if (fault)
			return complain(EINVAL, "table %s: flow %llu: %s", run->opt.table,
					(unsigned long long)i, fault);
	}
	return 0;
}

static const struct dp_flow *sorting;

static int by_connection(const void *a, const void *b)
{
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const struct dp_flow *f = &sorting[i], *g = &sorting[j];

	if (f->src != g->src)
		return f->src < g->src ? -1 : 1;
	if (f->dst != g->dst)
		return f->dst < g->dst ? -1 : 1;
	if (f->qp != g->qp)
		return f->qp < g->qp ? -1 : 1;
	return i < j ? -1 : i > j;
}

static bool same_connection(const struct dp_flow *f, const struct dp_flow *g)
{
	return f->src == g->src && f->dst == g->dst && f->qp == g->qp;
}

static uint32_t largest_message(const struct dp_flow *row)
{
	return row->message_bytes && row->message_bytes < row->bytes ? row->message_bytes :
								       row->bytes;
}

/* Add a row to its connection, the last one or a new one. */
static int add_row(struct run *run, const struct dp_flow *row)
{
	struct conn *conn = &run->conn[run->n_conns - 1];

	if (!run->n_conns || row->src != conn->src || row->dst != conn->dst ||
	    row->qp != conn->qp) {
		conn = &run->conn[run->n_conns++];
		*conn = (struct conn){ .src = row->src,
				       .dst = row->dst,
				       .qp = row->qp,
				       .dscp = row->dscp,
				       .opcode = row->opcode,
				       .first = run->n_mine };
	}
	if (conn->opcode != row->opcode)
		return complain(EINVAL, "table %s: QP %u from host %u to host %u has two opcodes",
				run->opt.table, row->qp, row->src, row->dst);
	if (conn->dscp != row->dscp)
		return complain(EINVAL, "table %s: QP %u from host %u to host %u has two DSCPs",
				run->opt.table, row->qp, row->src, row->dst);
	if (conn->limit < row->depth)
		conn->limit = row->depth;
	if (conn->max_message < largest_message(row))
		conn->max_message = largest_message(row);
	conn->n_flows++;
	return 0;
}

/* A QP takes more than one flow's messages when it has several flows. */
static void set_limits(struct run *run)
{
	for (uint32_t i = 0; i < run->n_conns; i++) {
		struct conn *conn = &run->conn[i];
		uint32_t several = conn->n_flows < QUEUE_MAX ? conn->n_flows : QUEUE_MAX;

		if (!run->opt.verify && conn->limit < several)
			conn->limit = several;
	}
}

static int make_rings(struct run *run)
{
	for (uint32_t i = 0; i < run->n_conns; i++) {
		struct conn *conn = &run->conn[i];
		uint32_t room = 1;

		if (!conn_out(run, conn))
			continue;
		while (room < conn->limit)
			room *= 2;
		conn->mask = room - 1;
		conn->ring = calloc(room, sizeof(*conn->ring));
		if (!conn->ring)
			return complain(ENOMEM, "no memory for %u messages", room);
	}
	return 0;
}

/* place: of a row of this host, its index in run.mine. */
static void tie_waits(struct run *run, const uint32_t *place)
{
	for (uint32_t i = run->n_mine; i-- > 0;) {
		uint32_t after = run->mine[i].row->after;
		struct flow *first = after ? &run->mine[place[after - 1]] : NULL;

		if (!first)
			continue;
		run->mine[i].waits_next = first->waits_first;
		first->waits_first = i;
	}
}

static int build(struct run *run, const uint32_t *sorted, uint32_t *place)
{
	uint32_t rows = run->table->rows, err;

	for (uint32_t i = 0; i < rows; i++) {
		const struct dp_flow *row = &run->row[sorted[i]];

		err = add_row(run, row);
		if (err)
			return err;
		if (row->src != run->opt.host)
			continue;
		place[sorted[i]] = run->n_conns;
		run->order[run->n_mine++] = sorted[i];
	}
	/* Flows of mine in the order of the table; order[] leads from connections to them. */
	for (uint32_t i = 0, k = 0; i < rows; i++) {
		if (run->row[i].src != run->opt.host)
			continue;
		run->mine[k] = (struct flow){ .row = &run->row[i],
					      .conn = place[i] - 1,
					      .waits_first = NONE,
					      .waits_next = NONE,
					      .held = run->row[i].held };
		run->result[k].flow = i;
		place[i] = k++;
	}
	for (uint32_t i = 0; i < run->n_mine; i++)
		run->order[i] = place[run->order[i]];
	tie_waits(run, place);
	return 0;
}

/* Zeros, in memory or in a file that others can read meanwhile. */
static struct dp_flow_result *make_results(const struct run *run, size_t rows)
{
	size_t bytes = rows * sizeof(struct dp_flow_result);
	void *at = MAP_FAILED;
	int fd;

	if (!run->opt.progress)
		return calloc(rows, sizeof(struct dp_flow_result));
	fd = open(run->opt.progress, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd >= 0 && !ftruncate(fd, bytes))
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		complain(errno, "%s: %s", run->opt.progress, strerror(errno));
	if (fd >= 0)
		close(fd);
	return at == MAP_FAILED ? NULL : at;
}

static void free_results(struct run *run)
{
	if (!run->result)
		return;
	if (run->opt.progress)
		munmap(run->result, (run->table->rows + 1) * sizeof(*run->result));
	else
		free(run->result);
}

int schedule_load(struct run *run)
{
	uint32_t *sorted = NULL, *place = NULL, rows, conns = 1;
	int err = map_table(run);

	if (!err)
		err = check_rows(run);
	if (err)
		return err;
	rows = run->table->rows;
	sorted = malloc(sizeof(*sorted) * (rows + 1));
	place = calloc(rows + 1, sizeof(*place));
	run->mine = calloc(rows + 1, sizeof(*run->mine));
	run->result = make_results(run, (size_t)rows + 1);
	run->order = calloc(rows + 1, sizeof(*run->order));
	run->latency = calloc(DP_LATENCY_BUCKETS, sizeof(*run->latency));
	if (!sorted || !place || !run->mine || !run->result || !run->order || !run->latency)
		goto no_memory;
	for (uint32_t i = 0; i < rows; i++)
		sorted[i] = i;
	sorting = run->row;
	qsort(sorted, rows, sizeof(*sorted), by_connection);
	for (uint32_t i = 1; i < rows; i++)
		conns += !same_connection(&run->row[sorted[i - 1]], &run->row[sorted[i]]);
	run->conn = calloc(conns, sizeof(*run->conn));
	/* Each row may stop once, and be freed once. */
	run->heap = calloc(2 * (size_t)rows + conns + 1, sizeof(*run->heap));
	if (!run->conn || !run->heap)
		goto no_memory;
	err = build(run, sorted, place);
	if (!err) {
		set_limits(run);
		err = make_rings(run);
	}
	goto out;
no_memory:
	err = complain(ENOMEM, "no memory for a table of %u rows", rows);
out:
	free(sorted);
	free(place);
	return err;
}

int schedule_report(struct run *run)
{
	struct dp_flow_report head = {
		.magic = DP_FLOW_REPORT_MAGIC,
		.abi = DP_FLOW_ABI,
		.row_bytes = sizeof(struct dp_flow_result),
		.rows = run->n_mine,
		.host = run->opt.host,
		.buckets = DP_LATENCY_BUCKETS,
		.latency_min_ns = run->latency_min_ns,
		.latency_max_ns = run->latency_max_ns,
		.latency_sum_ns = run->latency_sum_ns,
	};
	FILE *file = fopen(run->opt.report, "wbe");
	bool whole;

	if (!file)
		return complain(errno, "report %s: %s", run->opt.report, strerror(errno));
	run->transport->counters(run, &head.data_packets, &head.retransmitted_packets);
	whole = fwrite(&head, sizeof(head), 1, file) == 1 &&
		fwrite(run->latency, sizeof(*run->latency), DP_LATENCY_BUCKETS, file) ==
			DP_LATENCY_BUCKETS &&
		fwrite(run->result, sizeof(*run->result), run->n_mine, file) == run->n_mine;
	if (fclose(file) || !whole)
		return complain(EIO, "report %s: %s", run->opt.report, strerror(errno));
	return 0;
}

void schedule_free(struct run *run)
{
	for (uint32_t i = 0; i < run->n_conns; i++)
		free(run->conn[i].ring);
	free(run->conn);
	free(run->mine);
	free_results(run);
	free(run->order);
	free(run->latency);
	free(run->heap);
	if (run->table)
		munmap((void *)run->table, run->table_bytes);
}
