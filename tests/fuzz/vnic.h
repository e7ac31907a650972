/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef DP_TESTS_FUZZ_VNIC_H
#define DP_TESTS_FUZZ_VNIC_H

#include <stddef.h>
#include <stdint.h>

/* Runs one input of the virtual card's fuzzer; aborts on a broken promise. */
int X_fuzz_vnic(const uint8_t *data, size_t size);

#endif
