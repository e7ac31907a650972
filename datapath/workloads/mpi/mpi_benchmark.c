/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Benchmarks of MPI, after those of OSU: mpi_benchmark TEST BYTES ITERATIONS WARM_UP.
 *
 *   latency     half of a ping-pong between the first and the last rank: nanoseconds
 *   bandwidth   64 messages in flight from the first to the last rank: bytes a second
 *   allreduce   sums of doubles over all ranks: nanoseconds of one, by the slowest rank
 *
 * Prints one line, "TEST NUMBER".  Each ends with 1 when data has not arrived as it was sent.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "posix/number.h"

enum { WINDOW = 64, TAG = 1 };

static int rank, ranks;
static char *out, *in;

static void ping_pong(int bytes)
{
	int last = ranks - 1;

	if (rank == 0) {
		MPI_Send(out, bytes, MPI_BYTE, last, TAG, MPI_COMM_WORLD);
		MPI_Recv(in, bytes, MPI_BYTE, last, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (rank == last) {
		MPI_Recv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
	}
}

static void window(int bytes)
{
	MPI_Request requests[WINDOW];
	int last = ranks - 1;

	if (rank != 0 && rank != last)
		return;
	for (int i = 0; i < WINDOW; i++) {
		if (rank == 0)
			MPI_Isend(out, bytes, MPI_BYTE, last, TAG, MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Irecv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	/* The receiver's acknowledgement of all data. */
	if (rank == 0)
		MPI_Recv(NULL, 0, MPI_BYTE, last, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
}

static void allreduce(int bytes)
{
	MPI_Allreduce(out, in, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* Returns the seconds that one call takes. */
static double measure(void (*call)(int), int bytes, uint32_t iterations, uint32_t warm_up)
{
	double start, took, slowest;

	for (uint32_t i = 0; i < warm_up; i++)
		call(bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (uint32_t i = 0; i < iterations; i++)
		call(bytes);
	took = MPI_Wtime() - start;
	MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return slowest / iterations;
}

static void fill(int bytes)
{
	for (int i = 0; i < bytes / (int)sizeof(double); i++)
		((double *)out)[i] = rank + i;
}

static int is_sum(int bytes)
{
	for (int i = 0; i < bytes / (int)sizeof(double); i++)
		if (((double *)in)[i] != ranks * (ranks - 1) / 2 + (double)ranks * i)
			return 0;
	return 1;
}

/* Data of the first rank. */
static int is_copy(int bytes)
{
	for (int i = 0; i < bytes / (int)sizeof(double); i++)
		if (((double *)in)[i] != i)
			return 0;
	return 1;
}

int main(int argc, char **argv)
{
	uint32_t bytes = 0, iterations = 0, warm_up = 0;
	int good = 1;
	const char *test = argc == 5 ? argv[1] : "";
	double result;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 5 || dp_read_u32(argv[2], 1, INT32_MAX, &bytes) ||
	    dp_read_u32(argv[3], 1, INT32_MAX, &iterations) ||
	    dp_read_u32(argv[4], 0, INT32_MAX, &warm_up))
		MPI_Abort(MPI_COMM_WORLD, 2);
	out = calloc(1, (size_t)bytes + sizeof(double));
	in = calloc(1, (size_t)bytes + sizeof(double));
	if (!out || !in)
		MPI_Abort(MPI_COMM_WORLD, 2);
	fill((int)bytes);
	if (!strcmp(test, "latency")) {
		result = measure(ping_pong, (int)bytes, iterations, warm_up) / 2 * 1e9;
		good = rank % (ranks - 1) || is_copy((int)bytes);
	} else if (!strcmp(test, "bandwidth")) {
		result = WINDOW * (double)bytes / measure(window, (int)bytes, iterations, warm_up);
		good = rank != ranks - 1 || is_copy((int)bytes);
	} else {
		result = measure(allreduce, (int)bytes, iterations, warm_up) * 1e9;
		good = is_sum((int)bytes);
	}
	if (!good) {
		fprintf(stderr, "rank %d: the data is not what was sent\n", rank);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	if (!rank)
		printf("%s %.1f\n", test, result);
	MPI_Finalize();
	return 0;
}
