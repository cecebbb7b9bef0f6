#!/bin/bash
# All of Debian's perftest between two hosts of the lab, with few iterations: does it work, not how fast is it.
#
#   perftest_test.sh [GROUP...]     groups: rc_send srq rc_write rc_read atomic uc ud xrc cm refused (default: all)
#
# perftest looks at completions and, of what arrives, at WRITE's last byte; contents are checked by the pingpongs,
# qperf's verifying tests and the checking programs of examples/.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

readonly all_sizes='^ *8388608 +[0-9]'

# perftest PATTERN PROGRAM OPTION...: the client prints a row of results like PATTERN. Before each row perftest measures
# the CPU's clock for 0.2 s, which makes -a slow. The QPs' timeout of 1 s (-u 18) instead of 67 ms: no result depends on
# how busy the machine is.
perftest() { pair -t 300 -c "$1" "$2" -F -u 18 "${@:3}"; }

# row SIZE: how the row of results of a message size begins.
row() { echo "^ *$1 +[0-9]"; }

# What bandwidth tests of all operations have. bandwidth PROGRAM OPTION...
bandwidth() {
  local mtu
  perftest "$(row 65536)" "$@" -n 500
  perftest "$all_sizes" "$@" -n 5 -a
  perftest "$all_sizes" "$@" -n 5 -a -b -q 4
  perftest "$(row 4096)" "$@" -n 100 -s 4096 -q 64
  perftest "$(row 4096)" "$@" -n 100 -s 4096 -q 64 -b
  perftest "$(row 65536)" "$@" -n 300 -b --report-both
  perftest "$(row 65536)" "$@" -n 300 -x 1 # IPv6
  for mtu in 256 512 1024 2048 4096; do perftest "$(row 10000)" "$@" -n 50 -s 10000 -m $mtu; done
  perftest "$(row 512)" "$@" -n 320 -s 512 -l 16
  perftest "$(row 65536)" "$@" -n 200 -Q 1 -t 1
  perftest "$(row 65536)" "$@" -n 300 --use_old_post_send --mr_per_qp -q 2
  perftest "$(row 65536)" "$@" -n 300 --reversed --report_gbits
}

latency() {
  perftest "$(row 2)" "$@" -n 200
  perftest "$all_sizes" "$@" -n 5 -s 8388608
  perftest "$(row 2)" "$@" -n 100 -x 1
  perftest "$(row 10000)" "$@" -n 50 -s 10000 -m 256
  perftest "$(row 2)" "$@" -n 100 --use_old_post_send -U
}

group_rc_send() {
  bandwidth ib_send_bw
  latency ib_send_lat
  perftest "$(row 65536)" ib_send_bw -n 500 -e
  perftest "$(row 65536)" ib_send_bw -n 500 -e -q 8 -b
  perftest "$(row 64)" ib_send_bw -n 500 -s 64 -I 64
  perftest "$(row 65536)" ib_send_bw -n 300 -r 1
  perftest "$(row 4096)" ib_send_bw -n 320 -s 4096 --recv_post_list=8
  perftest "$(row 2)" ib_send_lat -n 200 -e
  perftest "$(row 32)" ib_send_lat -n 200 -s 32 -I 64
}

group_srq() {
  perftest "$(row 65536)" ib_send_bw -n 500 --use-srq
  perftest "$(row 65536)" ib_send_bw -n 300 --use-srq -e -b
  perftest "$all_sizes" ib_send_bw -n 5 -a --use-srq -q 4
  perftest "$(row 4096)" ib_send_bw -n 100 -s 4096 --use-srq -q 64
  # With events perftest takes 16 completions after each: more QPs than that could leave some waiting without an event.
  perftest "$(row 4096)" ib_send_bw -n 100 -s 4096 --use-srq -q 16 -e
  perftest "$(row 4096)" ib_send_bw -n 100 -s 4096 --use-srq -q 64 -x 1 -r 4096
  perftest "$(row 2)" ib_send_lat -n 200 --use-srq
  perftest "$(row 2)" ib_send_lat -n 200 --use-srq -e
}

group_rc_write() {
  bandwidth ib_write_bw
  latency ib_write_lat
  perftest "$(row 64)" ib_write_bw -n 500 -s 64 -I 64
  perftest "$(row 32)" ib_write_lat -n 200 -s 32 -I 64
}

group_rc_read() {
  local outstanding
  bandwidth ib_read_bw
  latency ib_read_lat
  perftest "$(row 65536)" ib_read_bw -n 500 -e
  perftest "$(row 65536)" ib_read_bw -n 500 -e -q 8 -b
  for outstanding in 1 2 16; do perftest "$(row 65536)" ib_read_bw -n 300 -o $outstanding; done
  perftest "$(row 2)" ib_read_lat -n 200 -e -o 1
}

# atomics CONNECTION
atomics() {
  local type
  for type in FETCH_AND_ADD CMP_AND_SWAP; do
    perftest "$(row 8)" ib_atomic_bw -c "$1" -n 500 -A $type
    perftest "$(row 8)" ib_atomic_bw -c "$1" -n 300 -A $type -b --report-both
    perftest "$(row 8)" ib_atomic_bw -c "$1" -n 50 -A $type -q 64
    perftest "$(row 8)" ib_atomic_lat -c "$1" -n 200 -A $type
  done
  perftest "$(row 8)" ib_atomic_bw -c "$1" -n 300 -o 1 -x 1
  perftest "$(row 8)" ib_atomic_bw -c "$1" -n 300 -e
  perftest "$(row 8)" ib_atomic_lat -c "$1" -n 300 -e -o 1
}

group_atomic() { atomics RC; }

# Nothing holds a UC sender back, so a receiver that lost its CPU loses what does not fit its socket's buffer (16 MiB),
# and perftest's receivers wait for every message: SEND tests send less than that in all.
group_uc() {
  local kind mtu
  for kind in send write; do
    perftest "$(row 65536)" ib_${kind}_bw -c UC -n 100
    perftest "$(row 4096)" ib_${kind}_bw -c UC -n 20 -s 4096 -q 64
    perftest "$(row 65536)" ib_${kind}_bw -c UC -n 100 -x 1
    for mtu in 256 1024 4096; do perftest "$(row 10000)" ib_${kind}_bw -c UC -n 50 -s 10000 -m $mtu; done
    perftest "$(row 64)" ib_${kind}_bw -c UC -n 300 -s 64 -I 64
    perftest "$(row 2)" ib_${kind}_lat -c UC -n 200
    perftest "$all_sizes" ib_${kind}_lat -c UC -n 5 -s 8388608
  done
  perftest "$(row 1048576)" ib_send_bw -c UC -n 5 -s 1048576 -b
  perftest "$all_sizes" ib_write_bw -c UC -n 5 -a -b
  perftest "$(row 65536)" ib_send_bw -c UC -n 100 -e
  perftest "$(row 2)" ib_send_lat -c UC -n 200 -e
  perftest "$(row 65536)" ib_send_bw -c UC -n 100 --use-srq
}

# No more messages than the receive queue holds: perftest waits for each, and UD may lose what finds no receive.
group_ud() {
  local mtu
  perftest "$(row 2048)" ib_send_bw -c UD -n 500 -s 2048
  perftest "$(row 4096)" ib_send_bw -c UD -n 100 -a
  perftest "$(row 4096)" ib_send_bw -c UD -n 100 -a -b
  perftest "$(row 2048)" ib_send_bw -c UD -n 50 -s 2048 -q 64
  perftest "$(row 2048)" ib_send_bw -c UD -n 300 -s 2048 -x 1
  for mtu in 256 1024 4096; do perftest "$(row 256)" ib_send_bw -c UD -n 300 -s 256 -m $mtu; done
  perftest "$(row 64)" ib_send_bw -c UD -n 300 -s 64 -I 64
  perftest "$(row 2048)" ib_send_bw -c UD -n 500 -s 2048 -e
  perftest "$(row 2048)" ib_send_bw -c UD -n 300 -s 2048 --use-srq
  perftest "$(row 2)" ib_send_lat -c UD -n 200
  perftest "$(row 4096)" ib_send_lat -c UD -n 50 -a
  perftest "$(row 2)" ib_send_lat -c UD -n 200 -e
  perftest "$(row 32)" ib_send_lat -c UD -n 200 -s 32 -I 64
  # Multicast, IPv4 and IPv6. perftest's own group is of a scope that does not leave an interface.
  local group4=0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3 group6=255:14:0:0:0:0:0:0:0:0:0:0:0:0:1:7
  perftest "$(row 2048)" ib_send_bw -c UD -g -M $group4 -n 300 -s 2048
  perftest "$(row 2048)" ib_send_bw -c UD -g -M $group6 -x 1 -n 300 -s 2048
  perftest "$(row 2)" ib_send_lat -c UD -g -M $group4 -n 200
}

group_xrc() {
  local kind
  for kind in send write read; do
    perftest "$(row 65536)" ib_${kind}_bw -c XRC -n 500
    perftest "$all_sizes" ib_${kind}_bw -c XRC -n 5 -a
    perftest "$(row 4096)" ib_${kind}_bw -c XRC -n 100 -s 4096 -q 64
    perftest "$(row 65536)" ib_${kind}_bw -c XRC -n 300 -x 1 -b
    perftest "$(row 2)" ib_${kind}_lat -c XRC -n 200
  done
  perftest "$all_sizes" ib_send_lat -c XRC -n 5 -s 8388608
  perftest "$(row 65536)" ib_send_bw -c XRC -n 500 -e
  perftest "$(row 2)" ib_send_lat -c XRC -n 200 -e
  atomics XRC
}

# Connections by rdma_cm: -R makes the QPs too, -z only exchanges what is needed for them.
connect() { # PATTERN PROGRAM OPTION...
  pair -t 300 -l -c "$1" stdbuf -oL "$2" -F "${@:3}" -- "$2" -F "${@:3}" "$(rdma_of h1)"
}

group_cm() {
  local kind
  for kind in send write read; do
    connect "$(row 65536)" ib_${kind}_bw -R -n 500
    connect "$(row 4096)" ib_${kind}_bw -R -n 50 -s 4096 -q 16
    connect "$(row 2)" ib_${kind}_lat -R -n 200
    connect "$(row 65536)" ib_${kind}_bw -z -n 300
  done
  connect "$all_sizes" ib_send_bw -R -n 5 -a -b
  connect "$(row 8)" ib_atomic_bw -R -n 300
  connect "$(row 8)" ib_atomic_lat -R -n 300
  connect "$(row 65536)" ib_send_bw -R -n 300 -e --use-srq
  connect "$(row 65536)" ib_send_bw -R -n 300 -T 16
  connect "$(row 2048)" ib_send_bw -R -c UD -n 300 -s 2048
  connect "$(row 2)" ib_send_lat -R -c UD -n 300
}

# What a device without it has to refuse, so that the program says so and ends.
group_refused() {
  pair -f "Couldn't create|not supported" ib_send_bw -F -c DC
  refused 'Unable to create QP' raw_ethernet_bw --server -d ferry0 -B 02:00:00:00:00:01 -E 02:00:00:00:00:02
}

use_lab perft 2 ib_send_bw
if (($# == 0)); then set -- rc_send srq rc_write rc_read atomic uc ud xrc cm refused; fi
for group in "$@"; do "group_$group"; done
summary
