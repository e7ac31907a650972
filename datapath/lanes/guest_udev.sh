#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Stands in for udev while a guest boots (see guest.py): virtme-ng starts
# systemd-udevd and asks it, by `udevadm trigger`, to handle every device.  Under
# TCG its rules took more than half of the boot, for two things that a guest needs:
# the drivers of its virtio devices, and the names of virtme-ng's serial ports.
set -eu
[ "$*" = "trigger --type=devices --action=add" ] || exit 0

for device in /sys/bus/virtio/devices/*; do
	[ -e "$device/driver" ] || cat "$device/modalias"
done | sort -u | xargs modprobe --all --use-blacklist --quiet || : # the next program tells
mkdir -p /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
	read -r name <"$port/name" || continue # a console has none
	ln -sf "../${port##*/}" "/dev/virtio-ports/$name"
done
