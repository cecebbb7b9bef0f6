#!/bin/bash
# Debian's programs and Ferry's own on the kernel's rdma_rxe through Ferry (`ferry run --device rxe0`), in a virtual
# machine. Pairs have Ferry on both sides; one of each kind also on either side, beside a program without Ferry.
#
#   device_test.sh [GROUP...]     groups: shown pingpong perftest cm checks fork refused (default: all)
#
# TCG makes the machine slow: few iterations. The QPs' timeout is 1 s (-u 18): no result depends on that.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly vmlab=$repository/scripts/vmlab
readonly ferry_folder=/root/ferry

## `ferry` and `plain`, two hosts that are one machine: with Ferry and without

vm() { "$vmlab" exec h1 -- "$@"; }
on() { vm "${@:2}"; }
with_ferry() {
  local words=()
  if [[ $1 == ferry ]]; then words=("$ferry_folder/ferry" run --device rxe0 --); fi
  vm timeout --kill-after=5 "$2" "${words[@]}" "${@:3}"
}
listens_by_cm() { [[ $(vm rdma resource show cm_id) == *'state LISTEN'* ]]; }

start_vm() {
  "$vmlab" up 1
  vm sh -ec "modprobe rdma_rxe; modprobe rdma_ucm; rdma link add rxe0 type rxe netdev eth0; mkdir $ferry_folder"
  "$vmlab" copy "$FERRY_BIN"/{ferry,libferry.so,stream_check} h1:$ferry_folder
  address=$(vm ip -json -4 address show dev eth0 | jq -r '.[0].addr_info[0].local')
}

stop_vm() {
  local status=$?
  ((status == 0)) || show_machine h1
  "$vmlab" down || status=1
  rm -rf "$work"
  exit "$status"
}

# each_way CMD...: with server_host and client_host.
each_way() {
  local sides server_host client_host
  for sides in 'ferry ferry' 'ferry plain' 'plain ferry'; do
    read -r server_host client_host <<<"$sides"
    "$@"
  done
}

# rdma_rxe's GID index 1 is of the IPv4 address; option -g or -x names it.
pingpong() {
  pair -c '^[0-9]+ iters in' -s '^[0-9]+ iters in' "ibv_$1_pingpong" -g 1 "${@:2}" -- \
    "ibv_$1_pingpong" -g 1 "${@:2}" "$address"
}
row() { echo "^ *$1 +[0-9]"; }
perftest() { pair -c "$1" "$2" -F -u 18 -x 1 "${@:3}" -- "$2" -F -u 18 -x 1 "${@:3}" "$address"; }

## groups

# same WHAT CMD...: prints the same with Ferry and without.
same() {
  runs=$((runs + 1))
  with_ferry plain 60 "${@:2}" >"$work/plain" 2>&1 || fail "$1 failed without Ferry: $(<"$work/plain")"
  with_ferry ferry 60 "${@:2}" >"$work/ferry" 2>&1 || fail "$1 failed: $(<"$work/ferry")"
  if diff "$work/plain" "$work/ferry"; then ok "$1: as without Ferry"; else not_ok "$1 is different through Ferry"; fi
}

group_shown() {
  same ibv_devices ibv_devices
  same 'ibv_devinfo -v' ibv_devinfo -v
  same 'ibv_devinfo -l' ibv_devinfo -l
  runs=$((runs + 1))
  shows '^ferry: process [0-9]+ opens rxe0, a device of the kernel$' \
    vm sh -c "$ferry_folder/ferry run --device rxe0 --verbose ibv_devinfo 2>&1"
  ok '--verbose names the device'
  runs=$((runs + 1))
  vm sh -c "$ferry_folder/ferry run --verbose ibv_devinfo 2>&1" >"$work/chosen"
  shows '^ferry: ibv_devinfo gets rxe0$' cat "$work/chosen"
  shows '^ferry: process [0-9]+ opens rxe0, a device of the kernel$' cat "$work/chosen"
  ok 'without --device a program gets the device of the kernel'
  runs=$((runs + 1))
  shows '^ferry: true gets Ferry.s own devices$' vm sh -c "
    mv /etc/libibverbs.d/rxe.driver /root/
    $ferry_folder/ferry run --verbose true 2>&1
    mv /root/rxe.driver /etc/libibverbs.d/"
  ok 'where libibverbs has no provider for it, a program gets devices of Ferry'
}

group_pingpong() {
  each_way pingpong rc -n 100
  pingpong rc -n 100 -e
  pingpong rc -n 20 -s 100000 -m 1024
  pingpong uc -n 50
  each_way pingpong ud -n 50
  pingpong ud -n 50 -e
  pingpong srq -n 20 -q 4
}

group_perftest() {
  local kind
  for kind in send write read; do
    perftest "$(row 65536)" ib_${kind}_bw -n 50
    perftest "$(row 2)" ib_${kind}_lat -n 20
  done
  perftest "$(row 65536)" ib_send_bw -n 20 -b -q 16 -r 4 -t 4
  each_way perftest "$(row 65536)" ib_send_bw -n 20 -e
  perftest "$(row 4096)" ib_send_bw -n 20 -s 4096 --use-srq -q 4
  perftest "$(row 2)" ib_send_lat -n 20 -I 64
  perftest "$(row 4096)" ib_send_bw -c UC -n 20 -s 4096
  perftest "$(row 4096)" ib_write_bw -c UC -n 20 -s 4096
  perftest "$(row 1024)" ib_send_bw -c UD -n 20 -s 1024
  perftest "$(row 8)" ib_atomic_bw -n 50 -A FETCH_AND_ADD
  perftest "$(row 8)" ib_atomic_bw -n 50 -A CMP_AND_SWAP
}

# by_cm SERVER... -- CLIENT...: the client is given the server's address in place of the word ADDRESS. librdmacm talks
# to the kernel's /dev/infiniband/rdma_cm.
by_cm() {
  local server=()
  while [[ $1 != -- ]]; do
    server+=("$1")
    shift
  done
  shift
  pair -l "${server[@]}" -- "${@/#ADDRESS/$address}"
}

group_cm() {
  each_way by_cm ucmatose -c 4 -C 10 -S 4000 -- ucmatose -s ADDRESS -c 4 -C 10 -S 4000
  by_cm udaddy -c 2 -C 10 -- udaddy -s ADDRESS -c 2 -C 10
  by_cm rstream -I 20 -- rstream -s ADDRESS -I 20
  by_cm ib_send_bw -R -F -n 50 -- ib_send_bw -R -F -n 50 ADDRESS
  by_cm ib_write_bw -R -F -n 50 -b -- ib_write_bw -R -F -n 50 -b ADDRESS
  by_cm rping -s -C 20 -v -- rping -c -a ADDRESS -C 20 -v
}

group_checks() {
  local program=$ferry_folder/stream_check operation
  for operation in send write read; do
    pair -p 18600 $program --timeout 18 --gid-index 1 -- \
      $program "$address" --timeout 18 --gid-index 1 --seconds 2 --qps 4 --ops $operation
  done
}

# What a program starts has the device too.
group_fork() {
  runs=$((runs + 1))
  # shellcheck disable=SC2016 # the machine's shell expands it
  shows '^[0-9]+ iters in' with_ferry ferry 60 sh -c '
    ibv_rc_pingpong -g 1 -n 20 & sleep 2
    ibv_rc_pingpong -g 1 -n 20 127.0.0.1; wait'
  ok 'programs that a shell starts have the device too'
}

group_refused() {
  runs=$((runs + 1))
  fails "there is no RDMA device 'rxe7' here" vm $ferry_folder/ferry run --device rxe7 true
  shows "FERRY_DEVICE names 'rxe7', and there is no such RDMA device here" \
    vm sh -c "FERRY_DEVICE=rxe7 LD_PRELOAD=$ferry_folder/libferry.so ibv_devices 2>&1"
  ok 'a device that is not there is named'
}

((EUID == 0)) || { echo 'skipped: virtual machines need root'; exit 77; }
for program in qemu-system-x86_64 mmdebstrap jq; do
  command -v "$program" >/dev/null || { echo "skipped: $program is not installed; run scripts/setup"; exit 77; }
done
export FERRY_VMLAB=${FERRY_LAB:-hca}
work=$(mktemp -d)
trap stop_vm EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
server_host=ferry client_host=ferry
start_vm
if (($# == 0)); then set -- shown pingpong perftest cm checks fork refused; fi
for group in "$@"; do "group_$group"; done
summary
