#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# wheel.sh: on a fresh machine without a compiler, installs the wheel of `make wheel` and tries what
# it promises: simulator, algorithms, reports and the UDP port.  In the clone, by
#
#   tests/fresh/run.sh --with dist/*.whl --command tests/fresh/wheel.sh bookworm
set -eu

say() { printf 'wheel: %s\n' "$*" >&2; }

export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -q -y --no-install-recommends python3-venv ibverbs-utils >/dev/null
for program in gcc cc clang ld; do
	! command -v "$program" || { say "there is a compiler: $program"; exit 1; }
done

here=$PWD
python3 -m venv /root/venv
/root/venv/bin/pip install --quiet --disable-pip-version-check /root/*.whl
# Where no tree of ours is.
mkdir -p /root/work && cd /root/work
dpctl() { /root/venv/bin/dpctl "$@"; }

say "version"
dpctl --version
say "algorithms"
awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' "$here/docs/tutorial.md" >gentle.py
dpctl cc check ./gentle.py
say "simulator and report"
awk '/^```yaml/ { n++; on = n == 1; next } /^```/ { on = 0 } on' "$here/docs/tutorial.md" >first.yaml
sed -i "s,\[newreno\, cubic\, vpc\],[newreno\, ./gentle.py]," first.yaml
grep -q gentle first.yaml
dpctl run first.yaml --repetitions 1 --out first
[ -s first/report.html ]
say "UDP port"
exec_on() { dpctl exec --device "dp0=udp:$1" --cc ./gentle.py -- ibv_rc_pingpong -d dp0 -g 0 "${@:2}"; }
exec_on 127.0.0.2 >server.log 2>&1 &
for attempt in 1 2 3 4 5 6 7 8 9 10; do
	if exec_on 127.0.0.3 127.0.0.1 >client.log 2>&1; then
		break
	fi
	[ "$attempt" -lt 10 ] || { cat server.log client.log >&2; exit 1; }
	sleep 1
done
wait
cat client.log
say "all well"
