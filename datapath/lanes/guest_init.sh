#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# First program of a guest (see guest.py), as root on the serial console:
#   guest_init.sh ADDRESS/PREFIX PUBLIC_KEY FOLDER[:FOLDER...] NAME=LINK_ADDRESS...
# Names the network devices, brings up management, lets PUBLIC_KEY in by ssh.
# What is read in a FOLDER of the machine stays in the guest's memory.
# The root file system is that of the machine, read-only; /etc and /run are the
# guest's own.  When this ends, so does the guest.
set -eu
address=$1 key=$2 cached=$3
shift 3

mkdir -p /run/datapath/machine
mount -t 9p -o ro,version=9p2000.L,trans=virtio,cache=loose,msize=512000 \
	machine /run/datapath/machine
IFS=:
for folder in $cached; do
	mount --bind "/run/datapath/machine$folder" "$folder"
done
unset IFS

name_of() {
	for pair in "$@"; do
		[ "${pair#*=}" != "$mac" ] || echo "${pair%%=*}"
	done
}

# The kernel may have given to one device the name that is meant for another.
for device in /sys/class/net/eth*; do
	ip link set "${device##*/}" down name "was-${device##*/}"
done
for device in /sys/class/net/*; do
	read -r mac <"$device/address"
	name=$(name_of "$@")
	[ -z "$name" ] || [ "$name" = "${device##*/}" ] || {
		ip link set "${device##*/}" down
		ip link set "${device##*/}" name "$name"
	}
done
ip link set lo up
ip address add "$address" dev mgmt0
ip link set mgmt0 up

# root gets in by key alone, with a plain shell and a home of the guest's own: what the
# machine's root runs at login is not wanted here.
mkdir -p /run/datapath/home /run/sshd
echo 'root:*:1:0:99999:7:::' >/etc/shadow
grep -v '^root:' /etc/passwd >/run/datapath/passwd || :
{
	echo 'root:x:0:0:root:/run/datapath/home:/bin/sh'
	cat /run/datapath/passwd
} >/etc/passwd
echo "$key" >/run/datapath/authorized_keys
ssh-keygen -q -t ed25519 -N '' -f /run/datapath/host_key
# Without KVM a guest boots on one CPU (accel.py); here it gets the others.
for cpu in /sys/devices/system/cpu/cpu[0-9]*/online; do
	[ ! -e "$cpu" ] || echo 1 >"$cpu"
done
exec /usr/sbin/sshd -D -e -f /dev/null -h /run/datapath/host_key \
	-o AuthorizedKeysFile=/run/datapath/authorized_keys -o StrictModes=no \
	-o PermitRootLogin=prohibit-password -o PasswordAuthentication=no -o UsePAM=no \
	-o UseDNS=no -o PidFile=none -o MaxSessions=100 -o MaxStartups=100 \
	-o 'Subsystem=sftp internal-sftp'
