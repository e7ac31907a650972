# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`python -m datapath.cli` is dpctl."""

import sys

from datapath.cli import main

if __name__ == "__main__":
    sys.exit(main())
