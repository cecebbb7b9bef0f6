#!/bin/bash
# examples/nf_chain: each function and the driver in a network namespace of its own, on a bridge. Requests come out
# decrypted, each once, without those that the firewall denies, from both workers; a chain that does otherwise fails.
#   FERRY_BIN    the binaries
#   FERRY_LAB    begins the names of namespaces and bridges
set -euo pipefail

readonly bin=$FERRY_BIN lab=n$FERRY_LAB
[[ $EUID -eq 0 ]] || { echo 'skipped: needs root'; exit 77; }

# shellcheck source=tests/pipe/spaces.sh
. "${BASH_SOURCE[0]%/*}/spaces.sh"

# run NAME COMMAND OPTION...: nf_chain in a namespace; its log is $work/NAME.log.
run() {
  ip netns exec "$lab-$1" timeout 60 "$bin/nf_chain" "${@:2}" --over "$over" --json >"$work/$1.log" 2>&1 &
  process[$1]=$!
  started+=($!)
}

port=7200
# at PLACE: where a function listens.
at() {
  local -A host=([driver]=1 [firewall]=2 [balancer]=3 [worker0]=4 [worker1]=5)
  if [[ $over == unix ]]; then echo "$work/at-$1"; else echo "10.99.0.${host[$1]}:$port"; fi
}

# start OPTION...: all functions; the options are the firewall's.
start() {
  process=()
  port=$((port + 1))
  run firewall firewall --at "$(at firewall)" --to "$(at balancer)" "$@"
  run balancer balance --at "$(at balancer)" --to "$(at worker0),$(at worker1)"
  run worker0 decrypt --at "$(at worker0)" --to "$(at driver)"
  run worker1 decrypt --at "$(at worker1)" --to "$(at driver)" "${key_of_worker1[@]}"
}

drive() { run driver drive --at "$(at driver)" --to "$(at firewall)" --workers 2 "$@"; }

# succeed: all programs.
succeed() {
  local each
  for each in driver firewall balancer worker0 worker1; do
    wait "${process[$each]}" || fail "$each over $over: $(<"$work/$each.log")"
  done
}

# refuse WHAT: the driver must say so, and all others end.
refuse() {
  local each
  wait "${process[driver]}" && fail "the driver over $over has not noticed: $1"
  grep -q "$1" "$work/driver.log" || fail "the driver over $over has said: $(<"$work/driver.log")"
  for each in firewall balancer worker0 worker1; do wait "${process[$each]}" || true; done
}

# has FILTER: what the driver has printed.
has() { jq -e "$1" "$work/driver.log" >/dev/null || fail "the driver over $over has printed: $(<"$work/driver.log")"; }

# Whether a program has its second thread, which it begins when it has all its connections. The library of the pipe has
# one as well.
is_connected() {
  local threads=2
  if [[ $over == pipe ]]; then threads=3; fi
  grep -qs "^Threads:.$threads\$" "/proc/$(pgrep -P "${process[$1]}")/status"
}

declare -A process
key_of_worker1=()
start_piped
bridge one
number=1
for each in driver firewall balancer worker0 worker1; do
  space "$each" one 10.99.0.$number
  number=$((number + 1))
done

for over in tcp unix pipe; do
  start --deny 10.6.0.0/16 --deny 192.0.2.1/32
  drive --requests 10000 --size 1500 --deny 10.6.0.0/16
  succeed
  has '.answered == 7500 and .dropped == 2500 and .seconds > 0 and .processor_seconds > 0'
  has '(.of_worker | length) == 2 and (.of_worker | add) == 7500 and (.of_worker | min) > 1000'
  has '[.functions[] | .function] == ["firewall", "balancer", "decryption", "decryption"]'
  has '[.functions[] | .passed] | .[0] == 7500 and .[1] == 7500 and .[2] + .[3] == 7500'
  jq -e '.requests == 10000 and .passed == 7500' "$work/firewall.log" >/dev/null || fail 'the firewall counts otherwise'

  start --deny 10.6.0.0/25:22
  drive --requests 1001 --size 1 --deny 10.6.0.0/25:22
  succeed
  has '.answered == 750 and .dropped == 251'
  start
  drive --requests 300 --size 32768
  succeed
  has '.answered == 300 and .dropped == 0'
  echo "ok - a chain over $over"

  start --deny 10.7.0.0/16  # the network beside
  drive --requests 100 --deny 10.6.0.0/16
  refuse 'request [0-9]* is denied, and has passed the firewall'
  start --deny 10.6.0.0/15
  drive --requests 100 --deny 10.6.0.0/16
  refuse 'request [0-9]* was not answered'
  key_of_worker1=(--key "$(printf '%064d' 7)")
  start
  drive --requests 1000
  refuse 'was not answered'
  key_of_worker1=()
  echo "ok - rules and keys that do not fit, over $over"

  start
  await 'the balancer is connected' is_connected balancer
  pkill -STOP -P "${process[balancer]}"
  drive --requests 2000 --size 32768  # more than all buffers before the balancer take
  await 'requests are on their way' is_connected driver
  pkill -KILL -P "${process[balancer]}" || fail 'the balancer has ended by itself'
  refuse '.'
  grep -q 'its own words say why\|reset\|Broken pipe' "$work/driver.log" || fail "said: $(<"$work/driver.log")"
  echo "ok - a function that is killed, over $over"
done
