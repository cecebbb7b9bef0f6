#!/bin/bash
# Debian's programs between Ferry's RNIC and the kernel's rdma_rxe, which knows nothing of Ferry: in a virtual machine
# whose interfaces are on the lab's networks.
#
#   rxe_test.sh [GROUP...]     groups: pingpong rc read atomic uc ud cm slots multicast moves (default: all)
#
# TCG makes the machine slow: few iterations. The QPs' timeout is 1 s (-u 18): no result depends on that.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly vmlab=$repository/scripts/vmlab
readonly vm_eth=10.77.254.1 vm_rdma=10.78.254.1 vm_rdma6=fd78::254:1

## `vm` as a host beside h1, h2, ...

vm() { "$vmlab" exec h1 -- "$@"; }

on() { if [[ $1 == vm ]]; then vm "${@:2}"; else "$lab" exec "$1" -- "${@:2}"; fi; }

with_ferry() {
  if [[ $1 == vm ]]; then
    vm timeout --kill-after=5 "${@:2}"
  else
    on_own "$1" timeout --foreground --kill-after=5 "$2" "$ferry" run --netdev rdma -- "${@:3}"
  fi
}

listens_by_cm() {
  if [[ $1 == vm ]]; then
    [[ $(vm rdma resource show cm_id) == *'state LISTEN'* ]]
  else
    on "$1" grep -q "@ferry-cm/l/.*${2:-}" /proc/net/unix
  fi
}

# What a host calls itself, and its GID indices for IPv4 and IPv6: rdma_rxe's first GID is of its link-local address.
eth_of() { if [[ $1 == vm ]]; then echo $vm_eth; else echo "10.77.0.${1#h}"; fi; }
rdma_of() { if [[ $1 == vm ]]; then echo $vm_rdma; else echo "10.78.${1#h}.1"; fi; }
rdma6_of() { if [[ $1 == vm ]]; then echo $vm_rdma6; else echo "fd78::${1#h}:1"; fi; }
gid_of() { if [[ $1 == vm ]]; then echo $((family == 4 ? 1 : 2)); else echo $((family == 4 ? 0 : 1)); fi; }
family=4

start_vm() {
  "$vmlab" up 1
  "$vmlab" connect lab "/run/ferry-lab/$FERRY_LAB/ns/fabric.net" rdma
  "$vmlab" connect reach "/run/ferry-lab/$FERRY_LAB/ns/fabric.net" eth
  vm sh -ec "
    ip address flush dev eth0 scope global
    ip address add $vm_rdma/16 dev eth0
    ip address add $vm_rdma6/64 dev eth0 nodad
    ip address add $vm_eth/16 dev eth1
    modprobe rdma_rxe
    modprobe rdma_ucm
    rdma link add rxe0 type rxe netdev eth0
    sysctl -qw net.core.rmem_max=16777216"
}

stop_vm() {
  local status=$?
  ((status == 0)) || show_machine h1
  "$vmlab" down || status=1
  remove_lab "$status"
}

## pairs, both ways

# both_ways [OPTION OF pair...] OPTION PROGRAM WORD...: the program takes its GID index by OPTION (-g, -x). First rxe is
# the client, then the server.
both_ways() {
  local options=() gid_option
  while [[ ${#1} == 2 && $1 != -[gx] ]]; do
    options+=("$1")
    shift
    if [[ ${options[-1]} != -[lk] ]]; then
      options+=("$1")
      shift
    fi
  done
  gid_option=$1
  shift
  for sides in 'h1 vm' 'vm h1'; do
    read -r server_host client_host <<<"$sides"
    pair -t 300 "${options[@]}" "$@" "$gid_option" "$(gid_of "$server_host")" -- \
      "$@" "$gid_option" "$(gid_of "$client_host")" "$(eth_of "$server_host")"
  done
}

pingpong() { both_ways -c '^[0-9]+ iters in' -s '^[0-9]+ iters in' -g "ibv_$1_pingpong" "${@:2}"; }

row() { echo "^ *$1 +[0-9]"; }
readonly all_sizes='^ *8388608 +[0-9]'
perftest() { both_ways -c "$1" -x "$2" -F -u 18 "${@:3}"; }

# over_ipv6 CMD...
over_ipv6() {
  family=6
  "$@"
  family=4
}

group_pingpong() {
  local mtu
  for mtu in 256 512 1024 2048 4096; do pingpong rc -m $mtu -n 100; done
  pingpong rc -e -n 100
  pingpong rc -s 100000 -n 20 -m 4096
  over_ipv6 pingpong rc -n 100
  for mtu in 256 4096; do pingpong uc -m $mtu -n 100; done
  pingpong ud -n 100
  over_ipv6 pingpong ud -n 100
  pingpong srq -n 20 -q 4
}

group_rc() {
  local kind mtu
  for kind in send write; do
    perftest "$(row 65536)" ib_${kind}_bw -n 50
    perftest "$all_sizes" ib_${kind}_bw -n 5 -a
    perftest "$(row 65536)" ib_${kind}_bw -n 20 -b -q 4
    for mtu in 256 512 1024 2048 4096; do perftest "$(row 10000)" ib_${kind}_bw -n 20 -s 10000 -m $mtu; done
    perftest "$(row 2)" ib_${kind}_lat -n 50
  done
  over_ipv6 perftest "$(row 65536)" ib_send_bw -n 20 -b
  perftest "$(row 65536)" ib_send_bw -n 50 -e
  perftest "$(row 4096)" ib_send_bw -n 50 -s 4096 --use-srq -q 4
  perftest "$(row 2)" ib_send_lat -n 50 -e
}

# perftest has as many outstanding as the other's device takes: rdma_rxe takes 128.
group_read() {
  local mtu
  perftest "$(row 65536)" ib_read_bw -n 200
  perftest "$all_sizes" ib_read_bw -n 5 -a
  perftest "$(row 65536)" ib_read_bw -n 150 -b -q 2
  for mtu in 256 1024 4096; do perftest "$(row 10000)" ib_read_bw -n 50 -s 10000 -m $mtu; done
  perftest "$(row 65536)" ib_read_bw -n 50 -o 1
  perftest "$(row 2)" ib_read_lat -n 50
}

group_atomic() {
  local kind
  for kind in FETCH_AND_ADD CMP_AND_SWAP; do
    perftest "$(row 8)" ib_atomic_bw -n 300 -A $kind
    perftest "$(row 8)" ib_atomic_lat -n 50 -A $kind
  done
  perftest "$(row 8)" ib_atomic_bw -n 200 -b -q 2
}

# UC and UD lose what finds no room: few messages.
group_uc() {
  local kind
  for kind in send write; do
    perftest "$(row 4096)" ib_${kind}_bw -c UC -n 20 -s 4096
    perftest "$(row 2)" ib_${kind}_lat -c UC -n 50
  done
  over_ipv6 perftest "$(row 4096)" ib_send_bw -c UC -n 20 -s 4096
}

group_ud() {
  perftest "$(row 1024)" ib_send_bw -c UD -n 20 -s 1024
  perftest "$(row 2)" ib_send_lat -c UD -n 50
  over_ipv6 perftest "$(row 1024)" ib_send_bw -c UD -n 20 -s 1024
}

## rdma_cm

# by_cm SERVER... -- CLIENT...: the client is given the server's RDMA address in place of the word ADDRESS. Both ways.
by_cm() {
  local server=() client=() address
  while [[ $1 != -- ]]; do
    server+=("$1")
    shift
  done
  shift
  for sides in 'h1 vm' 'vm h1'; do
    read -r server_host client_host <<<"$sides"
    if ((family == 4)); then address=$(rdma_of "$server_host"); else address=$(rdma6_of "$server_host"); fi
    client=("${@/#ADDRESS/$address}")
    cm_pair "${server[@]/#ADDRESS/$address}" -- "${client[@]}"
  done
}

# cm_pair SERVER... -- CLIENT...: both end well; rping as it does (ended_well).
cm_pair() {
  local words=() server server_code=0 client_code=0
  while [[ $1 != -- ]]; do
    words+=("$1")
    shift
  done
  shift
  runs=$((runs + 1))
  : >"$work/client"
  with_ferry "$server_host" 180 "${words[@]}" >"$work/server" 2>&1 &
  server=$!
  await "$1: the server listens" ended_or "$server" listens_by_cm "$server_host"
  with_ferry "$client_host" 180 "$@" >"$work/client" 2>&1 || client_code=$?
  wait "$server" || server_code=$?
  if ! ended_well "$client_code" "$(<"$work/client")" || ! ended_well "$server_code" "$(<"$work/server")"; then
    not_ok "$* on $client_host (exit status of client $client_code, server $server_code)"
  else
    ok "$* on $client_host"
  fi
}

group_cm() {
  by_cm rping -s -C 20 -V -- rping -c -a ADDRESS -C 20 -V
  by_cm rping -s -C 20 -S 65000 -V -- rping -c -a ADDRESS -C 20 -S 65000 -V
  family=6
  by_cm rping -s -a ADDRESS -C 10 -V -- rping -c -a ADDRESS -C 10 -V
  family=4
  by_cm ucmatose -c 4 -C 10 -S 4000 -- ucmatose -s ADDRESS -c 4 -C 10 -S 4000
  by_cm udaddy -c 2 -C 10 -- udaddy -s ADDRESS -c 2 -C 10
  by_cm rstream -I 20 -- rstream -s ADDRESS -I 20
}

# perftest opens a second context for -R: its QPs are not of the RNIC that has UDP port 4791, and rdma_rxe sends there.
group_slots() {
  local test words
  for test in 'ib_send_bw -n 50' 'ib_write_bw -n 50 -b' 'ib_read_bw -n 50 -q 2' 'ib_send_lat -n 50' \
    'ib_send_lat -n 50 -c UD'; do
    read -ra words <<<"$test"
    by_cm stdbuf -oL "${words[0]}" -R -F "${words[@]:1}" -- "${words[0]}" -R -F "${words[@]:1}" ADDRESS
  done
}

## moves

# mover HOST NAME CMD...: in a container whose RDMA address moves along.
mover() { "$lab" run "$1" "$2" -d --move-rdma -- env FERRY_FAMILY=4 nice "$ferry" run --netdev rdma0 -- "${@:3}"; }
rdma_address_of() { on "$1" jq -r .rdma0.address "/run/ferry/containers/$2/config.json"; }

# beside NAME CMD...: a program of the machine, in the background; `beside_ends NAME` waits for it.
declare -A jobs
beside() {
  vm timeout --kill-after=5 300 "${@:2}" >"$work/$1" 2>&1 &
  jobs[$1]=$!
}
beside_ends() {
  local status=0
  wait "${jobs[$1]}" || status=$?
  ended_well "$status" "$(<"$work/$1")" || fail "$1 in the machine ended with $status: $(tail -n 5 "$work/$1")"
}
vm_listens() { await "the machine's $1 listens on port $2" ended_or "${jobs[$1]}" listens vm "$2"; }

move_there_and_back() {
  move "$1" h1 h2
  await_traffic h2 "$1"
  move "$1" h2 h1
  await_traffic h1 "$1"
}

# stream_check sends both ways and checks every message, on both sides.
moved_stream() { # OPERATION
  beside server /root/stream_check --timeout 18 --gid-index 1
  vm_listens server 18600
  mover h1 "$1" "$FERRY_BIN/stream_check" $vm_eth --timeout 18 --seconds 0 --qps 2 --ops "$1" --json
  await_traffic h1 "$1"
  move_there_and_back "$1"
  hit INT "$1"
  finishes "$1"
  beside_ends server
  lost_nothing "$1"
  ok "stream_check --ops $1 towards rdma_rxe: nothing is lost, doubled or corrupted in two moves"
}

# datagram_check sends both ways by UC or UD, and checks what comes; it tells what was lost, which is no failure.
moved_datagrams() { # TRANSPORT
  local before=''
  beside server /root/datagram_check --json
  vm_listens server 18700
  mover h1 "$1" "$FERRY_BIN/datagram_check" $vm_eth --transport "$1" --rate 100 --seconds 600 --json
  await_traffic h1 "$1"
  move_there_and_back "$1"
  await 'rdma_rxe receives' vm_receives_more
  hit INT "$1"
  finishes "$1"
  beside_ends server
  doubled_nothing "$("$lab" logs "$1")"
  doubled_nothing "$(<"$work/server")"
  ok "datagram_check --transport $1 towards rdma_rxe: nothing is doubled or corrupted in two moves"
}
# More than the first time; that is in `before`, the caller's. Nobody acknowledges UC and UD.
vm_receives_more() {
  local now
  now=$(vm cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts)
  : "${before:=$now}"
  ((now > before + 20))
}
doubled_nothing() {
  jq -e '.error == "" and .received > 0 and .duplicated + .unsent + .corrupted == 0' <<<"$1" >/dev/null ||
    fail "datagram_check: $1"
}

# ends_with_it NAME: perftest's program in a container has ended. Both sides are told that their time is over (expire).
ends_with_it() {
  vm pkill -ALRM -x 'ib_.*' || true
  alarm "$1"
  "$lab" wait "$1" --timeout 1 >"$work/$1" 2>&1
}

# rdma_rxe sends (SEND, WRITE), or asks (READ), to who moves.
moved_server() { # NAME PROGRAM OPTION...
  local name=$1
  shift
  mover h1 "$name" "$1" -F -u 18 -D 600 "${@:2}"
  await_listen h1 "$name"
  beside client "$1" -F -u 18 -D 600 "${@:2}" -x 1 "$(address_of h1 "$name")"
  await_traffic h1 "$name"
  move_there_and_back "$name"
  await "$name ends" ends_with_it "$name"
  beside_ends client
  grep -Eq '^ *[0-9]+ +[0-9]+ +' "$work/client" || fail "$1 in the machine printed no result"
  ok "$*: a server that moved twice while rdma_rxe sends"
}

group_moves() {
  local operation
  "$vmlab" copy "$FERRY_BIN"/{stream_check,datagram_check} h1:/root
  for operation in send write read; do moved_stream $operation; done
  moved_datagrams uc
  moved_datagrams ud
  moved_server sbw ib_send_bw
  moved_server wbw ib_write_bw -b
  moved_server rbw ib_read_bw
  moved_server ucw ib_write_bw -c UC
  slow_rdma 4mbit
  mover h1 cms rping -s -C 4000 -S 4096
  await 'cms listens' unless_ended h1 cms listens_by_cm cms
  beside client rping -c -a "$(rdma_address_of h1 cms)" -C 4000 -S 4096
  await_traffic h1 cms
  move cms h1 h2
  await_traffic h2 cms
  fast_rdma
  finishes cms
  beside_ends client
  ok 'rping: a server that moved, a client of the machine'
}

group_multicast() {
  multicast_pair h1 "$(rdma_of h1)" vm "$(rdma_of vm)"
  multicast_pair vm "$(rdma_of vm)" h1 "$(rdma_of h1)"
}

export FERRY_VMLAB=${FERRY_LAB:-rxe}
use_lab rxe 2 qemu-system-x86_64 mmdebstrap
trap stop_vm EXIT
start_vm
if (($# == 0)); then set -- pingpong rc read atomic uc ud cm slots multicast moves; fi
for group in "$@"; do "group_$group"; done
summary
