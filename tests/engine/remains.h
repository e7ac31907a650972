/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef DP_TESTS_REMAINS_H
#define DP_TESTS_REMAINS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

size_t X_qp_bytes(const struct dp_qp *);
/* Copies the QP's struct, X_qp_bytes() long. */
void X_qp_copy(const struct dp_qp *, uint8_t *to);
/* Where the struct of a QP that was reset first differs from the copy that was taken when the QP
 * was made; -1: nowhere. */
int X_qp_remains(const struct dp_qp *, const uint8_t *made);

#endif
