// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gives every frame of a device to the AF_XDP socket of its queue, with the time
 * of its arrival in front: the reader may then come late and still know when
 * the frame began to travel.
 */
#include "xdp/raw_frame.h"

/* .frags: a device whose MTU exceeds one page takes only such programs. */
SEC("xdp.frags")
int dp_raw(struct xdp_md *ctx)
{
	return give_to_socket(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
