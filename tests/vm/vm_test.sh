#!/bin/bash
# Virtual machines of QEMU that move between hosts of the lab, while programs in them use a device of the kernel
# (rdma_rxe) that is unplugged here and plugged there (docs/vm.md).
#
#   vm_test.sh [GROUP...]     groups: moves failures (default: all)
#
# Nothing here depends on how fast the machines are.
# shellcheck source=tests/vm/lib.sh
source "$(dirname "$0")/lib.sh"

## groups

moves() {
  start_stream m1 m2
  on h1 "$ferry" vm ps | grep -q 'm1 .*running .*nic-rdma' || fail 'ferry vm ps shows no m1'
  [[ $(on h1 "$ferry" move --vm m1 --to h2 --dry-run) == 'm1 could move h1 -> '* ]] || fail 'no plan of a move'
  move_machine m1 h1 h2 --timeline /srv/trace.json
  for lane in QEMU 'in m1: ferryd' "in m1: 'stream_check' "; do
    grep -q "$lane" "$FERRY_LAB_SHARED/trace.json" || fail "nothing of $lane in the timeline"
  done
  jq -e '.paused_ms > 0 and .inner_programs[0].name == "stream_check" and .inner_programs[0].stood_still_ms > 0' \
    <<<"$last_report" >/dev/null || fail "the report: $last_report"
  goes_on m1
  move_machine m1 h2 h1
  goes_on m1
  end_stream m1 m2
  ok 'a machine moves there and back below its programs'
}

# stays HOST: a move was given up; the machine and its program are where they were.
stays() {
  [[ $(machines_on "$1") == m1 ]] || fail "m1 is not on $1"
  await 'its NIC is back' in_machine m1 'rdma link show rxe0/1'
  goes_on m1
}

# The machine that arrives on h2 is killed while ferryd there, which lets it run, is halted.
# shellcheck disable=SC2016 # expanded on the host
kill_arriving() {
  on h2 sh -c 'kill -STOP "$(cat /run/ferry/ferryd.pid)"
    kill -KILL "$(jq -r "select(.arriving).pid" /run/ferry/vm/m1/machine.json)"
    kill -CONT "$(cat /run/ferry/ferryd.pid)"'
}

failures() {
  start_stream m1 m2
  in_machine m1 'pkill -STOP -x ferryd'
  if on h1 "$ferry" move --vm m1 --to h2 2>"$work/move"; then fail 'a silent guest was moved'; fi
  [[ $(<"$work/move") == *'no ferryd answers at its serial port'* ]] || fail "$(<"$work/move")"
  in_machine m1 'pkill -CONT -x ferryd'
  stays h1
  ok 'a guest that does not answer stays where it is'
  on h1 "$ferry" move --vm m1 --to h2 >"$work/move" 2>&1 &
  await 'the machine arrives' on h2 jq -e '.arriving and .pid > 0' /run/ferry/vm/m1/machine.json >/dev/null 2>&1
  kill_arriving
  if wait $!; then fail "the move did not fail: $(<"$work/move")"; fi
  [[ $(machines_on h2) == '' ]] || fail 'a machine is left on h2'
  stays h1
  ok 'a machine whose destination fails goes on at its source'
  move_machine m1 h1 h2
  end_stream m1 m2
  ok 'and moves then'
}

use_machines vm 3
boot_machine m1 h1 1
boot_machine m2 h3 2
set_up_machine m1
set_up_machine m2
groups=("$@")
((${#groups[@]} > 0)) || groups=(moves failures)
for group in "${groups[@]}"; do "$group"; done
