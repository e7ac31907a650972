/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* CRC-32 (IEEE 802.3, reflected), with the convention of zlib's crc32(). */
#ifndef DP_WIRE_CRC32_H
#define DP_WIRE_CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t dp_crc32(uint32_t crc, const uint8_t *data, size_t len);

/*
 * Times the implementations with a clock (nanoseconds) and keeps the fastest:
 * carry-less multiplication, which wins on every CPU that has it, is ten times
 * slower than shifts where it is emulated.  Not while dp_crc32() may run
 * in another thread.  Returns the name of the one that was kept.
 */
const char *dp_crc32_choose(uint64_t (*now_ns)(void));

#endif
