#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# threads.sh PROGRAM ALGORITHM ADDRESS auto|standard|exit: runs threads.c with samples
# and counters in a folder of its own, and looks whether it has left them there.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$2" "$folder/algorithm.so"
mode=$4
end=()
if [ "$mode" = exit ]; then
	mode=auto end=(exit)
fi
export DATAPATH_DEVICES="dp0=udp:$3;mode=$mode"
export DATAPATH_SERIES="$folder/s;interval_us=200" DATAPATH_STATS=$folder/s
"$1" "$folder/algorithm.so" "${end[@]}"
# At exit() the device may be too busy for its counters; they are left out then.
[ ${#end[@]} -gt 0 ] || for left in "$folder"/s.*.dp0-0.series "$folder"/s.*.dp0.json; do
	[ -s "$left" ] || { echo "$left is missing" >&2 && exit 1; }
done
