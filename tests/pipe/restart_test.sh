#!/bin/bash
# ferry-piped is killed and started again under real programs in network namespaces: the sums of ring_allreduce stay
# exact, requests of nf_chain come out once and decrypted, no byte of pd_perf is missing. Also for programs that have
# the socket mounted and not its folder, and for users other than root.
#   FERRY_BIN    the binaries
#   FERRY_LAB    begins the names of namespaces and bridges
set -euo pipefail

readonly bin=$FERRY_BIN lab=w$FERRY_LAB
[[ $EUID -eq 0 ]] || { echo 'skipped: needs root'; exit 77; }
command -v jq >/dev/null || { echo 'skipped: jq is not installed; run scripts/setup'; exit 77; }
tests=$(realpath "${BASH_SOURCE[0]%/*}")
readonly tests

# shellcheck source=tests/pipe/spaces.sh
. "${BASH_SOURCE[0]%/*}/spaces.sh"

# kill_piped [SIGNAL]: another one is there soon, as by systemd.
kill_piped() {
  local before
  before=$(<"$FERRY_PIPE_SOCKET.pid")
  kill -"${1:-KILL}" "$before"
  await 'another ferry-piped' is_another "$before"
}
is_another() { [[ $(<"$FERRY_PIPE_SOCKET.pid") != "$1" ]]; }

# moved: how many bytes of its connections have moved, under all ferry-pipeds together.
moved() {
  "$bin/ferry" pipe ps --json 2>/dev/null | jq '[.connections[] | .sent_bytes + .received_bytes] | add // 0'
}
runs() { kill -0 "$1" 2>/dev/null; }
has_moved_on_or_ended() {
  local now
  ! runs "$2" || { now=$(moved) && [[ -n $now && $now -gt $1 ]]; }
}

# kill_under PROCESS WANTED: until it has lived on after so many kills, or ended. Lived on: bytes moved, and it still
# runs. `lived` counts them.
kill_under() {
  local before=0 kills=0
  while ((lived < $2)); do
    await 'bytes move' has_moved_on_or_ended "$before" "$1"
    runs "$1" || return 0
    if ((kills > 0)); then lived=$((lived + 1)); fi
    before=$(moved) && [[ -n $before ]] || return 0
    # Every third time as at an update.
    if ((kills++ % 3 == 2)); then kill_piped TERM; else kill_piped; fi
  done
}

# under_kills WANTED NAME: start_NAME starts a program with so much to do, and sets `process`; end_NAME waits for its
# end and checks it. Again with twice as much, until it has lived on after enough kills.
under_kills() {
  local much=1
  lived=0
  while ((lived < $1)); do
    "start_$2" "$much"
    kill_under "$process" "$1"
    "end_$2" "$much"
    much=$((much * 2))
  done
}

"$tests/keep_listening.py" "$FERRY_PIPE_SOCKET" "$bin/ferry-piped" --socket "$FERRY_PIPE_SOCKET" \
  >"$work/piped.log" 2>&1 &
started+=($!)
# The last one, when the test ends.
end_piped() {
  local last
  last=$(<"$FERRY_PIPE_SOCKET.pid") || true
  rm -f "$FERRY_PIPE_SOCKET.pid"
  if [[ -n $last ]]; then kill "$last" || true; fi
  clean_up
}
trap end_piped EXIT
await 'ferry-piped is started' test -s "$FERRY_PIPE_SOCKET.pid"
bridge one
for each in 1 2 3 4 5; do space "r$each" one 10.99.0.$each; done
chmod 755 "$work"
chmod 666 "$FERRY_PIPE_SOCKET"
touch "$work/mounted.sock"

start_allreduce() {
  local each
  ranks=()
  for each in 0 1 2; do
    # The kernel's own copy of the mount table, as a container has: the path elsewhere.
    # shellcheck disable=SC2016
    ip netns exec "$lab-r$((each + 1))" sh -c 'mount --bind "$FERRY_PIPE_SOCKET" "$1/mounted.sock" &&
      FERRY_PIPE_SOCKET=$1/mounted.sock exec "$2" --over pipe --ring 10.99.0.1:7300,10.99.0.2:7300,10.99.0.3:7300 \
        --rank "$3" --size 4000000 --message 65536 --repeat "$4"' \
      sh "$work" "$bin/ring_allreduce" "$each" $((60 * $1)) >"$work/rank$each.log" 2>&1 &
    ranks+=($!)
    started+=($!)
  done
  process=${ranks[0]}
}
end_allreduce() {
  local each
  for each in 0 1 2; do wait "${ranks[each]}" || fail "rank $each: $(<"$work/rank$each.log")"; done
}
under_kills 5 allreduce
echo 'ok - sums of an allreduce'

# part NAME OPTION...: of nf_chain, in the namespace NAME.
part() {
  ip netns exec "$lab-$1" "$bin/nf_chain" "${@:2}" --over pipe --json >"$work/$1.log" 2>&1 &
  parts+=($!)
  started+=($!)
}
start_chain() {
  parts=()
  part r2 firewall --at 10.99.0.2:7301 --to 10.99.0.3:7301 --deny 10.6.0.0/16
  part r3 balance --at 10.99.0.3:7301 --to 10.99.0.4:7301,10.99.0.5:7301
  part r4 decrypt --at 10.99.0.4:7301 --to 10.99.0.1:7301
  part r5 decrypt --at 10.99.0.5:7301 --to 10.99.0.1:7301
  part r1 drive --at 10.99.0.1:7301 --to 10.99.0.2:7301 --workers 2 --requests $((60000 * $1)) --size 1500 \
    --deny 10.6.0.0/16
  process=${parts[4]}
}
end_chain() {
  local each
  for each in "${parts[@]}"; do wait "$each" || fail "nf_chain: $(tail -n 1 "$work"/r?.log)"; done
  jq -e --argjson much "$1" '.answered == 45000 * $much and .dropped == 15000 * $much' "$work/r1.log" >/dev/null ||
    fail "nf_chain: $(<"$work/r1.log")"
}
under_kills 3 chain
echo 'ok - requests through a chain'

start_stream() {
  ip netns exec "$lab-r1" setpriv --reuid 65534 --regid 65534 --clear-groups \
    "$bin/pd_perf" serve --at 10.99.0.1:7302 >"$work/served.log" 2>&1 &
  served=$!
  started+=("$served")
  await 'the server listens' listens_at 10.99.0.1:7302
  kill_piped
  await 'the server has come again' listens_at 10.99.0.1:7302
  ip netns exec "$lab-r2" "$bin/pd_perf" bandwidth --at 10.99.0.1:7302 --connections 8 --size 20000 \
    --ring 2097152 --seconds $((2 * $1)) >"$work/reached.log" 2>&1 &
  process=$!
  started+=("$process")
}
listens_at() { "$bin/ferry" pipe ps 2>/dev/null | grep -q "$1"; }
end_stream() {
  wait "$process" || fail "the client: $(<"$work/reached.log")"
  wait "$served" || fail "the server: $(<"$work/served.log")"
  [[ $(jq .bytes "$work/served.log") -eq $(jq .bytes "$work/reached.log") ]] || fail 'not all has arrived'
}
under_kills 3 stream
echo 'ok - many connections, and a listener of another user'
