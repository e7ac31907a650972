# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Runs on a host, once for each connection, as `bash -c SCRIPT warden PATIENCE`.
# Every program of the connection has the connection's token in its environment,
# and so have its children, daemons included.  When the connection ends for
# whatever reason, or nothing was heard of it for PATIENCE seconds, whatever has
# the token is killed.
#
# First line in: the token.  First line out: ready UID CPUS FOLDER.  Then one
# line out for each line in:
#   alive          ok
#   end WORD       kill what has the token followed by WORD; ok
#   has NAME       yes or no: is there a program of this name
#   now            microseconds since the epoch
#   own FOLDER     what root wrote there belongs to the user who logged in; ok
#   make MARK / UNDO / COMMAND   run the command, and if it succeeds, UNDO at the end; until then the
#                  file or folder MARK is locked, if there is one; ok, or what it says
#   made MARK      yes or no: has a connection, this one or another, locked it
#   undone UNDO    not at the end any more; ok
#   bye            kill all, remove the folder; ok
export LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
trap "" HUP PIPE INT TERM

# A program that has only been forked has it in its command line, not yet in its environment.
# The word comes through a pipe: before bash 5.1, <<< needs room on a disk.
end() {
	for _ in {1..40}; do
		found=
		for file in $(printf '%s\n' "$1" |
			grep -lsaF -f - /proc/[0-9]*/environ /proc/[0-9]*/cmdline); do
			pid=${file#/proc/}
			kill -KILL "${pid%%/*}" 2>/dev/null && found=1
		done
		[ -n "$found" ] || return 0
		sleep 0.02
	done
}

leave() {
	end "$token."
	for command in "${undo[@]}"; do
		$command >/dev/null 2>&1
	done
	undo=()
	for lock in "${locks[@]}"; do
		[ -z "$lock" ] || exec {lock}<&-
	done
	locks=()
	rm -rf -- "$folder"
}

own() {
	[ -z "$SUDO_UID" ] || chown -R "$SUDO_UID:$SUDO_GID" -- "$1"
}

# Who made something takes it away, and nobody else: two connections may ask for one name at a time.
# The lock tells what a connection made from what is there to stay.
make() {
	if ! said=$(set -o noglob && $3 2>&1 </dev/null); then
		echo "${said//$'\n'/ }"
		return
	fi
	undo+=("$2")
	if [ -e "$1" ] && exec {lock}<"$1"; then
		locks["$2"]=$lock
		flock -w 5 "$lock"
	fi
	echo ok
}

# Who asks shares the lock for a moment: two may ask at a time.
made() {
	[ -e "$1" ] || return
	flock -n -s "$1" true
	[ $? = 1 ]
}

undone() {
	for index in "${!undo[@]}"; do
		[ "${undo[index]}" != "$1" ] || unset "undo[index]"
	done
	lock=${locks["$1"]}
	[ -z "$lock" ] || exec {lock}<&-
	locks["$1"]=
}

undo=()
declare -A locks
read -r token || exit 1
folder=$(mktemp -d "${TMPDIR:-/tmp}/datapath-XXXXXXXX") || exit 1
own "$folder"
while read -r key cpus; do
	[ "$key" != Cpus_allowed_list: ] || break
done </proc/self/status
cd /
echo "ready $UID $cpus $folder"

while read -r -t "$1" verb word; do
	case $verb in
	alive) echo ok ;;
	end) end "$token.$word" && echo ok ;;
	has) type -P -- "$word" >/dev/null && echo yes || echo no ;;
	now) now=${EPOCHREALTIME:-$(date +%s.%6N)} && echo "${now/./}" ;;
	own) own "$word" && echo ok || echo no ;;
	make) rest=${word#* / } && make "${word%% / *}" "${rest%% / *}" "${rest#* / }" ;;
	made) made "$word" && echo yes || echo no ;;
	undone) undone "$word" && echo ok ;;
	bye) leave && echo ok ;;
	esac
done

# What sshd was about to start when the connection ended comes a moment later.
for pause in 0.2 1 3; do
	leave
	sleep "$pause"
done
leave
