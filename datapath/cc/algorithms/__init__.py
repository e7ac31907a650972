# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The algorithms of the toolkit, one file each; `datapath.cc.registry` finds them."""
