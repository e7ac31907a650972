# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Prints what a host is, as lines KEY=VALUE; what cannot be found out is left
# out.  $1: the network device under test; further ones: Debian packages, of which
# the versions are told.
say() { [ -z "$2" ] || printf '%s=%s\n' "$1" "$2"; }
first() { sed -n "s/^$1[[:space:]]*[=:][[:space:]]*//p" "$2" 2>/dev/null | head -n 1; }

say kernel "$(uname -r)"
say kernel_version "$(uname -v)"
say architecture "$(uname -m)"
say distribution "$(first PRETTY_NAME /etc/os-release | tr -d '"')"
say cpu_model "$(first 'model name' /proc/cpuinfo)"
say cores "$(nproc --all)"
say cores_usable "$(nproc)"
say memory_kib "$(first MemTotal /proc/meminfo | tr -dc 0-9)"
say governor "$(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null)"
say clocksource "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"

if command -v dpkg-query >/dev/null; then
	(shift && dpkg-query -W -f '${db:Status-Abbrev}package.${Package}=${Version}\n' "$@") 2>/dev/null |
		sed -n 's/^ii //p'
else
	say package.iperf3 "$(iperf3 --version 2>/dev/null | sed -n '1s/^iperf //p')"
	say package.perftest "$(ib_write_bw --version 2>/dev/null | sed -n 's/^Version: //p')"
fi

if command -v ethtool >/dev/null; then
	ethtool -i "$1" 2>/dev/null | sed -n 's/^\(driver\|version\|firmware-version\|bus-info\): \(..*\)/nic.\1=\2/p'
	ethtool -k "$1" 2>/dev/null | sed -n 's/^\(tx-checksumming\|tcp-segmentation-offload\|generic-segmentation-offload\|generic-receive-offload\|large-receive-offload\|tx-udp-segmentation\): \(on\|off\).*/offload.\1=\2/p'
	ethtool -l "$1" 2>/dev/null | sed -n '/^Current/,$s/^Combined:[[:space:]]*/nic.queues=/p'
fi
say nic.mtu "$(cat "/sys/class/net/$1/mtu")"
say nic.speed "$(cat "/sys/class/net/$1/speed" 2>/dev/null)"

# A module counts when it is loaded, built in, or could be loaded.
module() {
	if [ -d "/sys/module/$1" ]; then echo loaded
	elif modprobe -n -q "$1" 2>/dev/null; then echo available
	else echo none; fi
}
say rdma.rxe "$(module rdma_rxe)"
say rdma.siw "$(module siw)"
say rdma.devices "$(ls /sys/class/infiniband 2>/dev/null | tr '\n' ' ' | sed 's/ $//')"
# XDP sockets have a file in /proc/net when the kernel has them at all.
grep -q '^XDP' /proc/net/protocols && say xdp.sockets yes || say xdp.sockets no
