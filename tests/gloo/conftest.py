# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""gloo is driven when GLOO_BENCHMARK names its benchmark program, as run.sh does."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("GLOO_BENCHMARK") else ["test_gloo.py"]
