// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * All that the card does to the bytes of a frame from outside, on heap buffers of just the
 * frame's size, so that the sanitizers see each byte too many.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "frames.h"
#include "vnic/header.h"

static uint8_t *copy_of(const uint8_t *data, size_t size, size_t room)
{
	uint8_t *copy = malloc(room ? room : 1);

	assert(copy);
	memcpy(copy, data, size);
	return copy;
}

int X_vnic_read(const uint8_t *data, size_t size, struct X_vnic_frame *out)
{
	uint8_t *frame = copy_of(data, size, size);
	struct question q;
	struct header h;

	memset(out, 0, sizeof(*out));
	out->valid = header_read(frame, (uint32_t)size, &h);
	if (out->valid) {
		out->version = h.version;
		out->protocol = h.protocol;
		out->ecn = h.ecn;
		out->has_ports = h.has_ports;
		out->sport = h.sport;
		out->dport = h.dport;
		memcpy(out->src, h.src.b, sizeof(out->src));
		memcpy(out->dst, h.dst.b, sizeof(out->dst));
		out->hash = header_hash(&h);
		out->asks = question_read(frame, (uint32_t)size, &h, &q);
		out->tells = tells_of_neighbours(&h);
		header_mark_ce(frame, &h);
	}
	free(frame);
	return out->valid;
}

uint32_t X_vnic_answer(const uint8_t *data, size_t size, const uint8_t *mac, uint8_t *out)
{
	uint8_t *frame = copy_of(data, size, size > ANSWER_LEN ? size : ANSWER_LEN);
	struct question q;
	struct header h;
	uint32_t len = 0;

	if (header_read(frame, (uint32_t)size, &h) &&
	    question_read(frame, (uint32_t)size, &h, &q)) {
		len = answer_write(frame, &h, &q, mac);
		assert(len <= ANSWER_LEN);
		memcpy(out, frame, len);
	}
	free(frame);
	return len;
}

uint32_t X_vnic_mark_ce(const uint8_t *data, size_t size, uint8_t *out)
{
	uint8_t *frame = copy_of(data, size, size);
	struct header h;

	if (header_read(frame, (uint32_t)size, &h))
		header_mark_ce(frame, &h);
	memcpy(out, frame, size);
	free(frame);
	return (uint32_t)size;
}

uint32_t X_vnic_fit_mss(const uint8_t *data, size_t size, uint32_t room, uint8_t *out)
{
	uint8_t *frame = copy_of(data, size, size);
	struct header h;

	if (header_read(frame, (uint32_t)size, &h))
		header_fit_mss(frame, (uint32_t)size, &h, room);
	memcpy(out, frame, size);
	free(frame);
	return (uint32_t)size;
}
