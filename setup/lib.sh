# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash
#
# Set-up of a source tree: Debian packages, virtual environment, C and BPF.
# Sourced by dpctl with ROOT (the tree) and BUILDS (which builds) set.  A step
# leaves a stamp that says for which input it was done; the next call compares
# stamps and does nothing.
#
#   build/.packages   packages.txt and system for which all packages were there,
#                     or "partial" when a user who is not root was told of some
#   .venv/.stamp      lock file, interpreter and tree of the virtual environment
#   BUILD/.stamp      younger than every C source once the build has succeeded

PACKAGES=$ROOT/datapath/packages.txt
LOCK=$ROOT/setup/lock.txt
VENV=$ROOT/.venv
LOG=$ROOT/build/setup.log
LOGGING= # set once the log is this set-up's own
SYSTEM_PYTHON=/usr/bin/python3
BACKPORTS_FILE=/etc/apt/sources.list.d/datapath-backports.sources
OS_RELEASE=/etc/os-release

say() { printf 'dpctl: %s\n' "$*" >&2; }

# fail STEP FIX: the end of the log, and what to do.
fail() {
	local step=$1 fix=$2
	if [ -n "$LOGGING" ] && [ -s "$LOG" ]; then
		tail -n 15 "$LOG" | sed 's/^/    /' >&2
	fi
	say "set-up failed: $step"
	[ -z "$LOGGING" ] || say "log: $LOG"
	say "next: $fix"
	exit 3
}

# step TITLE COMMAND...: runs it, output to the log; returns its status.
step() {
	local title=$1 started=$SECONDS
	shift
	say "$title ..."
	printf '\n== %s: %s\n' "$title" "$*" >>"$LOG"
	"$@" >>"$LOG" 2>&1 9>&- || return
	((SECONDS - started < 5)) || say "$title: done in $((SECONDS - started)) s"
}

# ---- what is already done ---------------------------------------------------

packages_key() { cat "$PACKAGES" "$OS_RELEASE" 2>/dev/null | cksum; }
venv_key() {
	printf '%s\n' "$ROOT" "$(readlink -f "$SYSTEM_PYTHON")" \
		"$(cat "$LOCK" "$OS_RELEASE" 2>/dev/null | cksum)"
}

packages_ready() {
	local stamp key
	stamp=$(cat "$ROOT/build/.packages" 2>/dev/null)
	key=$(packages_key)
	[ "$stamp" = "$key" ] || { [ "$stamp" = "$key partial" ] && [ "$EUID" -ne 0 ]; }
}
venv_ready() { [ "$(cat "$VENV/.stamp" 2>/dev/null)" = "$(venv_key)" ]; }

# sources TEST...: those of C and BPF for which find's TESTs hold.
sources() {
	find "$ROOT/meson.build" "$ROOT/setup" "$ROOT/datapath" "$ROOT/tests" \
		\( -name '*.[ch]' -o -name meson.build -o -name '*.map' -o -path "$ROOT/setup/*.py" \) "$@"
}

# Whether no source has changed since the last successful build.  What rsync brings keeps the
# time of its last change on the machine that it comes from, and so does what tar unpacks.
build_ready() {
	local stamp=$ROOT/$1/.stamp
	[ -e "$stamp" ] && [ "$stamp" -nt "$VENV/.stamp" ] &&
		[ -z "$(sources \( -newer "$stamp" -o -newercc "$stamp" \) -print -quit)" ]
}

# ---- steps --------------------------------------------------------------------

# Names of CLASS that dpkg does not have installed.
missing_packages() {
	local class=$1
	awk -v class="$class" -v arch="$(dpkg --print-architecture)" \
		'!/^#/ && $2 == class { sub("@arch@", arch, $1); sub(">=.*", "", $1); print $1 }' \
		"$PACKAGES" |
		while read -r name; do
			dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q ' installed$' ||
				echo "$name"
		done | tr '\n' ' '
}

# Names of which an older version is installed than wanted.
outdated_packages() {
	local name least version
	awk '!/^#/ && sub(">=", " ", $1) { print $1 }' "$PACKAGES" |
		while read -r name least; do
			version=$(dpkg-query -W -f '${Version}' "$name" 2>/dev/null) &&
				dpkg --compare-versions "$version" lt-nl "$least" && echo "$name"
		done | tr '\n' ' '
}

# apt_sources RELEASE: address and key of each of apt's sources for main of RELEASE, one a line;
# those that apt has lists of.
apt_sources() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI) $(SIGNED_BY)' 'Created-By: Packages' \
		'Component: main' "Release: $1"
}

# The backports of this Debian, from where its own packages come from; leaves their suite in
# BACKPORTS.  They are installed only when asked for by name.
add_backports() {
	local suite uri key
	# shellcheck source=/dev/null
	suite=$(. "$OS_RELEASE" && echo "$VERSION_CODENAME")
	BACKPORTS=$suite-backports
	apt-get update -q
	[ -z "$(apt_sources "$BACKPORTS")" ] || return 0
	read -r uri key < <(apt_sources "$suite") || {
		say "the sources of apt name no archive of $suite: man 5 sources.list"
		return 1
	}
	# shellcheck disable=SC2016
	[ "$key" != '$(SIGNED_BY)' ] || key= # apt's way to say that there is none
	printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n%s' \
		"$uri" "$BACKPORTS" "${key:+Signed-By: $key$'\n'}" >"$BACKPORTS_FILE"
}

renew_packages() {
	add_backports && install_packages --no-remove -t "$BACKPORTS" "$@" && return
	rm -f "$BACKPORTS_FILE" # apt would complain of it from now on
	return 1
}

# Guests need the program sshd; that this machine begins to serve is not wanted.  Debian's
# units and init script start nothing while this file exists.
SSHD_OFF=/etc/ssh/sshd_not_to_be_run
keep_sshd_off() {
	[ -e "$SSHD_OFF" ] || {
		mkdir -p "$(dirname "$SSHD_OFF")" &&
			echo "# openssh-server came with dpctl: remove this file to use it" >"$SSHD_OFF"
	}
}

install_packages() {
	export DEBIAN_FRONTEND=noninteractive
	case " $* " in *" openssh-server "*) keep_sshd_off || return ;; esac
	apt-get update -q &&
		apt-get install -q -y --no-install-recommends \
			-o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@"
}

setup_packages() {
	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		say "not a Debian system: install what $PACKAGES lists by this system's means"
		return
	fi
	local build run old
	build=$(missing_packages build)
	run=$(missing_packages run)
	if [ "$EUID" -ne 0 ]; then
		without_root "$build" "$run"
		return
	fi
	# Names are words of our own list.
	# shellcheck disable=SC2086
	[ -z "$build$run" ] ||
		step "installing Debian packages: $build$run" install_packages $build $run ||
		fail "apt-get install" "check the network and the sources of apt, then call dpctl again"
	old=$(outdated_packages)
	# shellcheck disable=SC2086
	[ -z "$old" ] || step "installing newer ones from backports: $old" renew_packages $old ||
		say "no newer ones were to be had ($LOG): going on with what there is"
	packages_key >"$ROOT/build/.packages"
}

# What a user who is not root is told of missing packages, by class.
without_root() {
	local build=$1 run=$2 partial=
	local fix="as root: apt-get update && apt-get install --no-install-recommends $build$run"
	[ -z "$build" ] || fail "Debian packages are missing and this is not root" "$fix"
	if [ -n "$run" ]; then
		say "some workloads and tests need packages that are missing; $fix"
		case $run in *openssh-server*) say "touch $SSHD_OFF before, unless sshd should serve" ;; esac
	fi
	# Root can do better.
	[ -z "$run$(outdated_packages)" ] || partial=" partial"
	echo "$(packages_key)$partial" >"$ROOT/build/.packages"
}

make_venv() {
	local site
	export PIP_USER=0
	rm -rf "$VENV" &&
		"$SYSTEM_PYTHON" -m venv --system-site-packages "$VENV" &&
		"$VENV/bin/python" -m pip install --disable-pip-version-check --no-input \
			--require-hashes --only-binary :all: -r "$LOCK" &&
		# The tree itself is importable wherever this Python runs.
		site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
		printf '%s\n' "$ROOT" >"$site/datapath-source.pth"
}

setup_venv() {
	"$SYSTEM_PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
		fail "$SYSTEM_PYTHON is missing or older than 3.11" \
			"use Debian 12 or newer, or another system whose own Python is 3.11 or newer"
	step "making the virtual environment" make_venv ||
		fail "virtual environment" \
			"check the network (pip's settings, proxy), then call dpctl again"
	venv_key >"$VENV/.stamp"
}

build_options() {
	case $1 in
	build) echo "-Doptimization=3" ;;
	build-san)
		echo "-Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Dwerror=true"
		;;
	esac
}

compile() {
	local folder=$ROOT/$1 fresh=
	# A folder that another tree or interpreter configured is made again.
	[ -e "$folder/build.ninja" ] && [ "$folder/build.ninja" -nt "$VENV/.stamp" ] || fresh=1
	export PATH="$VENV/bin:$PATH"
	# Options are words of our own.
	# shellcheck disable=SC2046
	if [ -n "$fresh" ]; then
		if [ -d "$folder" ]; then
			find "$folder" -mindepth 1 -maxdepth 1 ! -name setup.log ! -name .packages \
				-exec rm -rf {} +
		fi
		meson setup $(build_options "$1") "$folder" "$ROOT" || return
	fi
	ninja -C "$folder"
}

setup_build() {
	local started stamp=$ROOT/$1/.stamp
	# ninja goes by the time of the last change.
	[ ! -e "$stamp" ] || sources -newercc "$stamp" ! -newer "$stamp" -exec touch {} + ||
		fail "sources in $ROOT" "their time cannot be set: run as their owner"
	started=$(date +%s.%N) # what is edited meanwhile counts as newer
	step "building C and BPF in $1/" compile "$1" ||
		fail "building $1/" "the compiler's message stands above; a clean start: rm -r $ROOT/$1"
	touch -d "@$started" "$stamp"
}

# ---- all of it ------------------------------------------------------------------

ready() {
	local build
	packages_ready && venv_ready || return
	for build in $BUILDS; do
		build_ready "$build" || return
	done
}

setup() {
	mkdir -p "$ROOT/build" 2>/dev/null && [ -w "$ROOT/build" ] ||
		fail "$ROOT/build cannot be written" "run dpctl as the owner of the source tree"
	# One set-up at a time; the lock goes with the process.
	exec 9<"$ROOT"
	flock -n 9 || {
		say "waiting for another set-up of this tree"
		flock 9
	}
	: >"$LOG"
	LOGGING=1
	packages_ready || setup_packages
	venv_ready || setup_venv
	local build
	for build in $BUILDS; do
		build_ready "$build" || setup_build "$build"
	done
	exec 9<&-
}
