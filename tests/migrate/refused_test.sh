#!/bin/bash
# What cannot be moved is refused in the check, in one line that names it; the program runs on, and was never stopped.
# Needs root.
#
#   refused_test.sh [GROUP...]     groups: obstacles tracer room (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

# streams NAME CMD...: on h1, a stream_check to `server` on h2, and CMD beside it in the same container.
streams() {
  # shellcheck disable=SC2016 # expanded there
  start h1 "$1" sh -c \
    'bin=$1 to=$2; shift 2; "$@" & exec "$bin/stream_check" "$to" --seconds 0 --rate 100 --qps 2 --json' sh \
    "$FERRY_BIN" "$(address_of h2 server)" "${@:2}"
  await_traffic h1 "$1"
}

# runs_on NAME: it was never stopped, and nothing of it is on h3.
runs_on() {
  on h1 "$ferry" ps --json | jq -e --arg name "$1" '[.programs[] | select(.container == $name) | .devices[].qps[]] |
    length > 0 and all(.epoch == 0)' >/dev/null || fail "$1 was stopped: $(on h1 "$ferry" ps)"
  await_traffic h1 "$1"
  # shellcheck disable=SC2016 # expanded there
  on h3 sh -c '[ ! -e "/run/ferry/containers/$1" ] && [ -z "$(ls /run/ferry/images)" ]' sh "$1" ||
    fail "something of $1 is on h3"
}

nothing_is_lost() {
  local name
  hit INT held
  for name in held server; do
    finishes "$name"
    lost_nothing "$name"
  done
}

# refuses KIND PATTERN: while the program holds KIND.
refuses() {
  # shellcheck disable=SC2016 # expanded there
  on h1 sh -c 'echo "$1" >/tmp/held/want' sh "$1"
  # shellcheck disable=SC2016
  await "$1 is held" on h1 sh -c '[ "$(cat /tmp/held/has)" = "$1" ] || [ "$(cat /tmp/held/has)" = nothing ]' sh "$1"
  if [[ $(on h1 cat /tmp/held/has) == nothing ]]; then
    echo "     this machine has no $1"
    return
  fi
  fails "^ferry: 'held' was not moved: $2$" on h1 "$ferry" move held --to h3
  ok "refused: $1"
}

group_obstacles() {
  serves h2 server
  on h1 sh -c 'mkdir /tmp/held; echo none >/tmp/held/want; echo none >/tmp/held/has'
  on h1 sh -c 'exec setsid python3 -c "import socket
listener = socket.socket(socket.AF_UNIX); listener.bind(\"/tmp/held/outside\"); listener.listen()
while True: connected = listener.accept()" >/dev/null 2>&1 &'
  streams held "$repository/tests/migrate/hold_obstacle.py" /tmp/held
  local holder='process [0-9]+ \(hold_obstacle\.p\): descriptor [0-9]+'
  refuses io_uring "$holder \(anon_inode:\[io_uring\]\) is of a kind that CRIU cannot move"
  refuses userfaultfd "$holder \(anon_inode:\[userfaultfd\]\) is of a kind that CRIU cannot move"
  refuses device "$holder \(/dev/fuse\) is a device that CRIU does not know, 10:229"
  refuses vsock "$holder \(AF_VSOCK socket\) is of a protocol that CRIU cannot move"
  refuses lock "$holder \(/tmp/held/lock\) has a file lock, which does not move along"
  refuses deleted "$holder \(/tmp/held/deleted \(deleted\)\) was deleted, and CRIU takes deleted files of 1 MiB at most"
  refuses connection "$holder \(UNIX socket\) is connected with /tmp/held/outside, outside of the program"
  refuses file "h3 has no /tmp/held/only-here, which 'held' uses"
  runs_on held
  # With nothing of that it moves, and so it does when h3 has the file.
  on h3 sh -c 'mkdir /tmp/held; echo file >/tmp/held/want; : >/tmp/held/only-here'
  move held h1 h3
  nothing_is_lost
}

group_tracer() {
  serves h2 server
  streams held sleep 3600
  local sleeper tracer
  sleeper=$(pgrep -P "$(on h1 jq .pid /run/ferry/containers/held/config.json)" -f '^/?.*stream_check' | head -n 1)
  python3 - "$sleeper" <<'PYTHON' &
import ctypes, sys, time
if ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None) != 0: sys.exit("cannot trace")
time.sleep(3600)
PYTHON
  tracer=$!
  await 'stream_check is traced' grep -q "^TracerPid:[[:space:]]*$tracer$" "/proc/$sleeper/status"
  local line="^ferry: 'held' was not moved: process $sleeper \(stream_check\): is traced by process $tracer "
  line+="\(python3?[0-9.]*\); let that go to move it$"
  fails "$line" on h1 "$ferry" move held --to h3
  runs_on held
  kill "$tracer"
  wait "$tracer" || true
  move held h1 h3
  nothing_is_lost
  ok 'a program that is traced is refused, and moves afterwards'
}

# python_has_memory NAME: 32 MiB of it, beside stream_check.
python_has_memory() {
  local first pid
  first=$(pgrep -P "$(on h1 jq .pid "/run/ferry/containers/$1/config.json")" -f '^/?.*stream_check' | head -n 1)
  pid=$(pgrep -P "$first" -x python3) || return 1
  (($(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status") > 32 << 10))
}

# No room for the image, on either side; and no room for the program.
group_room() {
  serves h2 server
  streams held python3 -c 'import time; held = bytearray(32 << 20); held[::4096] = bytes(8192); time.sleep(3600)'
  await 'python3 has its memory' python_has_memory held
  on h3 sh -c 'mkdir -p /tmp/ferryd-4790/images && mount -t tmpfs -o size=16m none /tmp/ferryd-4790'
  another h3 4790
  local line="^ferry: 'held' was not moved: h3:4790: not enough room in /tmp/ferryd-4790/images on h3-4790: "
  line+="[0-9]+ MiB needed, [0-9]+ MiB free; make some"
  fails "$line" on h1 "$ferry" move held --to h3:4790 --no-copy-ahead
  another h3 4791 --memory-limit 1M
  fails "^ferry: 'held' was not moved: .*not enough memory on h3-4791" on h1 "$ferry" move held --to h3:4791
  on h1 mount -t tmpfs -o size=16m none /run/ferry/images
  fails "^ferry: 'held' was not moved: not enough room in /run/ferry/images on h1: " on h1 "$ferry" move held --to h3 \
    --no-copy-ahead
  on h1 umount /run/ferry/images
  runs_on held
  fails "^ferry: 'held' is on h1 already|'held' was not moved: .*'held' is on h1 already" on h1 "$ferry" move held \
    --to h1
  move held h1 h3
  fails "^ferry: 'held' has moved from h1 to h3; to move it on, on h3: ferry move held --to HOST$" on h1 "$ferry" \
    move held --to h2
  nothing_is_lost
  fails "^ferry: 'held' does not run on h3: it has ended$" on h3 "$ferry" move held --to h1
  fails "^ferry: there is no program 'hold' on h3; see: ferry ps, and podman ps$" on h3 "$ferry" move hold --to h1
  ok 'a program that finds no room is refused, and moves where there is some'
}

use_lab refuse 3 python3
if (($# == 0)); then set -- obstacles tracer room; fi
for group in "$@"; do "group_$group"; done
