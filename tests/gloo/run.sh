#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Runs gloo's benchmark program, with its transport ibverbs, over our device, as root:
#
#   tests/gloo/run.sh [ARGUMENT OF PYTEST]...
#
# gloo as PyTorch's packages bring it has TCP alone, so gloo is fetched from its repository and
# built in build-gloo/ once (cmake; some minutes).  GLOO_REPOSITORY names another repository, also
# a local one.
#
# Ends with 69 when the sources cannot be had.
set -eu
ROOT=$(cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
REPOSITORY=${GLOO_REPOSITORY:-https://github.com/pytorch/gloo}
FOLDER=$ROOT/build-gloo
NOT_TO_BE_HAD=69

fetch() {
	local part=$FOLDER/source.part

	[ ! -d "$FOLDER/source" ] || return 0
	mkdir -p "$FOLDER" && rm -rf "$part"
	GIT_TERMINAL_PROMPT=0 timeout 300 git clone -q "$REPOSITORY" "$part" 2>/dev/null &&
		mv "$part" "$FOLDER/source"
}

build() {
	cmake -S "$FOLDER/source" -B "$FOLDER/build" -DUSE_IBVERBS=ON -DBUILD_BENCHMARK=ON &&
		cmake --build "$FOLDER/build" --target benchmark --parallel "$(nproc)"
}

fetch || {
	echo "run.sh: gloo is not to be had at $REPOSITORY" >&2
	exit $NOT_TO_BE_HAD
}
export GLOO_BENCHMARK=$FOLDER/build/gloo/benchmark/benchmark
[ -x "$GLOO_BENCHMARK" ] || build >"$FOLDER/build.log" 2>&1 || {
	tail -n 15 "$FOLDER/build.log" >&2
	echo "run.sh: cannot build gloo: $FOLDER/build.log" >&2
	exit 1
}
cd "$ROOT"
exec .venv/bin/python -m pytest tests/gloo -rA "$@"
