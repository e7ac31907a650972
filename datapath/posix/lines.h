/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lines from a pipe, as they come, for programs that obey commands. */
#ifndef DP_POSIX_LINES_H
#define DP_POSIX_LINES_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Zeroed at first; dp_lines_free() at last. */
struct dp_lines {
	char *text; /* what has come of a line */
	size_t len, size;
};

typedef void dp_lines_take(void *user, char *line);

/* Reads once from fd, and gives each whole line to `take`, without its end.  false: the pipe is
 * at its end, or there is no memory. */
static inline bool dp_lines_read(struct dp_lines *l, int fd, dp_lines_take *take, void *user)
{
	size_t size = l->size ? 2 * l->size : 4096;
	ssize_t n;
	char *end;

	if (l->len + 1 >= l->size) {
		char *text = realloc(l->text, size);

		if (!text)
			return false;
		l->text = text;
		l->size = size;
	}
	n = read(fd, l->text + l->len, l->size - 1 - l->len);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0)
		return false;
	l->len += (size_t)n;
	l->text[l->len] = 0;
	while ((end = strchr(l->text, '\n'))) {
		*end++ = 0;
		take(user, l->text);
		l->len -= (size_t)(end - l->text);
		memmove(l->text, end, l->len + 1);
	}
	return true;
}

static inline void dp_lines_free(struct dp_lines *l)
{
	free(l->text);
}

#endif
