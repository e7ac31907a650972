/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* FUZZ_TARGET: the function that takes an input. */
#include "cm.h"
#include "packet.h"
#include "vnic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return FUZZ_TARGET(data, size);
}
