#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Fuzzes packets, messages of the connection manager, and frames of the virtual card, with
# libFuzzer and ASan + UBSan (needs clang).
#
#   tests/fuzz/run.sh [SECONDS]      60 seconds each unless told; one core
#   tests/fuzz/run.sh minimise       folds what was found into the corpus
#
# FUZZ_LEVEL=-O0 builds in half the time, for a short run.
#
# A finding is left as crash-* in build-fuzz/; copy it to tests/fuzz/corpus (or
# corpus_cm, corpus_vnic) once it is fixed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$root/build-fuzz
mkdir -p "$out/found" "$out/found_cm" "$out/found_vnic"
cd "$root"
mkdir -p "$out/link"
python3 datapath/link/impairments.py --header "$out/link/impairments.h"
flags="-std=gnu11 -g ${FUZZ_LEVEL:--O1} -D_GNU_SOURCE -fno-sanitize-recover=all -Idatapath -Itests/engine -I$out"
# The invariants are checked all the time, and say nothing about what an input has reached.
for folder in "" rc/ ud/; do
	clang $flags -fsanitize=address,undefined -c "datapath/engine/${folder}check.c" \
		-o "$out/$(echo "$folder" | tr / -)check.o"
done
clang $flags -fsanitize=fuzzer,address,undefined -DFUZZ_TARGET=X_fuzz_packet \
	datapath/wire/*.c $(ls datapath/engine/*.c datapath/engine/*/*.c | grep -v /check.c) \
	tests/engine/adversary.c tests/engine/channel.c \
	tests/fuzz/libfuzzer.c tests/fuzz/packet.c "$out"/*check.o -lisal -lm -o "$out/packet"
clang $flags -fsanitize=fuzzer,address,undefined -DFUZZ_TARGET=X_fuzz_cm \
	datapath/wire/mad.c datapath/cm/*.c tests/fuzz/libfuzzer.c tests/fuzz/cm.c -o "$out/cm"
card="chunks guests queue table share header answer"
clang $flags -fsanitize=fuzzer,address,undefined -DFUZZ_TARGET=X_fuzz_vnic \
	datapath/io/addr.c datapath/link/*.c datapath/link/impair/*.c \
	$(for file in $card; do echo "datapath/vnic/$file.c"; done) tests/vnic/frames.c \
	tests/fuzz/libfuzzer.c tests/fuzz/vnic.c -lm -o "$out/vnic"
cd "$out"

# minimise PROGRAM CORPUS FOUND
minimise() {
	rm -rf minimal && mkdir minimal
	"./$1" -merge=1 -use_counters=0 -max_len=512 minimal "$root/tests/fuzz/$2" "$3"
	rm -f "$root/tests/fuzz/$2"/*
	cp minimal/* "$root/tests/fuzz/$2/"
}

if [ "${1:-60}" = minimise ]; then
	minimise packet corpus found
	minimise cm corpus_cm found_cm
	minimise vnic corpus_vnic found_vnic
else
	options="-max_total_time=${1:-60} -max_len=512 -timeout=10 -rss_limit_mb=2048"
	./packet $options found "$root/tests/fuzz/corpus"
	./cm $options found_cm "$root/tests/fuzz/corpus_cm"
	./vnic $options found_vnic "$root/tests/fuzz/corpus_vnic"
fi
