# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The workloads, one file each; datapath.workloads.REGISTRY finds them."""
