# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A laboratory for datacentre transports; the folders are its layers (ARCHITECTURE.md)."""

__version__ = "0.1.0"
