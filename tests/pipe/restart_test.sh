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

# moved: how many bytes ferry-piped has moved, in all.
moved() { "$bin/ferry" pipe ps --json | jq '[.connections[] | .sent_bytes + .received_bytes] | add // 0'; }
has_moved_on() { [[ $(moved) -gt $1 ]]; }

# kill_under TIMES PROCESS: while the process runs. Between two times bytes move, or it has ended.
kill_under() {
  local turn before
  for ((turn = 0; turn < $1; turn++)); do
    before=$(moved)
    kill -0 "$2" 2>/dev/null || break
    await 'bytes move' has_moved_on_or_ended "$before" "$2"
    # Every third time as at an update.
    if ((turn % 3 == 2)); then kill_piped TERM; else kill_piped; fi
  done
  ((turn > 0)) || fail 'it was over before ferry-piped was killed'
}
has_moved_on_or_ended() { ! kill -0 "$2" 2>/dev/null || has_moved_on "$1"; }

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

ranks=()
for each in 0 1 2; do
  # The kernel's own copy of the mount table, as a container has: the path elsewhere.
  # shellcheck disable=SC2016
  ip netns exec "$lab-r$((each + 1))" timeout 100 sh -c 'mount --bind "$FERRY_PIPE_SOCKET" "$1/mounted.sock" &&
    FERRY_PIPE_SOCKET=$1/mounted.sock exec "$2" --over pipe --ring 10.99.0.1:7300,10.99.0.2:7300,10.99.0.3:7300 \
      --rank "$3" --size 4000000 --message 65536 --repeat 60' sh "$work" "$bin/ring_allreduce" "$each" \
    >"$work/rank$each.log" 2>&1 &
  ranks+=($!)
  started+=($!)
done
kill_under 5 "${ranks[0]}"
for each in 0 1 2; do wait "${ranks[each]}" || fail "rank $each: $(<"$work/rank$each.log")"; done
echo 'ok - sums of an allreduce'

parts=()
# part NAME OPTION...: of nf_chain, in the namespace NAME.
part() {
  ip netns exec "$lab-$1" timeout 100 "$bin/nf_chain" "${@:2}" --over pipe --json >"$work/$1.log" 2>&1 &
  parts+=($!)
  started+=($!)
}
part r2 firewall --at 10.99.0.2:7301 --to 10.99.0.3:7301 --deny 10.6.0.0/16
part r3 balance --at 10.99.0.3:7301 --to 10.99.0.4:7301,10.99.0.5:7301
part r4 decrypt --at 10.99.0.4:7301 --to 10.99.0.1:7301
part r5 decrypt --at 10.99.0.5:7301 --to 10.99.0.1:7301
part r1 drive --at 10.99.0.1:7301 --to 10.99.0.2:7301 --workers 2 --requests 60000 --size 1500 --deny 10.6.0.0/16
kill_under 3 "${parts[4]}"
for each in "${parts[@]}"; do wait "$each" || fail "nf_chain: $(tail -n 1 "$work"/r?.log)"; done
jq -e '.answered == 45000 and .dropped == 15000' "$work/r1.log" >/dev/null || fail "nf_chain: $(<"$work/r1.log")"
echo 'ok - requests through a chain'

ip netns exec "$lab-r1" setpriv --reuid 65534 --regid 65534 --clear-groups \
  "$bin/pd_perf" serve --at 10.99.0.1:7302 >"$work/served.log" 2>&1 &
served=$!
started+=("$served")
kill_piped
await 'the server has come again' sh -c "'$bin/ferry' pipe ps | grep -q 10.99.0.1:7302"
ip netns exec "$lab-r2" timeout 100 "$bin/pd_perf" bandwidth --at 10.99.0.1:7302 --connections 8 --size 20000 \
  --ring 2097152 --seconds 2 >"$work/reached.log" 2>&1 &
client=$!
started+=("$client")
kill_under 3 "$client"
wait "$client" || fail "the client: $(<"$work/reached.log")"
wait "$served" || fail "the server: $(<"$work/served.log")"
[[ $(jq .bytes "$work/served.log") -eq $(jq .bytes "$work/reached.log") ]] || fail 'not all has arrived'
echo 'ok - many connections, and a listener of another user'
