/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Congestion notification packets (annex A17.9.3), both ways.  DCQCN (SIGCOMM 2015, section 3.1)
 * calls the receiver of marked packets the notification point.
 */
#ifndef DP_ENGINE_RC_CNP_H
#define DP_ENGINE_RC_CNP_H

#include "engine/rc/rc.h"

/* A request has arrived with CE: a CNP is due, unless the last one is too young. */
void dp_cnp_marked(struct dp_rc *, uint64_t now);
/* 1: the packet is the CNP that was due. */
int dp_cnp_tx(struct dp_rc *, struct dp_packet *);
/* The peer has sent a CNP. */
void dp_cnp_rx(struct dp_rc *, uint64_t now);

#endif
