#!/bin/bash
# Moves unmodified programs between hosts of the lab while they send, and tries what must fail. Needs root.
#
#   move_test.sh [GROUP...]     groups: perftest unacknowledged stream image address errors foreign rollback restart
#                               killed abort (default: all)
#
# Prints one line per check; exits non-zero when one fails. perftest's QPs have a timeout of 1 s (-u 18) instead of 67
# ms: no result depends on how busy the machine is.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

group_perftest() {
  start h2 bws ib_send_bw -F -u 18 -q 2 -D 600 -b
  await_listen h2 bws
  start h1 bwc ib_send_bw -F -u 18 -q 2 -D 600 -b "$(address_of h2 bws)"
  await_traffic h1 bwc
  move bwc h1 h3
  await_traffic h3 bwc
  move bwc h3 h1
  move bws h2 h3
  move bws h3 h1
  move bwc h1 h2
  # Old places are given up once every peer knows; here nobody may look like the program any more.
  [[ $(on h3 "$ferry" ps --json | jq '.programs | length') == 0 ]] || fail 'h3 still has a program'
  expire bwc bws
  shows '^ *65536 +[0-9]+ ' "$lab" logs bwc || fail 'ib_send_bw printed no result'
  ok 'ib_send_bw moved on both sides, under load, and finished'
}

# drops_packets NETNS: the rules in a namespace on h1 have dropped some.
drops_packets() { shows 'packets [1-9]' on h1 nsenter --net="$1" nft list table ip acks; }

# A program that stops while requests of it are unacknowledged for sure: its container's network drops every
# acknowledgement (opcode 0x11, the first byte behind the UDP header), and its own timer (-u 20: 4 s) does not end it.
group_unacknowledged() {
  local netns
  start h2 uas ib_send_bw -F -D 600 -u 20
  await_listen h2 uas
  start h1 uac ib_send_bw -F -D 600 -u 20 "$(address_of h2 uas)"
  await_traffic h1 uac
  netns=$(on h1 jq -r .netns /run/ferry/containers/uac/config.json)
  on h1 nsenter --net="$netns" nft 'add table ip acks
    add chain ip acks drops { type filter hook input priority 0; }
    add rule ip acks drops udp dport >= 4791 @th,64,8 0x11 counter drop'
  await 'acknowledgements are dropped' drops_packets "$netns"
  move uac h1 h3
  (($(jq .unacked_psns <<<"$last_report") > 0)) || fail 'nothing was unacknowledged although nothing was acknowledged'
  expire uac uas
  ok 'what was unacknowledged at the stop was sent again from the new place'
}

group_stream() {
  start h2 scs "$FERRY_BIN/stream_check"
  await_listen h2 scs 18600
  start h1 scc "$FERRY_BIN/stream_check" "$(address_of h2 scs)" --seconds 0 --qps 4 --json
  await_traffic h1 scc
  on h1 "$ferry" move scc --to h3 --dry-run --json |
    jq -e '.program == "scc" and .from == "h1" and .to == "h3" and .qps == 4 and .standard_peers == 0 and
      .memory_bytes > 1000000 and .blackout_ms > 0 and .expected_ms > 0' >/dev/null ||
    fail 'ferry move --dry-run does not say what would be'
  shows 'scc could move h1 -> h3: 4 QPs, [0-9.]+ MB of memory, a blackout of about [0-9]+ ms .*, less than [0-9]+ ms' \
    on h1 "$ferry" move scc --to h3 --dry-run || fail 'ferry move --dry-run says nothing to people'
  fails "^ferry: 'scc' would not be moved: h1: 'scc' is on h1 already" on h1 "$ferry" move scc --to h1 --dry-run
  move scc h1 h3
  move scs h2 h1
  move scc h3 h2
  # Both ends at the same moment: each finds the other through the place that it left.
  move scc h2 h3 &
  local other=$!
  move scs h1 h2
  wait "$other" || fail 'the client did not move while the server did'
  hit INT scc
  finishes scc
  finishes scs
  lost_nothing scc
  ok 'stream_check lost, doubled and corrupted nothing over five moves'
}

# What the image costs on the wire is what the report says: no disk and no shared file stand between the hosts.
group_image() {
  start h2 ims ib_send_bw -F -u 18 -D 600 -s 8388608
  await_listen h2 ims
  start h1 imc ib_send_bw -F -u 18 -D 600 -s 8388608 "$(address_of h2 ims)"
  await_traffic h1 imc
  local before after bytes sent
  before=$(on h1 cat /sys/class/net/uplink/statistics/tx_bytes)
  move imc h1 h3 --no-copy-ahead
  after=$(on h1 cat /sys/class/net/uplink/statistics/tx_bytes)
  bytes=$(jq .image_bytes <<<"$last_report")
  sent=$((after - before))
  ((bytes > 4000000)) || fail "the image of a program with 8 MiB buffers has $bytes bytes"
  ((sent >= bytes && sent < bytes + bytes / 10 + 500000)) ||
    fail "the report says $bytes bytes of image, the link says $sent"
  for host in h1 h3; do
    [[ -z $(on "$host" ls /run/ferry/images) ]] || fail "$host keeps an image"
  done
  expire imc ims
  ok "image: $bytes bytes, link: $sent bytes"
}

# A container whose rdma0 address moves along.
group_address() {
  "$lab" run h2 ads -d --move-rdma -- nice "$ferry" run --netdev rdma0 -- ib_send_bw -F -u 18 -D 600
  await_listen h2 ads
  start h1 adc ib_send_bw -F -u 18 -D 600 "$(address_of h2 ads)"
  await_traffic h1 adc
  move ads h2 h3
  move ads h3 h2
  expire adc ads
  ok 'a program moved with its RDMA address'
}

group_errors() {
  start h2 ers ib_send_bw -F -u 18 -D 600
  await_listen h2 ers
  start h1 erc ib_send_bw -F -u 18 -D 600 "$(address_of h2 ers)"
  "$lab" run h1 plain -d -- sleep 3600
  await_traffic h1 erc
  fails "unknown host 'h9'" on h1 "$ferry" move erc --to h9
  fails 'no ferryd on h3:4799' on h1 "$ferry" move erc --to h3:4799
  fails "is on h1 already" on h1 "$ferry" move erc --to h1
  fails "no program 'nothing' on h1" on h1 "$ferry" move nothing --to h3
  fails 'no process 4194303' on h1 "$ferry" move 4194303 --to h3
  fails "'plain' was not started with Ferry" on h1 "$ferry" move plain --to h3
  local held
  held=$(on h1 "$ferry" ps --json | jq '.programs[] | select(.container == "erc") | .pid')
  kill -STOP "$held"
  fails "process $held is stopped, by a signal or a debugger; let it run \(kill -CONT $held\)" on h1 "$ferry" move erc \
    --to h3
  shows ' erc .* stopped$' on h1 "$ferry" ps || fail 'ferry ps does not say that erc is stopped'
  kill -CONT "$held"
  fails 'is not yours: only root, or the owner' on h1 setpriv --reuid 65534 --clear-groups "$ferry" move erc --to h3
  fails 'no ferryd runs on this host' on h1 env FERRYD_API_SOCKET=/run/nothing "$ferry" ps
  fails 'another ferryd is running' on h3 "$FERRY_BIN/ferryd" --tls-dir /run/ferry/tls --state-dir /tmp/x
  another h3 4788 --criu /nonexistent/criu
  fails 'CRIU is missing' on h1 "$ferry" move erc --to h3:4788
  script /tmp/old-criu 'echo Version: 3.17.1'
  another h3 4782 --criu /tmp/old-criu
  fails 'CRIU 3.17, and 4.2 or later' on h1 "$ferry" move erc --to h3:4782
  another h3 4783 --memory-limit 1M
  fails 'not enough memory on h3-4783' on h1 "$ferry" move erc --to h3:4783
  "$lab" run h3 erc2 -d -- sleep 3600
  # Two moves at once: one wins, the other gets a line.
  local first=0 second=0 output
  on h1 "$ferry" move erc --to h3 >"$work/first" 2>&1 &
  local runner=$!
  on h1 "$ferry" move erc --to h2 >"$work/second" 2>&1 || second=$?
  wait "$runner" || first=$?
  ((first + second == 1)) || fail "two moves at once ended with $first and $second: $(cat "$work/first" "$work/second")"
  output=$(cat "$work/first" "$work/second" | grep '^ferry:')
  [[ $output =~ 'is being moved already'|'has moved from h1 to h'[23] && $output != *$'\n'* ]] ||
    fail "two moves at once: $output"
  # A peer that knows nothing of the migration protocol.
  "$lab" run h2 ums -d -- env FERRY_MIGRATION=off nice "$ferry" run --netdev rdma0 -- ib_send_bw -F -u 18 -D 600
  await_listen h2 ums
  start h1 umc ib_send_bw -F -u 18 -D 600 "$(address_of h2 ums)"
  await_traffic h1 umc
  local line='peer 10\.78\.[0-9.]+ of QP .* speaks no migration messages '
  line+='and the address 10\.78\.[0-9.:]+ cannot move along'
  fails "$line" on h1 "$ferry" move umc --to h3
  hit KILL umc ums
  expire erc ers
  ok 'wrong input gets one line, and the program goes on'
}

# has_stopped_once HOST NAME: a program goes on after it was stopped: its QPs have an epoch.
has_stopped_once() {
  on "$1" "$ferry" ps --json | jq -e --arg name "$2" \
    'any(.programs[] | select(.container == $name) | .devices[].qps[]; .epoch > 0 and .migration == "")' >/dev/null
}

# Somebody else's CRIU, which locks the network by rules and lets the program run on.
group_foreign() {
  start h2 frs ib_send_bw -F -u 18 -D 600
  await_listen h2 frs
  start h1 frc ib_send_bw -F -u 18 -D 600 "$(address_of h2 frs)"
  await_traffic h1 frc
  local pid netns
  pid=$(on h1 jq .pid /run/ferry/containers/frc/config.json)
  netns=$(on h1 jq -r .netns /run/ferry/containers/frc/config.json)
  # shellcheck disable=SC2016 # expanded on the host
  on h1 sh -c 'mkdir /run/image && exec "$@" --external "net[$(stat -Lc %i "$0")]:net"' "$netns" \
    /opt/ferry/bin/criu dump --tree "$pid" --images-dir /run/image --tcp-established --manage-cgroups=ignore \
    --network-lock nftables --libdir "$FERRY_BIN/criu-plugins" --leave-running >"$work/criu" 2>&1 ||
    fail "criu dump with the plugin: $(tail -n 3 "$work/criu")"
  if on h1 grep -q 'network lock' /run/ferry/ferryd.log; then fail 'no exception from the network lock'; fi
  await 'frc comes back from its checkpoint' has_stopped_once h1 frc
  if nsenter --net="/proc/$pid/ns/net" nft list tables | grep ferry; then fail 'rules were left behind'; fi
  expire frc frs
  ok 'a checkpoint by another CRIU left the program running'
}

# A ferryd that starts again finds the programs that were restored before it, and tells how they end.
group_restart() {
  local host
  start h2 rss ib_send_bw -F -u 18 -D 600
  await_listen h2 rss
  start h1 rsc ib_send_bw -F -u 18 -D 600 "$(address_of h2 rss)"
  await_traffic h1 rsc
  move rsc h1 h3
  restart_ferryd h3
  await_traffic h3 rsc
  move rsc h3 h1
  restart_ferryd h1
  await_traffic h1 rsc
  # An end of which nobody but its ferryd can tell. Older kernels do not say how somebody else's child has ended.
  expire -u rsc rss
  shows '^ *65536 +[0-9]+ ' "$lab" logs rsc || fail 'ib_send_bw printed no result'
  for host in h1 h3; do
    [[ -z $(on "$host" ls /run/ferry/images) ]] || fail "$host keeps an image"
  done
  ok 'programs outlive the ferryd that restored them, and their end is told'
}

# records HOST SIDE WHAT: how many such records the journal of a host has.
records() { on "$1" grep -c " $2 $3 " /var/tmp/ferry/decisions || true; }

# has_recorded HOST SIDE WHAT COUNT: it has more of them.
has_recorded() { (($(records "$1" "$2" "$3") > $4)); }

# sends_there NETNS: something in a namespace on h3 has sent packets to h2.
sends_there() { shows 'packets [1-9]' on h3 nsenter --net="$1" nft list chain ip away out; }

# ferryds that are killed while h2 restores, which waits for us there: before the decision, and after it while a peer,
# that is halted meanwhile, has heard nothing.
group_killed() {
  local runner netns pid before
  # shellcheck disable=SC2016 # expanded by the script
  printf '#!/bin/sh\n%s\n' '[ "$1" != restore ] || { touch /tmp/restoring; until [ -e /tmp/go ]; do sleep 0.02; done; }
    exec /opt/ferry/bin/criu "$@"' | on h2 sh -c 'cat >/tmp/criu && chmod 755 /tmp/criu'
  ferryd_with h2 --criu /tmp/criu
  start h1 kls "$FERRY_BIN/stream_check" --timeout 18
  await_listen h1 kls 18600
  start h3 klc "$FERRY_BIN/stream_check" "$(address_of h1 kls)" --seconds 0 --qps 2 --timeout 18 --json
  await_traffic h3 klc

  # The source's, while all is stopped: the next one gives the sockets back.
  on h1 "$ferry" move kls --to h2 >"$work/undone" 2>&1 &
  runner=$!
  await 'h2 restores' on h2 test -e /tmp/restoring
  ferryd_with h1
  on h2 touch /tmp/go
  if wait "$runner"; then fail 'a move was done without its ferryd'; fi
  await_traffic h1 kls
  await 'h2 gives it up' has_given_up h2 kls
  ok 'what a killed ferryd had stopped goes on'

  # The peer can only hear from the stand-in of the source, which is that of the next ferryd. It has something to ask
  # for sure: what it sends does not arrive from before the stop on, so that a request of either side is unacknowledged.
  on h2 rm -f /tmp/go /tmp/restoring
  netns=$(on h3 jq -r .netns /run/ferry/containers/klc/config.json)
  on h3 nsenter --net="$netns" nft 'add table ip away
    add chain ip away in { type filter hook input priority 0; }
    add rule ip away in ip saddr 10.78.2.0/24 drop
    add chain ip away out { type filter hook output priority 0; }
    add rule ip away out ip daddr 10.78.1.0/24 udp dport >= 4791 counter drop'
  await 'what klc sends is dropped' shows 'packets [1-9]' on h3 nsenter --net="$netns" nft list chain ip away out
  on h1 "$ferry" move kls --to h2 >"$work/done" 2>&1 &
  runner=$!
  await 'h2 restores' on h2 test -e /tmp/restoring
  pid=$(programs_of klc | cut -d ' ' -f 3)
  kill -STOP "$pid"
  on h3 nsenter --net="$netns" nft 'flush chain ip away out
    add rule ip away out ip daddr 10.78.2.0/24 counter'
  on h2 touch /tmp/go
  wait "$runner" || fail "kls did not move: $(<"$work/done")"
  kill -STOP "$(on h3 cat /run/ferry/ferryd.pid)" # which might ask the directory
  ferryd_with h1
  kill -CONT "$pid"
  await 'klc has heard of the new place' sends_there "$netns"
  on h3 nsenter --net="$netns" nft delete table ip away
  kill -CONT "$(on h3 cat /run/ferry/ferryd.pid)"
  await_traffic h2 kls
  ok 'a peer hears of a move from the next ferryd of the source'

  # The destination's, as soon as it has committed: the program may have asked it for its sockets, or asks the next one.
  before=$(records h3 destination committed)
  on h2 "$ferry" move kls --to h3 >"$work/there" 2>&1 &
  runner=$!
  await 'h3 commits' has_recorded h3 destination committed "$before"
  ferryd_with h3
  wait "$runner" || grep -q "'kls' is on h3 now" "$work/there" || fail "kls did not move: $(<"$work/there")"
  await_traffic h3 kls
  ok 'what a killed ferryd had restored goes on'
  # And both, one after the other, when everybody knows.
  ferryd_with h2
  ferryd_with h1
  await_traffic h3 kls
  hit INT klc
  finishes klc
  finishes kls
  lost_nothing klc
  ok 'stream_check lost, doubled and corrupted nothing over five killed ferryds'
}

group_rollback() {
  # shellcheck disable=SC2016 # expanded by the scripts
  script /tmp/no-restore 'criu=/opt/ferry/bin/criu
    [ "$1" = restore ] || exec $criu "$@"
    while [ "$1" != --images-dir ]; do shift; done
    echo "(00.000001) Error (criu/x.c:1): no luck today" >"$2/restore.log"; exit 1'
  # shellcheck disable=SC2016
  script /tmp/slow-restore '[ "$1" != restore ] || { touch /tmp/restoring; sleep 600; }; exec /opt/ferry/bin/criu "$@"'
  start h2 rbs ib_send_bw -F -u 18 -D 600 -b
  await_listen h2 rbs
  start h1 rbc ib_send_bw -F -u 18 -D 600 -b "$(address_of h2 rbs)"
  await_traffic h1 rbc
  # And one whose peer knows nothing of all this, and whose RDMA address would move along: it is held, or has left, and
  # comes back.
  "$lab" run h1 rbm -d --move-rdma -- nice "$ferry" run --netdev rdma0 -- ib_send_bw -F -u 18 -D 600
  await_listen h1 rbm
  "$lab" run h2 rbp -d -- env FERRY_MIGRATION=off nice "$ferry" run --netdev rdma0 -- ib_send_bw -F -u 18 \
    -D 600 "$(address_of h1 rbm)"
  await_traffic h1 rbm
  another h3 4784 --criu /tmp/no-restore
  fails "'rbc' was not moved: .*no luck today" on h1 "$ferry" move rbc --to h3:4784
  fails "'rbm' was not moved: .*no luck today" on h1 "$ferry" move rbm --to h3:4784
  await_traffic h1 rbm
  [[ $(on h1 jq -r .state /run/ferry/containers/rbc/config.json) == running ]] || fail 'rbc is not running on h1'
  await_traffic h1 rbc
  # A destination that cannot write its decision down refuses the commit: the source goes on, with its network.
  on h3 sh -c 'mkdir -p /tmp/ferryd-4786/state && mount -t tmpfs -o size=4k none /tmp/ferryd-4786/state'
  another h3 4786
  on h3 sh -c 'head -c 4096 /dev/zero >/tmp/ferryd-4786/state/full'
  fails "'rbc' was not moved: .*cannot make a record durable.*No space left on device" on h1 "$ferry" move rbc \
    --to h3:4786
  [[ $(on h1 jq -r .state /run/ferry/containers/rbc/config.json) == running ]] || fail 'rbc is not running on h1'
  await_traffic h1 rbc
  fails "'rbm' was not moved: .*cannot make a record durable" on h1 "$ferry" move rbm --to h3:4786
  await_traffic h1 rbm
  expire rbm rbp
  # The destination dies while it restores.
  another h3 4785 --criu /tmp/slow-restore
  on h1 "$ferry" move rbc --to h3:4785 >"$work/dying" 2>&1 &
  local runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  # shellcheck disable=SC2016
  on h3 sh -c 'kill -9 $(cat /tmp/ferryd-4785/pid)'
  if wait "$runner"; then fail 'moved to a ferryd that died'; fi
  grep -q "'rbc' was not moved: there is no ferryd on h3:4785" "$work/dying" ||
    fail "a dying destination: $(cat "$work/dying")"
  await_traffic h1 rbc
  # It can still move, to where its arrival failed as well.
  on h3 rm -rf /run/ferry/containers/rbc
  move rbc h1 h3
  expire rbc rbs
  ok 'failed moves leave the program running where it was'
}

# is_sent: h3 has a part of the image of abc; the rest takes long.
is_sent() { [[ -n $(on h3 find /run/ferry/images -name 'pages-*' -size +64k) ]]; }

group_abort() {
  local runner
  start h2 abs "$FERRY_BIN/stream_check"
  await_listen h2 abs 18600
  start h1 abc "$FERRY_BIN/stream_check" "$(address_of h2 abs)" --seconds 0 --qps 2 --json
  await_traffic h1 abc
  fails "^ferry: no move of 'abc' is under way on h1$" on h1 "$ferry" move abc --abort
  on h1 tc qdisc replace dev uplink root tbf rate 1mbit burst 64k latency 1s

  on h1 "$ferry" move abc --to h3 --events >"$work/abort" 2>&1 &
  runner=$!
  await 'its image is on the way' is_sent
  on h1 "$ferry" move abc --abort
  if wait "$runner"; then fail "it was moved: $(<"$work/abort")"; fi
  grep -q "^ferry: 'abc' was not moved: it was given up$" "$work/abort" || fail "ferry said: $(<"$work/abort")"
  grep '^{' "$work/abort" | jq -es '.[0].phase == "check" and .[-1].phase == "failed" and
    (.[-1].failure | test("was not moved: it was given up$")) and all(.time | test("^20[0-9-]+T[0-9:]+[.][0-9]+Z$"))' \
    >/dev/null || fail "its events: $(<"$work/abort")"
  await_traffic h1 abc
  ok 'ferry move --abort gives a move up: the program goes on'

  # shellcheck disable=SC2016 # expanded on the host
  on h1 sh -c 'echo $$ >/tmp/mover; exec env --default-signal=INT "$0" move abc --to h3' "$ferry" \
    >"$work/abort" 2>&1 &
  runner=$!
  await 'its image is on the way' is_sent
  kill -INT "$(on h1 cat /tmp/mover)"
  if wait "$runner"; then fail "it was moved: $(<"$work/abort")"; fi
  grep -q "^ferry: 'abc' was not moved: it was given up$" "$work/abort" || fail "ferry said: $(<"$work/abort")"
  on h1 tc qdisc del dev uplink root
  await_traffic h1 abc
  move abc h1 h3
  hit INT abc
  finishes abc
  finishes abs
  lost_nothing abc
  ok 'so does Ctrl-C'
}

use_lab movet 3
if (($# == 0)); then
  set -- perftest unacknowledged stream image address errors foreign rollback restart killed abort
fi
for group in "$@"; do "group_$group"; done
