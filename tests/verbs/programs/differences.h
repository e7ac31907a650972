/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For odd.c and odd_cm.c: answers that are not the expected ones, and calls that have to succeed.
 */
#ifndef DIFFERENCES_H
#define DIFFERENCES_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int differences;

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("line %d: %s, errno %d\n", __LINE__, #condition, errno);            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
