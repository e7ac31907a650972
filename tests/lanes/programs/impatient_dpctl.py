# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dpctl, for which a host is gone after twelve seconds of silence; programs there end after 20.

Tests of machines that go away need not wait for half a minute.
"""

from __future__ import annotations

import sys

from datapath.cli import main
from datapath.lanes.remote import connection

connection.KEEPALIVE_S, connection.HEARTBEAT_S, connection.WARDEN_PATIENCE_S = 2, 2, 20
sys.exit(main())
