#!/bin/bash
# Debian's UCX (ucx_info, ucx_perftest) between two hosts of the lab, over RC and over UD.
#
#   ucx_test.sh [GROUP...]     groups: info rc ud uct move (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

# ucp TLS TEST [OPTION...]: nothing but these transports may carry it.
ucp() {
  pair -p 13337 -c 'Final: +[0-9]' env UCX_TLS="$1" UCX_NET_DEVICES=ferry0:1 UCX_WARN_UNUSED_ENV_VARS=n \
    ucx_perftest -t "$2" "${@:3}" -- \
    env UCX_TLS="$1" UCX_NET_DEVICES=ferry0:1 UCX_WARN_UNUSED_ENV_VARS=n ucx_perftest h1 -t "$2" "${@:3}"
}

# Every kind of UCP operation, from a size that goes inline to one that goes by rendezvous.
operations() {
  local tls=$1 size
  for size in 8 4096 300000; do
    ucp "$tls" tag_lat -s $size -n 100 -w 10
    ucp "$tls" tag_bw -s $size -n 200 -w 10
    ucp "$tls" ucp_am_lat -s $size -n 100 -w 10
    ucp "$tls" ucp_am_bw -s $size -n 100 -w 10
    ucp "$tls" ucp_put_bw -s $size -n 200 -w 10
    ucp "$tls" ucp_get -s $size -n 100 -w 10
  done
  ucp "$tls" tag_sync_lat -s 64 -n 100 -w 10
  ucp "$tls" ucp_put_lat -s 64 -n 100 -w 10
  ucp "$tls" stream_lat -s 64 -n 100 -w 10
  ucp "$tls" stream_bw -s 20000 -n 100 -w 10
  ucp "$tls" ucp_fadd -s 8 -n 100 -w 10
  ucp "$tls" ucp_add -s 8 -n 100 -w 10
  ucp "$tls" ucp_swap -s 8 -n 100 -w 10
  ucp "$tls" ucp_cswap -s 8 -n 100 -w 10
}

group_info() {
  alone '# +Transport: rc_verbs' ucx_info -d
  alone '# +Transport: ud_verbs' ucx_info -d
  alone '# +register: unlimited' ucx_info -d
}

group_rc() { operations rc_verbs,ud_verbs; }
group_ud() { operations ud_verbs; }

# uct TRANSPORT TEST [OPTION...]: below UCP.
uct() {
  pair -p 13337 -c 'Final: +[0-9]' ucx_perftest -d ferry0:1 -x "$1" -t "$2" "${@:3}" -- \
    ucx_perftest h1 -d ferry0:1 -x "$1" -t "$2" "${@:3}"
}

group_uct() {
  local layout test
  for layout in short bcopy zcopy; do
    uct rc_verbs am_lat -D $layout -s 32 -n 100 -w 10
    uct rc_verbs put_bw -D $layout -s 32 -n 200 -w 10
    uct ud_verbs am_bw -D $layout -s 32 -n 200 -w 10
  done
  uct rc_verbs get -D zcopy -s 4096 -n 100 -w 10
  uct rc_verbs get -D bcopy -s 4096 -n 100 -w 10
  uct rc_verbs am_bw -D zcopy -s 4000 -n 200 -w 10 -A thread_mutex
  for test in fadd cswap add_mr; do uct rc_verbs $test -s 8 -n 100 -w 10; done
}

# Both sides of a pair that talks over RC and UD, three moves. It counts messages: slow_rdma bounds their rate.
group_move() {
  local command=(env "UCX_TLS=rc_verbs,ud_verbs" UCX_NET_DEVICES=ferry0:1 ucx_perftest -t tag_lat -s 4096 -n 4000 -w 10)
  slow_rdma 4mbit
  start h1 server "${command[@]}"
  await_listen h1 server 13337
  start h2 client "${command[@]}" "$(address_of h1 server)"
  await_traffic h2 client
  move client h2 h3
  move server h1 h2
  move client h3 h1
  fast_rdma
  finishes client
  finishes server
  ok 'a pair over UCX, moved in mid-run'
}

use_lab ucx 3 ucx_info ucx_perftest
if (($# == 0)); then set -- info rc ud uct move; fi
for group in "$@"; do "group_$group"; done
summary
