# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""For algorithms that react once to each loss episode, not to each lost packet.

An episode begins with a loss.  It ends with the first acknowledgement or loss of a packet that was
sent after that: one whose `prior_delivered_bytes` is at least the total delivered at the beginning,
and PASSED.  A time-out begins an episode, too: what was in flight is declared lost after it.
"""

NO_THRESHOLD = 1e18  # RFC 5681, section 3.1: ssthresh begins arbitrarily high
PASSED = 1  # byte: packets lost together may all have been sent after the last delivery
