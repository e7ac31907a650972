# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which links of a network limit its flows."""

from typing import Literal

Narrow = Literal["shared", "hosts", "many"]
"""shared: one link that all flows of a direction pass (of two hosts the lower one is on its left).
hosts: the links of the hosts.  many: others, so that no one link tells the utilisation."""
