/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The base and extension transport headers (IBTA vol. 1, chapter 9, and
 * annex A17 for RoCEv2): offsets, and a get/set pair for each field that is
 * used.  All fields are big-endian.  Every function takes a pointer to the
 * first byte of the header it names; nothing here checks lengths, which is
 * dp_packet_parse()'s task (wire/parse.h).
 */
#ifndef DP_WIRE_HEADERS_H
#define DP_WIRE_HEADERS_H

#include <stdint.h>
#include <string.h>

#include "wire/opcode.h"

enum {
	DP_ROCE_PORT = 4791,
	DP_BTH_LEN = 12,
	DP_RETH_LEN = 16,
	DP_ATOMIC_ETH_LEN = 28,
	DP_DETH_LEN = 8,
	DP_AETH_LEN = 4,
	DP_ATOMIC_ACK_ETH_LEN = 8,
	DP_IMM_LEN = 4,
	DP_IETH_LEN = 4,
	DP_FETH_LEN = 4,
	DP_ICRC_LEN = 4,
	DP_CNP_RESV_LEN = 16, /* zero bytes after the BTH of a CNP */
	DP_PKEY_DEFAULT = 0xffff,
	DP_MULTICAST_QPN = 0xffffff, /* destination of multicast packets (9.8.3.3) */
};

#define DP_PSN_MASK 0xffffffu

/* Signed distance a - b in the 24-bit PSN space. */
static inline int32_t dp_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t dp_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & DP_PSN_MASK;
}

static inline uint16_t dp_get16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

static inline uint32_t dp_get32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static inline uint64_t dp_get64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

static inline void dp_put16(void *p, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void dp_put32(void *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void dp_put64(void *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, sizeof(v));
}

/*
 * BTH: opcode(8) SE(1) MigReq(1) PadCnt(2) TVer(4) P_Key(16)
 *      FECN(1) BECN(1) resv(6) DestQP(24) AckReq(1) resv(7) PSN(24)
 */
static inline uint8_t dp_bth_opcode(const uint8_t *b)
{
	return b[0];
}

static inline unsigned dp_bth_solicited(const uint8_t *b)
{
	return b[1] >> 7;
}

static inline unsigned dp_bth_pad(const uint8_t *b)
{
	return (b[1] >> 4) & 3;
}

static inline unsigned dp_bth_tver(const uint8_t *b)
{
	return b[1] & 0xf;
}

static inline uint16_t dp_bth_pkey(const uint8_t *b)
{
	return dp_get16(b + 2);
}

static inline unsigned dp_bth_becn(const uint8_t *b)
{
	return (b[4] >> 6) & 1;
}

static inline void dp_bth_set_ack_req(uint8_t *b)
{
	b[8] |= 1 << 7;
}

static inline void dp_bth_set_becn(uint8_t *b)
{
	b[4] |= 1 << 6;
}

static inline uint32_t dp_bth_dest_qpn(const uint8_t *b)
{
	return dp_get32(b + 4) & 0xffffff;
}

static inline unsigned dp_bth_ack_req(const uint8_t *b)
{
	return b[8] >> 7;
}

static inline uint32_t dp_bth_psn(const uint8_t *b)
{
	return dp_get32(b + 8) & DP_PSN_MASK;
}

static inline void dp_bth_set(uint8_t *b, uint8_t opcode, unsigned solicited, unsigned pad,
			      uint32_t dest_qpn, unsigned ack_req, uint32_t psn)
{
	b[0] = opcode;
	b[1] = (uint8_t)(solicited << 7 | 1 << 6 | pad << 4);
	dp_put16(b + 2, DP_PKEY_DEFAULT);
	dp_put32(b + 4, dest_qpn & 0xffffff);
	dp_put32(b + 8, (uint32_t)ack_req << 31 | (psn & DP_PSN_MASK));
}

/* RETH: VA(64) R_Key(32) DMALen(32) */
static inline uint64_t dp_reth_va(const uint8_t *h)
{
	return dp_get64(h);
}

static inline uint32_t dp_reth_rkey(const uint8_t *h)
{
	return dp_get32(h + 8);
}

static inline uint32_t dp_reth_len(const uint8_t *h)
{
	return dp_get32(h + 12);
}

static inline void dp_reth_set(uint8_t *h, uint64_t va, uint32_t rkey, uint32_t len)
{
	dp_put64(h, va);
	dp_put32(h + 8, rkey);
	dp_put32(h + 12, len);
}

/* FETH: resv(26) SEL(2) PLT(4), annex A19 */
enum dp_feth {
	DP_FETH_GLOBAL = 1 << 0, /* PLT: visible to everybody */
	DP_FETH_PERSISTENT = 1 << 1,
	DP_FETH_RANGE = 0, /* SEL: the range of the RETH */
	DP_FETH_MR = 1,	   /* all of the memory region */
};

static inline uint8_t dp_feth_placement(const uint8_t *h)
{
	return h[3] & 0xf;
}

static inline uint8_t dp_feth_selectivity(const uint8_t *h)
{
	return h[3] >> 4 & 3;
}

static inline void dp_feth_set(uint8_t *h, uint8_t placement, uint8_t selectivity)
{
	dp_put32(h, (uint32_t)selectivity << 4 | placement);
}

/* AtomicETH: VA(64) R_Key(32) SwapOrAdd(64) Compare(64) */
static inline uint64_t dp_atomic_va(const uint8_t *h)
{
	return dp_get64(h);
}

static inline uint32_t dp_atomic_rkey(const uint8_t *h)
{
	return dp_get32(h + 8);
}

static inline uint64_t dp_atomic_swap_add(const uint8_t *h)
{
	return dp_get64(h + 12);
}

static inline uint64_t dp_atomic_compare(const uint8_t *h)
{
	return dp_get64(h + 20);
}

static inline void dp_atomic_set(uint8_t *h, uint64_t va, uint32_t rkey, uint64_t swap_add,
				 uint64_t compare)
{
	dp_put64(h, va);
	dp_put32(h + 8, rkey);
	dp_put64(h + 12, swap_add);
	dp_put64(h + 20, compare);
}

/* DETH: Q_Key(32) resv(8) SrcQP(24) */
static inline uint32_t dp_deth_qkey(const uint8_t *h)
{
	return dp_get32(h);
}

static inline uint32_t dp_deth_src_qpn(const uint8_t *h)
{
	return dp_get32(h + 4) & 0xffffff;
}

static inline void dp_deth_set(uint8_t *h, uint32_t qkey, uint32_t src_qpn)
{
	dp_put32(h, qkey);
	dp_put32(h + 4, src_qpn & 0xffffff);
}

/* AETH: Syndrome(8) MSN(24) */
enum dp_syndrome {
	DP_AETH_ACK = 0x00,	/* | credit count, 0x1f: not valid */
	DP_AETH_RNR_NAK = 0x20, /* | RNR timer code */
	DP_AETH_NAK = 0x60,	/* | NAK code below */
	DP_AETH_TYPE_MASK = 0x60,
	DP_AETH_VALUE_MASK = 0x1f,
	DP_AETH_CREDIT_INVALID = 0x1f,
};

enum dp_nak {
	DP_NAK_PSN_SEQUENCE = 0,
	DP_NAK_INVALID_REQUEST = 1,
	DP_NAK_REMOTE_ACCESS = 2,
	DP_NAK_REMOTE_OPERATION = 3,
	DP_NAK_INVALID_RD = 4,
};

/* Whether the syndrome has a meaning; the others are reserved. */
static inline bool dp_syndrome_known(uint8_t syndrome)
{
	return syndrome <= (DP_AETH_RNR_NAK | DP_AETH_VALUE_MASK) ||
	       (syndrome >= DP_AETH_NAK && syndrome <= (DP_AETH_NAK | DP_NAK_INVALID_RD));
}

static inline uint8_t dp_aeth_syndrome(const uint8_t *h)
{
	return h[0];
}

static inline uint32_t dp_aeth_msn(const uint8_t *h)
{
	return dp_get32(h) & 0xffffff;
}

static inline void dp_aeth_set(uint8_t *h, uint8_t syndrome, uint32_t msn)
{
	dp_put32(h, (uint32_t)syndrome << 24 | (msn & 0xffffff));
}

#endif
