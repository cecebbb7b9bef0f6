#!/bin/bash
# Takes checkpoints of containers on several hosts, which have connections of RDMA and of TCP with each other, and
# starts them again, there and on other hosts. The store is in a folder that all hosts share. Needs root.
#
#   hosts_test.sh [GROUP...]     groups: pair refused killed gives_up lost wait job mpich (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"
# shellcheck source=tests/checkpoint/events.sh
source "$(dirname "$0")/events.sh"
# shellcheck source=tests/programs/mpi.sh
source "$(dirname "$0")/../programs/mpi.sh"

## a pair: stream_check in a container on each of two hosts

# begin MESSAGES [OPTION...]: `server` on h1, `client` on h2.
begin() {
  store=/srv/$group
  on h1 mkdir -m 700 "$store"
  start h1 server "$FERRY_BIN/stream_check" --json --listen 18700
  await_listen h1 server 18700
  start h2 client "$FERRY_BIN/stream_check" "$(address_of h1 server)" --port 18700 --json --events --qps 2 \
    --size 4096 --messages "$1" --rate 1000 "${@:2}"
  await 'the client sends' goes_on h2 client
}
packets() { # HOST CONTAINER
  on "$1" "$ferry" ps --json | jq --arg name "$2" \
    '[.programs[] | select(.container == $name) | .devices[].qps[].received_packets] | add // 0'
}
goes_on() { # HOST CONTAINER
  local before
  before=$(packets "$@") && sleep 0.1 && (($(packets "$@") > before))
}

# checkpoint_of HOST ARGUMENT...: taken by that host's ferryd.
checkpoint_of() { on "$1" "$ferry" checkpoint "${@:2}" --to "$store" >"$work/out" 2>&1 || fail "$(<"$work/out")"; }
# restart_from HOST ARGUMENT...
restart_from() { on "$1" "$ferry" restart "$store" "${@:2}" >"$work/out" 2>&1 || fail "restart: $(<"$work/out")"; }

# gone HOST CONTAINER: it ends, and the lab forgets it there, which would take that one for the one that goes on.
gone() {
  await "$2 on $1 has ended" container_ended "$@"
  on "$1" rm -r "/run/ferry/containers/$2"
}
container_ended() { on "$1" test -e "/run/ferry/containers/$2/exit"; }
# kill_container HOST CONTAINER: it may have ended by itself, because others have.
kill_container() {
  local pid
  pid=$(on "$1" jq .pid "/run/ferry/containers/$2/config.json")
  if ((pid > 0)); then
    kill -KILL "$pid" 2>/dev/null || true
    await "process $pid has ended" no_process "$pid"
  fi
  gone "$@"
}

# ends_well CONTAINER: stream_check has lost nothing.
ends_well() {
  "$lab" wait "$1" --timeout 120 >"$work/report" || fail "$1 ended with $?: $(<"$work/report")"
  jq -e '.messages_lost == 0 and .messages_duplicated == 0 and .messages_corrupted == 0' "$work/report" >/dev/null ||
    fail "$1: $(<"$work/report")"
}

# They go on after a checkpoint, from it where they were, on two other hosts, and on one.
group_pair() {
  local host
  begin 3000
  openssl req -x509 -newkey rsa:2048 -noenc -subj /CN=keeper -keyout "$work/key" -out "$work/keeper.pem" 2>/dev/null
  for host in h1 h3; do on "$host" tee /tmp/key <"$work/key" >/dev/null; done
  on h1 tee /tmp/keeper.pem <"$work/keeper.pem" >/dev/null
  # Encrypted: other hosts' ferryds get the content key from the one that is asked.
  checkpoint_of h1 server client@h2 --encrypt-to /tmp/keeper.pem
  says "$work/out" '^checkpoint [0-9a-f]{16} of server on h1; client on h2: standstill' || fail "$(<"$work/out")"
  await 'the client goes on' goes_on h2 client
  fails "still runs on h[12], as process [0-9]+: end it" on h3 "$ferry" restart "$store" --on h3,h4 --key /tmp/key
  kill_container h2 client
  kill_container h1 server
  on h1 find "$store" -name '*.zst' | grep . && fail 'a host has not encrypted what it has stored'
  restart_from h1 --key /tmp/key
  says "$work/out" '^checkpoint [0-9a-f]{16} goes on: server on h1; client on h2' || fail "$(<"$work/out")"
  await 'the client goes on' goes_on h2 client

  checkpoint_of h2 server@h1 client --stop --keep 1
  gone h1 server
  gone h2 client
  on h1 "$ferry" checkpoints "$store" --json |
    jq -e '[.checkpoints[] | select(.encrypted | not)] | length == 1' >/dev/null || fail '--keep 1 keeps more'
  restart_from h1 --map h1=h3 --map h2=h4
  says "$work/out" 'server on h3' || fail "$(<"$work/out")"
  says "$work/out" 'client on h4' || fail "$(<"$work/out")"
  await 'the client goes on, on h4' goes_on h4 client
  # h1 and h2 say that nothing runs there: h3 is known by the directory only.
  fails "still runs on h[34], as process [0-9]+: end it" on h1 "$ferry" restart "$store"

  # Nor does it matter that one has moved on since.
  on h3 "$ferry" move server --to h2 >/dev/null || fail 'the server does not move on'
  fails "still runs on h[24], as" on h1 "$ferry" restart "$store" --map h1=h3 --map h2=h1
  fails "'server' still runs on h2, as a program that has come here since" on h2 "$ferry" restart "$store" --on h1
  on h2 "$ferry" move server --to h3 >/dev/null || fail 'the server does not move back'

  checkpoint_of h1 server@h3 client@h4 --stop
  gone h3 server
  gone h4 client
  restart_from h1 --on h2
  says "$work/out" 'goes on: (server, client|client, server) on h2' || fail "$(<"$work/out")"
  ends_well server
  ends_well client
  ok 'containers on two hosts go on from their checkpoints, on others and on one'
}

group_refused() {
  local there
  begin 1000000
  fails "QP 0x[0-9a-f]+ of 'server' is connected with [0-9.]+, which is not in the checkpoint" \
    on h1 "$ferry" checkpoint server --to "$store"
  fails "h2: there is no program 'nobody'" on h1 "$ferry" checkpoint server nobody@h2 --to "$store"
  fails "there is no ferryd on h9|cannot find h9|h9" on h1 "$ferry" checkpoint server client@h9 --to "$store"
  # A folder of the same name that is another one on the other host.
  on h1 mkdir -m 700 /tmp/own
  fails 'h2: cannot read /tmp/own' on h1 "$ferry" checkpoint server client@h2 --to /tmp/own
  on h2 mkdir -m 700 /tmp/own
  fails 'h2: /tmp/own is not the folder in which the checkpoint has begun' \
    on h1 "$ferry" checkpoint server client@h2 --to /tmp/own
  on h1 test -z "$(on h1 ls /tmp/own)" || fail "what is not complete is left: $(on h1 ls -R /tmp/own)"
  await 'the client goes on' goes_on h2 client
  # The TCP connection of a third one, with a ferryd.
  # shellcheck disable=SC2016 # expanded there
  "$lab" run h1 third -d -- nice "$ferry" run --netdev rdma0 -- bash -c 'exec 3<>/dev/tcp/10.77.0.2/4780; exec "$@"' \
    bash "$FERRY_BIN/stream_check" --listen 18701
  await_listen h1 third 18701
  fails "'third' has a TCP connection from [0-9.]+, port [0-9]+, to 10\.77\.0\.2, port 4780, which is not in" \
    on h1 "$ferry" checkpoint server client@h2 third --to "$store"
  kill_container h1 third

  checkpoint_of h1 server client@h2
  kill_container h1 server
  kill_container h2 client
  fails 'no program of checkpoint [0-9a-f]+ ran on h3' on h1 "$ferry" restart "$store" --map h3=h4
  fails -- '--on names a host twice' on h1 "$ferry" restart "$store" --on h3,h3
  fails -- '--map is OLD=NEW' on h1 "$ferry" restart "$store" --map h3
  # A host that cannot be asked may run them yet.
  kill_ferryd h2
  fails "h2 does not say whether 'client' still runs there .*--force" on h1 "$ferry" restart "$store" --on h3,h4
  restart_from h1 --on h3,h4 --force
  start_ferryd h2
  await 'the ferryd of h2 answers' answers h2
  await 'the programs go on' pair_goes_on
  there=$(name_on h4)
  kill_container h3 "$(name_on h3)"
  kill_container h4 "$there"
  ok 'what cannot be is refused, and programs go on'
}
name_on() { on "$1" "$ferry" ps --json | jq -r '.programs[0].container'; }
pair_goes_on() { goes_on h3 "$(name_on h3)"; }

# One of the ferryds is killed while the programs of one host stand still and those of the other are being stopped. All
# go on; so does the next ferryd.
group_killed() {
  local victim
  begin 1000000
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/held-dump '[ "$1" = dump ] && {
      touch /tmp/dumping
      until [ -e /tmp/dump-now ]; do sleep 0.02; done
    }
    exec /opt/ferry/bin/criu "$@"' h2
  for victim in h1 h2; do
    on h2 rm -f /tmp/dumping /tmp/dump-now
    ferryd_with h2 --criu /tmp/held-dump
    await 'the client is known to the ferryd of h2' goes_on h2 client
    on h1 "$ferry" checkpoint server client@h2 --to "$store" >"$work/out" 2>&1 &
    await "h2 is about to dump" on h2 test -e /tmp/dumping
    await 'the server stands still' stands_still h1 server
    kill_ferryd "$victim"
    wait $! && fail "it was too late to kill ferryd: $(<"$work/out")"
    on h2 touch /tmp/dump-now
    start_ferryd "$victim"
    await "the ferryd of $victim answers" answers "$victim"
    await 'the client goes on' goes_on h2 client
    await 'the server goes on' goes_on h1 server
    on h1 "$ferry" checkpoints "$store" --json | jq -e 'all(.checkpoints[]; .complete | not)' >/dev/null ||
      fail 'what was not complete is taken for complete'
    restart_ferryd h2
    await 'the client is known to the ferryd of h2' goes_on h2 client
  done
  checkpoint_of h1 server client@h2
  kill_container h1 server
  kill_container h2 client
  restart_from h2
  await 'the client goes on' goes_on h2 client
  kill_container h1 server
  kill_container h2 client
  ok 'programs go on when a ferryd of theirs is killed'
}
stands_still() { ! goes_on "$@"; }

# Ctrl-C at the host that was asked, while the programs of one host stand still and those of the other are being
# stopped. And what both hosts have done is told there.
group_gives_up() {
  begin 1000000 --memory 96
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/held-dump '[ "$1" != dump ] || {
      touch /tmp/dumping
      until [ -e /tmp/dump-now ]; do sleep 0.02; done
    }
    exec /opt/ferry/bin/criu "$@"' h2
  ferryd_with h2 --criu /tmp/held-dump
  await 'the client is known to the ferryd of h2' goes_on h2 client
  ask checkpoint server client@h2 --to "$store" --json
  await "h2 is about to dump" on h2 test -e /tmp/dumping
  await 'the server stands still' stands_still h1 server
  signal_asked INT
  comes_to 'give up'
  on h2 touch /tmp/dump-now
  is_given_up 'the checkpoint is given up: nothing of it is left, and the programs go on'
  await 'the client goes on' goes_on h2 client
  await 'the server goes on' goes_on h1 server
  on h1 ls "$store" | grep . && fail 'something of the checkpoint is left'

  ask checkpoint server client@h2 --to "$store" --json
  told_all store jq .image_bytes "$work/report"
  events | jq -es 'map(select(.phase == "copy ahead"))[-1].total_bytes > 96e6' >/dev/null ||
    fail "what h2 copies is not told: $(<"$work/said")"
  kill_container h1 server
  kill_container h2 client
  ask restart "$store" --map h1=h3 --map h2=h4 --json
  told_all read image_bytes "$store"
  await 'the client goes on, on h4' goes_on h4 client
  kill_container h3 server
  kill_container h4 client
  ok 'what several hosts do is told at one, and given up there'
}
# The host that is asked, which has none of the programs, is lost as soon as something is decided, and before it has
# told the others: a checkpoint with which the programs end, and a restart.
group_lost() {
  begin 1000000
  hold_ferryd h3 rename:1
  on h3 "$ferry" checkpoint server@h1 client@h2 --to "$store" --stop >"$work/out" 2>&1 &
  await 'the checkpoint is complete' is_in_store '????????????????'
  kill_ferryd h3 "$holder"
  wait $! && fail "it was too late to kill ferryd: $(<"$work/out")"
  gone h1 server
  gone h2 client
  start_ferryd h3
  await 'the ferryd of h3 answers' answers h3

  hold_ferryd h3 renameat:2  # the first one notes where the programs go on
  on h3 "$ferry" restart "$store" >"$work/out" 2>&1 &
  await 'the restart is decided' is_in_store '*.goes-on'
  kill_ferryd h3 "$holder"
  wait $! && fail "it was too late to kill ferryd: $(<"$work/out")"
  await 'the client goes on' goes_on h2 client
  await 'the server goes on' goes_on h1 server
  start_ferryd h3
  await 'the ferryd of h3 answers' answers h3
  fails "still runs on h[12], as process [0-9]+: end it" on h3 "$ferry" restart "$store" --on h3,h4
  checkpoint_of h3 server@h1 client@h2 --stop --keep 1
  gone h1 server
  gone h2 client
  on h1 test -z "$(on h1 find "$store" -name '*.restart-*' -o -name '*.partial')" ||
    fail "something is left: $(on h1 ls "$store")"
  restart_from h4
  await 'the client goes on' goes_on h2 client
  kill_container h2 client
  kill_container h1 server
  ok 'what is decided holds on all hosts, although the one that was asked is lost'
}
is_in_store() { [[ -n $(on h1 find "$store" -maxdepth 1 -name "$1") ]]; }
# hold_ferryd HOST CALL:NUMBER: it does not return from that call of the system, until the process `holder` ends.
hold_ferryd() {
  strace -f -qq -o /dev/null -p "$(on "$1" cat /run/ferry/ferryd.pid)" -e "trace=${2%:*}" \
    -e "inject=${2%:*}:delay_exit=100000000:when=${2#*:}" &
  holder=$!
  await 'strace holds ferryd' is_traced "$1"
}
is_traced() { ! grep -q '^TracerPid:.0$' "/proc/$(on "$1" cat /run/ferry/ferryd.pid)/status"; }

## a job: programs that nobody names one by one

# start_of_job JOB HOST NAME CMD...: empty: of no job.
start_of_job() { "$lab" run "$2" "$3" -d -- nice "$ferry" run --netdev rdma0 ${1:+--job "$1"} -- "${@:4}"; }
jobs_on() { on "$1" "$ferry" ps --json | jq -c '[.programs[] | {(.container): .job}] | add // {}'; }

# Two pairs over two hosts: the job `even`, and one whose server is of the job `odd` and whose client of none.
begin_job() {
  store=/srv/$group
  on h1 mkdir -m 700 "$store"
  local server port job
  for server in even:18700:even odd:18702:odd; do
    IFS=: read -r server port job <<<"$server"
    start_of_job "$job" h1 "$server-server" "$FERRY_BIN/stream_check" --json --listen "$port"
    await_listen h1 "$server-server" "$port"
    [[ $job == even ]] || job=
    start_of_job "$job" h2 "$server-client" "$FERRY_BIN/stream_check" "$(address_of h1 "$server-server")" \
      --port "$port" --json --events --size 4096 --seconds 0 --rate 500
    await "the client of $server sends" goes_on h2 "$server-client"
  done
}

group_job() {
  local each
  begin_job
  [[ $(jobs_on h1) == '{"even-server":"even","odd-server":"odd"}' ]] || fail "jobs of h1: $(jobs_on h1)"
  [[ $(jobs_on h2) == '{"even-client":"even","odd-client":""}' ]] || fail "jobs of h2: $(jobs_on h2)"
  shows '^even +[^ ]+ +[0-9]+ +even-server ' on h1 "$ferry" ps --job even || fail 'ps --job shows no job'
  if shows 'odd' on h1 "$ferry" ps --job even; then fail 'ps --job even shows another job'; fi
  fails "no program of job 'none' on h1, h2, h3, h4; see: ferry ps --job" \
    on h1 "$ferry" checkpoint --job none --to "$store"
  fails "'odd-client' on h2 is of no job, not of job 'odd', and connected with 'odd-server' on h1" \
    on h1 "$ferry" checkpoint --job odd --to "$store"
  fails "there is no user 'nobody-else' here" on h1 "$ferry" checkpoint --job odd --user nobody-else --to "$store"
  fails "no program of job 'even' of user 65534 on" on h1 "$ferry" checkpoint --job even --user nobody --to "$store"
  fails "QP .* of 'even-server' on h1 is connected with .*, which no program has on the hosts that were asked; name" \
    on h1 "$ferry" checkpoint --job even --hosts h3 --to "$store"
  fails "unknown host 'h9'" on h1 "$ferry" checkpoint --job even --hosts h3,h9 --to "$store"

  # By a host that has none of it, which names programs of both.
  checkpoint_of h3 --job even --stop
  says "$work/out" ' of even-server on h1; even-client on h2: ended' || fail "$(<"$work/out")"
  gone h1 even-server
  gone h2 even-client
  restart_from h1 --map h1=h3 --map h2=h4
  await 'the client goes on, on h4' goes_on h4 even-client
  # They are still of it, after a restart too.
  [[ $(jobs_on h4) == '{"even-client":"even"}' ]] || fail "jobs of h4: $(jobs_on h4)"

  # A host that is silent, and has no peer.
  kill_ferryd h2
  checkpoint_of h4 --connected-to even-client --keep 1
  says "$work/out" ' of even-server on h3; even-client on h4: standstill' || fail "$(<"$work/out")"
  says "$work/out" '^ferry: h2 does not answer: programs there' || fail "$(<"$work/out")"
  fails "QP .* of 'odd-server' on h1 is connected with .* \(h2 does not answer\)" \
    on h1 "$ferry" checkpoint --connected-to odd-server --to "$store"
  fails 'ferryd.* h2' on h3 "$ferry" checkpoint --job even --hosts h1,h2,h4 --to "$store"
  start_ferryd h2
  await 'the client of odd goes on' goes_on h2 odd-client
  kill_container h3 even-server
  kill_container h4 even-client
  restart_from h1 --on h3
  checkpoint_of h3 --connected-to odd-client@h2 --stop
  gone h1 odd-server
  gone h2 odd-client
  restart_from h2 --on h4
  for each in h3:even h4:odd; do
    await "${each#*:} goes on" goes_on "${each%:*}" "${each#*:}-client"
    interrupt "${each%:*}" "${each#*:}-client"
    ends_well "${each#*:}-client"
    ends_well "${each#*:}-server"
  done
  ok 'jobs that are named, or found by their connections, go on from their checkpoints'
}

## a job: four ranks of MPI, each with its proxy in a container of its own, as the launcher, which uses no RDMA

rank_container() { # HOST NAME CMD...
  "$lab" run "$1" "$2" -d -- env -C /tmp "${@:3}"
}
is_told() { on h1 test -e "$told/$1"; }
rounds() { "$lab" logs launcher 2>/dev/null | grep -c '^round ' || true; }
have_done() { (($(rounds) >= $1)); }
await_rounds() { await "$1 rounds more of the ranks" have_done $(($(rounds) + $1)); }

group_mpich() {
  local told=/srv/$group-told rank host
  store=/srv/$group
  on h1 mkdir -m 700 "$store" "$told"
  rank_container h1 launcher env FOLDER="$told" "$ferry" run --netdev rdma0 --job lu -- \
    mpiexec.hydra -launcher rsh -launcher-exec "$here/told_agent" \
    -iface eth0 -hosts rank0:1,rank1:1,rank2:1,rank3:1 \
    "${mpich_rdma[@]}" -genv UCX_TLS rc_verbs,ud_verbs,self -n 4 "$FERRY_BIN/mpi_check_mpich" 600
  for rank in rank0:h1 rank1:h1 rank2:h2 rank3:h2; do
    host=${rank#*:} rank=${rank%:*}
    await "the launcher wants $rank" is_told "$rank"
    rank_container "$host" "$rank" sh -c "$(on h1 cat "$told/$rank")"
  done
  await_rounds 2
  fails "'launcher' was not started with Ferry, or uses no RDMA device yet" on h1 "$ferry" move launcher --to h3
  fails "'rank0' has a TCP connection from .*, which is not in the checkpoint" \
    on h1 "$ferry" checkpoint rank0 rank1 rank2@h2 rank3@h2 --to "$store"
  # Those that are found: the ranks by their job, and the launcher with them.
  checkpoint_of h2 --job lu
  for rank in launcher rank0 rank1; do
    says "$work/out" "[ ,]${rank}[ ,].*on h1" || fail "no $rank: $(<"$work/out")"
  done
  await_rounds 2
  # Both hosts are lost.
  for rank in launcher:h1 rank0:h1 rank1:h1 rank2:h2 rank3:h2; do kill_container "${rank#*:}" "${rank%:*}"; done
  restart_from h3 --map h1=h3 --map h2=h4
  await_rounds 2
  fails "'launcher' still runs on h3, as process [0-9]+: end it" on h1 "$ferry" restart "$store" --on h1,h2
  # The next ferryd knows the launcher as well.
  restart_ferryd h3
  await 'the ranks are known to the ferryd of h3' goes_on h3 rank0
  # Other numbers of ranks for each host; all are connected with the launcher by TCP.
  checkpoint_of h4 --connected-to launcher@h3 --stop
  for rank in launcher:h3 rank0:h3 rank1:h3 rank2:h4 rank3:h4; do gone "${rank#*:}" "${rank%:*}"; done
  restart_from h1 --map h3=h2 --map h4=h2
  await_rounds 2
  kill -USR1 "$(on h2 "$ferry" ps --json | jq '.programs[] | select(.container == "rank0") | .pid')"
  for rank in rank0 rank1 rank2 rank3; do
    "$lab" wait "$rank" --timeout 60 >/dev/null || fail "$rank ended with $?"
    on h2 touch "$told/$rank.over"
  done
  "$lab" wait launcher --timeout 60 >"$work/report" || fail "the launcher ended with $?: $(tail -n 10 "$work/report")"
  grep -E '^mpi_check: .* no errors' "$work/report" || fail 'the ranks do not say what they have checked'
  ok 'four ranks of MPICH and their launcher on two hosts go on from their checkpoints, on two others and on one'
}

# A command waits for programs of two hosts. They end with it, on both; and go on while hosts do not hear of each other.
group_wait() {
  begin 1000000
  checkpoint_of h1 server client@h2 --stop
  gone h1 server
  gone h2 client
  restart_and_wait
  kill -KILL "$(on h1 cat /tmp/waiter.pid)"
  wait "$waiter" && fail 'it has ended well'
  gone h1 server
  gone h2 client
  restart_and_wait
  restart_ferryd h2
  on h2 nft -f - <<<'table inet apart { chain in { type filter hook input priority 0; tcp dport 4780 drop; }; }'
  await 'the line about h2' says "$work/waited" '^ferry: client is taken to run on h2, which does not say'
  await 'the client goes on' goes_on h2 client
  # The word that they are to end comes when it can.
  kill -TERM "$(on h1 cat /tmp/waiter.pid)"
  await 'the server on h1 has ended' container_ended h1 server
  kill -0 "$waiter" || fail "it does not wait for the client: $(<"$work/waited")"
  on h2 nft delete table inet apart
  wait "$waiter" && fail 'it has ended well'
  gone h1 server
  gone h2 client
  # One that moves is not waited for, nor ended.
  restart_and_wait
  on h2 "$ferry" move client --to h3 >/dev/null || fail 'the client does not move'
  await 'the line about the move' says "$work/waited" '^ferry: client on h2 has moved to h3, and is not waited for any'
  await 'the client goes on, on h3' goes_on h3 client
  kill_container h1 server
  wait "$waiter" && fail 'it has ended well'
  says "$work/waited" '^ferry: server on h1 has ended with exit status 137$' || fail "$(<"$work/waited")"
  kill_container h3 client
  ok 'programs on two hosts end with the command that waits for them'
}
restart_and_wait() {
  : >"$work/waited"
  # shellcheck disable=SC2016 # expanded there
  on h1 sh -c 'echo $$ >/tmp/waiter.pid; exec "$@"' sh "$ferry" restart "$store" --wait >"$work/waited" 2>&1 &
  waiter=$!
  await 'the programs go on' says "$work/waited" '^checkpoint .* goes on: '
  await 'the client goes on' goes_on h2 client
}

shares=yes
use_lab ckpts 4 jq openssl strace mpiexec.hydra "$FERRY_BIN/mpi_check_mpich"
if (($# == 0)); then set -- pair refused killed gives_up lost wait job mpich; fi
for group in "$@"; do "group_$group"; done
