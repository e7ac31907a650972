/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Management datagrams of the connection manager: the header that all MADs have (IBTA vol. 1,
 * section 13.4.2), the messages of class 7 (chapter 12), and the header that RDMA-CM puts in
 * front of a program's private data (annex A11).
 *
 * A MAD is a UD message of 256 bytes between QPs with number 1.  A field is named by its place
 * in the message, which begins behind the header, and by its width; all are big-endian.
 */
#ifndef DP_WIRE_MAD_H
#define DP_WIRE_MAD_H

#include <stddef.h>
#include <stdint.h>

#include "wire/headers.h"
#include "wire/packet.h"

enum {
	DP_MAD_AT = DP_BTH_LEN + DP_DETH_LEN, /* in a packet */
	DP_MAD_LEN = 256,
	DP_MAD_HEADER_LEN = 24,
	DP_MAD_QPN = 1, /* of both ends */
	/* header */
	DP_MAD_BASE_VERSION_AT = 0,
	DP_MAD_CLASS_AT = 1,
	DP_MAD_CLASS_VERSION_AT = 2,
	DP_MAD_METHOD_AT = 3,
	DP_MAD_STATUS_AT = 4,
	DP_MAD_TID_AT = 8,
	DP_MAD_ATTRIBUTE_AT = 16,
	/* its values */
	DP_MAD_BASE_VERSION = 1,
	DP_MAD_CLASS_CM = 7,
	DP_MAD_CLASS_VERSION = 2,
	DP_MAD_METHOD_SEND = 3,
};

#define DP_MAD_QKEY 0x80010000u

enum dp_cm_attribute {
	DP_CM_REQ = 0x10,
	DP_CM_MRA = 0x11,
	DP_CM_REJ = 0x12,
	DP_CM_REP = 0x13,
	DP_CM_RTU = 0x14,
	DP_CM_DREQ = 0x15,
	DP_CM_DREP = 0x16,
	DP_CM_SIDR_REQ = 0x17,
	DP_CM_SIDR_REP = 0x18,
};

/* Byte of the message, bit of it (0: the highest), bits. */
#define DP_CM_AT(byte, bit, width) (((byte)*8 + (bit)) << 8 | (width))

enum dp_cm_field {
	/* Of all messages but SIDR_REQ and SIDR_REP, whose first field is the request id. */
	DP_CM_LOCAL_ID = DP_CM_AT(0, 0, 32),
	DP_CM_REMOTE_ID = DP_CM_AT(4, 0, 32), /* REQ has none */

	DP_REQ_SERVICE_ID = DP_CM_AT(8, 0, 64),
	DP_REQ_GUID = DP_CM_AT(16, 0, 64),
	DP_REQ_QKEY = DP_CM_AT(28, 0, 32),
	DP_REQ_QPN = DP_CM_AT(32, 0, 24),
	DP_REQ_RESPONDER_RESOURCES = DP_CM_AT(35, 0, 8),
	DP_REQ_INITIATOR_DEPTH = DP_CM_AT(39, 0, 8),
	DP_REQ_REMOTE_TIMEOUT = DP_CM_AT(43, 0, 5),
	DP_REQ_TRANSPORT = DP_CM_AT(43, 5, 2),
	DP_REQ_FLOW_CONTROL = DP_CM_AT(43, 7, 1),
	DP_REQ_PSN = DP_CM_AT(44, 0, 24),
	DP_REQ_LOCAL_TIMEOUT = DP_CM_AT(47, 0, 5),
	DP_REQ_RETRY_COUNT = DP_CM_AT(47, 5, 3),
	DP_REQ_PKEY = DP_CM_AT(48, 0, 16),
	DP_REQ_PATH_MTU = DP_CM_AT(50, 0, 4),
	DP_REQ_RNR_RETRY = DP_CM_AT(50, 5, 3),
	DP_REQ_MAX_CM_RETRIES = DP_CM_AT(51, 0, 4),
	DP_REQ_SRQ = DP_CM_AT(51, 4, 1),
	DP_REQ_LOCAL_LID = DP_CM_AT(52, 0, 16),
	DP_REQ_REMOTE_LID = DP_CM_AT(54, 0, 16),
	DP_REQ_TRAFFIC_CLASS = DP_CM_AT(92, 0, 8),
	DP_REQ_HOP_LIMIT = DP_CM_AT(93, 0, 8),
	DP_REQ_ACK_TIMEOUT = DP_CM_AT(95, 0, 5),

	DP_REP_QKEY = DP_CM_AT(8, 0, 32),
	DP_REP_QPN = DP_CM_AT(12, 0, 24),
	DP_REP_PSN = DP_CM_AT(20, 0, 24),
	DP_REP_RESPONDER_RESOURCES = DP_CM_AT(24, 0, 8),
	DP_REP_INITIATOR_DEPTH = DP_CM_AT(25, 0, 8),
	DP_REP_FLOW_CONTROL = DP_CM_AT(26, 7, 1),
	DP_REP_RNR_RETRY = DP_CM_AT(27, 0, 3),
	DP_REP_SRQ = DP_CM_AT(27, 3, 1),
	DP_REP_GUID = DP_CM_AT(28, 0, 64),

	DP_REJ_MESSAGE = DP_CM_AT(8, 0, 2), /* enum dp_cm_message */
	DP_REJ_INFO_LEN = DP_CM_AT(9, 0, 7),
	DP_REJ_REASON = DP_CM_AT(10, 0, 16),

	DP_MRA_MESSAGE = DP_CM_AT(8, 0, 2), /* enum dp_cm_message */
	DP_MRA_TIMEOUT = DP_CM_AT(9, 0, 5),

	DP_DREQ_QPN = DP_CM_AT(8, 0, 24),

	DP_SIDR_REQ_ID = DP_CM_AT(0, 0, 32),
	DP_SIDR_REQ_PKEY = DP_CM_AT(4, 0, 16),
	DP_SIDR_REQ_SERVICE_ID = DP_CM_AT(8, 0, 64),

	DP_SIDR_REP_ID = DP_CM_AT(0, 0, 32),
	DP_SIDR_REP_STATUS = DP_CM_AT(4, 0, 8),
	DP_SIDR_REP_QPN = DP_CM_AT(8, 0, 24),
	DP_SIDR_REP_SERVICE_ID = DP_CM_AT(12, 0, 64),
	DP_SIDR_REP_QKEY = DP_CM_AT(20, 0, 32),
};

/* GIDs, and other fields that are not numbers: byte of the message. */
enum {
	DP_REQ_LOCAL_GID_AT = 56,
	DP_REQ_REMOTE_GID_AT = 72,
	DP_REJ_INFO_AT = 12,
	DP_REJ_INFO_MAX = 72,
};

/* Which message a REJ or an MRA is about. */
enum dp_cm_message { DP_CM_ABOUT_REQ, DP_CM_ABOUT_REP, DP_CM_ABOUT_OTHER };

/* Why a connection was refused (table 108). */
enum dp_cm_reason {
	DP_REJ_NO_RESOURCES = 3,
	DP_REJ_TIMEOUT = 4,
	DP_REJ_UNSUPPORTED = 5,
	DP_REJ_INVALID_COMM_ID = 6,
	DP_REJ_INVALID_SERVICE_ID = 8,
	DP_REJ_INVALID_TRANSPORT = 9,
	DP_REJ_STALE = 10,
	DP_REJ_INVALID_GID = 12,
	DP_REJ_INVALID_MTU = 26,
	DP_REJ_CONSUMER = 28,
};

enum dp_sidr_status {
	DP_SIDR_VALID = 0,
	DP_SIDR_UNSUPPORTED = 1, /* no such service */
	DP_SIDR_REJECTED = 2,
};

/* Of the MAD, whose first byte is that of its header. */
uint64_t dp_cm_get(const uint8_t *mad, uint32_t field);
void dp_cm_set(uint8_t *mad, uint32_t field, uint64_t value);

/* Clears a MAD, and makes its header. */
void dp_mad_start(uint8_t *mad, enum dp_cm_attribute, uint64_t tid);
/* 0, or -EPROTO: it is no message of the connection manager. */
int dp_mad_check(const uint8_t *mad, size_t len);
uint16_t dp_mad_attribute(const uint8_t *mad);

struct dp_cm_private {
	uint16_t at; /* in the MAD */
	uint16_t len;
};

/* Where a message has its private data.  Length 0: it is unknown. */
struct dp_cm_private dp_cm_private(uint16_t attribute);

/* The highest bits of a communication id of ours: those of the QPNs of the process that made it,
 * so that a port can tell whose a message is. */
enum { DP_CM_PREFIX_BITS = 8 };

/* ---- who a MAD is for ---------------------------------------------------------- */

/* A REQ or SIDR_REQ is for the owner of a service, all others for that of a communication
 * id (or a request id). */
struct dp_cm_target {
	bool is_service;
	uint32_t id;
	uint64_t service_id;
};

/* 0, or -EPROTO. */
int dp_cm_target(const uint8_t *mad, size_t len, struct dp_cm_target *);

/* ---- RDMA-CM (annex A11) ---------------------------------------------------------- */

/* A service id is that of an IP protocol (the port space) and of its port. */
enum { DP_CM_TCP = 0x0106, DP_CM_UDP = 0x0111 };

static inline uint64_t dp_cm_service_id(uint16_t port_space, uint16_t port)
{
	return (uint64_t)port_space << 16 | port;
}

enum { DP_CM_IP_HEADER_LEN = 36 };

struct dp_cm_ip {
	struct dp_addr src, dst; /* IPv4 as ::ffff:a.b.c.d */
	uint16_t port;		 /* of the source */
};

void dp_cm_ip_set(uint8_t *header, const struct dp_cm_ip *);
/* -EPROTO: another version of the header, or of IP. */
int dp_cm_ip_get(const uint8_t *header, struct dp_cm_ip *);

#endif
