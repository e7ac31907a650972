/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For LD_PRELOAD: counts the bytes of longer calls of memcpy() and memmove() in a process, and
 * appends the sum to the file $COPIES at its end.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONGER = 256 };

static atomic_size_t sum;

static void count(size_t n)
{
	if (n >= LONGER)
		atomic_fetch_add_explicit(&sum, n, memory_order_relaxed);
}

/* Without a call of memcpy(), which a compiler would make of a plain loop. */
static void *move(void *to, const void *from, size_t n)
{
	volatile char *t = to;
	const char *f = from;

	if (to <= from)
		for (size_t i = 0; i < n; i++)
			t[i] = f[i];
	else
		while (n--)
			t[n] = f[n];
	return to;
}

void *memcpy(void *to, const void *from, size_t n)
{
	count(n);
	return move(to, from, n);
}

void *memmove(void *to, const void *from, size_t n)
{
	count(n);
	return move(to, from, n);
}

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("COPIES");
	char line[32];
	int fd, n;

	if (!path)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	n = snprintf(line, sizeof(line), "%zu\n", atomic_load(&sum));
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}
