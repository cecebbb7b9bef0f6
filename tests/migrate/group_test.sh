#!/bin/bash
# Moves several programs of the lab as one: all of them, or none. And rings of programs that all move at the same time.
# Needs root.
#
#   group_test.sh [GROUP...]     groups: together rollback restart resolve death failure hosts ring unheard peers
#                                (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

# Ends the streams of these clients, and of their servers: nothing was lost, whatever happened to them.
nothing_is_lost() { # CLIENT SERVER...
  local name
  while (($# > 0)); do
    hit INT "$1"
    for name in "$1" "$2"; do
      finishes "$name"
      lost_nothing "$name"
    done
    shift 2
  done
}

runs_on() { [[ $("$lab" ps | awk -v name="$2" '$1 == name && $3 == "running" { print $2 }') == "$1" ]]; }
all_run_on() { # HOST NAME...
  local name
  for name in "${@:2}"; do runs_on "$1" "$name" || return 1; done
}

# Connections between the programs of a group, with one that stays, and a program that is no container.
group_together() {
  serves h1 gs
  serves h2 os
  asks h1 gc gs h1
  asks h1 oc os h2
  move_group h1 h3 gs gc oc
  all_run_on h3 gs gc oc || fail "not all are on h3: $("$lab" ps)"
  await_traffic h3 gc
  # To where the peer of one of them is; the group is written in another order.
  move_group h3 h2 oc gs gc
  await_traffic h2 gc
  await_traffic h2 oc
  [[ $(on h3 "$ferry" ps --json | jq '.programs | length') == 0 ]] || fail 'h3 still has a program'
  fails "'gs' and 'gs' are of one program" on h2 "$ferry" move gs gc gs --to h1
  serves h1 far
  fails "'far' does not run on h2|no program 'far' on h2.*programs that move together are all on one host" \
    on h2 "$ferry" move gs far --to h3
  hit KILL far
  move_group h2 h1 gs gc
  nothing_is_lost gc gs oc os
  ok 'programs moved together, with the connections between them'
}

# Whatever fails at one of them, before the commit: all run where they were.
group_rollback() {
  local runner held
  serves h1 rs
  serves h2 os
  asks h1 rc rs h1
  asks h1 ro os h2
  stay() {
    all_run_on h1 rs rc ro || fail "not all are on h1: $("$lab" ps)"
    await_traffic h1 rc
    await_traffic h1 ro
    # shellcheck disable=SC2016 # expanded on the host
    on h3 sh -c 'for each in rs rc ro; do [ ! -e /run/ferry/containers/$each ] || exit 1; done' ||
      fail "something is left on h3"
  }
  # At the check: nobody is stopped.
  "$lab" run h1 plain -d -- sleep 3600
  fails "'plain' was not started with Ferry" on h1 "$ferry" move rs plain rc --to h3
  # The one that is halted has no connection: peers of another would give up after a while.
  start h1 rl ibv_rc_pingpong -g 0
  await_listen h1 rl 18515
  held=$(on h1 "$ferry" ps --json | jq '.programs[] | select(.container == "rl") | .pid')
  kill -STOP "$held"
  fails "^ferry: 'rs', 'rc' and 'rl' were not moved: 'rl': process $held is stopped" on h1 "$ferry" move rs rc rl \
    --to h3
  hit KILL rl
  on h1 "$ferry" ps --json | jq -e 'all(.programs[].devices[].qps[]; .epoch == 0)' >/dev/null ||
    fail 'somebody was stopped'
  # One of three restores fails; the others are held, or on their way.
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/one-restore 'criu=/opt/ferry/bin/criu
    [ "$1" = restore ] || exec $criu "$@"
    mkdir /tmp/unlucky || exec $criu "$@"
    while [ "$1" != --images-dir ]; do shift; done
    echo "(00.000001) Error (criu/x.c:1): no luck today" >"$2/restore.log"; exit 1'
  another h3 4790 --criu /tmp/one-restore
  fails "'rs', 'rc' and 'ro' were not moved: 'r[sco]': .*no luck today" on h1 "$ferry" move rs rc ro --to h3:4790
  stay
  # The destination cannot write the commit down.
  on h3 sh -c 'mkdir -p /tmp/ferryd-4791/state && mount -t tmpfs -o size=4k none /tmp/ferryd-4791/state'
  another h3 4791
  on h3 sh -c 'head -c 4096 /dev/zero >/tmp/ferryd-4791/state/full'
  fails "were not moved: .*cannot make a record durable.*No space left on device" on h1 "$ferry" move rs rc ro \
    --to h3:4791
  stay
  # The destination dies while one of them is held and another is not.
  # shellcheck disable=SC2016
  script /tmp/slow-restore \
    '[ "$1" = restore ] && ! mkdir /tmp/first && { touch /tmp/restoring; sleep 600; }; exec /opt/ferry/bin/criu "$@"'
  another h3 4792 --criu /tmp/slow-restore
  on h1 "$ferry" move rs rc ro --to h3:4792 >"$work/dying" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  # shellcheck disable=SC2016
  on h3 sh -c 'kill -9 $(cat /tmp/ferryd-4792/pid)'
  if wait "$runner"; then fail 'moved to a ferryd that died'; fi
  grep -q "'rs', 'rc' and 'ro' were not moved: " "$work/dying" || fail "a dying destination: $(cat "$work/dying")"
  all_run_on h1 rs rc ro || fail "not all are on h1: $("$lab" ps)"
  await_traffic h1 rc
  await_traffic h1 ro
  # They can still move, to where their arrival failed as well.
  on h3 sh -c 'rm -rf /run/ferry/containers/r[sco]'
  move_group h1 h3 rs rc ro
  nothing_is_lost rc rs ro os
  ok 'a group that fails in part stays where it was'
}

# The source's ferryd dies when the group is committed, and nobody but the destination knows.
group_restart() {
  local runner name pid pids=()
  serves h1 ds
  serves h2 os
  asks h1 dc ds h1
  asks h1 dx os h2
  script /tmp/slow-hook "[ \$1 != activate ] || { touch /tmp/committing; until [ -e /tmp/go-on ]; do sleep 0.02; done; }
    exec $repository/lab/network-hook \"\$@\""
  ferryd_with h3 --network-hook /tmp/slow-hook
  for name in ds dc dx; do pids+=("$(on h1 jq .pid "/run/ferry/containers/$name/config.json")"); done
  on h1 "$ferry" move ds dc dx --to h3 >"$work/dying" 2>&1 &
  runner=$!
  await 'h3 commits' on h3 test -e /tmp/committing
  shows '(^| )ds .* (moving|in doubt) move [0-9a-f]{16} of group [0-9a-f]{16}' on h1 "$ferry" ps ||
    fail "ferry ps does not tell of the group: $(on h1 "$ferry" ps)"
  restart_ferryd h1
  if wait "$runner"; then fail 'a ferryd that died told of a move'; fi
  on h3 touch /tmp/go-on
  await 'all are on h3' all_run_on h3 ds dc dx
  for pid in "${pids[@]}"; do await "process $pid of h1 has ended" test ! -e "/proc/$pid"; done
  grep -q 'ferryd ended in the middle of a move' "$work/dying" || fail "a dying source: $(cat "$work/dying")"
  nothing_is_lost dc ds dx os
  ok 'a group that is committed is moved as a whole, without the ferryd that began it'
}

# The destination, which has the word since the source promised, is gone: the group waits frozen until an operator
# decides for all of it.
group_resolve() {
  local runner moves
  script /tmp/slow-leave "[ \$1 != deactivate ] || { touch /tmp/leaving; until [ -e /tmp/leave ]; do sleep 0.02; done; }
    exec $repository/lab/network-hook \"\$@\""
  ferryd_with h3 --network-hook /tmp/slow-leave
  "$lab" run h3 ys -d --move-rdma -- nice "$ferry" run --netdev rdma0 -- "$FERRY_BIN/stream_check" --json
  await_listen h3 ys 18600
  serves h2 os
  asks h3 yc ys h3
  asks h3 yo os h2
  on h3 "$ferry" move ys yc yo --to h4 >"$work/doubt" 2>&1 &
  runner=$!
  # All is restored, and nothing is promised yet.
  await 'h3 leaves its address' on h3 test -e /tmp/leaving
  kill_ferryd h4
  on h3 touch /tmp/leave
  await 'all are in doubt' are_in_doubt h3 3
  if is_uninhabited h4; then fail 'nothing was restored on h4'; fi
  moves=$(on h3 "$ferry" ps --json | jq -c '[.programs[] | select(.state == "in doubt") | {name, move_id, group}]')
  jq -e '(map(.name) | sort) == ["yc", "yo", "ys"] and (map(.move_id) | unique | length) == 3 and
    (map(.group) | unique | length) == 1' \
    >/dev/null <<<"$moves" || fail "ferry ps does not tell of the group: $moves"
  await 'os is Paused' is_paused h2 os
  fails 'no move 0*[cC] is in doubt on h3' on h3 "$ferry" resolve c --abort
  fails 'the move is committed here' on h3 "$ferry" resolve "$(jq -r '.[1].move_id' <<<"$moves")" --commit
  kill -0 "$runner" || fail "ferry move ended without a decision: $(cat "$work/doubt")"
  # By any of its moves.
  on h3 "$ferry" resolve "$(jq -r '.[2].move_id' <<<"$moves")" --abort
  if wait "$runner"; then fail 'a move that was aborted is told as done'; fi
  grep -q "^ferry: 'ys', 'yc' and 'yo' were not moved: an operator decided so$" "$work/doubt" ||
    fail "in doubt: $(cat "$work/doubt")"
  on h3 "$ferry" history --json >"$work/doubt"
  jq -e '.moves[-3:] | all(.outcome == "aborted" and .step == "commit" and .reason == "an operator decided so")' \
    "$work/doubt" >/dev/null || fail "the history of h3: $(cat "$work/doubt")"
  all_run_on h3 ys yc yo || fail "not all are on h3: $("$lab" ps)"
  await_traffic h3 yc
  await_traffic h3 yo
  # What had been restored is given up by the ferryd that comes next: it has promised nothing.
  start_ferryd h4
  await 'nothing that was restored is left on h4' is_uninhabited h4
  nothing_is_lost yc ys yo os
  ok 'an operator decides for a group as a whole'
}

# HOST COUNT
are_in_doubt() {
  [[ $(on "$1" "$ferry" ps --json | jq '[.programs[] | select(.state == "in doubt")] | length') == "$2" ]]
}
is_paused() { # HOST NAME
  on "$1" "$ferry" ps --json | jq -e --arg name "$2" \
    '[.programs[] | select(.container == $name) | .devices[].qps[].migration] | length > 0 and all(. == "Paused")' \
    >/dev/null
}
# No process is in the network of a container of this host.
is_uninhabited() {
  local inhabited
  inhabited=$(stat -Lc %i /proc/[0-9]*/ns/net 2>/dev/null || true) # some end meanwhile
  ! grep -Fxf <(on "$1" sh -c 'stat -Lc %i /run/netns/* 2>/dev/null') <<<"$inhabited" >/dev/null
}

# The source's ferryd dies when all is restored, and before the promise: all run on where they were.
group_death() {
  script /tmp/last-leave "[ \$1 != deactivate ] || { touch /tmp/last-leaving; sleep 600; }
    exec $repository/lab/network-hook \"\$@\""
  ferryd_with h3 --network-hook /tmp/last-leave
  "$lab" run h3 ls -d --move-rdma -- nice "$ferry" run --netdev rdma0 -- "$FERRY_BIN/stream_check" --json
  await_listen h3 ls 18600
  serves h2 os
  asks h3 lc ls h3
  asks h3 lo os h2
  on h3 "$ferry" move ls lc lo --to h4 >"$work/dying" 2>&1 &
  local runner=$!
  await 'h3 leaves its address' on h3 test -e /tmp/last-leaving
  if is_uninhabited h4; then fail 'nothing was restored on h4'; fi
  kill_ferryd h3
  if wait "$runner"; then fail 'a ferryd that died told of a move'; fi
  start_ferryd h3 --network-hook "$repository/lab/network-hook"
  await_traffic h3 lc
  await_traffic h3 lo
  all_run_on h3 ls lc lo || fail "not all are on h3: $("$lab" ps)"
  await 'nothing that was restored is left on h4' is_uninhabited h4
  nothing_is_lost lc ls lo os
  ok 'a group whose source dies before the commit stays there'
}

# One cannot be thawed after the commit: the report says which, and the others have moved.
group_failure() {
  serves h1 fs
  serves h2 os
  asks h1 fc fs h1
  asks h1 fo os h2
  # CRIU dies when the commit has let it go on with fo.
  # shellcheck disable=SC2016 # expanded by the scripts
  script /tmp/dying-restore 'case "$1 $(readlink /proc/$$/fd/3)" in
      "restore /run/netns/fo."*) ;;
      *) exec /opt/ferry/bin/criu "$@" ;;
    esac
    for each; do
      shift
      if [ "$last" = --action-script ]; then
        export FERRY_REAL_ACTION="$each"
        set -- "$@" /tmp/dying-action
      else
        set -- "$@" "$each"
      fi
      last=$each
    done
    exec /opt/ferry/bin/criu "$@"'
  # shellcheck disable=SC2016
  script /tmp/dying-action '"$FERRY_REAL_ACTION" "$@" || exit
    [ "$CRTOOLS_SCRIPT_ACTION" != post-restore ] || kill -9 $PPID'
  ferryd_with h3 --criu /tmp/dying-restore
  fails "^ferry: 'fo' is on h3 now, but does not go on there: .*; the others go on on h3$" on h1 "$ferry" move fs fo \
    fc --to h3
  all_run_on h3 fs fc || fail "not both are on h3: $("$lab" ps)"
  await_traffic h3 fc
  await 'fo has ended on h3' on h3 test -e /run/ferry/containers/fo/exit
  [[ $(on h1 "$ferry" ps --json | jq '.programs | length') == 0 ]] || fail 'something still runs on h1'
  hit KILL os
  nothing_is_lost fc fs
  ok 'the report of a group says who does not go on after the commit'
}

# Programs of two hosts move to a third one, led by the ferryd of a fourth: all, or none, whoever fails or dies. And
# those of a job.
group_hosts() {
  local held runner
  "$lab" run h1 hs -d -- nice "$ferry" run --netdev rdma0 --job pair -- "$FERRY_BIN/stream_check" --json
  await_listen h1 hs 18600
  "$lab" run h2 hc -d -- nice "$ferry" run --netdev rdma0 --job pair -- "$FERRY_BIN/stream_check" \
    "$(address_of h1 hs)" --seconds 0 --rate 100 --qps 2 --json
  await_traffic h2 hc
  stay() { # what has failed
    { runs_on h1 hs && runs_on h2 hc; } || fail "$1: $("$lab" ps)"
    await_traffic h2 hc
  }

  # One host refuses its program: none is stopped.
  fails "there is no program 'hc' on h4, h1; see: ferry ps" on h4 "$ferry" move --from h1,h4 hs hc --to h3
  start h2 hl ibv_rc_pingpong -g 0
  await_listen h2 hl 18515
  held=$(on h2 "$ferry" ps --json | jq '.programs[] | select(.container == "hl") | .pid')
  kill -STOP "$held"
  fails "^ferry: h2: process $held is stopped" on h4 "$ferry" move --from h1,h2 hs hl --to h3
  "$lab" run h2 bare -d -- sleep 3600
  fails "^ferry: h2: 'bare' was not started with Ferry" on h4 "$ferry" move --from h1,h2 hs bare --to h3
  fails "^ferry: 'hs' on h1, 'hc' on h2 were not moved: .*'h[sc]' is on h2 already" \
    on h4 "$ferry" move --from h1,h2 hs hc --to h2
  hit KILL hl
  on h1 "$ferry" ps --json | jq -e 'all(.programs[].devices[].qps[]; .epoch == 0)' >/dev/null || fail 'hs was stopped'
  on h4 "$ferry" move --from h1,h2 hs hc --to h3 --dry-run >"$work/plan" || fail 'they could not move'
  says "$work/plan" '^hs could move h1 -> h3: ' || fail "the plan: $(<"$work/plan")"
  says "$work/plan" '^hc could move h2 -> h3: ' || fail "the plan: $(<"$work/plan")"

  # One of the two is not restored.
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/hosts-restore '[ "$1" = restore ] && ! mkdir /tmp/unlucky-host || exec /opt/ferry/bin/criu "$@"
    while [ "$1" != --images-dir ]; do shift; done
    echo "(00.000001) Error (criu/x.c:1): no luck today" >"$2/restore.log"; exit 1'
  another h3 4793 --criu /tmp/hosts-restore
  fails "^ferry: 'hs' on h1, 'hc' on h2 were not moved: .*no luck today" \
    on h4 "$ferry" move --from h1,h2 hs hc --to h3:4793
  stay 'one of the programs was not restored'

  # The leader dies while one of them is about to be stopped, and the other waits for that.
  # shellcheck disable=SC2016
  script /tmp/hosts-dump '[ "$1" = dump ] && { touch /tmp/dumping; until [ -e /tmp/dump-now ]; do sleep 0.02; done; }
    exec /opt/ferry/bin/criu "$@"' h2
  ferryd_with h2 --criu /tmp/hosts-dump
  await_traffic h2 hc
  held=$(epochs_of h1)
  on h4 "$ferry" move --from h1,h2 hs hc --to h3 >"$work/led" 2>&1 &
  runner=$!
  await 'h2 is about to stop hc' on h2 test -e /tmp/dumping
  restart_ferryd h4
  if wait "$runner"; then fail 'a leader that died told of a move'; fi
  on h2 touch /tmp/dump-now
  await 'h1 has given up' has_no_move h1
  await 'h2 has given up' has_no_move h2
  stay 'the leader died'
  [[ $(epochs_of h1) == "$held" ]] || fail 'hs was stopped'

  # A source dies while all are restored.
  # shellcheck disable=SC2016
  script /tmp/hosts-held '[ "$1" = restore ] && { touch /tmp/restoring; until [ -e /tmp/restore-now ]; do
      sleep 0.02; done; }; exec /opt/ferry/bin/criu "$@"'
  ferryd_with h3 --criu /tmp/hosts-held
  await 'the ferryd of h4 answers' answers h4
  on h4 "$ferry" move --from h1,h2 hs hc --to h3 >"$work/led" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  restart_ferryd h2
  on h3 touch /tmp/restore-now
  if wait "$runner"; then fail 'moved without a source'; fi
  await 'the ferryd of h2 answers' answers h2
  await 'h1 has given up' has_no_move h1
  stay 'a source died'

  # The leader dies when nobody needs it any more.
  on h3 rm /tmp/restoring /tmp/restore-now
  on h4 "$ferry" move --from h1,h2 hs hc --to h3 >"$work/led" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  restart_ferryd h4
  on h3 touch /tmp/restore-now
  if wait "$runner"; then fail 'a leader that died told of a move'; fi
  await 'both are on h3' all_run_on h3 hs hc
  await_traffic h3 hc

  # Those of the job, wherever they are, but where they are to go.
  fails "no program of job 'pair' is on another host than h3" on h1 "$ferry" move --job pair --to h3
  move hs h3 h1
  on h2 "$ferry" move --job pair --to h4 --json >"$work/job" || fail 'the job was not moved'
  jq -e '.from == "h1, h3" and .to == "h4" and ([.programs[].program] | sort) == ["hc", "hs"] and
    .blackout_ms >= ([.programs[].blackout_ms] | max) - 0.01 and .silent == []' "$work/job" >/dev/null ||
    fail "the report: $(<"$work/job")"
  all_run_on h4 hs hc || fail "not all are on h4: $("$lab" ps)"
  await_traffic h4 hc
  nothing_is_lost hc hs
  ok 'programs of several hosts moved as one'
}
epochs_of() { on "$1" "$ferry" ps --json | jq -c '[.programs[].devices[].qps[].epoch]'; }
has_no_move() { on "$1" "$ferry" ps --json | jq -e 'all(.programs[]; .state == "running")' >/dev/null; }

# Everybody moves: each of four programs is connected with the next, and all move at the same time, twice around and
# back, and change places.
group_ring() {
  local i next round movers=() mover name pid
  local -A at=([r1]=1 [r2]=2 [r3]=3 [r4]=4)
  for i in 1 2 3 4; do
    next=$((i % 4 + 1))
    # A server for the one before, and a client of the next, when that is there.
    # shellcheck disable=SC2016 # expanded there
    start "h$i" "r$i" sh -c '"$1/stream_check" --json & until [ -e /tmp/ring ]; do sleep 0.05; done
      "$1/stream_check" "$(cat /tmp/ring)" --seconds 0 --rate 100 --qps 2 --json & wait' sh "$FERRY_BIN"
  done
  for i in 1 2 3 4; do await_listen "h$i" "r$i" 18600; done
  for i in 1 2 3 4; do
    next=$((i % 4 + 1))
    address_of "h$next" "r$next" | on "h$i" sh -c 'cat >/tmp/ring.new && mv /tmp/ring.new /tmp/ring'
  done
  for i in 1 2 3 4; do await_traffic "h$i" "r$i" 2; done
  # to the next host, and again, to the one before, to the one opposite: there two change places
  for round in 1 1 3 2; do
    movers=()
    for name in r1 r2 r3 r4; do
      i=$(((at[$name] + round - 1) % 4 + 1))
      move "$name" "h${at[$name]}" "h$i" &
      movers+=($!)
      at[$name]=$i
    done
    for mover in "${movers[@]}"; do wait "$mover" || fail 'not all have moved'; done
  done
  for name in r1 r2 r3 r4; do await_traffic "h${at[$name]}" "$name" 2; done
  # Clients end their streams, and their servers with them.
  while read -r _ _ pid; do
    if grep -qz -- --seconds "/proc/$pid/cmdline"; then kill -INT "$pid"; fi
  done < <(programs_of r1 r2 r3 r4)
  for name in r1 r2 r3 r4; do
    finishes "$name"
    "$lab" logs "$name" | jq -es 'length == 2 and all(.[]; .messages_lost == 0 and .messages_duplicated == 0 and
      .messages_corrupted == 0 and .error_completions == 0)' >/dev/null ||
      fail "$name: $("$lab" logs "$name" | tail -n 30)"
  done
  ok 'a ring of four programs lost nothing while all of them moved, four times'
}

# A peer that hears nothing while the program moves, and moves again, learns of both when it comes back to itself. Its
# QPs may be silent for 32 s (-u 20) before the first move; later nobody counts before it has heard.
group_unheard() {
  local held
  start h2 us ib_send_bw -F -u 20 -D 600 -b
  await_listen h2 us
  start h1 uc ib_send_bw -F -u 20 -D 600 -b "$(address_of h2 us)"
  await_traffic h1 uc
  held=$(on h2 "$ferry" ps --json | jq '.programs[] | select(.container == "us") | .pid')
  kill -STOP "$held"
  move uc h1 h3
  on h3 "$ferry" ps --json | jq -e '[.programs[].devices[].qps[] | select(.resume_pending)] | length > 0' >/dev/null ||
    fail 'a peer that is stopped has heard of a move'
  move uc h3 h4
  kill -CONT "$held"
  await_traffic h4 uc
  expire uc us
  ok 'a peer that heard of no move goes on after the second'
}

# Peers that come and go while a program is between its hosts.
group_peers() {
  local mover
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/held-restore '[ "$1" = restore ] && {
      touch "/tmp/restoring"
      until [ -e /tmp/restore-now ]; do sleep 0.02; done
    }
    exec /opt/ferry/bin/criu "$@"'
  ferryd_with h3 --criu /tmp/held-restore
  # One dies: the program moves all the same, and hears of the death by its QPs. A TCP connection with the peer would
  # end the program before it has moved: a network namespace that is taken down late sends a FIN once more.
  start h2 ds "$FERRY_BIN/stream_check" --apart --json
  await_listen h2 ds 18600
  start h1 dc env FERRY_PAUSED_LIMIT_MS=3000 "$FERRY_BIN/stream_check" "$(address_of h2 ds)" --apart \
    --messages 1000000000 --rate 100 --json
  await_traffic h1 dc
  move dc h1 h3 &
  mover=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  hit KILL ds
  on h3 touch /tmp/restore-now
  wait "$mover" || fail 'a program whose peer died was not moved'
  await 'dc hears of the death' has_lost_its_peer h3 dc
  hit KILL dc
  # One connects: it finds the program where that has gone to.
  on h3 rm -f /tmp/restoring /tmp/restore-now
  serves h1 as
  on h1 "$ferry" move as --to h3 >"$work/move" & # it has no QP yet
  mover=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  start h2 ac "$FERRY_BIN/stream_check" "$(address_of h1 as)" --seconds 0 --rate 100 --qps 2 --json
  await 'ac connects' unless_ended h2 ac connects_to ac 18600
  on h3 touch /tmp/restore-now
  wait "$mover" || fail 'a program that somebody connected to was not moved'
  await_traffic h2 ac
  nothing_is_lost ac as
  ok 'peers died and came while programs moved'
}

# has_lost_its_peer HOST NAME: all of its QPs say so.
has_lost_its_peer() {
  on "$1" "$ferry" ps --json | jq -e --arg name "$2" \
    '[.programs[] | select(.container == $name) | .devices[].qps[].state] | length > 0 and all(. == "ERR")' >/dev/null
}

# connects_to NAME PORT: a program in a container tries to.
connects_to() { [[ -n $(on "$1" ss -Htn state syn-sent "dport = :$2") ]]; }

use_lab group 4
if (($# == 0)); then set -- together rollback restart resolve death failure hosts ring unheard peers; fi
for group in "$@"; do "group_$group"; done
