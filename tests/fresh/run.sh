#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Runs commands of the README on fresh Debian machines, as root:
#
#   tests/fresh/run.sh [--keep] [--with FILE]... [--command LINE]... [RELEASE...]
#
#   RELEASE          bookworm, trixie; both unless told
#   --command LINE   what to run in the clone of this tree, in turn; the quickstart unless told
#   --with FILE      copy this file into /root of the machine
#   --keep           leave the machine there afterwards, and go on with one that was left
#
# A machine is a folder with a Debian that debootstrap made, entered by pivot_root in namespaces
# of its own (enter.sh).  It has this machine's kernel, network, sources of apt, settings of pip
# and certificates, and nothing else of it.  It gets HEAD of this tree, as a clone would have it.
#
#   build-fresh/base-RELEASE      what debootstrap made; the next run copies it again
#   build-fresh/machine-RELEASE   the machine; removed at the end, or by the next run after a kill
#   build-fresh/results-RELEASE   what the commands left in results/, and the log of the set-up
#
# FRESH_FOLDER names another place than build-fresh/.  One run for each RELEASE at a time.  It can
# be interrupted at any moment: all that it started and mounted ends with it.
set -u
ROOT=$(cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
export BUILDS=
# shellcheck source=setup/lib.sh
. "$ROOT/setup/lib.sh"

FRESH=${FRESH_FOLDER:-$ROOT/build-fresh}
RELEASES=(bookworm trixie)
QUICKSTART="./dpctl run experiments/quickstart.yaml"
TREE=/root/datapath # the clone, inside
SCRIPTS=/usr/share/debootstrap/scripts
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# alone COMMAND...: with mounts and processes of its own, which end with this script at the latest.
# In the background, since bash heeds a signal only then at once.
alone() {
	setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child=KILL "$@" </dev/null &
	wait $!
}

# ---- base --------------------------------------------------------------------------

# debootstrap is for this script alone, so packages.txt has it not.
need_debootstrap() {
	[ -d "$SCRIPTS" ] && [ -e "$KEYRING" ] && return
	command -v apt-get >/dev/null ||
		fail "debootstrap is missing" "install debootstrap and the keys of Debian's archive"
	step "installing debootstrap" install_packages debootstrap debian-archive-keyring ||
		fail "apt-get install debootstrap" "check the network and the sources of apt"
}

own_release() {
	# shellcheck source=/dev/null
	(. "$OS_RELEASE" && echo "${VERSION_CODENAME-}")
}

# The address of this machine's archive for a suite of its own release ("", -updates, -security).
archive_of() {
	local uri
	read -r uri _ < <(apt_sources "$(own_release)$1") && echo "$uri"
}

# How apt gets things here: proxy, time-outs, checks.
apt_settings() { apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]+|Retries)(::| )'; }

bootstrap() {
	local release=$1 folder=$2 mirror=$3 proxy=
	eval "$(apt-config shell proxy Acquire::http::Proxy)"
	alone env ${proxy:+http_proxy="$proxy"} debootstrap --variant=minbase \
		--include=ca-certificates,git --keyring="$KEYRING" "$release" "$folder" "$mirror"
}

make_base() {
	local release=$1 base=$FRESH/base-$1 mirror
	[ ! -d "$base" ] || return 0
	need_debootstrap
	[ -e "$SCRIPTS/$release" ] ||
		fail "debootstrap is older than $release" "install a newer one"
	mirror=$(archive_of "") || fail "the sources of apt name no archive of Debian" \
		"call this on Debian, after apt-get update"
	rm -rf --one-file-system "$base.new"
	step "making a base of $release" bootstrap "$release" "$base.new" "$mirror" ||
		fail "debootstrap $release" "check the network and the sources of apt"
	mv "$base.new" "$base"
}

# ---- machine -----------------------------------------------------------------------

# sources RELEASE: archives of that release, from where this machine's own come from.
sources() {
	local pocket uri
	for pocket in "" -updates -security; do
		uri=$(archive_of "$pocket") || continue
		printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n\n' \
			"$uri" "$1$pocket" "$KEYRING"
	done
}

# What the machine has of this one.
configure() {
	local release=$1 machine=$2 file
	rm -f "$machine/etc/apt/sources.list"
	sources "$release" >"$machine/etc/apt/sources.list.d/debian.sources"
	apt_settings >"$machine/etc/apt/apt.conf.d/99here"
	for file in /etc/resolv.conf /etc/hosts /etc/pip.conf "$HOME"/.config/pip/pip.conf \
		/etc/apt/auth.conf.d/*.conf /usr/local/share/ca-certificates/*.crt; do
		[ ! -e "$file" ] || cp --parents -L "$file" "$machine"
	done
	[ "$HOME" = /root ] || [ ! -e "$machine$HOME/.config/pip" ] ||
		cp -rT "$machine$HOME/.config" "$machine/root/.config"
	chroot "$machine" update-ca-certificates
}

make_machine() {
	local release=$1 machine=$FRESH/machine-$1
	rm -rf --one-file-system "$machine" "$machine.new"
	cp -a --reflink=auto "$FRESH/base-$release" "$machine.new" &&
		configure "$release" "$machine.new" &&
		git init -q "$machine.new$TREE" &&
		mv "$machine.new" "$machine"
}

# HEAD of this tree, whoever owns it.
clone_tree() {
	export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
	git -C "$1$TREE" fetch -q --depth 1 "file://$ROOT" HEAD &&
		git -C "$1$TREE" checkout -q --force --detach FETCH_HEAD
}

keep_results() {
	local machine=$1 results=$2
	rm -rf "$results"
	mkdir -p "$results"
	cp -rT "$machine$TREE/results" "$results" 2>/dev/null
	cp "$machine$TREE/build/setup.log" "$results" 2>/dev/null
}

# ---- runs ---------------------------------------------------------------------------

# The lock of a release, and its log; the lock goes with the script and all that it started.
begin() {
	exec 8>"$FRESH/lock-$1"
	# What a kill has ended may take a moment to be gone, and holds it as well.
	flock -w 3 8 || fail "another run has the machine of $1" "wait for its end"
	RELEASE=$1
	LOG=$FRESH/log-$1
	: >"$LOG"
	LOGGING=1
}

# try RELEASE LINE...: every line on one machine; a line of SUMMARY for each.
try() {
	local release=$1 machine=$FRESH/machine-$1 line status started
	shift
	begin "$release"
	make_base "$release"
	[ -n "$KEEP" ] && [ -d "$machine" ] ||
		step "copying the base of $release" make_machine "$release" ||
		fail "the machine of $release" "remove $FRESH/base-$release, then call this again"
	[ -z "${FILES[*]}" ] || cp "${FILES[@]}" "$machine/root" ||
		fail "copying ${FILES[*]}" "name files that are there"
	step "cloning HEAD" clone_tree "$machine" || fail "git" "call this in a clone of the repository"
	for line in "$@"; do
		say "$release: $line"
		started=$SECONDS
		alone "$ROOT/tests/fresh/enter.sh" "$machine" "$TREE" "$line"
		status=$?
		SUMMARY+=("$release: $line: status $status after $((SECONDS - started)) s")
		[ "$status" -eq 0 ] || FAILED=1
	done
	keep_results "$machine" "$FRESH/results-$release"
	remove_machine
}

# What belongs to RELEASE, whose lock this script has.
remove_machine() {
	[ -z "$KEEP" ] && [ -n "$RELEASE" ] || return
	set -- "$FRESH/machine-$RELEASE" "$FRESH"/*-"$RELEASE".new
	# What was just killed may still have made a file.
	rm -rf --one-file-system "$@" 2>/dev/null || { sleep 1 && rm -rf --one-file-system "$@"; }
}

clean_up() {
	local job
	for job in $(jobs -p); do kill -KILL "$job"; done
	wait
	remove_machine
}

main() {
	local commands=() releases=() release
	while [ $# -gt 0 ]; do
		case $1 in
		--keep) KEEP=1 ;;
		--command)
			[ $# -gt 1 ] || fail "--command has no line" "quote the line"
			commands+=("$2")
			shift
			;;
		--with)
			[ $# -gt 1 ] || fail "--with has no file" "name a file"
			FILES+=("$2")
			shift
			;;
		-*) fail "no such option: $1" "see the head of tests/fresh/run.sh" ;;
		*)
			[[ " ${RELEASES[*]} " == *" $1 "* ]] ||
				fail "no such release: $1" "choose among: ${RELEASES[*]}"
			releases+=("$1")
			;;
		esac
		shift
	done
	[ "$EUID" -eq 0 ] || fail "this is not root" "call it as root"
	mkdir -p "$FRESH"
	trap clean_up EXIT
	trap 'exit 130' INT TERM HUP
	[ -z "$(git -C "$ROOT" status --porcelain 2>/dev/null)" ] ||
		say "what is not committed is left out"
	for release in "${releases[@]:-${RELEASES[@]}}"; do
		try "$release" "${commands[@]:-$QUICKSTART}"
	done
	printf 'dpctl: %s\n' "${SUMMARY[@]}" >&2
	exit "$FAILED"
}

KEEP=
FILES=()
RELEASE= # whose lock this script has
FAILED=0
SUMMARY=()

# Tests load the functions alone.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
main "$@"
