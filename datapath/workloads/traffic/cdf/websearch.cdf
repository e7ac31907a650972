# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Flow sizes: Web search (Alizadeh et al., DCTCP, SIGCOMM 2010), as the HPCC paper uses it.
# Numbers of traffic_gen/WebSearch_distribution.txt in github.com/alibaba-edu/High-Precision-Congestion-Control
# (commit 9f4be2a9).  Each line: bytes, and the percentage of flows that are not larger.
0 0
10000 15
20000 20
30000 30
50000 40
80000 53
200000 60
1000000 70
2000000 80
5000000 90
10000000 97
30000000 100
