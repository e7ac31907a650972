# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The algorithms of the toolkit, a file for each idea; found by their folder."""
