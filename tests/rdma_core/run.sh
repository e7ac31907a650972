#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Runs rdma-core's own test suite over our device, on both ports, as root:
#
#   tests/rdma_core/run.sh [ARGUMENT OF PYTEST]...
#
# The suite is that of the libibverbs that is installed.  It is fetched into build-rdma-core/
# once: from the Python registry, whose pyverbs contains rdma-core, or else from rdma-core's
# repository.  RDMA_CORE names a folder that has it already; RDMA_CORE_REPOSITORY another
# repository, also a local one.
set -eu
ROOT=$(cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
REPOSITORY=${RDMA_CORE_REPOSITORY:-https://github.com/linux-rdma/rdma-core}
FOLDER=$ROOT/build-rdma-core

# 1.14.44.0 is libibverbs 1.14 of rdma-core 44.0.
version() {
	pkg-config --modversion libibverbs | cut -d. -f3-
}

from_registry() {
	local part="$2.part"

	rm -rf "$part" && mkdir -p "$part"
	"$ROOT/.venv/bin/pip" download -q --no-deps --no-build-isolation --no-binary :all: \
		--dest "$part" "pyverbs==$1" >/dev/null 2>&1 || return
	tar -xf "$part"/pyverbs-*.tar.gz -C "$part" --strip-components 1 && mv "$part" "$2"
}

from_repository() {
	local part="$2.part"

	rm -rf "$part"
	git -c advice.detachedHead=false clone -q --depth 1 --branch "v$1" "$REPOSITORY" "$part" &&
		mv "$part" "$2"
}

VERSION=$(version)
: "${RDMA_CORE:=$FOLDER/$VERSION}"
export RDMA_CORE RDMA_CORE_VERSION=$VERSION
if [ ! -d "$RDMA_CORE/tests" ]; then
	mkdir -p "$FOLDER"
	from_registry "$VERSION" "$RDMA_CORE" || from_repository "$VERSION" "$RDMA_CORE" || {
		echo "run.sh: rdma-core $VERSION is neither in the Python registry nor at $REPOSITORY" >&2
		exit 1
	}
fi
cd "$ROOT"
exec .venv/bin/python -m pytest tests/rdma_core -rA "$@"
