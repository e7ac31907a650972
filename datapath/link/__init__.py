# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The model of links and switches, in C (link.h, switch.h), and the table of its impairments."""
