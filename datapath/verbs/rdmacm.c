/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * librdmacm.so for programs that open it by that name: nothing of its own, and
 * a need of librdmacm.so.1, whose symbols dlsym() then finds.
 */
typedef int dp_no_code;
