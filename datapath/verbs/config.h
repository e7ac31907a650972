/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DATAPATH_DEVICES: which devices the front adds, as text.
 *
 *   "dp0=afxdp:eth1;cc=/path/algo.so;mode=auto dp1=udp:10.0.0.1"
 *
 * Devices are separated by blanks; each is NAME=PORTSPEC[;key=value...].
 */
#ifndef DP_VERBS_CONFIG_H
#define DP_VERBS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DP_NAME_MAX = 63,
	DP_SPEC_MAX = 255,
	DP_PATH_MAX = 1023,
};

struct dp_device_config {
	char name[DP_NAME_MAX + 1];
	char spec[DP_SPEC_MAX + 1]; /* for dp_port_open() */
	char cc[DP_PATH_MAX + 1];   /* compiled algorithm, "": constant window */
	bool standard;		    /* mode=standard: never offer extended mode */
	bool ecn;
	bool telemetry;	     /* room for it in requests of extended mode */
	uint32_t paths;	     /* UDP source ports, 0: 1 */
	uint32_t path_mtu;   /* bytes, 0: what the port carries */
	uint32_t segment;    /* payload of an extended packet, bytes; 0: what suits the port */
	uint32_t window;     /* PSNs, 0: the engine's */
	uint32_t min_rto_us; /* 0: the engine's */
};

/* Takes the next device from *text, which moves behind it.  1: taken; 0: there
 * is no more; -EINVAL: that device is wrong, and `error` says how in one line
 * (the next call goes on with the one after it). */
int dp_config_next(const char **text, struct dp_device_config *out, char *error, size_t error_len);

#endif
