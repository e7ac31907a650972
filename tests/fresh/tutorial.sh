#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# tutorial.sh [FOLDER]: follows docs/tutorial.md word by word, in a folder with dpctl (the clone,
# unless told), and says after how many seconds the first figure is there, and the last one.  On a
# fresh machine, where the time of the set-up is part of it:
#
#   tests/fresh/run.sh --command tests/fresh/tutorial.sh bookworm
#
# A file is written where the page shows it; a line of YAML alone takes its line's place.
set -eu
ROOT=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf 'tutorial: %4d s  %s\n' "$SECONDS" "$*" >&2; }
fail() {
	say "$*"
	exit 1
}

# replace FILE LINE: in place of the only line with the same key.
replace() {
	local file=$1 new=$2 key line count=0 text=
	key=${new%%:*}
	while IFS= read -r line; do
		case $line in
		"$key:"*)
			line=$new
			count=$((count + 1))
			;;
		esac
		text+=$line$'\n'
	done <"$file"
	[ "$count" -eq 1 ] || fail "$file has $count lines of$key"
	printf '%s' "$text" >"$file"
}

# doctor tells by 3 what a machine lacks; the page goes on without it.
run() {
	local status=0
	say "$1"
	bash -c "$1" 3<&- || status=$?
	[ "$status" -eq 0 ] || { [ "$status" -eq 3 ] && [[ $1 == *doctor ]]; } ||
		fail "status $status: $1"
	COMMANDS=$((COMMANDS + 1))
	[ -n "$FIGURE" ] || [ ! -s first/report.html ] || {
		FIGURE=$SECONDS
		say "the first figure is there"
	}
}

block() {
	local language=$1 text=$2 line
	case $language in
	python) printf '%s' "$text" >gentle.py ;;
	yaml)
		if [[ $text == version:* ]]; then
			printf '%s' "$text" >first.yaml
		else
			replace first.yaml "${text%$'\n'}"
		fi
		;;
	console) while IFS= read -r line; do run "$line"; done < <(printf '%s' "$text") ;;
	*) fail "a block of $language" ;;
	esac
}

main() {
	local line language= text=
	cd "${1-$ROOT}"
	while IFS= read -r line <&3; do
		case $line in
		'```')
			block "$language" "$text"
			language=
			;;
		'```'*)
			language=${line#'```'}
			text=
			;;
		*) [ -z "$language" ] || text+=$line$'\n' ;;
		esac
	done 3<"$ROOT/docs/tutorial.md"
	for figure in first/plots/*.svg mine/report.html live/report.html; do
		[ -s "$figure" ] || fail "$figure is missing"
	done
	grep -q gentle mine/report.html || fail "gentle is not in its report"
	say "all $COMMANDS commands done; first figure after $FIGURE s"
}

COMMANDS=0
FIGURE=
main "$@"
exit
