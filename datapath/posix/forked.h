/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * File descriptors that forked children must not keep (forked.c), and what accept() lacks.
 *
 * The kernel ends a connection, or a pipe, when the last process that has it open closes it.  So a
 * child of a process that dies would hide from the peer that the process has died.
 */
#ifndef DP_POSIX_FORKED_H
#define DP_POSIX_FORKED_H

#include <errno.h>
#include <stdbool.h>

/* Takes what a call that opens has returned: children that are forked from now on close it.  Returns
 * the same; -1 with errno when that was -1, or there is no memory, and then it is closed. */
int dp_own_fd(int fd);
/* Closes it.  In a child it is closed already, and its number may be another file's: there this does
 * nothing. */
void dp_close_own_fd(int fd);

/* Whether accept() failed for want of something here, and not of a caller that has gone: the socket
 * stays readable then. */
static inline bool dp_accept_lacks(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM;
}

#endif
