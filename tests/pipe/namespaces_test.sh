#!/bin/bash
# ferry-piped and real programs in network namespaces: on one bridge, on two with the same addresses, in two VLANs of a
# bridge; an isolated port; addresses that a namespace does not have; a program that is killed.
#   FERRY_BIN    the binaries
#   FERRY_LAB    begins the names of namespaces and bridges
set -euo pipefail

readonly bin=$FERRY_BIN lab=p$FERRY_LAB
[[ $EUID -eq 0 ]] || { echo 'skipped: needs root'; exit 77; }

# shellcheck source=tests/pipe/spaces.sh
. "${BASH_SOURCE[0]%/*}/spaces.sh"

# serve NAME ADDRESS: pd_perf for one client; its log is $work/NAME.log.
serve() {
  ip netns exec "$lab-$1" "$bin/pd_perf" serve --at "$2" >"$work/$1.log" 2>&1 &
  started+=($!)
  served=$!
  await "a server in $1" sh -c "ip netns exec $lab-$1 ss -Hltn | grep -q ':${2##*:} '"
}

# reach NAME ADDRESS [OPTION...]
reach() {
  timeout 20 ip netns exec "$lab-$1" "$bin/pd_perf" "${@:3}" --at "$2" >"$work/reach.log" 2>&1
}

rings() { grep -c ferry-pipe-ring "/proc/$piped/maps" || true; }
no_rings() { [[ $(rings) -eq 0 ]]; }

start_piped

bridge one
space a one 10.99.0.1
space b one 10.99.0.2

serve a 10.99.0.1:7000
reach b 10.99.0.1:7000 bandwidth --seconds 0.2 || fail 'no stream over a bridge'
wait "$served" || fail 'the server of a stream'
grep -q '"bytes": [1-9]' "$work/a.log" || fail "nothing was received: $(<"$work/a.log")"
serve a 0.0.0.0:7000
reach b 10.99.0.1:7000 latency --count 100 --size 64 || fail 'no messages to a server at any address'
wait "$served"
serve a 127.0.0.1:7000
reach a 127.0.0.1:7000 latency --count 100 || fail 'no messages within a namespace'
wait "$served"
await 'all rings are given back' no_rings
echo 'ok - two programs on a bridge'

# The same addresses on another bridge: who connects reaches its own network's.
bridge two
space c two 10.99.0.1
space d two 10.99.0.2
serve a 10.99.0.1:7001
of_a=$served
serve c 10.99.0.1:7001
of_c=$served
reach d 10.99.0.1:7001 latency --count 100 || fail 'no messages on the second bridge'
wait "$of_c" || fail 'the second bridge did not lead to its own server'
kill -0 "$of_a" || fail "the first bridge's server has served the second bridge"
reach b 10.99.0.1:7001 latency --count 100 || fail 'no messages on the first bridge'
wait "$of_a"
echo 'ok - two networks with the same addresses'

if bridge vlan vlan_filtering 1 2>/dev/null; then
  space e vlan 10.99.0.1 10
  space f vlan 10.99.0.2 10
  space g vlan 10.99.0.2 20
  serve e 10.99.0.1:7002
  reach g 10.99.0.1:7002 latency --count 100 && fail 'a program of another VLAN was let in'
  reach f 10.99.0.1:7002 latency --count 100 || fail 'no messages in a VLAN'
  wait "$served"
  # The bridge drops what comes without a tag.
  serve e 10.99.0.1:7002
  command bridge vlan delete dev "$lab-vf" vid 10
  reach f 10.99.0.1:7002 latency --count 100 && fail 'a program of no VLAN was let in'
  echo 'ok - VLANs of a bridge'
else
  echo 'ok - VLANs of a bridge # not tried: this kernel has no bridges with VLANs'
fi

# The bridge passes nothing on from one isolated port to another, which the pipe leaves to TCP.
ip link set "$lab-vb" type bridge_slave isolated on
serve a 10.99.0.1:7005
reach b 10.99.0.1:7005 latency --count 100 && fail 'the pipe led to an isolated port'
grep -q 'the pipe does not lead there' "$work/reach.log" || fail "no TCP with an isolated port: $(<"$work/reach.log")"
ip link set "$lab-vb" type bridge_slave isolated off
wait "$served" || true
echo 'ok - an isolated port'

# The kernel lets this namespace bind what it does not have; ferry-piped does not.
ip netns exec "$lab-b" sysctl -qw net.ipv4.ip_nonlocal_bind=1
status=0
timeout 20 ip netns exec "$lab-b" "$bin/pd_perf" serve --at 10.99.0.1:7003 >"$work/stolen.log" 2>&1 || status=$?
if [[ $status -ne 1 ]] || ! grep -q 'Cannot assign requested address' "$work/stolen.log"; then
  fail "an address of another namespace was bound: $(<"$work/stolen.log")"
fi
echo 'ok - an address that a namespace does not have'

serve a 10.99.0.1:7004
reach b 10.99.0.1:7004 bandwidth --seconds 60 &
client=$!
await 'the stream has begun' sh -c "[ \$(grep -c ferry-pipe-ring /proc/$piped/maps) -ge 4 ]"
kill -KILL "$served"
status=0
wait "$client" || status=$?
[[ $status == 0 || $status == 124 ]] && fail 'a client did not hear of the end of its server'
await 'all rings are given back' no_rings
echo 'ok - a program that is killed'
