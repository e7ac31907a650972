/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DATAPATH_DEVICES: the devices that the front adds, as text.
 *
 *   "dp0=afxdp:eth1;cc=/path/algo.so;mode=auto dp1=udp:10.0.0.1"
 *
 * Spaces separate the devices.  Each device is NAME=PORTSPEC[;key=value...].
 */
#ifndef DP_VERBS_CONFIG_H
#define DP_VERBS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DP_NAME_MAX = 55, /* behind "dpverbs-", a name for verbs and sysfs: 63 */
	DP_SPEC_MAX = 255,
	DP_PATH_MAX = 1023,
};

struct dp_device_config {
	char name[DP_NAME_MAX + 1];
	char spec[DP_SPEC_MAX + 1]; /* argument of dp_port_open() */
	char cc[DP_PATH_MAX + 1];   /* path of a compiled algorithm; "": constant window */
	bool standard;		    /* mode=standard: never offer extended mode */
	bool ecn;
	bool alone;	     /* bundle=0: no two messages share a packet */
	bool telemetry;	     /* leaves room for telemetry in requests of extended mode */
	uint32_t paths;	     /* number of UDP source ports; 0: 1 */
	uint32_t path_mtu;   /* bytes; 0: the largest that the port carries */
	uint32_t segment;    /* payload bytes of an extended packet; 0: the port's own */
	uint32_t window;     /* PSNs; 0: the engine's default */
	uint32_t min_rto_us; /* 0: the engine's default */
	uint32_t cnp_us;     /* least time between two CNPs of a QP; 0: it sends none */
};

/*
 * Reads the next device from *text, and moves *text behind it.  Returns 1: a device was read; 0:
 * there are no more; -EINVAL: the device is wrong, and `error` says why in one line.  After an
 * error, the next call reads the device that follows.
 */
int dp_config_next(const char **text, struct dp_device_config *out, char *error, size_t error_len);

#endif
