#!/bin/bash
# Ferry as its users have it: from Debian packages, with systemd, on machines of their own (scripts/vmlab). Three of
# them are made hosts that belong together as README says, and programs move between them. Needs root.
#
#   machines_test.sh [GROUP...]     groups: plain users clocks device objects verbs firewall reboot upgrade runc podman
#                                   containers removal (default: all); each begins with the packages installed and the
#                                   hosts joined
#
# Environment: FERRY_PACKAGES (a folder with Ferry's packages; default: they are built).
# shellcheck source=tests/machines/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=tests/machines/kernel_containers.sh
source "$(dirname "$0")/kernel_containers.sh"
# shellcheck source=tests/machines/other_devices.sh
source "$(dirname "$0")/other_devices.sh"
# shellcheck source=tests/machines/rdma_cm.sh
source "$(dirname "$0")/rdma_cm.sh"

serves() { await "the ferryd of $1 serves" vm "$1" 'systemctl is-active ferryd && ferry ps' >/dev/null; }

## programs: a pingpong without end, which keeps no TCP connection; its server is on h2

readonly endless='ferry run --netdev eth0 -- ibv_rc_pingpong -e -g 0 -n 2000000000'

# start HOST USER WORDS: in the background, as nohup leaves it.
start() { vm "$1" "runuser -u $2 -- bash -c 'cd /tmp; nohup $endless ${3:-} >/dev/null 2>&1 </dev/null &'"; }

start_pair() { # USER
  start h2 "$1"
  await 'the server listens' vm h2 'ss -Hltn "sport = :18515" | grep -q .'
  start h1 "$1" h2
  await 'the client runs' goes_on h1
}
end_pair() {
  on_all 'pkill -x ibv_rc_pingpong || true; while pgrep -x ibv_rc_pingpong >/dev/null; do sleep 0.1; done'
}

# goes_on HOST: a program there receives packets.
# shellcheck disable=SC2016 # the machine's shell expands
goes_on() { vm "$1" '
  received() { ferry ps --json | jq "[.programs[].devices[].qps[].received_packets] | add // 0"; }
  before=$(received); [ "$(received)" -gt "$before" ]'; }

# move FROM TO: of the pingpong; it goes on there, and is gone here.
move() {
  vm "$1" "ferry move ibv_rc_pingpong --to $2" || fail "no move from $1 to $2"
  await "it goes on on $2" goes_on "$2"
  if vm "$1" 'pgrep -x ibv_rc_pingpong'; then fail "it is on $1 still"; fi
}
there_and_back() {
  move h1 h3
  move h3 h1
}

## what pages say

# run_page PAGE: its blocks that are for machines.
run_page() { "$repository/tests/pages/pages_test" --on machines "$repository/$1" || fail "$1"; }

packages=${FERRY_PACKAGES:-} # the folder with them

install_packages() {
  local host
  if [[ -z $packages ]]; then
    packages=$work/packages
    "$repository/scripts/package" --lintian --output "$packages"
  fi
  for host in "${machines[@]}"; do
    "$vmlab" copy "$packages"/{ferry,ferryd,ferry-dev,ferry-lab}_*.deb "$host:/root/packages"
  done
  run_page README.md # installs ferry and ferryd, joins the hosts, and moves a program
  end_pair
  run_page docs/packages.md # the same packages once more, by the names that they have where they are built
  on_all 'dpkg -i /root/packages/ferry-lab_*.deb; systemctl is-active ferryd'
  for host in "${machines[@]}"; do
    [[ $(vm "$host" 'ferry --version; ferryd --version') =~ ^ferry\ .*build.*ferryd\ .*build ]] ||
      fail "versions on $host: $(vm "$host" 'ferry --version; ferryd --version')"
  done
  ok 'the packages are installed, and the hosts belong together'
}

## groups

group_plain() {
  start_pair root
  # Debian 12's kernel is older.
  fails 'this kernel does not tell which pages a program writes; use Linux 6.7 or later' h1 \
    'ferry move ibv_rc_pingpong --to h3 --copy-ahead'
  move h1 h3
  await 'systemd counts it apart from ferryd' in_slice h3 system.slice
  move h3 h1
  end_pair
  ok 'a program without a container moves there and back under load'
}
# in_slice HOST SLICE: the program there has a scope of its own in this slice.
in_slice() { vm "$1" "ps -o cgroup= -C ibv_rc_pingpong" | grep -q "/$2/ferry-.*\.scope"; }

# Another user moves what is hers, and nothing else.
group_users() {
  start_pair ada
  vm h1 'runuser -u ada -- ferry move ibv_rc_pingpong --to h3'
  await 'it goes on' goes_on h3
  [[ $(vm h3 'ps -o user= -C ibv_rc_pingpong') == ada ]] || fail 'on h3 it is not of the user that it was of on h1'
  await 'it is among what the user runs' in_slice h3 "user-$(vm h3 'id -u ada').slice"
  vm h3 'runuser -u ada -- ferry move ibv_rc_pingpong --to h1'
  await 'it is back' goes_on h1
  fails 'is not yours' h1 'runuser -u nobody -- ferry move ibv_rc_pingpong --to h3'
  end_pair
  ok 'another user than root moves her own program, and nobody else does'
}

group_clocks() {
  local now
  now=$(date +%s)
  start_pair root
  vm h3 "date -s @$((now + 40000))"
  move h1 h3
  vm h3 "date -s @$((now - 40000))"
  move h3 h1
  vm h3 "date -s @$(date +%s)"
  end_pair
  ok 'hosts whose clocks are eleven hours apart'
}

# docs/any_rnic.md: programs with a device of the kernel move as well, and what does not is refused by name.
# shellcheck disable=SC2016 # the machines' shells expand
group_device() {
  local server
  load_rxe
  on_all 'rdma link add rxe0 type rxe netdev eth0'
  start_pair_of_kernel '-e -c -m 4096 -n 2000000000'
  vm h1 'ferry ps --qps' | grep -q rxe0 || fail 'the QP of rxe0 is not listed'
  vm h3 'cat /sys/class/net/eth0/mtu >/tmp/mtu; ip link set eth0 mtu 1500'
  fails 'rxe0 has not what .* needs: port 1 has an MTU of 1024 bytes, a QP one of 4096' h1 \
    'ferry move ibv_rc_pingpong --to h3'
  vm h3 'ip link set eth0 mtu $(</tmp/mtu)'
  move_of_kernel h1 h3 ibv_rc_pingpong
  move_of_kernel h3 h1 ibv_rc_pingpong
  server=$(vm h2 'pgrep -x ibv_rc_pingpong')
  move_of_kernel h2 h3 ibv_rc_pingpong "$server"
  move_of_kernel h3 h2 ibv_rc_pingpong "$server"
  ok 'programs with a device of the kernel move, one end and the other'

  device_made_anew
  end_pair
  unload_rxe
  ok 'programs leave a device that is made anew, and go on with it'
}

# docs/any_rnic.md: the device of either end is made anew. Programs come back also when the command fails, when `ferry
# detach` is killed, and when ferryd is.
device_made_anew() {
  local host status anew='rdma link delete rxe0; rdma link add rxe0 type rxe netdev eth0'
  fails 'there is no RDMA device rxe7' h1 'ferry detach rxe7 -- true'
  fails 'only root may' h1 'runuser -u ada -- ferry detach rxe0 -- true'
  for host in h1 h2; do
    vm "$host" "ferry detach rxe0 -- sh -c '$anew'" || fail "the program on $host does not leave its device"
    await "packets after the device of $host was made anew" packets_go_on h1
  done
  vm h1 "ferry detach rxe0 --json -- sh -c '$anew'" >"$work/detached"
  jq -e '.device == "rxe0" and (.programs | length == 1) and .programs[0].stood_still_ms > 0' "$work/detached" ||
    fail "the report: $(<"$work/detached")"
  status=0
  vm h1 'ferry detach rxe0 -- sh -c "exit 3"' || status=$?
  [[ $status == 3 ]] || fail "the command ends with status 3, and ferry detach with $status"
  await 'the program goes on behind a command that fails' packets_go_on h1
  if vm h1 'timeout -s KILL 5 ferry detach rxe0 -- sleep 600'; then fail 'ferry detach was not killed'; fi
  await 'the program comes back unasked' packets_go_on h1
  fails 'the programs come back unasked: sleep took longer than --limit' h1 'ferry detach rxe0 --limit 2s -- sleep 10'
  await 'the program comes back at the limit' packets_go_on h1
  if vm h1 'ferry detach rxe0 -- sh -c "rdma link delete rxe0; systemctl kill -s KILL ferryd; sleep 1"'; then
    fail 'a killed ferryd has brought programs back'
  fi
  serves h1
  vm h1 'rdma link add rxe0 type rxe netdev eth0'
  await 'the next ferryd brings the program back' packets_go_on h1
}

# Its other objects and services, and what comes through moves that fail: each message once.
# shellcheck disable=SC2016 # the machines' shells expand
group_objects() {
  local host pingpong server
  load_rxe
  on_all 'rdma link add rxe0 type rxe netdev eth0'
  start_pair_of_kernel '-e -c -m 4096 -n 2000000000'
  server=$(vm h2 'pgrep -x ibv_rc_pingpong')
  move_of_kernel h2 h3 ibv_rc_pingpong "$server"
  move_of_kernel h1 h3 ibv_rc_pingpong # beside its peer
  move_of_kernel h3 h1 ibv_rc_pingpong "$server"
  end_pair
  start_pair_of_kernel '-n 2000000000' # its server is without Ferry
  fails 'no host that ferryd knows has the program of QP .* the peer of QP' h1 'ferry move ibv_rc_pingpong --to h3'
  packets_go_on h1
  end_pair
  ok 'both ends move to one host; a peer without Ferry is named, and nothing is stopped'

  # Threads that have ended have made the QPs.
  for host in "${machines[@]}"; do "$vmlab" copy "$FERRY_BIN/create_in_thread.so" "$host:/root"; done
  pingpong='env LD_PRELOAD=/root/create_in_thread.so:/usr/lib/ferry/libferry.so ibv_srq_pingpong -g 1 -e -n 2000000000'
  start_of_kernel h2 "$pingpong"
  await 'the server listens' vm h2 'ss -Hltn "sport = :18515" | grep -q .'
  start_of_kernel h1 "$pingpong h2"
  await 'the client runs' packets_go_on h1
  move_of_kernel h1 h3 ibv_srq_pingpong
  move_of_kernel h2 h1 ibv_srq_pingpong
  vm h2 'rdma link delete rxe0'
  fails 'there is no RDMA device rxe0, and no other' h3 'ferry move ibv_srq_pingpong --to h2'
  packets_go_on h3
  end_of_kernel ibv_srq_pingpong
  vm h2 'rdma link add rxe0 type rxe netdev eth0'
  ok 'SRQs move along, and QPs of threads that have ended; a host without a device is no destination'

  pace=$SECONDS
  unreliable_connection
  pace=$((SECONDS - pace))
  ok 'a UC pingpong goes on when its client, its server, and both at the same time move'

  counted_messages
  ok 'each SEND, WRITE and READ is done once: either end moves, both do, packets are lost, ferryds are killed'
  unload_rxe
}

# More of what programs do with such a device.
group_verbs() {
  local host
  for host in "${machines[@]}"; do "$vmlab" copy "$FERRY_BIN"/{stream_check,datagram_check} "$host:/usr/bin"; done
  load_rxe
  on_all 'rdma link add rxe0 type rxe netdev eth0'

  datagrams
  ok 'datagrams reach UD QPs that have moved, and come from whom their receivers know'

  connections_of_rdma_cm
  latency_over_rdma_cm
  ok 'connections of rdma_cm go on when either end moves or both do, are made after moves, and end'

  later_connections
  ok 'clients connect with servers that have moved, and with others there'

  other_devices
  ok "a program goes on with a device of another name, and with Ferry's own RNIC where the kernel has none"

  unload_rxe
}
# shellcheck disable=SC2016 # the machines' shells expand
load_rxe() {
  local host
  # rdma_rxe takes UDP port 4791 of all addresses, which stand-ins of programs that were here may have for a minute.
  for host in "${machines[@]}"; do
    await "nobody has UDP port 4791 of $host" vm "$host" '[ -z "$(ss -Hlun "sport = :4791")" ]'
  done
  on_all 'modprobe rdma_rxe'
}
# delay [WORDS]: of netem, for all that machines send to each other. A program without a pause takes all of their
# processors, which ferryd needs as well.
delay() { on_all "tc qdisc replace dev eth0 root netem delay 3ms ${1:-}"; }
unload_rxe() { on_all 'rdma link delete rxe0; modprobe -r rdma_rxe'; }
# start_of_kernel HOST COMMAND
start_of_kernel() { vm "$1" "cd /tmp; setsid nohup ferry run --device rxe0 -- $2 >/dev/null 2>&1 </dev/null &"; }
end_of_kernel() { on_all "pkill -x ${1:0:15} || true; while pgrep -x ${1:0:15} >/dev/null; do sleep 0.1; done"; }
# end_of_kernel_on HOST NAME
end_of_kernel_on() { vm "$1" "pkill -x $2; while pgrep -x $2 >/dev/null; do sleep 0.1; done"; }
# Nothing is sent again on UC: it goes on if no message was lost.
unreliable_connection() {
  local server
  start_of_kernel h2 'ibv_uc_pingpong -g 1 -e -n 2000000000'
  await 'the server listens' vm h2 'ss -Hltn "sport = :18515" | grep -q .'
  start_of_kernel h1 'ibv_uc_pingpong -g 1 -e -n 2000000000 h2'
  await 'the client runs' packets_go_on h1
  server=$(vm h2 'pgrep -x ibv_uc_pingpong')
  move_of_kernel h1 h3 ibv_uc_pingpong
  move_of_kernel h2 h1 ibv_uc_pingpong
  move_both h3 ibv_uc_pingpong h2 h1 "$server" h3
  await 'both go on' packets_go_on h3
  end_of_kernel ibv_uc_pingpong
}
# stream_check, without its TCP connection, counts what is lost and doubled while both ends move, and while ferryds are
# killed in the middle: then the source has the objects of its device made anew. Most of its QPs are idle until the end,
# so that they are made after each move. The run outlasts all moves: `pace` is how long four moves take here. What a
# program prints at its end, its destination would have to have, too.
counted_messages() {
  local host side moving victim client server messages=$((60 * (4 * pace + 20)))
  slow_restore
  for host in "${machines[@]}"; do
    "$vmlab" copy "$FERRY_BIN/stream_check" "$host:/usr/bin"
    vm "$host" ': >/tmp/client; : >/tmp/server'
  done
  vm h2 'cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check --apart --json --gid-index 1 --timeout 14 \
    --events >/tmp/server 2>&1 </dev/null &'
  vm h1 'cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check h2 --apart --json --gid-index 1 --timeout 14 \
    --qps 3 --idle 12 --size 4096 --messages '"$messages"' --rate 60 >/tmp/client 2>&1 </dev/null &'
  await 'the client runs' packets_go_on h1
  client=$(vm h1 'pgrep -x stream_check') server=$(vm h2 'pgrep -x stream_check')
  for victim in h3 h1; do
    begin_move stream_check
    vm "$victim" 'systemctl kill -s KILL ferryd'
    if wait "$moving"; then fail "a move whose ferryd on $victim was killed succeeded"; fi
    await 'the client goes on where it was' packets_go_on h1
    serves "$victim"
    await 'nothing of it is on h3' vm h3 '! pgrep -x stream_check'
  done
  quick_restore
  delay 'loss 3%'
  bring h1 h3 stream_check
  bring h2 h1 stream_check
  delay
  bring h3 h1 stream_check # beside its peer
  vm h1 "ferry move $client $server --to h3" || fail 'no move of both as a group'
  move_both h3 "$client" h1 h3 "$server" h1
  for side in client server; do
    await "the $side reports" vm h1 "jq -e .result /tmp/$side"
    vm h1 "cat /tmp/$side" | jq -e ".result == \"ok\" and .operations.read.received == 3 * $messages" >/dev/null ||
      fail "the $side: $(vm h1 "cat /tmp/$side")"
  done
  end_of_kernel stream_check
}
# Servers that were started on h1 serve on h3, under the GID of h1; h2's ferryd has heard of the moves.
later_connections() {
  local host side
  # The QP of this one is made, and its number is what clients get.
  start_of_kernel h1 'ibv_rc_pingpong -g 1 -e -c -m 4096 -n 100'
  await 'the server listens' vm h1 'ss -Hltn "sport = :18515" | grep -q .'
  bring h1 h3 ibv_rc_pingpong
  # A server without Ferry where that one was.
  vm h1 'cd /tmp; setsid nohup ibv_rc_pingpong -g 1 -e -c -m 4096 -n 100 >/dev/null 2>&1 </dev/null &'
  await 'the server without Ferry listens' vm h1 'ss -Hltn "sport = :18515" | grep -q .'
  for host in h1 h3; do
    vm h2 "timeout 100 ferry run --device rxe0 -- ibv_rc_pingpong -g 1 -e -c -m 4096 -n 100 $host" >/dev/null ||
      fail "no connection with the server on $host"
    await "the server on $host has ended" vm "$host" '! pgrep -x ibv_rc_pingpong'
  done

  for host in "${machines[@]}"; do vm "$host" ': >/tmp/client; : >/tmp/server'; done
  vm h1 'cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check --apart --json --gid-index 1 --timeout 18 \
    --events >/tmp/server 2>&1 </dev/null &'
  await 'the server listens' vm h1 'ss -Hltn "sport = :18600" | grep -q .'
  bring h1 h3 stream_check
  vm h2 'cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check h3 --apart --json --gid-index 1 --timeout 18 \
    --qps 3 --size 4096 --messages 400 --rate 60 >/tmp/client 2>&1 </dev/null &'
  await 'the client runs' packets_go_on h2
  bring h2 h1 stream_check
  for side in client server; do
    host=h1
    if [ "$side" = server ]; then host=h3; fi
    await "the $side reports" vm "$host" "jq -e .result /tmp/$side"
    vm "$host" "cat /tmp/$side" | jq -e '.result == "ok"' >/dev/null || fail "the $side: $(vm "$host" "cat /tmp/$side")"
  done
  end_of_kernel stream_check
}
# Each receiver tells what it has got from whom it knows. It has lost something as often as it has been moved itself.
datagrams() {
  local host client server
  for host in "${machines[@]}"; do vm "$host" ': >/tmp/client; : >/tmp/server'; done
  vm h2 'cd /tmp; setsid nohup ferry run --device rxe0 -- datagram_check --json >/tmp/server 2>&1 </dev/null &'
  await 'the server listens' vm h2 'ss -Hltn "sport = :18700" | grep -q .'
  vm h1 'cd /tmp; setsid nohup ferry run --device rxe0 -- datagram_check h2 --apart --json --rate 60 --seconds 600 \
    >/tmp/client 2>&1 </dev/null &'
  await 'the client runs' packets_go_on h1
  client=$(vm h1 'pgrep -x datagram_check') server=$(vm h2 'pgrep -x datagram_check')
  bring h1 h3 datagram_check
  bring h2 h1 datagram_check # where the other one has begun
  bring h3 h2 datagram_check
  sleep 1
  bring h1 h2 datagram_check "$server" # beside its peer
  sleep 1
  vm h2 "kill -INT $client"
  await 'the client reports' vm h2 'jq -e .sent_here /tmp/client'
  vm h2 "kill -INT $server"
  await 'the server reports' vm h2 'jq -e .sent_here /tmp/server'
  report_is h2 client '.lost_ranges | length == 2'
  report_is h2 server '.lost_ranges | length == 2'
  # What the client sent after the last move has come, too.
  report_is h2 server ".sent >= $(vm h2 'jq .sent_here /tmp/client') - 20"
}
# report_is HOST SIDE CONDITION: of datagram_check's report, besides that nothing is doubled or from another QP.
report_is() {
  vm "$1" "cat /tmp/$2" | jq -e ".error == \"\" and .duplicated + .unsent + .corrupted == 0 and ($3)" >/dev/null ||
    fail "the $2, not $3: $(vm "$1" "cat /tmp/$2")"
}
not() { ! "$@"; }
# start_pair_of_kernel WORDS: a pingpong over rxe0; its server, on h2, has Ferry if the words ask for events.
start_pair_of_kernel() {
  local run='ferry run --device rxe0 --' server
  server=$run
  if [[ $1 != *-e* ]]; then server=; fi
  vm h2 "cd /tmp; setsid nohup $server ibv_rc_pingpong -g 1 $1 >/dev/null 2>&1 </dev/null &"
  await 'the server listens' vm h2 'ss -Hltn "sport = :18515" | grep -q .'
  vm h1 "cd /tmp; setsid nohup $run ibv_rc_pingpong -g 1 $1 h2 >/dev/null 2>&1 </dev/null &"
  await 'the client runs' packets_go_on h1
}
# move_both FROM PROGRAM TO FROM PROGRAM TO: two peers, each by itself, at the same time. On a slow machine one may
# stand still for longer than the other one's move waits for it; that move is tried again.
move_both() {
  local moving first second
  # When one is tried again, both may be on one host.
  first=$(pid_on "$1" "$2") second=$(pid_on "$4" "$5")
  move_beside "$1" "$first" "$3" &
  moving=$!
  move_beside "$4" "$second" "$6"
  wait "$moving" || fail "$2 does not move from $1 to $3 while its peer does"
}
# pid_on HOST PROGRAM: which may be a pid already.
pid_on() { if [[ $2 == *[!0-9]* ]]; then vm "$1" "pgrep -x $2"; else echo "$2"; fi; }
move_beside() {
  until vm "$1" "ferry move $2 --to $3" 2>"$work/refused.$1.$2"; do
    grep -q 'a peer of process [0-9]* does not stop within' "$work/refused.$1.$2" ||
      fail "$2 does not move from $1 to $3 while its peer does: $(<"$work/refused.$1.$2")"
  done
}
# packets_go_on HOST: its rxe0 receives some.
# shellcheck disable=SC2016 # the machine's shell expands
packets_go_on() { vm "$1" '
  received() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts; }
  before=$(received); sleep 0.5; [ "$(received)" -gt "$before" ]'; }
# move_of_kernel FROM TO NAME [PID]: it goes on there, and is gone here.
move_of_kernel() {
  bring "$@"
  await "it goes on on $2" packets_go_on "$2"
}
bring() {
  local before
  before=$(vm "$2" "pgrep -cx ${3:0:15} || true")
  vm "$1" "ferry move ${4:-$3} --to $2" || fail "no move from $1 to $2"
  [[ $(vm "$2" "pgrep -cx ${3:0:15}") == $((before + 1)) ]] || fail "it is not on $2"
}

# docs/security.md has these ports.
group_firewall() {
  start_pair root
  on_all 'nft -f - <<RULES
table inet firewall {
  chain input {
    type filter hook input priority 0; policy drop;
    iifname { lo, eth1 } accept
    ct state established,related accept
    tcp dport { 4780, 4781 } accept
    udp dport { 4791, 61441-62462 } accept
  }
}
RULES'
  fails 'no way in' h1 'timeout 3 bash -c "</dev/tcp/h3/22" 2>&1 || { echo no way in; exit 1; }'
  there_and_back
  on_all 'nft delete table inet firewall'
  end_pair
  ok 'a firewall that lets the documented ports in and nothing else'
}

# ferryd_options HOST OPTIONS
ferryd_options() {
  vm "$1" "sed -i 's|^FERRYD_OPTIONS=.*|FERRYD_OPTIONS=\"$2\"|' /etc/default/ferryd
    sync
    systemctl restart ferryd"
}

# A restore on h3 takes its time: it is the middle of a move. h1 waits for an answer not much longer.
slow_restore() {
  vm h3 'cat >/root/criu && chmod 755 /root/criu' <<'SCRIPT'
#!/bin/sh
[ "$1" != restore ] || sleep 12
exec /opt/ferry/bin/criu "$@"
SCRIPT
  ferryd_options h3 '--criu /root/criu'
  ferryd_options h1 '--limit standstill=30s'
}
quick_restore() {
  ferryd_options h3 ''
  ferryd_options h1 ''
}

# begin_move [PROGRAM]: h1 to h3; returns when h3 restores. On a slow machine CRIU may not stop the program within the
# 10 s that it takes at most; then the move is tried again.
begin_move() {
  until begin_once "$@"; do
    grep -q 'Timeout reached' "$work/events" || fail "the move has failed: $(<"$work/events")"
  done
}
begin_once() {
  : >"$work/events"
  vm h1 "ferry move ${1:-ibv_rc_pingpong} --to h3 --events" >"$work/events" 2>&1 &
  moving=$!
  await 'h3 restores, or the move has failed' restores_or_ended
  grep -q restore "$work/events"
}
restores_or_ended() { grep -q restore "$work/events" || ! kill -0 "$moving" 2>/dev/null; }

# nothing_on HOST: no program and no image of one.
# shellcheck disable=SC2016 # expanded there
nothing_on() { vm "$1" '! pgrep -x ibv_rc_pingpong && [ -z "$(ls /run/ferry/images 2>/dev/null)" ]' >/dev/null; }

# reaches FROM TO: over the network between the machines. `exec` comes in by another.
reaches() { vm "$1" "ping -c 1 -W 5 $2 >/dev/null"; }

# In the middle of a move the destination's cable is pulled; then power fails there, and then on the source. Later a
# host that has moved its program away is rebooted.
group_reboot() {
  local moving
  slow_restore
  start_pair root
  reaches h1 h3 || fail 'h1 does not reach h3'
  begin_move
  "$vmlab" cable h3 out
  if reaches h1 h3; then fail 'h1 reaches h3, whose cable is out'; fi
  vm h3 true || fail 'nobody can log in on h3 while its cable is out'
  if wait "$moving"; then fail 'a move to a host without a cable succeeded'; fi
  await 'the program goes on on h1' goes_on h1
  "$vmlab" cable h3 in
  await 'h1 reaches h3 again' reaches h1 h3
  await 'nothing of it is on h3' nothing_on h3
  [[ $("$vmlab" ps) == *h3* && $("$vmlab" exec h1 -- ssh h3 hostname) == h3 ]] || fail "h1, by ssh, and $("$vmlab" ps)"
  [[ -n $("$vmlab" console h3) ]] || fail 'h3 has written nothing on its console'
  ok "the destination's cable is pulled in the middle, and plugged in again: $(tail -n 1 "$work/events")"
  begin_move
  "$vmlab" reboot --hard h3
  if wait "$moving"; then fail 'a move to a host without power succeeded'; fi
  await 'the program goes on on h1' goes_on h1
  await 'nothing of it is on h3' nothing_on h3
  ok "the destination loses power in the middle: $(tail -n 1 "$work/events")"
  serves h3
  begin_move
  "$vmlab" reboot --hard h1
  wait "$moving" || true
  await 'nothing of it is on h3' nothing_on h3
  nothing_on h1 || fail 'it is on h1, whose power was cut'
  serves h1
  quick_restore
  end_pair
  ok 'the source loses power in the middle: nothing is left of it on the destination'
  # The ids of h1 begin anew when it boots; the program's must be free there when it comes back.
  # shellcheck disable=SC2016 # expanded there
  vm h1 'sysctl -qw kernel.ns_last_pid=$(($(cat /proc/sys/kernel/ns_last_pid) + 5000))'
  start_pair root
  move h1 h3
  "$vmlab" reboot h1
  serves h1
  goes_on h3 || fail 'it stood still when the host from which it came was rebooted'
  move h3 h1
  end_pair
  ok 'a host is rebooted after its program has moved away, and takes it back'
}

## containers

# An image of podman's on h1 with ibv_rc_pingpong, stream_check and what they need. `client`, in it, counts what is lost
# of its messages and of its memory, which it writes all the time.
make_image() {
  local host
  for host in "${machines[@]}"; do "$vmlab" copy "$FERRY_BIN/stream_check" "$host:/usr/bin"; done
  # shellcheck disable=SC2016 # expanded there
  vm h1 'podman image exists localhost/client && exit
    mkdir -p /srv/root/{bin,dev,etc,proc,run,sys,tmp} && cd /srv/root
    programs=(/usr/bin/{ibv_rc_pingpong,stream_check})
    provider=(/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so)
    for file in "${programs[@]}" "${provider[@]}" /etc/libibverbs.d/rxe.driver \
      $(ldd "${programs[@]}" "${provider[@]}" | grep -o "/[^ :]*" | sort -u); do
      [ ! -f "$file" ] || cp -L --parents "$file" .
    done
    cp /bin/busybox bin && ln -s busybox bin/sh
    printf "#!/bin/sh\nexec %s\n" >bin/client \
      "stream_check 10.79.0.2 --seconds 0 --qps 2 --rate 100 --memory 8 --rewrite 5 --json"
    chmod 755 bin/client
    tar -c . | podman import -q --change CMD=client - client'
}

# An address for containers on h1 and h3: br0, on eth0.
make_bridges() {
  local host
  for host in h1 h3; do
    vm "$host" "ip link show br0 2>/dev/null || {
      address=\$(ip -br -4 address show dev eth0 | awk '{ print \$3 }')
      ip link add br0 address \$(cat /sys/class/net/eth0/address) type bridge
      ip link set eth0 master br0
      ip address del \$address dev eth0
      ip address add \$address dev br0
      ip link set br0 up
    }" >/dev/null
  done
}

group_runc() {
  make_image
  make_bridges
  run_page docs/move-runc.md # there and back
  await 'it goes on on h1' goes_on h1
  vm h1 'runc kill web INT'
  await 'it reports' vm h1 'jq -e .result /srv/web/stdio.log'
  vm h1 'cat /srv/web/stdio.log' | jq -e '.result == "ok" and .pages_corrupted == 0' >/dev/null ||
    fail "stream_check: $(vm h1 'cat /srv/web/stdio.log')"
  await 'its peer ends' vm h2 '! pgrep -x stream_check'
  vm h1 'runc delete --force web'
  ok "a container of runc's moves there and back, and nothing is lost"
}

group_podman() {
  make_image
  make_bridges
  run_page docs/move-podman.md # there and back
  await 'it goes on on h1' goes_on h1
  vm h1 'podman rm --force --time 0 web'
  end_pair
  ok "a container of podman's moves there and back"
}

## later versions, and none

# other_version FOLDER: the packages as a later version has them, with a library of another build, go to FOLDER.
other_version() {
  local package id name
  mkdir -p "$1"
  for package in "$packages"/{ferry,ferryd,ferry-lab}_*.deb; do
    name=$(basename "$package")
    dpkg-deb -R "$package" "$work/tree"
    sed -i -E 's/^(Version: .*)$/\1+1/; s/\(= ([^)]*)\)/(= \1+1)/' "$work/tree/DEBIAN/control"
    if [[ $name == ferry_* ]]; then
      id=$(build_id "$work/tree/usr/lib/ferry/libferry.so")
      python3 - "$work/tree" "$id" <<'PYTHON'
import pathlib, sys
tree, old = pathlib.Path(sys.argv[1]), sys.argv[2]
new = "0" * 8 + old[8:]
library = tree / "usr/lib/ferry/libferry.so"
library.write_bytes(library.read_bytes().replace(bytes.fromhex(old), bytes.fromhex(new)))
script = tree / "DEBIAN/postinst"
script.write_text(script.read_text().replace(old, new))
PYTHON
    fi
    dpkg-deb --root-owner-group -b "$work/tree" "$1/$name" >/dev/null
    rm -r "$work/tree"
  done
}
build_id() { readelf -n "$1" | sed -n 's/.*Build ID: //p'; }
maps_library() { vm "$1" "grep -q 'ferry-library/$2/libferry.so' /proc/\$(pgrep -x ibv_rc_pingpong)/maps"; }

# Programs run on while Ferry is upgraded below them, and move with the library that they have.
group_upgrade() {
  local host old new
  old=$(vm h1 'ls /var/lib/ferry-library')
  new=00000000${old:8}
  other_version "$work/later"
  start_pair root
  maps_library h1 "$old" || fail "the client has not the library $old"
  for host in "${machines[@]}"; do "$vmlab" copy "$work/later"/*.deb "$host:/root/later"; done
  run_page docs/upgrade.md
  await 'the program runs on' goes_on h1
  maps_library h1 "$old" || fail 'the upgrade changed the library of a running program'
  there_and_back
  maps_library h1 "$old" || fail 'the program came back with another library'
  end_pair
  start_pair root
  maps_library h1 "$new" || fail 'a program that starts after the upgrade has not the new library'
  there_and_back
  end_pair
  ok 'an upgrade below running programs, which move with the library that they have'
}

group_removal() {
  start h2 root
  await 'the server listens' vm h2 'ss -Hltn "sport = :18515" | grep -q .'
  # The machines have no compiler, and so not the headers of libibverbs, which apt would want.
  vm h2 'dpkg -i --ignore-depends=libibverbs-dev /root/packages/ferry-dev_*.deb && dpkg -V ferry-dev' >/dev/null
  vm h2 'dpkg -r ferry-lab ferryd ferry' >/dev/null
  vm h2 'pgrep -x ibv_rc_pingpong >/dev/null' || fail 'the removal of the packages ended a program'
  end_pair
  vm h2 'dpkg -P ferryd ferry ferry-dev' >/dev/null
  # CRIU came with the machine.
  vm h2 'find / -xdev -iname "*ferry*" -not -path "/opt/ferry*" -not -path "/root/*" -not -path "/proc/*"' \
    >"$work/left"
  [[ ! -s $work/left ]] || fail "left after the purge: $(<"$work/left")"
  ok 'the removal leaves programs running, the purge leaves nothing'
}

use_machines machines 3
install_packages
if (($# == 0)); then
  set -- plain users clocks device objects verbs firewall reboot upgrade runc podman containers removal
fi
for group in "$@"; do
  echo "group $group"
  [[ $group == plain ]] || delay # `plain` is under full load
  "group_$group"
done
