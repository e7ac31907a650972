# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What algorithms share that react once to losses which belong together.

Such an episode lasts until a packet is told of that was sent after its first loss: one whose
`prior_delivered_bytes` has reached what was delivered then, and PASSED.  A time-out ends no
episode: what was in flight is declared lost after it, and was counted by it.
"""

NO_THRESHOLD = 1e18  # RFC 5681, section 3.1: ssthresh begins arbitrarily high
PASSED = 1  # byte: packets lost together may all have been sent after the last delivery
