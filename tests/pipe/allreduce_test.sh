#!/bin/bash
# examples/ring_allreduce between three network namespaces on a bridge, by each of its carriers: sums are exact, also
# where there are fewer numbers than ranks; ranks that were started for other work, or that are killed, end all others.
#   FERRY_BIN    the binaries
#   FERRY_LAB    begins the names of namespaces and bridges
set -euo pipefail

readonly bin=$FERRY_BIN lab=a$FERRY_LAB
[[ $EUID -eq 0 ]] || { echo 'skipped: needs root'; exit 77; }

# shellcheck source=tests/pipe/spaces.sh
. "${BASH_SOURCE[0]%/*}/spaces.sh"

port=7100
# start CARRIER: chooses where the ranks listen.
start() {
  over=$1
  if [[ $over == unix ]]; then
    ring=$work/s0,$work/s1,$work/s2
  else
    port=$((port + 1))
    ring=10.99.0.1:$port,10.99.0.2:$port,10.99.0.3:$port
  fi
  ranks=()
}

# rank I [OPTION...]: its log is $work/rankI.log.
rank() {
  ip netns exec "$lab-r$1" timeout 60 "$bin/ring_allreduce" --over "$over" --ring "$ring" --rank "$1" "${@:2}" \
    >"$work/rank$1.log" 2>&1 &
  ranks[$1]=$!
  started+=($!)
}

# add_up OPTION...: all three ranks, which must succeed. The last one is started first.
add_up() {
  local each
  start "$over"
  for each in 2 0 1; do rank "$each" "$@"; done
  for each in 0 1 2; do wait "${ranks[each]}" || fail "rank $each over $over with $*: $(<"$work/rank$each.log")"; done
}

# Whether rank 0 has had 0.1 s of processor time, which it needs for what comes after the start.
is_busy() {
  local process
  process=$(pgrep -P "${ranks[0]}") && awk '{ exit !($14 + $15 >= 10) }' "/proc/$process/stat"
}

start_piped
bridge one
for each in 0 1 2; do
  space r$each one 10.99.0.$((each + 1))
  ip -n "$lab-r$each" link set eth0 mtu 1491  # packets end within numbers
done

carriers=(tcp unix pipe)
start uring
rank 0 --size 1000
for each in 1 2; do rank "$each" --size 1000; done
if wait "${ranks[0]}"; then
  carriers+=(uring)
else
  grep -q 'this kernel refuses io_uring' "$work/rank0.log" || fail "io_uring: $(<"$work/rank0.log")"
  echo 'ok - io_uring # not tried: this kernel refuses it'
fi
for each in 1 2; do wait "${ranks[each]}" || [[ ${#carriers[@]} -eq 3 ]] || fail "rank $each over io_uring"; done

for over in "${carriers[@]}"; do
  add_up --size 20000004 --repeat 2 --json
  for each in 0 1 2; do
    jq -e '.exact and .bytes == 40000008 and .ranks == 3 and .seconds > 0 and .processor_seconds > 0' \
      "$work/rank$each.log" >/dev/null || fail "rank $each over $over has said: $(<"$work/rank$each.log")"
  done
  add_up --size 3000052 --message 65536  # the last piece is short, and its parts end anywhere
  add_up --size 100000 --message 68
  add_up --size 8 --message 64  # two numbers for three ranks
  grep -q 'all sums are exact' "$work/rank0.log" || fail "rank 0 over $over has said: $(<"$work/rank0.log")"
  echo "ok - sums over $over"

  start "$over"
  rank 0 --size 1000
  rank 1 --size 2000
  rank 2 --size 1000
  wait "${ranks[1]}" && fail "a rank with other numbers was let in, over $over"
  grep -q 'was started with another' "$work/rank1.log" || fail "rank 1 over $over has said: $(<"$work/rank1.log")"
  wait "${ranks[0]}" && fail "a rank has succeeded without others, over $over"
  wait "${ranks[2]}" && fail "a rank has succeeded with another's numbers, over $over"
  echo "ok - ranks for other work, over $over"

  start "$over"
  for each in 0 1 2; do rank "$each" --repeat 100000 --size 1000000; done
  await 'the ranks have met' is_busy
  pkill -KILL -P "${ranks[1]}" || fail 'rank 1 has ended by itself'
  for each in 0 1 2; do wait "${ranks[each]}" && fail "rank $each over $over has succeeded without rank 1"; done
  grep -qE '(next|previous) rank' "$work/rank0.log" "$work/rank2.log" || fail "nobody names its neighbour, over $over"
  echo "ok - a rank that is killed, over $over"
done

start tcp
ring=$work/s0,$work/s1,$work/s2
rank 0
wait "${ranks[0]}" && fail 'TCP by the path of a Unix socket'
grep -q 'paths in --ring are for --over unix' "$work/rank0.log" || fail "rank 0 has said: $(<"$work/rank0.log")"
echo 'ok - addresses that are not of the carrier'
