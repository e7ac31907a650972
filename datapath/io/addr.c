// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

bool dp_addr_is_unspecified(const struct dp_addr *a)
{
	static const struct dp_addr any6, any4 = { .b = { [10] = 0xff, [11] = 0xff } };

	return dp_addr_equal(a, &any6) || dp_addr_equal(a, &any4);
}

bool dp_addr_is_multicast(const struct dp_addr *a)
{
	return dp_addr_is_v4(a) ? a->b[12] >= 224 : a->b[0] == 0xff;
}

bool dp_addr_is_peer(const struct dp_addr *a)
{
	return dp_addr_is_group(a) || !(dp_addr_is_multicast(a) || dp_addr_is_unspecified(a));
}

bool dp_addr_is_loopback(const struct dp_addr *a)
{
	static const struct dp_addr loopback6 = { .b = { [15] = 1 } };

	return dp_addr_is_v4(a) ? a->b[12] == 127 : dp_addr_equal(a, &loopback6);
}

bool dp_addr_is_link_local(const struct dp_addr *a)
{
	return a->b[0] == 0xfe && (a->b[1] & 0xc0) == 0x80;
}

int dp_addr_parse(const char *text, struct dp_addr *out)
{
	uint8_t four[4];

	if (inet_pton(AF_INET, text, four) == 1) {
		dp_addr_from_v4(out, four);
		return 0;
	}
	return inet_pton(AF_INET6, text, out->b) == 1 ? 0 : -EINVAL;
}

const char *dp_addr_text(const struct dp_addr *a, char *buffer)
{
	if (dp_addr_is_v4(a))
		inet_ntop(AF_INET, a->b + 12, buffer, DP_ADDR_TEXT);
	else
		inet_ntop(AF_INET6, a->b, buffer, DP_ADDR_TEXT);
	return buffer;
}

socklen_t dp_addr_to_sockaddr(const struct dp_addr *a, uint16_t port, uint32_t scope,
			      union dp_sockaddr *out)
{
	memset(out, 0, sizeof(*out));
	if (dp_addr_is_v4(a)) {
		out->v4.sin_family = AF_INET;
		out->v4.sin_port = htons(port);
		memcpy(&out->v4.sin_addr, a->b + 12, 4);
		return sizeof(out->v4);
	}
	out->v6.sin6_family = AF_INET6;
	out->v6.sin6_port = htons(port);
	memcpy(&out->v6.sin6_addr, a->b, 16);
	if (dp_addr_is_link_local(a))
		out->v6.sin6_scope_id = scope;
	return sizeof(out->v6);
}

void dp_addr_from_sockaddr(const struct sockaddr *sa, struct dp_addr *out)
{
	if (sa->sa_family == AF_INET)
		dp_addr_from_v4(out, &((const struct sockaddr_in *)sa)->sin_addr);
	else
		memcpy(out->b, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
}
