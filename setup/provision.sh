#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Makes a virtual machine of its own ready for RDMA.  The Vagrantfile calls it, as root, in
# the tree that was copied to the machine:
#
#   provision.sh set-up KERNEL SIW ADDRESS MTU   reboot afterwards
#   provision.sh check KERNEL SIW ADDRESS MTU    whether the machine has what set-up promised
#
# KERNEL is a version of Debian's (6.12), backports (virtio-net with AF_XDP zero-copy), or
# box (what the machine has).  SIW is 1 for the siw module, else 0.  ADDRESS tells the
# device under test, MTU is what it gets.  A second call changes only what is not so yet.
set -eu
ROOT=$(cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
export BUILDS=build
# shellcheck source=setup/lib.sh
. "$ROOT/setup/lib.sh"

MODULES_FILE=/etc/modules-load.d/datapath.conf
GRUB_FILE=/etc/default/grub.d/datapath.cfg
MTU_FILE=/etc/udev/rules.d/80-datapath.rules

# Whether the kernel of this release has a module, in any folder.
has_module() { modinfo -k "$1" -n "$2" >/dev/null 2>&1; }

# ---- kernel -----------------------------------------------------------------------

# Newest release of the generic flavour whose version starts with $1, of those that apt knows.
newest_release() {
	local arch
	arch=$(dpkg --print-architecture)
	apt-cache pkgnames linux-image- | sed -En \
		"s/^linux-image-(${1//./\\.}([.+][^-]+)?(-[0-9]+)?-$arch)\$/\1/p" |
		grep -E '^[0-9]+\.[0-9]+\.[0-9]' | sort -V | tail -n 1
}

# install_kernel NAME: leaves its release in RELEASE.
install_kernel() {
	local version=$1 suite=()
	case $1 in
	box)
		RELEASE=$(uname -r)
		has_module "$RELEASE" rdma_rxe ||
			fail "the box's kernel $RELEASE has no rdma_rxe" \
				"DATAPATH_VAGRANT_KERNEL=6.12 vagrant provision"
		return
		;;
	backports)
		# shellcheck source=/dev/null
		(. "$OS_RELEASE" && dpkg --compare-versions "$VERSION_ID" ge 13) ||
			fail "kernels with zero-copy are for Debian 13 and newer" \
				"DATAPATH_VAGRANT_BOX=debian/trixie64 vagrant up, after vagrant destroy"
		add_backports || fail "there are no backports" "add their source in the machine"
		version='[0-9]+'
		suite=(-t "$BACKPORTS")
		;;
	esac
	apt-get update -q
	RELEASE=$(newest_release "$version")
	[ -n "$RELEASE" ] || fail "apt knows no kernel $1" \
		"choose with DATAPATH_VAGRANT_KERNEL another of: apt-cache pkgnames linux-image-"
	# The box's own kernels are left; which one starts is told to GRUB.
	install_packages "${suite[@]}" "linux-image-$RELEASE"
}

# Start this release, whichever is newest.
boot_into() {
	local release=$1 config=/boot/grub/grub.cfg menu entry
	[ -e "$config" ] || {
		say "no GRUB here: see to it that the machine starts $release"
		return
	}
	update-grub
	menu=$(grep -o "gnulinux-advanced-[^']*" "$config" | head -n 1)
	entry=$(grep -oF "gnulinux-$release-advanced-${menu#gnulinux-advanced-}" "$config" | head -n 1)
	mkdir -p "$(dirname "$GRUB_FILE")"
	echo "GRUB_DEFAULT='$menu>$entry'" >"$GRUB_FILE"
	update-grub
}

# ---- RDMA -------------------------------------------------------------------------

# Build siw for a release and put it beside the kernel's modules.
install_siw() {
	local release=$1 module
	has_module "$release" siw && return
	# Where it is, or else why there is none.
	module=$("$ROOT/dpctl" kernel install --again "$release" --format json | "$SYSTEM_PYTHON" -c \
		'import json, sys; [k] = json.load(sys.stdin); print(k["siw_path"] or k["siw_reason"])')
	[ -f "$module" ] || fail "no siw for $release: $module" "vagrant provision, to try it again"
	install -D -m 644 "$module" "/lib/modules/$release/updates/siw.ko"
	depmod "$release"
}

# ---- device under test --------------------------------------------------------------

device_of() { ip -o address show to "$1" | awk 'NR == 1 { print $2 }'; }

# The MTU now and whenever the device appears.
keep_mtu() {
	local device=$1 mtu=$2
	printf 'ACTION=="add", SUBSYSTEM=="net", ATTR{address}=="%s", ATTR{mtu}="%s"\n' \
		"$(cat "/sys/class/net/$device/address")" "$mtu" >"$MTU_FILE"
	ip link set dev "$device" mtu "$mtu"
}

# ---- all of it ----------------------------------------------------------------------

set_up() {
	local kernel=$1 siw=$2 address=$3 mtu=$4 device
	export DEBIAN_FRONTEND=noninteractive
	"$ROOT/dpctl" --version
	ln -sf "$ROOT/dpctl" /usr/local/bin/dpctl
	install_kernel "$kernel"
	echo rdma_rxe >"$MODULES_FILE"
	if [ "$siw" = 1 ]; then
		install_siw "$RELEASE"
		echo siw >>"$MODULES_FILE"
	fi
	boot_into "$RELEASE"
	device=$(device_of "$address")
	[ -n "$device" ] || fail "no device has $address" "vagrant reload --provision"
	keep_mtu "$device" "$mtu"
	say "ready for $RELEASE, which starts with the next boot"
}

check() {
	local kernel=$1 siw=$2 address=$3 mtu=$4 device modules=(rdma_rxe) module
	[ "$siw" != 1 ] || modules+=(siw)
	for module in "${modules[@]}"; do
		[ -e "/sys/module/$module" ] ||
			fail "$module is not loaded in $(uname -r), asked for: $kernel" "vagrant provision"
	done
	device=$(device_of "$address")
	[ "$(cat "/sys/class/net/${device:-none}/mtu" 2>/dev/null)" = "$mtu" ] ||
		fail "the device with $address (${device:-none}) has not MTU $mtu" \
			"vagrant reload --provision"
	say "$(uname -r), ${modules[*]}, $device $address MTU $mtu: $(dpctl --version)"
}

# Tests load the functions alone.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0

case ${1-} in
set-up | check)
	[ $# -eq 5 ] || fail "${1} takes KERNEL SIW ADDRESS MTU" "see the Vagrantfile"
	"${1/-/_}" "${@:2}"
	;;
*) fail "neither set-up nor check: ${1-}" "see the Vagrantfile" ;;
esac
