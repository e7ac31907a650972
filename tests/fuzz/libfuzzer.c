/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return X_fuzz_packet(data, size);
}
