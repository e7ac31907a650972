#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Runs rdma-core's own test suite over our device, on both ports, as root:
#
#   tests/rdma_core/run.sh [ARGUMENT OF PYTEST]...
#   RDMA_CORE_VERSION=64.0 tests/rdma_core/run.sh       another version than the installed one
#   RDMA_CORE_VERSION=newest tests/rdma_core/run.sh     the newest that the Python registry has
#   tests/rdma_core/run.sh --loss 1                     1 % of the packets of connections lost
#   tests/rdma_core/run.sh record                       records in a guest what soft-RoCE passes
#
# The suite is that of the libibverbs that is installed.  It is fetched into build-rdma-core/
# once: from the Python registry, whose pyverbs contains rdma-core, from Debian's sources, or
# else from rdma-core's repository.  RDMA_CORE names a folder that has it already;
# RDMA_CORE_REPOSITORY another repository, also a local one.
#
# The tests of another version need its pyverbs, and that needs its libibverbs: both are built
# there (cmake, ninja-build, libnl-3-dev, libnl-route-3-dev, python3-dev), and a front for them.
#
# Ends with 69 when the sources cannot be had.
set -eu
ROOT=$(cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
REPOSITORY=${RDMA_CORE_REPOSITORY:-https://github.com/linux-rdma/rdma-core}
FOLDER=$ROOT/build-rdma-core
NOT_TO_BE_HAD=69

# 1.14.44.0 is libibverbs 1.14 of rdma-core 44.0.
installed() {
	pkg-config --modversion libibverbs | cut -d. -f3-
}

from_registry() {
	local part="$2.part"

	rm -rf "$part" && mkdir -p "$part"
	# pip builds what tells the name of a package; where it cannot, the file may be there all
	# the same.
	"$ROOT/.venv/bin/pip" download -q --no-deps --no-binary pyverbs \
		--dest "$part" "pyverbs==$1" >/dev/null 2>&1 || true
	compgen -G "$part/pyverbs-*.tar.gz" >/dev/null || return
	tar -xf "$part"/pyverbs-*.tar.gz -C "$part" --strip-components 1 || return
	if [ -d "$part/rdma-core" ]; then
		mv "$part/rdma-core" "$2" && rm -rf "$part"
	else
		mv "$part" "$2"
	fi
}

# The sources of the package that is installed.  Lists of sources are kept apart from apt's own.
from_debian() {
	local part="$2.part" version uri key suite options

	version=$(dpkg-query -W -f '${source:Version}' libibverbs1 2>/dev/null) || return
	[ "${version%-*}" = "$1" ] || return
	rm -rf "$part" && mkdir -p "$part/apt/lists/partial" "$part/apt/parts"
	# shellcheck source=/dev/null
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# shellcheck disable=SC2016
	read -r uri key < <(apt-get indextargets --format '$(REPO_URI) $(SIGNED_BY)' \
		'Created-By: Packages' 'Component: main' "Release: $suite") || return
	# shellcheck disable=SC2016
	[ "$key" != '$(SIGNED_BY)' ] || key=
	printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: main\n%s' "$uri" "$suite" \
		"${key:+Signed-By: $key$'\n'}" >"$part/apt/parts/source.sources"
	options=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$part/apt/parts"
		-o "Dir::State::lists=$part/apt/lists" -o APT::Sandbox::User=root)
	(cd "$part" && apt-get "${options[@]}" update &&
		apt-get "${options[@]}" source --download-only --only-source "rdma-core=$version"
	) >/dev/null 2>&1 || return
	tar -xf "$part"/rdma-core_*.orig.tar.* -C "$part" --strip-components 1 && mv "$part" "$2"
}

from_repository() {
	local part="$2.part" url=$REPOSITORY

	rm -rf "$part"
	[ ! -d "$url" ] || url=file://$(readlink -f "$url")
	GIT_TERMINAL_PROMPT=0 timeout 300 git -c advice.detachedHead=false clone -q --depth 1 \
		--branch "v$1" "$url" "$part" 2>/dev/null && mv "$part" "$2"
}

# libibverbs, librdmacm and pyverbs of $1 in $1/build, and a front that forwards to them in
# $1/front.
build() {
	local tools=$FOLDER/tools
	export PATH="$tools/bin:$ROOT/.venv/bin:$PATH"

	[ -x "$tools/bin/cython" ] || {
		/usr/bin/python3 -m venv "$tools" && "$tools/bin/pip" install -q cython
	} || return
	cmake -S "$1" -B "$1/build" -G Ninja -DIN_PLACE=1 -DNO_MAN_PAGES=1 \
		-DCMAKE_BUILD_TYPE=Debug -DPYTHON_EXECUTABLE="$tools/bin/python3" || return
	# Less the daemons and tools, which the tests do not need.
	ninja -C "$1/build" -t targets all |
		sed -n 's/^\(lib\/lib\([a-z0-9]*\|rxe-rdmav[0-9]*\)\.so\|python\/.*\.so\): .*/\1/p' |
		xargs ninja -C "$1/build" || return
	export PKG_CONFIG_PATH=$1/build/lib/pkgconfig
	[ -e "$1/front/build.ninja" ] ||
		meson setup -Dtests=false -Doptimization=3 "$1/front" "$ROOT" || return
	ninja -C "$1/front" datapath/verbs/libdpverbs.so datapath/verbs/compat
}

# fetch VERSION FOLDER
fetch() {
	[ ! -d "$2/tests" ] || return 0
	mkdir -p "$FOLDER"
	from_registry "$1" "$2" || from_debian "$1" "$2" || from_repository "$1" "$2" || {
		rm -rf "$2.part"
		echo "run.sh: rdma-core $1 is neither in the Python registry, nor among Debian's" \
			"sources, nor at $REPOSITORY" >&2
		return 1
	}
}

newest_in_registry() {
	"$ROOT/.venv/bin/pip" index versions pyverbs 2>/dev/null | sed -n '1s/.*(\(.*\))/\1/p'
}

INSTALLED=$(installed)
VERSION=${RDMA_CORE_VERSION:-$INSTALLED}
[ "$VERSION" != newest ] || VERSION=$(newest_in_registry)
fetch "$VERSION" "${RDMA_CORE:-$FOLDER/$VERSION}" || exit $NOT_TO_BE_HAD
: "${RDMA_CORE:=$FOLDER/$VERSION}"
export RDMA_CORE RDMA_CORE_VERSION=$VERSION
if [ "$VERSION" != "$INSTALLED" ]; then
	(build "$RDMA_CORE") >"$FOLDER/build-$VERSION.log" 2>&1 || {
		tail -n 15 "$FOLDER/build-$VERSION.log" >&2
		echo "run.sh: cannot build rdma-core $VERSION: $FOLDER/build-$VERSION.log" >&2
		exit 1
	}
	export RDMA_CORE_BUILT=1
fi
cd "$ROOT"
[ "${1:-}" != record ] || exec .venv/bin/python -m tests.rdma_core.rxe
exec .venv/bin/python -m pytest tests/rdma_core -rA "$@"
