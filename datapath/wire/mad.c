// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "wire/mad.h"

#include <errno.h>
#include <string.h>

#include "wire/headers.h"

static const struct {
	uint16_t attribute;
	struct dp_cm_private private;
} messages[] = {
#define ROW(name, behind)                                                                          \
	{                                                                                          \
		name,                                                                              \
		{                                                                                  \
			DP_MAD_HEADER_LEN + (behind), DP_MAD_LEN - DP_MAD_HEADER_LEN - (behind)    \
		}                                                                                  \
	}
	ROW(DP_CM_REQ, 140), ROW(DP_CM_MRA, 10),      ROW(DP_CM_REJ, 84),
	ROW(DP_CM_REP, 36),  ROW(DP_CM_RTU, 8),	      ROW(DP_CM_DREQ, 12),
	ROW(DP_CM_DREP, 8),  ROW(DP_CM_SIDR_REQ, 16), ROW(DP_CM_SIDR_REP, 96),
#undef ROW
};

uint64_t dp_cm_get(const uint8_t *mad, uint32_t field)
{
	uint32_t bit = field >> 8, width = field & 0xff;
	const uint8_t *at = mad + DP_MAD_HEADER_LEN + bit / 8;
	uint64_t value = 0;

	/* Fields of less than a byte lie within one; the others begin with one. */
	if (width < 8)
		return at[0] >> (8 - bit % 8 - width) & ((1u << width) - 1);
	for (; width; width -= 8)
		value = value << 8 | *at++;
	return value;
}

void dp_cm_set(uint8_t *mad, uint32_t field, uint64_t value)
{
	uint32_t bit = field >> 8, width = field & 0xff, shift, mask;
	uint8_t *at = mad + DP_MAD_HEADER_LEN + bit / 8;

	if (width < 8) {
		shift = 8 - bit % 8 - width;
		mask = ((1u << width) - 1) << shift;
		at[0] = (uint8_t)((at[0] & ~mask) | ((uint32_t)value << shift & mask));
		return;
	}
	for (at += width / 8; width; width -= 8, value >>= 8)
		*--at = (uint8_t)value;
}

void dp_mad_start(uint8_t *mad, enum dp_cm_attribute attribute, uint64_t tid)
{
	memset(mad, 0, DP_MAD_LEN);
	mad[DP_MAD_BASE_VERSION_AT] = DP_MAD_BASE_VERSION;
	mad[DP_MAD_CLASS_AT] = DP_MAD_CLASS_CM;
	mad[DP_MAD_CLASS_VERSION_AT] = DP_MAD_CLASS_VERSION;
	mad[DP_MAD_METHOD_AT] = DP_MAD_METHOD_SEND;
	dp_put64(mad + DP_MAD_TID_AT, tid);
	dp_put16(mad + DP_MAD_ATTRIBUTE_AT, attribute);
}

uint16_t dp_mad_attribute(const uint8_t *mad)
{
	return dp_get16(mad + DP_MAD_ATTRIBUTE_AT);
}

int dp_mad_check(const uint8_t *mad, size_t len)
{
	bool right = len == DP_MAD_LEN && mad[DP_MAD_BASE_VERSION_AT] == DP_MAD_BASE_VERSION &&
		     mad[DP_MAD_CLASS_AT] == DP_MAD_CLASS_CM &&
		     mad[DP_MAD_CLASS_VERSION_AT] == DP_MAD_CLASS_VERSION &&
		     mad[DP_MAD_METHOD_AT] == DP_MAD_METHOD_SEND &&
		     dp_cm_private(dp_mad_attribute(mad)).len;

	return right ? 0 : -EPROTO;
}

struct dp_cm_private dp_cm_private(uint16_t attribute)
{
	static const struct dp_cm_private unknown;
	size_t i;

	for (i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
		if (messages[i].attribute == attribute)
			return messages[i].private;
	return unknown;
}

int dp_cm_target(const uint8_t *mad, size_t len, struct dp_cm_target *out)
{
	int err = dp_mad_check(mad, len);
	uint16_t attribute;

	if (err)
		return err;
	memset(out, 0, sizeof(*out));
	attribute = dp_mad_attribute(mad);
	out->is_service = attribute == DP_CM_REQ || attribute == DP_CM_SIDR_REQ;
	if (attribute == DP_CM_REQ)
		out->service_id = dp_cm_get(mad, DP_REQ_SERVICE_ID);
	else if (attribute == DP_CM_SIDR_REQ)
		out->service_id = dp_cm_get(mad, DP_SIDR_REQ_SERVICE_ID);
	else if (attribute == DP_CM_SIDR_REP)
		out->id = (uint32_t)dp_cm_get(mad, DP_SIDR_REP_ID);
	else
		out->id = (uint32_t)dp_cm_get(mad, DP_CM_REMOTE_ID);
	return 0;
}

/* ---- RDMA-CM --------------------------------------------------------------------- */

enum {
	IP_VERSION_AT = 1, /* high 4 bits */
	IP_PORT_AT = 2,
	IP_SRC_AT = 4,
	IP_DST_AT = 20,
	V4_AT = 12, /* in the 16 bytes of an address */
};

/* An IPv4 address stands there in the last 4 bytes, behind zeros. */
static void put_addr(uint8_t *at, const struct dp_addr *addr)
{
	memcpy(at, addr->b, sizeof(addr->b));
	if (dp_addr_is_v4(addr))
		memset(at, 0, V4_AT);
}

static void get_addr(const uint8_t *at, bool v4, struct dp_addr *addr)
{
	if (v4)
		dp_addr_from_v4(addr, at + V4_AT);
	else
		memcpy(addr->b, at, sizeof(addr->b));
}

void dp_cm_ip_set(uint8_t *header, const struct dp_cm_ip *ip)
{
	memset(header, 0, DP_CM_IP_HEADER_LEN);
	header[IP_VERSION_AT] = dp_addr_is_v4(&ip->dst) ? 4 << 4 : 6 << 4;
	dp_put16(header + IP_PORT_AT, ip->port);
	put_addr(header + IP_SRC_AT, &ip->src);
	put_addr(header + IP_DST_AT, &ip->dst);
}

int dp_cm_ip_get(const uint8_t *header, struct dp_cm_ip *ip)
{
	uint8_t version = header[IP_VERSION_AT] >> 4;

	if (header[0] || (version != 4 && version != 6))
		return -EPROTO;
	ip->port = dp_get16(header + IP_PORT_AT);
	get_addr(header + IP_SRC_AT, version == 4, &ip->src);
	get_addr(header + IP_DST_AT, version == 4, &ip->dst);
	return 0;
}
