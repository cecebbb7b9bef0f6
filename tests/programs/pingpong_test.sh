#!/bin/bash
# Debian's ibv_{rc,uc,ud,srq,xsrq}_pingpong between two hosts of the lab.
#
#   pingpong_test.sh [GROUP...]     groups: rc odp uc ud srq xsrq (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

# pingpong KIND OPTION...: over IPv4 (GID index 0) unless an option says otherwise.
pingpong() { pair -c '^[0-9]+ iters in' -s '^[0-9]+ iters in' "ibv_$1_pingpong" -g 0 "${@:2}"; }

group_rc() {
  pingpong rc
  pingpong rc -g 1 # IPv6
  pingpong rc -e
  pingpong rc -c
  pingpong rc -N
  pingpong rc -e -N -c
  # Not -t with -e: after an event it takes an empty CQ for an error, but what comes between ibv_req_notify_cq and its
  # poll is polled and brings an event as well.
  pingpong rc -t
  pingpong rc -t -N -g 1
  for mtu in 256 512 1024 2048 4096; do pingpong rc -c -m $mtu -n 100; done
  pingpong rc -s 1 -r 1
  pingpong rc -s 1000000 -m 4096 -c -n 20
  refused "doesn't support dm allocation" ibv_rc_pingpong -g 0 -j
}

group_odp() {
  pingpong rc -o -c
  pingpong rc -o -e -N -c
  pingpong rc -O -c
  pingpong rc -o -P -c
  pingpong srq -o -c
}

group_uc() {
  pingpong uc
  pingpong uc -g 1
  pingpong uc -e -c
  for mtu in 256 512 1024 2048 4096; do pingpong uc -c -m $mtu -n 100; done
  pingpong uc -s 1 -r 1
  pingpong uc -s 100000 -c -n 20
}

group_ud() {
  pingpong ud
  pingpong ud -g 1
  pingpong ud -e -c
  pingpong ud -s 1 -r 1
  pingpong ud -s 1024 -c -g 1
}

group_srq() {
  pingpong srq -n 100
  pingpong srq -g 1 -n 100
  pingpong srq -e -c -n 100
  pingpong srq -q 1
  pingpong srq -q 64 -n 50 -c
  pingpong srq -s 1 -n 100
  for mtu in 256 1024 4096; do pingpong srq -m $mtu -n 50 -c; done
}

# The server prints nothing of a result: both check what they receive, and fail.
xsrq() { pair ibv_xsrq_pingpong -g 0 "$@"; }

group_xsrq() {
  xsrq
  xsrq -g 1
  xsrq -e -n 100
  xsrq -o
  xsrq -s 1 -m 1024 -n 100
  xsrq -s 100000 -n 20
}

use_lab ppong 2 ibv_rc_pingpong
if (($# == 0)); then set -- rc odp uc ud srq xsrq; fi
for group in "$@"; do "group_$group"; done
summary
