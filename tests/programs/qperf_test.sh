#!/bin/bash
# Debian's qperf between two hosts of the lab. Its RDMA tests need -cm 1 (connections by rdma_cm) on every RoCE device:
# by itself it addresses peers by LID, without a GRH. So its UC, UD and XRC tests, which have no rdma_cm, cannot run on
# RoCE.
#
#   qperf_test.sh [GROUP...]     groups: rc atomic (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

# report PATTERN TEST OPTION...: the client prints a result like PATTERN.
report() {
  pair -k -p 19765 -c "$1" qperf -- qperf "$(rdma_of h1)" -cm 1 -t 1 "${@:3}" "$2"
}
bandwidth() { report '^ +(bw|send_bw) += ' "$@"; }
latency() { report '^ +latency += ' "$@"; }

group_rc() {
  local test
  for test in rc_bw rc_bi_bw rc_rdma_read_bw rc_rdma_write_bw; do bandwidth $test; done
  for test in rc_lat rc_rdma_read_lat rc_rdma_write_lat rc_rdma_write_poll_lat; do latency $test; done
  bandwidth rc_bw -m 1 -cp 0
  latency rc_lat -cp 0
  bandwidth rc_bw -mt 256
}

group_atomic() {
  report '^ +msg_rate += ' rc_compare_swap_mr
  report '^ +msg_rate += ' rc_fetch_add_mr
  report '^ver_rc_compare_swap:' ver_rc_compare_swap
  report '^ver_rc_fetch_add:' ver_rc_fetch_add
}

use_lab qperf 2 qperf
if (($# == 0)); then set -- rc atomic; fi
for group in "$@"; do "group_$group"; done
summary
