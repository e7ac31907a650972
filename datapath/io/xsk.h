/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* libxdp's AF_XDP sockets, and what kernel headers older than Linux 6.6 and 6.17 lack of them. */
#ifndef DP_IO_XSK_H
#define DP_IO_XSK_H

#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif
#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET 9
#endif

#endif
