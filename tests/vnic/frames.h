/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the card reads of a frame, for Python. */
#ifndef TESTS_VNIC_FRAMES_H
#define TESTS_VNIC_FRAMES_H

#include <stddef.h>
#include <stdint.h>

struct X_vnic_frame {
	int valid;
	uint8_t version, protocol, ecn;
	uint8_t has_ports, asks, tells;
	uint16_t sport, dport;
	uint8_t src[16], dst[16];
	uint32_t hash;
};

int X_vnic_read(const uint8_t *data, size_t size, struct X_vnic_frame *out);
/* The answer's length, 0: the frame asks nothing.  out: 96 bytes. */
uint32_t X_vnic_answer(const uint8_t *data, size_t size, const uint8_t *mac, uint8_t *out);
/* out: as long as the frame. */
uint32_t X_vnic_mark_ce(const uint8_t *data, size_t size, uint8_t *out);
/* out: as long as the frame. */
uint32_t X_vnic_fit_mss(const uint8_t *data, size_t size, uint32_t room, uint8_t *out);

#endif
