# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tools run where the other verbs programs do."""

from tests.verbs.conftest import hosts, pair

__all__ = ["hosts", "pair"]
