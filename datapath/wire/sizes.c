// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "wire/sizes.h"

enum { IPV6_LESS_IPV4 = 20 };

uint32_t dp_path_mtu_of(uint32_t limit)
{
	uint32_t mtu = DP_PATH_MTU_MAX;

	while (mtu > limit)
		mtu >>= 1;
	return mtu < DP_PATH_MTU_MIN ? 0 : mtu;
}

uint32_t dp_path_mtu_of_netdev(uint32_t netdev_mtu)
{
	return netdev_mtu > DP_ROCE_HEADERS_MAX ? dp_path_mtu_of(netdev_mtu - DP_ROCE_HEADERS_MAX) :
						  0;
}

uint32_t dp_segment_of_netdev(uint32_t netdev_mtu, bool ipv4)
{
	uint32_t fits = netdev_mtu - DP_ROCE_HEADERS_MAX + (ipv4 ? IPV6_LESS_IPV4 : 0);

	if (fits > DP_SEGMENT_MAX)
		fits = DP_SEGMENT_MAX;
	return fits & ~(uint32_t)(DP_CACHE_LINE - 1);
}

uint32_t dp_segment_wanted(uint32_t asked, uint32_t path_mtu, uint32_t path_mtu_carried,
			   uint32_t best)
{
	if (asked)
		return asked;
	return path_mtu < path_mtu_carried ? path_mtu : best;
}

uint32_t dp_segment_with_room(uint32_t segment, uint32_t room, uint32_t most)
{
	segment = (segment & ~7u) + room; /* as end_probe() of engine/rc/negotiate.c wants it */
	return segment < most ? segment : most;
}
