#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Fuzzes packet input with libFuzzer and ASan + UBSan (needs clang).
#
#   tests/fuzz/run.sh [SECONDS]      60 seconds unless told; one core
#   tests/fuzz/run.sh minimise       folds what was found into the corpus
#
# A finding is left as crash-* in build-fuzz/; copy it to tests/fuzz/corpus once
# it is fixed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$root/build-fuzz
mkdir -p "$out/found"
cd "$root"
flags="-std=gnu11 -g -O1 -D_GNU_SOURCE -fno-sanitize-recover=all -Idatapath -Itests/engine"
# The invariants are checked all the time, and say nothing about what an input has reached.
for folder in "" rc/ ud/; do
	clang $flags -fsanitize=address,undefined -c "datapath/engine/${folder}check.c" \
		-o "$out/$(echo "$folder" | tr / -)check.o"
done
clang $flags -fsanitize=fuzzer,address,undefined \
	datapath/wire/*.c $(ls datapath/engine/*.c datapath/engine/*/*.c | grep -v /check.c) \
	tests/engine/adversary.c tests/engine/channel.c \
	tests/fuzz/*.c "$out"/*check.o -lisal -lm -o "$out/packet"
cd "$out"
if [ "${1:-60}" = minimise ]; then
	rm -rf minimal && mkdir minimal
	./packet -merge=1 -use_counters=0 -max_len=512 minimal "$root/tests/fuzz/corpus" found
	rm -f "$root"/tests/fuzz/corpus/*
	cp minimal/* "$root/tests/fuzz/corpus/"
else
	./packet -max_total_time="${1:-60}" -max_len=512 -timeout=10 -rss_limit_mb=2048 \
		found "$root/tests/fuzz/corpus"
fi
