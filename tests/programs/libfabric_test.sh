#!/bin/bash
# Debian's libfabric (fi_info, fi_pingpong) between two hosts of the lab.
#
#   libfabric_test.sh [GROUP...]     groups: info msg dgram rxm rxd move (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

# pingpong PROVIDER TYPE [OPTION...]: contents checked (-c).
pingpong() {
  pair -p 47592 -c '^[0-9].*[0-9]$' fi_pingpong -p "$1" -e "$2" -c "${@:3}"
}

group_info() {
  alone 'protocol: FI_PROTO_RDMA_CM_IB_RC' fi_info -p verbs
  alone 'protocol: FI_PROTO_IB_UD' fi_info -p verbs
  alone 'domain: ferry0-dgram' fi_info -p verbs
}

group_msg() {
  pingpong verbs msg -I 20
  pingpong verbs msg -I 20 -S 1
  pingpong verbs msg -I 20 -S 1048576
}
group_dgram() {
  pingpong verbs dgram -I 20 -S 64
  pingpong verbs dgram -I 20 -S 1024
}
group_rxm() {
  pingpong 'verbs;ofi_rxm' rdm -I 20
  pingpong 'verbs;ofi_rxm' rdm -I 20 -m tagged
}
group_rxd() {
  pingpong 'verbs;ofi_rxd' rdm -I 20
  pingpong 'verbs;ofi_rxd' rdm -I 20 -m tagged -S 4096
}

# moved_pair NAME PROVIDER TYPE: both sides of a pair, three moves. It counts messages: slow_rdma bounds their rate.
moved_pair() {
  local command=(fi_pingpong -p "$2" -e "$3" -c -S 4096 -I 4000)
  slow_rdma 4mbit
  start h2 "$1s" "${command[@]}"
  await_listen h2 "$1s" 47592
  start h1 "$1c" "${command[@]}" "$(address_of h2 "$1s")"
  await_traffic h1 "$1c"
  move "$1c" h1 h3
  move "$1s" h2 h1
  move "$1c" h3 h2
  fast_rdma
  finishes "$1c"
  finishes "$1s"
  shows '^[0-9].*[0-9]$' "$lab" logs "$1c" || fail "$1c printed no result: $("$lab" logs "$1c")"
  ok "$2 $3, moved in mid-run"
}

group_move() {
  moved_pair msg verbs msg
  moved_pair rxm 'verbs;ofi_rxm' rdm
}

use_lab fabric 3 fi_info fi_pingpong
if (($# == 0)); then set -- info msg dgram rxm rxd move; fi
for group in "$@"; do "group_$group"; done
summary
