// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What every RoCE program in user space does with a payload: it copies it from registered memory
 * into a packet, appends the ICRC, checks that at the other end, and copies the payload out.
 */
#include "floor.h"

#include <stdlib.h>
#include <string.h>

#include "io/addr.h"
#include "wire/headers.h"
#include "wire/icrc.h"

void floor_carrier_open(struct floor_carrier *c, const struct floor_setup *setup)
{
	struct dp_addr local, peer;

	if (!setup->carries)
		return;
	if (dp_addr_parse(setup->local, &local) || dp_addr_parse(setup->peer, &peer))
		floor_fail("%s and %s have to be addresses", setup->local, setup->peer);
	c->memory = malloc(FLOOR_CARRIED);
	if (!c->memory)
		floor_fail("out of memory");
	memset(c->memory, 1, FLOOR_CARRIED); /* no page is the kernel's page of zeros */
	c->out = (struct dp_packet){ .src = local, .dst = peer };
	c->in = (struct dp_packet){ .src = peer, .dst = local };
}

void floor_carrier_close(struct floor_carrier *c)
{
	free(c->memory);
}

/* The next `len` bytes of the memory, which is gone through again and again. */
static uint8_t *next(struct floor_carrier *c, uint32_t len)
{
	uint8_t *at;

	if (c->at + len > FLOOR_CARRIED)
		c->at = 0;
	at = c->memory + c->at;
	c->at += len;
	return at;
}

void floor_load(struct floor_carrier *c, uint8_t *message, uint32_t size)
{
	uint32_t len = size - (uint32_t)sizeof(struct floor_message) - DP_ICRC_LEN;

	if (!c->memory)
		return;
	memcpy(message + sizeof(struct floor_message), next(c, len), len);
	c->out.data = message;
	c->out.len = size - DP_ICRC_LEN;
	c->out.cap = size;
	dp_icrc_append(&c->out);
}

bool floor_unload(struct floor_carrier *c, uint8_t *message, uint32_t size, const uint8_t *rest,
		  uint32_t rest_len)
{
	uint32_t head = sizeof(struct floor_message), len, first;
	uint8_t *to;

	if (!c->memory)
		return true;
	if (size < head || size + rest_len < head + DP_ICRC_LEN || size + rest_len > FLOOR_CARRIED)
		return false;
	c->in.data = message;
	c->in.len = size;
	c->in.frag = rest;
	c->in.frag_len = rest_len;
	if (!dp_icrc_check(&c->in))
		return false;
	len = size + rest_len - head - DP_ICRC_LEN;
	first = len < size - head ? len : size - head;
	to = next(c, len);
	memcpy(to, message + head, first);
	if (len > first)
		memcpy(to + first, rest, len - first);
	return true;
}
