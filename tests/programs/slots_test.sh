#!/bin/bash
# Programs whose RNIC is not the first of its address, beside standard NICs, which send to UDP port 4791 whatever the
# QPN: an RNIC of ours with FERRY_MIGRATION=off plays one.
#
#   slots_test.sh [GROUP...]     groups: cm pingpong holder (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

readonly off=(env FERRY_MIGRATION=off)

# beside PATTERN SERVER... -- CLIENT...: pairs of which one side, then the other, then both are standard NICs.
beside() {
  local pattern=$1 server=() client=()
  shift
  while [[ $1 != -- ]]; do
    server+=("$1")
    shift
  done
  client=("${@:2}")
  pair "${by[@]}" -c "$pattern" "${off[@]}" "${server[@]}" -- "${client[@]}"
  pair "${by[@]}" -c "$pattern" "${server[@]}" -- "${off[@]}" "${client[@]}"
  pair "${by[@]}" -c "$pattern" "${off[@]}" "${server[@]}" -- "${off[@]}" "${client[@]}"
}

# perftest opens a second context for -R, and lets only one of the two do the work.
group_cm() {
  local by=(-l) test
  for test in 'ib_send_bw -n 500' 'ib_write_bw -n 500 -b' 'ib_read_bw -n 200 -q 2' 'ib_send_lat -n 200' \
    'ib_send_lat -n 200 -c UD' 'ib_send_bw -n 500 -c UD'; do
    read -ra words <<<"$test"
    words=("${words[@]:0:1}" -R -F -u 18 "${words[@]:1}")
    beside '^ *[0-9]+ +[0-9]' "${words[@]}" -- "${words[@]}" "$(rdma_of h1)"
  done
}

# idle HOST: a program that has slot 0, and does nothing. `idlers` has its job; `idle_pid HOST` is it.
idle() {
  on_own "$1" "$ferry" run --netdev rdma -- ibv_rc_pingpong -g 0 -p 18600 >"$work/idle-$1" 2>&1 &
  idlers+=($!)
  await "$1 has an idle program" listens "$1" 18600
}
idle_pid() { on "$1" ss -Hltnp 'sport = :18600' | sed -n 's/.*pid=\([0-9]*\).*/\1/p'; }

group_pingpong() {
  local by=() idlers=() test job
  idle h1
  idle h2
  for test in rc uc ud srq; do
    beside '^[0-9]+ iters in' "ibv_${test}_pingpong" -g 0 -n 500 -- "ibv_${test}_pingpong" -g 0 -n 500 h1
  done
  for job in "${idlers[@]}"; do end "$job"; done
  wait "${idlers[@]}" || true
}

# received_on HOST: packets that ib_send_bw there has received.
received_on() {
  on "$1" "$ferry" ps --json |
    jq '[.programs[] | select(.name == "ib_send_bw") | .devices[].qps[].received_packets] | add // 0'
}

# has_received HOST COUNT: more packets than that.
has_received() { (($(received_on "$1") > $2)); }

# goes_on HOST: ib_send_bw there receives from now on.
goes_on() { await "ib_send_bw on $1 receives" has_received "$1" $(($(received_on "$1") + 50)); }

# The program that has slot 0 ends in the middle: another RNIC of the address holds its port from then on.
group_holder() {
  local by=() idlers=() side words server client holder
  for side in h1 h2; do
    idlers=()
    idle h1
    idle h2
    words=(ib_send_bw -F -u 18 -D 600 -b)
    if [[ $side == h1 ]]; then words=("${off[@]}" "${words[@]}"); fi
    with_ferry h1 "$patience" "${words[@]}" >"$work/server" 2>&1 &
    server=$!
    await 'the server listens' listens h1 18515
    words=(ib_send_bw -F -u 18 -D 600 -b h1)
    if [[ $side == h2 ]]; then words=("${off[@]}" "${words[@]}"); fi
    with_ferry h2 "$patience" "${words[@]}" >"$work/client" 2>&1 &
    client=$!
    goes_on h1
    for holder in h1 h2; do
      kill -9 "$(idle_pid "$holder")"
      goes_on h1
      goes_on h2
      await "another holds port 4791 of $holder" shows "$(rdma_of "$holder"):4791" on "$holder" ss -Hlun
    done
    runs=$((runs + 1))
    end "$client"
    end "$server"
    wait "$server" "$client" "${idlers[@]}" || true
    ok "ib_send_bw -b, a standard NIC on $side: the programs that had slot 0 were killed"
  done
}

use_lab pslot 2 ibv_rc_pingpong ib_send_bw
if (($# == 0)); then set -- cm pingpong holder; fi
for group in "$@"; do "group_$group"; done
summary
