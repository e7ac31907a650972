#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# enter.sh MACHINE FOLDER LINE: makes the folder MACHINE the root and runs the line of shell in
# FOLDER of it.  run.sh calls it in a mount and a PID namespace of its own, as the first process
# there: with it end all programs inside, and with these all mounts.
#
# pivot_root and not chroot: networks of dpctl need a root that is a mount point.
set -eu

# Settings of pip, certificates and proxies are this machine's.
inherited() { env -0 | grep -zE '^(PIP_[A-Z_]+|[A-Za-z]+_(proxy|PROXY)|SSL_CERT_[A-Z]+)='; }

main() {
	local machine=$1 folder=$2 line=$3 settings=()
	mapfile -d '' settings < <(inherited)
	mount --bind "$machine" "$machine"
	cd "$machine"
	mount -t proc proc proc
	mount --rbind /sys sys
	mount --rbind /dev dev
	mkdir -p .old
	pivot_root . .old
	umount -l /.old
	rmdir /.old
	cd "$folder"
	# A child, since bash as the first process reaps what others leave.
	env -i --default-signal PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 "${settings[@]}" bash -c "$line" || exit $?
}
main "$@"
exit
