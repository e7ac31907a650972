/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef DP_TESTS_SPOIL_H
#define DP_TESTS_SPOIL_H

#include "engine/engine.h"

/* Breaks the invariant `number` of a QP's state, or mends it again (`by` is 1 or -1).
 * Returns the words of which the check's answer has to have some, NULL: there is no such
 * number. */
const char *X_spoil(struct dp_qp *, int number, int by);
/* The same of a QP of datagrams, which has one request that waits to be sent. */
const char *X_spoil_datagram(struct dp_qp *, int number, int by);

#endif
