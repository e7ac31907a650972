/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How long packets may be: the path MTU and the segment that a network device's MTU
 * leaves room for.  Ports and the simulator follow the same rules.
 */
#ifndef DP_WIRE_SIZES_H
#define DP_WIRE_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/ext.h"
#include "wire/headers.h"

enum {
	DP_PATH_MTU_MIN = 256,
	DP_PATH_MTU_MAX = 4096,
	DP_CACHE_LINE = 64,
	/* IPv6 and UDP, and the longest headers in front of a full payload: those of an
	 * extended WRITE LAST with immediate */
	DP_ROCE_HEADERS_MAX =
		40 + 8 + DP_BTH_LEN + DP_XDH_LEN + DP_RETH_LEN + DP_IMM_LEN + DP_ICRC_LEN,
	/* largest payload of which a packet fits one receive chunk of AF_XDP (3840), or two */
	DP_ONE_CHUNK_SEGMENT = 3712,
	DP_TWO_CHUNKS_SEGMENT = 7552,
	/* for the records of all switches that a packet may pass */
	DP_TELEMETRY_ROOM_MAX = DP_ROOM_HEAD_LEN + DP_HOP_LEN * DP_HOPS_MAX,
};

/* The largest path MTU (256..4096) of at most `limit` bytes; 0: none. */
uint32_t dp_path_mtu_of(uint32_t limit);
/* The largest path MTU on a device of this MTU, whatever the IP version; 0: none. */
uint32_t dp_path_mtu_of_netdev(uint32_t netdev_mtu);
/* The longest payload of an extended packet, in whole cache lines; the MTU carries a
 * path MTU. */
uint32_t dp_segment_of_netdev(uint32_t netdev_mtu, bool ipv4);
/* The segment that a device wants: `asked`, or (0) the best one; but who asks for a smaller
 * path MTU than the MTU carries wants small packets. */
uint32_t dp_segment_wanted(uint32_t asked, uint32_t path_mtu, uint32_t path_mtu_carried,
			   uint32_t best);
/* With a room for telemetry (0: none) beside it, as far as `most` bytes allow. */
uint32_t dp_segment_with_room(uint32_t segment, uint32_t room, uint32_t most);

#endif
