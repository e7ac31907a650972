// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The memory that messages leave from and arrive in; verbs.c tells how it is used.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

enum {
	CACHE_LINE = 64,
	PAGE = 4096,
};

static uint64_t slots(const struct run *run, const struct conn *conn)
{
	if (!run->opt.verify)
		return 1;
	return conn_out(run, conn) ? conn->limit : 2 * (uint64_t)conn->limit;
}

static uint64_t round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

/* Of one slot of a connection. */
uint64_t verbs_slot_bytes(const struct conn *conn)
{
	return round_up(conn->max_message, CACHE_LINE);
}

/* Where each end's slots lie, and how much that is together. */
static uint64_t lay_out(const struct run *run, struct verbs *v)
{
	uint64_t each, total = 0;

	for (uint32_t i = 0; i < run->n_conns; i++) {
		const struct conn *conn = &run->conn[i];
		uint64_t *region = conn_out(run, conn) ? &v->out_bytes : &v->in_bytes;

		if (!conn_mine(run, conn))
			continue;
		each = verbs_slot_bytes(conn) * slots(run, conn);
		if (run->opt.verify) {
			v->half[i].offset = total;
			total += each;
		} else if (each > *region) {
			*region = each;
		}
	}
	if (run->opt.verify)
		return total;
	for (uint32_t i = 0; i < run->n_conns; i++)
		v->half[i].offset = conn_out(run, &run->conn[i]) ? 0 : v->out_bytes;
	return v->out_bytes + v->in_bytes;
}

char *verbs_slot(const struct run *run, const struct verbs *v, uint32_t conn, uint64_t number)
{
	const struct conn *c = &run->conn[conn];
	uint64_t each = verbs_slot_bytes(c);

	return v->memory + v->half[conn].offset + number % slots(run, c) * each;
}

/* The message that READs fetch when data is compared: always message 0. */
static void fill_for_reads(struct run *run, struct verbs *v)
{
	for (uint32_t i = 0; i < run->n_conns; i++) {
		const struct conn *conn = &run->conn[i];

		if (run->opt.verify && conn_in(run, conn) && conn->opcode == OP_READ)
			pattern_fill(verbs_slot(run, v, i, 0), i, 0, 0, conn->max_message);
	}
}

int verbs_register(struct run *run, struct verbs *v)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	uint64_t bytes = lay_out(run, v);

	if (run->opt.verify && bytes > VERIFY_BYTES_MAX)
		return complain(ENOMEM,
				"--verify would take %llu MiB for slots; use smaller messages, "
				"less depth or fewer QPs",
				(unsigned long long)(bytes >> 20));
	bytes = round_up(bytes + 1, PAGE);
	v->memory = aligned_alloc(PAGE, bytes);
	if (!v->memory)
		return complain(ENOMEM, "no memory for %llu bytes", (unsigned long long)bytes);
	memset(v->memory, 0x5a, bytes);
	v->mr = ibv_reg_mr(v->pd, v->memory, bytes, access);
	if (!v->mr)
		return complain(errno, "registering %llu bytes: %s", (unsigned long long)bytes,
				strerror(errno));
	fill_for_reads(run, v);
	return 0;
}
