/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The inline functions of the wire headers as symbols of the test library, so
 * that Python tests can call them.  `X_` before a name; a get/set pair of a
 * whole header passes its fields as an array of integers, in wire order.
 */
#include "wire/telemetry.h"
#include "wire/headers.h"

#define GETTER(type, name)                                                                         \
	type X_##name(const uint8_t *h);                                                           \
	type X_##name(const uint8_t *h)                                                            \
	{                                                                                          \
		return name(h);                                                                    \
	}

GETTER(uint8_t, dp_bth_opcode)
GETTER(unsigned, dp_bth_solicited)
GETTER(unsigned, dp_bth_pad)
GETTER(unsigned, dp_bth_tver)
GETTER(uint16_t, dp_bth_pkey)
GETTER(unsigned, dp_bth_becn)
GETTER(uint32_t, dp_bth_dest_qpn)
GETTER(unsigned, dp_bth_ack_req)
GETTER(uint32_t, dp_bth_psn)
GETTER(uint64_t, dp_reth_va)
GETTER(uint32_t, dp_reth_rkey)
GETTER(uint32_t, dp_reth_len)
GETTER(uint32_t, dp_deth_qkey)
GETTER(uint32_t, dp_deth_src_qpn)
GETTER(uint64_t, dp_atomic_va)
GETTER(uint32_t, dp_atomic_rkey)
GETTER(uint64_t, dp_atomic_swap_add)
GETTER(uint64_t, dp_atomic_compare)
GETTER(uint8_t, dp_aeth_syndrome)
GETTER(uint32_t, dp_aeth_msn)
GETTER(uint16_t, dp_get16)
GETTER(uint32_t, dp_get32)
GETTER(uint64_t, dp_get64)

int32_t X_dp_psn_diff(uint32_t a, uint32_t b);
uint32_t X_dp_psn_add(uint32_t psn, uint32_t n);
void X_dp_put16(uint8_t *h, uint16_t v);
void X_dp_put32(uint8_t *h, uint32_t v);
void X_dp_put64(uint8_t *h, uint64_t v);
void X_dp_bth_set(uint8_t *h, const uint64_t *f);
void X_dp_reth_set(uint8_t *h, const uint64_t *f);
void X_dp_deth_set(uint8_t *h, const uint64_t *f);
void X_dp_atomic_set(uint8_t *h, const uint64_t *f);
void X_dp_aeth_set(uint8_t *h, const uint64_t *f);
void X_dp_hello_set(uint8_t *h, const uint64_t *f);
void X_dp_hello_get(const uint8_t *h, uint64_t *f);
void X_dp_xdh_set(uint8_t *h, const uint64_t *f);
void X_dp_xdh_get(const uint8_t *h, uint64_t *f);
void X_dp_xah_set(uint8_t *h, const uint64_t *f);
void X_dp_xah_get(const uint8_t *h, uint64_t *f);

int32_t X_dp_psn_diff(uint32_t a, uint32_t b)
{
	return dp_psn_diff(a, b);
}

uint32_t X_dp_psn_add(uint32_t psn, uint32_t n)
{
	return dp_psn_add(psn, n);
}

void X_dp_put16(uint8_t *h, uint16_t v)
{
	dp_put16(h, v);
}

void X_dp_put32(uint8_t *h, uint32_t v)
{
	dp_put32(h, v);
}

void X_dp_put64(uint8_t *h, uint64_t v)
{
	dp_put64(h, v);
}

void X_dp_bth_set(uint8_t *h, const uint64_t *f)
{
	dp_bth_set(h, (uint8_t)f[0], (unsigned)f[1], (unsigned)f[2], (uint32_t)f[3], (unsigned)f[4],
		   (uint32_t)f[5]);
}

void X_dp_reth_set(uint8_t *h, const uint64_t *f)
{
	dp_reth_set(h, f[0], (uint32_t)f[1], (uint32_t)f[2]);
}

void X_dp_deth_set(uint8_t *h, const uint64_t *f)
{
	dp_deth_set(h, (uint32_t)f[0], (uint32_t)f[1]);
}

void X_dp_atomic_set(uint8_t *h, const uint64_t *f)
{
	dp_atomic_set(h, f[0], (uint32_t)f[1], f[2], f[3]);
}

void X_dp_aeth_set(uint8_t *h, const uint64_t *f)
{
	dp_aeth_set(h, (uint8_t)f[0], (uint32_t)f[1]);
}

void X_dp_hello_set(uint8_t *h, const uint64_t *f)
{
	struct dp_hello in = { (uint8_t)f[0],  (uint32_t)f[1], (uint32_t)f[2], (uint32_t)f[3],
			       (uint16_t)f[4], f[5],	       (uint32_t)f[6] };

	dp_hello_set(h, &in);
}

void X_dp_hello_get(const uint8_t *h, uint64_t *f)
{
	struct dp_hello out;

	dp_hello_get(h, &out);
	f[0] = out.version;
	f[1] = out.window_psns;
	f[2] = out.features;
	f[3] = out.qpn;
	f[4] = out.segment;
	f[5] = out.handed_on;
	f[6] = out.ts_ns;
}

void X_dp_xdh_set(uint8_t *h, const uint64_t *f)
{
	struct dp_xdh in = {
		.ts_ns = (uint32_t)f[0],
		.rq_seq = (uint32_t)f[1],
		.offset = (uint32_t)f[2],
		.ack_psn = (uint32_t)f[3],
		.ack = f[4],
		.ack_ts_ns = (uint32_t)f[5],
		.records = (uint32_t)f[6],
		.thin = (uint32_t)f[7],
	};

	dp_xdh_set(h, &in);
}

void X_dp_xdh_get(const uint8_t *h, uint64_t *f)
{
	struct dp_xdh out;

	dp_xdh_get(h, &out);
	f[0] = out.ts_ns;
	f[1] = out.rq_seq;
	f[2] = out.offset;
	f[3] = out.ack_psn;
	f[4] = out.ack;
	f[5] = out.ack_ts_ns;
	f[6] = out.records;
	f[7] = out.thin;
}

void X_dp_xah_set(uint8_t *h, const uint64_t *f)
{
	struct dp_xah in = {
		.ts_echo_ns = (uint32_t)f[0],
		.ack_delay_ns = (uint32_t)f[1],
		.marked = (uint32_t)f[2],
		.duplicates = (uint32_t)f[3],
		.sack_base = (uint32_t)f[4],
		.words = (uint8_t)f[5],
		.n_trimmed = (uint8_t)f[6],
		.n_hops = (uint8_t)f[7],
		.n_marked = (uint8_t)f[8],
		.arrived_ns = (uint32_t)f[9],
	};

	dp_xah_set(h, &in);
}

void X_dp_xah_get(const uint8_t *h, uint64_t *f)
{
	struct dp_xah out;

	dp_xah_get(h, &out);
	f[0] = out.ts_echo_ns;
	f[1] = out.ack_delay_ns;
	f[2] = out.marked;
	f[3] = out.duplicates;
	f[4] = out.sack_base;
	f[5] = out.words;
	f[6] = out.n_trimmed;
	f[7] = out.n_hops;
	f[8] = out.n_marked;
	f[9] = out.arrived_ns;
}

int X_dp_telemetry_stamp(uint8_t *bth, uint32_t len, const uint64_t *f);
void X_dp_telemetry_get(const uint8_t *r, uint64_t *f);

int X_dp_telemetry_stamp(uint8_t *bth, uint32_t len, const uint64_t *f)
{
	struct dp_telemetry in = { f[0], f[1], f[2], f[3] };

	return dp_telemetry_stamp(bth, len, &in);
}

void X_dp_telemetry_get(const uint8_t *r, uint64_t *f)
{
	struct dp_telemetry out;

	dp_telemetry_get(r, &out);
	f[0] = out.queue_bytes;
	f[1] = out.ts_ns;
	f[2] = out.tx_bytes;
	f[3] = out.rate_mbps;
}
