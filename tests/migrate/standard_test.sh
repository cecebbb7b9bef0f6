#!/bin/bash
# Moves programs whose peers know nothing of Ferry: their RNICs speak no migration messages (FERRY_MIGRATION=off). The
# programs that move have an RDMA address of their own, which moves along. Needs root.
#
#   standard_test.sh [GROUP...]     groups: stream perftest ipv6 cm silence slots refused killed (default: all)
#
# Prints one line per check; exits non-zero when one fails. Timeouts are long (2^18: 1 s), so that no result depends on
# how busy the machine is.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

# A group's family: environment of both sides.
family=(FERRY_FAMILY=4)

# standard HOST NAME CMD...: in a container, with an RNIC that is as any other.
standard() {
  "$lab" run "$1" "$2" -d -- env FERRY_MIGRATION=off "${family[@]}" nice "$ferry" run --netdev rdma0 -- "${@:3}"
}

# mover HOST NAME CMD...: in a container whose RDMA address moves along.
mover() { "$lab" run "$1" "$2" -d --move-rdma -- env "${family[@]}" nice "$ferry" run --netdev rdma0 -- "${@:3}"; }

rdma_address_of() { on "$1" jq -r .rdma0.address "/run/ferry/containers/$2/config.json"; }

# move_there_and_back NAME: from h1 to h3 and back, each time under load.
move_there_and_back() {
  move "$1" h1 h3
  await_traffic h3 "$1"
  move "$1" h3 h1
  await_traffic h1 "$1"
}

# qps_of HOST NAME FILTER: what jq says of the list of a program's QPs.
qps_of() {
  on "$1" "$ferry" ps --json |
    jq -r --arg name "$2" "[.programs[] | select(.container == \$name) | .devices[].qps[]] | $3"
}

# capture HOST FILE FILTER: the heads of packets on a host's rdma go to FILE from now on, until `end "$capture"`.
capture() {
  : >"$work/tcpdump"
  on_own "$1" tcpdump -i rdma -n -s 80 --immediate-mode -U -w - "$3" >"$2" 2>"$work/tcpdump" &
  capture=$!
  await 'the capture' says "$work/tcpdump" 'listening on'
}

# Opcodes that tshark sees in a file, each once.
opcodes() {
  tshark -r "$1" -Y infiniband -T fields -e infiniband.bth.opcode 2>/dev/null | tr ',' '\n' | sort -nu | xargs
}

has_packets() { (($(tshark -r "$1" -T fields -e frame.number 2>/dev/null | wc -l) >= $2)); }

group_stream() {
  local capture standard_address moving_address
  standard h2 sts "$FERRY_BIN/stream_check" --timeout 18
  standard_address=$(rdma_address_of h2 sts)
  # All that would not be RC to port 4791, and NAK_STOPPED; of the others those that ask for an acknowledgement, which
  # are few enough.
  on h2 ethtool -K rdma tx-udp-segmentation off >/dev/null
  capture h2 "$work/standard.pcap" \
    "src host $standard_address and udp and (not dst port 4791 or udp[8] > 0x14 or \
    (udp[8] = 0x11 and udp[20] = 0x65) or udp[16] & 0x80 != 0)"
  await_listen h2 sts 18600
  mover h1 stc "$FERRY_BIN/stream_check" "$(address_of h2 sts)" --timeout 18 --seconds 0 --qps 4 --json
  moving_address=$(rdma_address_of h1 stc)
  await_traffic h1 stc
  await 'the peer is known for what it is' knows_standard h1 stc 4
  move_there_and_back stc
  [[ $(qps_of h1 stc '.[0].local') == "$moving_address:4791" ]] ||
    fail "stc is not at its address: $(qps_of h1 stc '.[0].local')"
  hit INT stc
  finishes stc
  finishes sts
  lost_nothing stc
  ok 'stream_check lost, doubled and corrupted nothing towards a standard peer'
  await 'packets in the capture' has_packets "$work/standard.pcap" 20
  end "$capture"
  local seen opcode
  seen=$(opcodes "$work/standard.pcap")
  for opcode in $seen; do
    # Requests of RC.
    ((opcode <= 0x0C || opcode == 0x13 || opcode == 0x14)) || fail "a standard RNIC sent opcode $opcode; all: $seen"
  done
  [[ -z $(tshark -r "$work/standard.pcap" -Y 'udp.dstport != 4791' 2>/dev/null) ]] ||
    fail 'a packet to another port than 4791'
  ok "a standard RNIC sends to port 4791, opcodes $seen, and nothing of Ferry's"
}

# knows_standard HOST NAME COUNT: so many QPs have found out that their peer does not answer.
knows_standard() { [[ $(qps_of "$1" "$2" '[.[] | select(.peer_class == "unmodified")] | length') == "$3" ]]; }

# The server moves; its peer is told to wait.
group_perftest() {
  mover h1 pes ib_send_bw -F -u 18 -D 600 -b
  await_listen h1 pes
  standard h2 pec ib_send_bw -F -u 18 -D 600 -b "$(address_of h1 pes)"
  await_traffic h1 pes
  move_there_and_back pes
  expire pes pec
  shows '^ *65536 +[0-9]+ ' "$lab" logs pec || fail 'ib_send_bw printed no result'
  ok 'ib_send_bw: a server that moved, a standard client'
}

# Nobody speaks migration messages, not even the program that moves.
group_ipv6() {
  family=(FERRY_FAMILY=6 FERRY_MIGRATION=off)
  mover h1 v6s ib_write_bw -F -u 18 -D 600 -b
  await_listen h1 v6s
  standard h2 v6c ib_write_bw -F -u 18 -D 600 -b "$(address_of h1 v6s)"
  await_traffic h2 v6c
  move v6s h1 h3
  await_traffic h3 v6s
  [[ $(qps_of h3 v6s '.[0].local') == '[fd78:'*']:4791' ]] || fail "not IPv6: $(qps_of h3 v6s '.[0].local')"
  move v6s h3 h1
  await_traffic h1 v6s
  expire v6s v6c
  family=(FERRY_FAMILY=4)
  ok 'ib_write_bw over IPv6, with migration messages off on both sides'
}

# watch HOST MAC KIND COUNT: in the background; `watched` waits for it.
watch() {
  : >"$work/watching-$3"
  on_own "$1" timeout "$patience" "$repository/tests/lab/watch_frames.py" rdma "$2" "$4" "$3" \
    >"$work/seen-$3" 2>"$work/watching-$3" &
  watchers+=($!)
  await 'the watch begins' says "$work/watching-$3" watching
}

# rping asks its peer, over rdma_cm, to repeat for ever.
group_cm() {
  local mac watchers=() watcher
  slow_rdma 4mbit
  mover h1 cms rping -s -C 1500 -S 4096
  await 'cms listens' unless_ended h1 cms listens_by_cm cms
  standard h2 cmc rping -c -a "$(rdma_address_of h1 cms)" -C 1500 -S 4096
  await_traffic h1 cms
  mac=$(on h1 jq -r .rdma0.mac /run/ferry/containers/cms/config.json)
  watch h2 "$mac" arp 3
  watch h2 "$mac" na 3
  move cms h1 h3
  for watcher in "${watchers[@]}"; do
    wait "$watcher" || fail "the address was not announced: $(cat "$work"/seen-*)"
  done
  await_traffic h3 cms
  ok 'a moved address is announced by ARP and by neighbour advertisements, several times'
  move cms h3 h1
  fast_rdma
  finishes cmc
  finishes cms
  ok 'rping: a server that moved twice, a standard client'
}

# ucmatose says over rdma_cm that its peer has to repeat nothing after an RNR NAK: a single one would end the
# connection.
group_silence() {
  slow_rdma 4mbit
  standard h2 sis ucmatose -C 1500 -S 4096
  await 'sis listens' unless_ended h2 sis listens_by_cm sis
  mover h1 sic ucmatose -s "$(rdma_address_of h2 sis)" -C 1500 -S 4096
  await_traffic h1 sic
  move sic h1 h3
  await_traffic h3 sic
  [[ $(qps_of h2 sis '[.[].rnr_naks] | add') == 0 ]] || fail 'a peer with rnr_retry 0 got an RNR NAK'
  fast_rdma
  finishes sic
  finishes sis
  ok 'ucmatose: a client that moved, a standard server with rnr_retry 0, which waits in silence'
}

# What is refused before the program is stopped.
group_refused() {
  # Many processes on the same memory: to the estimate of the blackout it is much.
  local hog='import os, time
x = b"x" * (64 << 20)
for _ in range(11): os.fork() == 0 and time.sleep(1e6)
open("/tmp/hog", "w").close()
time.sleep(1e6)'
  slow_rdma 4mbit
  standard h2 res ucmatose -C 1500 -S 4096
  await 'res listens' unless_ended h2 res listens_by_cm res
  mover h1 rec sh -c "python3 -c '$hog' & exec ucmatose -s $(rdma_address_of h2 res) -C 1500 -S 4096"
  await_traffic h1 rec
  await 'rec takes much memory' on h1 test -e /tmp/hog
  local line="'rec' was not moved: peer 10\.78\.[0-9.]+ of QP 0x[0-9a-f]+ speaks no migration messages and "
  line+="gives up after 3221 ms \(timeout 536 ms x \(retry_cnt 5 \+ 1\), agreed on over rdma_cm\), "
  line+="and the move may keep it waiting for [0-9]+ ms; give its QP more, or move with --force"
  fails "$line" on h1 "$ferry" move rec --to h3
  fast_rdma
  finishes rec
  finishes res
  ok 'a standard peer that would give up is named, with the figures, before the program is stopped'
}

# opened_second NAME: a program in a container of h1 whose RNIC is not the first of its address. NAME is stream_check
# towards `sls`; another program of the container has slot 0, and does nothing.
opened_second() {
  # shellcheck disable=SC2016 # expanded in the container
  mover h1 "$1" sh -c 'ibv_rc_pingpong -g 0 -p 18700 &
    until ss -Hltn | grep -q ":18700 "; do sleep 0.1; done
    exec "$@"' sh "$FERRY_BIN/stream_check" "$(address_of h2 sls)" --timeout 18 --seconds 0 --qps 4 --json
  await_traffic h1 "$1"
  await 'the peer is known for what it is' knows_standard h1 "$1" 4
  [[ $(qps_of h1 "$1" 'map(select(.peer_class == "unmodified"))[0].local') == *:61441 ]] ||
    fail "$1 has not slot 1: $(qps_of h1 "$1" 'map(.local)')"
}

# Standard peers send to port 4791 only; who holds it passes on what is for another slot.
group_slots() {
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/no-restore '[ "$1" != restore ] || exit 1
    exec /opt/ferry/bin/criu "$@"'
  standard h2 sls "$FERRY_BIN/stream_check" --timeout 18
  await_listen h2 sls 18600
  opened_second slc
  move_there_and_back slc
  ok 'a program in slot 1 moved with the one that has slot 0, beside a standard peer'
  kill -9 "$(on h1 "$ferry" ps --json | jq '.programs[] | select(.name == "ibv_rc_pingpong") | .pid')"
  await 'its RNIC holds port 4791 itself' shows ':4791 ' "$lab" exec slc -- ss -Hlun
  await_traffic h1 slc
  ferryd_with h3 --criu /tmp/no-restore
  fails "'slc' was not moved: " on h1 "$ferry" move slc --to h3
  await_traffic h1 slc
  ferryd_with h3 --criu /opt/ferry/bin/criu
  move_there_and_back slc
  hit INT slc
  finishes slc
  finishes sls
  lost_nothing slc
  ok 'and alone, after a move that failed; nothing was lost, doubled or corrupted'
}

# A standard peer cannot ask where the program is: whatever ferryd dies, the address with its stand-in or its RNIC has
# to be there again.
group_killed() {
  local runner
  # shellcheck disable=SC2016 # expanded by the scripts
  script /tmp/slow-criu '[ "$1" != restore ] || { touch /tmp/restoring; until [ -e /tmp/go ]; do sleep 0.02; done; }
    exec /opt/ferry/bin/criu "$@"'
  # shellcheck disable=SC2016
  script /tmp/last-action '[ "$CRTOOLS_SCRIPT_ACTION" != pre-resume ] || kill -9 "$(cat /run/ferry/ferryd.pid)"'
  # shellcheck disable=SC2016
  script /tmp/last-criu '[ "$1" != restore ] || set -- "$@" --action-script /tmp/last-action
    exec /opt/ferry/bin/criu "$@"'
  standard h2 kip "$FERRY_BIN/stream_check" --timeout 18
  await_listen h2 kip 18600
  mover h1 kim "$FERRY_BIN/stream_check" "$(address_of h2 kip)" --timeout 18 --seconds 0 --qps 2 --json
  await_traffic h1 kim
  await 'the peer is known for what it is' knows_standard h1 kim 2

  ferryd_with h3 --criu /tmp/slow-criu
  on h1 "$ferry" move kim --to h3 >"$work/undone" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  ferryd_with h1
  on h3 touch /tmp/go
  if wait "$runner"; then fail 'a move was done without its ferryd'; fi
  await_traffic h1 kim
  ok "a standard peer, and the source's ferryd killed in the move: the program goes on where it was"

  ferryd_with h3 --criu /tmp/last-criu
  on h1 "$ferry" move kim --to h3 >"$work/done" 2>&1 &
  runner=$!
  await 'the end of the ferryd of h3' has_ended "$(on h3 cat /run/ferry/ferryd.pid)"
  start_ferryd h3 --criu /opt/ferry/bin/criu
  wait "$runner" || fail "kim did not move: $(<"$work/done")"
  await_traffic h3 kim
  hit INT kim
  finishes kim
  finishes kip
  lost_nothing kim
  ok "a standard peer, and the destination's ferryd killed in the commit: the program goes on there"
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }

use_lab stdpe 3 rping ucmatose ib_send_bw tcpdump tshark ethtool
if (($# == 0)); then set -- stream perftest ipv6 cm silence slots refused killed; fi
for group in "$@"; do "group_$group"; done
