#!/bin/bash
# Programs of every family are moved in mid-run, both sides of a pair and more than once, and must finish as if nothing
# had been. What a single move must and must not do is in tests/migrate/move_test.sh.
#
#   moves_test.sh [GROUP...]     groups: uc ud events srq write64 atomic atomic_events atomic_loss xrc several rping
#                                (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

# perftest's QPs have a timeout of 1 s (-u 18) instead of 67 ms: no result depends on how busy the machine is.

# perftest_pair NAME CMD...: the server of a pair, NAMEs on h2, and then its client NAMEc on h1 with the same command.
perftest_pair() {
  start h2 "$1s" "${@:2}"
  await_listen h2 "$1s"
  start h1 "$1c" "${@:2}" "$(address_of h2 "$1s")"
  await_traffic h1 "$1c"
}

# Client to h3, server to h1, client to h2, and the server to h3.
move_all() {
  move "$1c" h1 h3
  move "$1s" h2 h1
  move "$1c" h3 h2
  move "$1s" h1 h3
}

ends_well() {
  finishes "$1c"
  finishes "$1s"
}

# moved_and_expired NAME: what runs by the clock. moved_and_counted NAME: what counts messages, until slow_rdma is over.
moved_and_expired() {
  move_all "$1"
  expire "$1c" "$1s"
}

moved_and_counted() {
  move_all "$1"
  fast_rdma
  ends_well "$1"
}

## UC and UD: may lose only what was sent between a stop and a resume

# timed MOVE...: moves (in parallel, when there are several), and keeps from when to when, and how long nothing was
# taken in.
timed() {
  local began=$EPOCHREALTIME blackout=0 words pids=() i=0 words_of report
  for words in "$@"; do
    read -ra words_of <<<"$words"
    (move "${words_of[@]}" && printf '%s\n' "$last_report" >"$work/report$i") &
    pids+=($!)
    i=$((i + 1))
  done
  for ((i = 0; i < $#; i++)); do
    wait "${pids[i]}" || fail "cannot move ${*:i+1:1}"
    report=$(<"$work/report$i")
    blackout=$(jq ".blackout_ms + $blackout" <<<"$report")
  done
  moves=$(jq ". + [{began: $began, ended: $EPOCHREALTIME, blackout: $blackout}]" <<<"$moves")
}

# judge NAME: what a datagram_check reports against the moves.
judge() {
  local report
  report=$(tail -n 1 "$work/$1")
  jq -e '.error == "" and .duplicated == 0 and .corrupted == 0 and .unsent == 0 and .received > 0' >/dev/null \
    <<<"$report" ||
    fail "$1: $report"
  jq -e --argjson moves "$moves" 'all(.lost_ranges[]; . as $lost | any($moves[]; $lost.first_sent > .began and
      $lost.last_sent < .ended and ($lost.last_sent - $lost.first_sent) * 1000 <= .blackout))' \
    >/dev/null <<<"$report" ||
    fail "$1 lost what was not sent during a move: $report; moves: $moves"
  ok "$1: $(jq -r '"\(.sent) sent, \(.lost) lost in \(.lost_ranges | length) ranges"' <<<"$report")"
}

datagrams() { # uc|ud
  local name=$1 side
  moves='[]'
  # 500 a second: the receive queue holds 8 s of them, should the program not get a processor for so long.
  start h2 "${name}s" "$FERRY_BIN/datagram_check" --json
  await_listen h2 "${name}s" 18700
  start h1 "${name}c" "$FERRY_BIN/datagram_check" "$(address_of h2 "${name}s")" --transport "$name" --rate 500 \
    --seconds 600 --json
  await_traffic h1 "${name}c"
  timed "${name}c h1 h3"
  timed "${name}s h2 h1"
  timed "${name}c h3 h2"
  timed "${name}s h1 h3" "${name}c h2 h1"
  await_traffic h1 "${name}c"
  interrupt h1 "${name}c"
  ends_well "$name"
  for side in c s; do judge "$name$side"; done
}

group_uc() { datagrams uc; }
group_ud() { datagrams ud; }

## RC, XRC

# Programs that sleep in ibv_get_cq_event, and check what they receive.
group_events() {
  slow_rdma
  perftest_pair ev ibv_rc_pingpong -g 0 -e -c -n 4000
  moved_and_counted ev
  slow_rdma
  perftest_pair el ib_send_lat -F -u 18 -e -n 4000 -s 4096
  moved_and_counted el
  ok 'programs that sleep on completion events'
}

group_srq() {
  perftest_pair sq ib_send_bw -F -u 18 --use-srq -q 64 -D 600
  moved_and_expired sq
  # 16 messages are under way: not so slow that they would time out.
  slow_rdma 16mbit
  perftest_pair sp ibv_srq_pingpong -g 0 -c -q 16 -n 16000
  moved_and_counted sp
  ok '64 QPs on one SRQ'
}

group_write64() {
  perftest_pair wr ib_write_bw -F -u 18 -q 64 -D 600
  moved_and_expired wr
  ok '64 QPs that write'
}

# Counters stepped by both sides: each step exactly once.
counters() { # NAME OPTION...
  local side
  start h2 "$1s" "$FERRY_BIN/atomic_check" --json
  await_listen h2 "$1s" 18800
  start h1 "$1c" "$FERRY_BIN/atomic_check" "$(address_of h2 "$1s")" --seconds 600 --json "${@:2}"
  await_traffic h1 "$1c"
  move_all "$1"
  await_traffic h2 "$1c"
  interrupt h2 "$1c"
  ends_well "$1"
  for side in c s; do
    jq -e '.error == "" and ([.adds, .swaps] | all(.steps > 0 and .steps == .counter and
      .doubled + .missing + .beyond + .disordered == 0))' "$work/$1$side" >/dev/null ||
      fail "$1$side: $(<"$work/$1$side")"
    ok "$1$side: $(jq -r '"\(.adds.steps) adds, \(.swaps.steps) swaps"' "$work/$1$side"), each exactly once"
  done
}

group_atomic() {
  counters at --qps 8
  perftest_pair ab ib_atomic_bw -F -u 18 -q 8 -D 600
  moved_and_expired ab
  ok 'ib_atomic_bw'
}

group_atomic_events() { counters ae --qps 4 --events; }

# One ATOMIC ACKNOWLEDGE (opcode 0x12) in eight is lost: the requests are sent again and must not be executed again,
# also by a responder that was moved in between.
group_atomic_loss() {
  local host
  for host in h1 h2 h3; do
    on "$host" nft 'add table netdev acks
      add chain netdev acks drops { type filter hook ingress device rdma priority 0; };
      add rule netdev acks drops udp dport >= 4791 @th,64,8 0x12 numgen random mod 8 0 counter drop'
  done
  counters al --qps 4 --rate 500
  on h1 nft -j list table netdev acks | jq -e '[.. | .counter? // empty | .packets] | add > 0' >/dev/null ||
    fail 'no acknowledgement was lost'
  for host in h1 h2 h3; do on "$host" nft delete table netdev acks; done
}

group_xrc() {
  local host
  # A domain may stand for a file, and the file has to be on every host, as everything that a program has open.
  for host in h1 h2 h3; do on "$host" touch /tmp/xrc_domain /tmp/xrc_domain_server /tmp/xrc_domain_client; done
  slow_rdma
  perftest_pair xp ibv_xsrq_pingpong -g 0 -n 4000
  moved_and_counted xp
  perftest_pair xb ib_send_bw -F -u 18 -c XRC -q 8 -D 600
  moved_and_expired xb
  ok 'XRC'
}

# Two programs with an RNIC each under one shell, which are one unit; and a server that forks for its client.
group_several() {
  start h2 sas sh -c 'ib_send_bw -F -u 18 -D 600 -p 18515 & ib_write_bw -F -u 18 -D 600 -p 18516 & wait'
  await_listen h2 sas
  await_listen h2 sas 18516
  start h1 sac \
    sh -c "ib_send_bw -F -u 18 -D 600 -p 18515 $(address_of h2 sas) & \
      ib_write_bw -F -u 18 -D 600 -p 18516 $(address_of h2 sas) & wait"
  await_traffic h1 sac 2
  moved_and_expired sa
  (($("$lab" logs sac | grep -Ec '^ *65536 +[0-9]') == 2)) || fail "two programs: $("$lab" logs sac)"
  ok 'a unit of two programs'
}

# A connection made by rdma_cm.
group_rping() {
  local address
  slow_rdma
  start h2 rps rping -s -C 4000 -S 4096 -V -v
  address=$(on h2 jq -r .rdma0.address /run/ferry/containers/rps/config.json)
  await 'rps listens' unless_ended h2 rps listens_by_cm rps
  start h1 rpc rping -c -a "$address" -C 4000 -S 4096 -V
  await_traffic h1 rpc
  moved_and_counted rp # DREQ and DREP reach both where they are now
  ok 'rping'
}

use_lab pmove 3 ib_send_bw ibv_rc_pingpong
if (($# == 0)); then set -- uc ud events srq write64 atomic atomic_events atomic_loss xrc several rping; fi
for group in "$@"; do "group_$group"; done
