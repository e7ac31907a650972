# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Flow sizes: Alibaba's distributed storage in production, 2019.
# Numbers of traffic_gen/AliStorage2019.txt in github.com/alibaba-edu/High-Precision-Congestion-Control
# (commit 9f4be2a9).  Each line: bytes, and the percentage of flows that are not larger.
0 0
4000 22.93
8000 69.21
16000 80.61
32000 90.47
64000 93.53
128000 96.77
256000 97.53
2000000 100
