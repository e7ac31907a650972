/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * librdmacm.so, for programs that open it by this name.  It has no code and needs librdmacm.so.1,
 * so that dlsym() finds the symbols there.
 */
typedef int dp_no_code;
