/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program that picks UDP sockets and io/udp_steer.c share. */
#ifndef DP_XDP_SLOTS_H
#define DP_XDP_SLOTS_H

enum {
	DP_SLOTS = 256,	  /* processes at one address */
	DP_SLOT_BYTE = 5, /* of the BTH: top 8 bits of the destination QPN */

	/* Where the program looks, and for what: wire/mad.h has the same. */
	DP_SLOTS_BTH_LEN = 12,
	DP_SLOTS_MAD_QPN = 1,
	DP_SLOTS_ATTRIBUTE_AT = 36,  /* in the packet */
	DP_SLOTS_MESSAGE_AT = 44,    /* the first field, the request id of a SIDR_REP */
	DP_SLOTS_REMOTE_ID_AT = 48,  /* of all others */
	DP_SLOTS_SERVICE_ID_AT = 52, /* of requests */
	DP_SLOTS_REQ = 0x10,
	DP_SLOTS_SIDR_REQ = 0x17,
	DP_SLOTS_SIDR_REP = 0x18,
	DP_SLOTS_SERVICES = 4096,
};

#endif
