#!/bin/bash
# Takes checkpoints of two programs of one host that are connected with each other, and starts them again, there and on
# another host. Needs root.
#
#   checkpoint_test.sh [GROUP...]     groups: goes_on stopped refused killed slow elsewhere ahead again every
#                                    encrypted gives_up wait (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"
# shellcheck source=tests/checkpoint/events.sh
source "$(dirname "$0")/events.sh"

at=h1 # where the job runs

# job NAME MESSAGES [OPTION...]: a stream_check and its peer on h1, without containers and without a TCP connection
# between them. Each prints its report to /tmp/NAME.
job() {
  local side
  at=h1
  on h1 sh -c "rm -rf /tmp/store && mkdir -m 700 /tmp/store"
  local client="--qps 2 --size 4096 --messages $2 --rate 1000 ${*:3}"
  for side in "server --listen 18700" "client 127.0.0.1 --port 18700 $client"; do
    # Without a descriptor of this test.
    # shellcheck disable=SC2016,SC2086 # expanded there; several words
    on h1 bash -c 'name=$1; shift
      exec </dev/null >/dev/null 2>&1
      for fd in /proc/self/fd/*; do ((${fd##*/} < 3 || ${fd##*/} == 255)) || eval "exec ${fd##*/}>&-"; done
      setsid nice "$@" >"/tmp/$name" & echo $! >"/tmp/$name.pid"' bash "$1.${side%% *}" \
      "$ferry" run --netdev rdma -- "$FERRY_BIN/stream_check" --apart --json --events ${side#* }
    [[ $side != server* ]] || await "$1 listens" listens h1 18700
  done
  await "$1 sends" sends
  job=$1
}
pids() { on h1 cat "/tmp/$1.server.pid" "/tmp/$1.client.pid"; }
received() { on "$at" "$ferry" ps --json | jq '[.programs[].devices[].qps[].received_packets] | add // 0'; }
sends() {
  local before
  before=$(received) && sleep 0.1 && (($(received) > before))
}

# ends NAME: both sides say that all has come, once and as it was sent.
ends() {
  local side
  for side in server client; do
    await "the $side of $1 has its report" reported "/tmp/$1.$side"
    on "$at" cat "/tmp/$1.$side" | jq -es 'length == 1 and (.[0] | .messages_lost == 0 and
      .messages_duplicated == 0 and .messages_corrupted == 0)' >/dev/null ||
      fail "$1.$side: $(on "$at" cat "/tmp/$1.$side")"
  done
  end_job "$1"
}
reported() { on "$at" jq -es 'length == 1' "$1" >/dev/null 2>&1; }
end_job() {
  local pid
  for pid in $(pids "$1"); do kill -KILL "$pid" 2>/dev/null || true; done
  for pid in $(pids "$1"); do await "process $pid has ended" no_process "$pid"; done
}

# checkpoint NAME OPTION...: of the job.
checkpoint() {
  # shellcheck disable=SC2046 # two words
  on h1 "$ferry" checkpoint $(pids "$1") --to /tmp/store "${@:2}" >"$work/out" 2>&1 || fail "$(<"$work/out")"
}
restart() { # [HOST]
  on "${1:-h1}" "$ferry" restart /tmp/store >"$work/out" 2>&1 || fail "restart: $(<"$work/out")"
}
latest() { on h1 "$ferry" checkpoints /tmp/store --json | jq -r '.checkpoints[-1].id'; }

# The programs end after their checkpoint, and what they have printed since is kept aside.
group_goes_on() {
  job a 2000
  checkpoint a --json
  "$repository/tests/cli/json_fields.py" "$repository/docs/json.md" 'ferry checkpoint --json' <"$work/out" ||
    fail 'the report is not as documented'
  await 'the job goes on' sends
  on h1 "$ferry" checkpoints /tmp/store verify >/dev/null || fail 'what was stored is damaged'
  fails 'still runs on h1, as process' on h1 "$ferry" restart /tmp/store
  ends a
  on h1 cp /tmp/a.client /tmp/first
  restart
  on h1 cmp "/tmp/a.client.ferry-$(latest)" /tmp/first || fail 'what was printed after the checkpoint is lost'
  ends a
  restart
  says "$work/out" "^/tmp/a.client.ferry-$(latest).2 has what was written after" || fail "$(<"$work/out")"
  ends a
  ok 'a job goes on after its checkpoint, and from its checkpoint, twice'
}

# Again and again: each checkpoint is of a program that has come from the one before.
group_stopped() {
  local first
  job s 3000
  checkpoint s --stop
  for pid in $(pids s); do await "process $pid has ended" no_process "$pid"; done
  first=$(latest)
  on h1 "$ferry" restart /tmp/store --json >"$work/out" || fail "restart: $(<"$work/out")"
  jq -e --arg id "$first" '.id == $id and .hosts == ["h1", "h1"] and .programs == ["stream_check", "stream_check"] and
    .kept_aside == []' "$work/out" >/dev/null || fail "the report of a restart: $(<"$work/out")"
  await 'the job goes on' sends
  checkpoint s --stop --keep 1
  for pid in $(pids s); do await "process $pid has ended" no_process "$pid"; done
  [[ $(on h1 "$ferry" checkpoints /tmp/store --json | jq '.checkpoints | length') == 1 && $(latest) != "$first" ]] ||
    fail "--keep 1: $(on h1 "$ferry" checkpoints /tmp/store)"
  restart
  on h1 "$ferry" history --json | jq -e '[.moves[-8:][] | .kind + " " + .outcome] ==
    (["checkpoint ended", "restart moved"] | [.[0], .[0], .[1], .[1]] | . + .)' >/dev/null ||
    fail "the history: $(on h1 "$ferry" history)"
  ends s
  ok 'a job ends at its checkpoint, and goes on from there'
}

group_refused() {
  local id server client
  job r 1000000
  read -r server client <<<"$(pids r | tr '\n' ' ')"
  fails 'is connected with 10\.78\.1\.1, which is not in the checkpoint' \
    on h1 "$ferry" checkpoint "$client" --to /tmp/store
  fails 'cannot read /nowhere' on h1 "$ferry" checkpoint "$server" "$client" --to /nowhere
  on h1 mkdir -m 777 /tmp/open
  fails '/tmp/open can be written by others' on h1 "$ferry" checkpoint "$server" "$client" --to /tmp/open
  fails "checkpoints and restarts are root's" on h1 setpriv --reuid 12345 --regid 12345 --clear-groups \
    "$ferry" checkpoint "$client" --to /tmp
  fails "checkpoints and restarts are root's" on h1 setpriv --reuid 12345 --regid 12345 --clear-groups \
    "$ferry" restart /tmp
  await 'the job goes on' sends
  checkpoint r
  id=$(latest)
  end_job r
  # shellcheck disable=SC2016 # expanded there
  on h1 sh -c 'printf x | dd of="$1" bs=1 seek=40 conv=notrunc status=none' sh "/tmp/store/$id/0001-000000.zst"
  fails "/tmp/store/$id/0001-000000.zst is damaged" on h1 "$ferry" restart /tmp/store
  # It may be the latest.
  on h1 truncate -s -1 "/tmp/store/$id/manifest.json"
  fails "/tmp/store/$id/manifest.json is damaged: .*; which checkpoint is the latest is not known" \
    on h1 "$ferry" restart /tmp/store
  fails "has no complete checkpoint '0123456789abcdef'" \
    on h1 "$ferry" restart /tmp/store --checkpoint 0123456789abcdef
  [[ $(on h1 "$ferry" ps --json | jq '.programs | length') == 0 ]] || fail 'a program was started'
  ok 'what cannot be is refused, and programs go on'
}

# ferryd is killed while it takes a checkpoint: the programs go on, and so does the next ferryd.
group_killed() {
  local option
  job k 1000000 --memory 256  # that is written to the store for half a second and more
  for option in "" --stop; do
    # shellcheck disable=SC2046,SC2086 # two words; none or one
    on h1 "$ferry" checkpoint $(pids k) --to /tmp/store $option >"$work/out" 2>&1 &
    # With --stop they stand still as long as that is there.
    on h1 timeout 120 sh -c 'until test -s /tmp/store/*.partial/0001-000000.zst; do :; done' 2>/dev/null ||
      fail 'no image is written to the store'
    kill_ferryd h1
    wait $! && fail "it was too late to kill ferryd: $(<"$work/out")"
    start_ferryd h1
    await 'the ferryd of h1 answers' answers h1
    await "the job goes on after a checkpoint $option" sends
    on h1 "$ferry" checkpoints /tmp/store --json | jq -e 'all(.checkpoints[]; .complete | not)' >/dev/null ||
      fail 'what was not complete is taken for complete'
    # shellcheck disable=SC2016 # expanded there
    on h1 sh -c 'for each in /tmp/store/*.partial; do
        name=${each##*/}
        "$1" checkpoints /tmp/store rm "${name%.partial}"
      done' sh "$ferry"
  done
  checkpoint k
  end_job k
  on h1 "$ferry" checkpoints /tmp/store verify >/dev/null || fail 'a checkpoint is damaged'
  # While one is restored and another is not: nothing of them is left, and the checkpoint is as it was.
  begin_restart
  kill_ferryd h1
  wait "$restart" && fail "it was too late to kill ferryd: $(<"$work/out")"
  start_ferryd h1 --criu /opt/ferry/bin/criu
  await 'the ferryd of h1 answers' answers h1
  on h1 touch /tmp/restore-now
  for pid in $(pids k); do await "process $pid has ended" no_process "$pid"; done
  restart
  await 'the job goes on' sends
  end_job k
  ok 'programs go on when ferryd is killed'
}

# Returns when one program is restored, and CRIU begins with the other when there is a file /tmp/restore-now.
begin_restart() {
  on h1 rm -rf /tmp/first /tmp/restoring /tmp/restore-now
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/held-restore '[ "$1" = restore ] && ! mkdir /tmp/first 2>/dev/null && {
      touch /tmp/restoring
      until [ -e /tmp/restore-now ]; do sleep 0.02; done
    }
    exec /opt/ferry/bin/criu "$@"' h1
  ferryd_with h1 --criu /tmp/held-restore
  on h1 "$ferry" restart /tmp/store >"$work/out" 2>&1 &
  restart=$!
  await 'one is restored, and another waits' one_is_restored
}
one_is_restored() {
  local pid
  on h1 test -e /tmp/restoring || return
  for pid in $(pids "$job"); do [[ ! -e /proc/$pid ]] || return 0; done
  return 1
}

# A restart may take longer than a source of a move may be silent.
group_slow() {
  job l 2000
  checkpoint l --stop
  for pid in $(pids l); do await "process $pid has ended" no_process "$pid"; done
  begin_restart
  fails 'checkpoint [0-9a-f]+ is being restarted already' on h1 "$ferry" restart /tmp/store
  sleep 3
  on h1 touch /tmp/restore-now
  wait "$restart" || fail "restart: $(<"$work/out")"
  ends l
  ok 'a slow restart is no failed one'
}

# Another host has other RDMA addresses. The checkpoint and the files are copied there.
group_elsewhere() {
  job e 4000
  checkpoint e
  end_job e
  on h1 tar -C /tmp -c store e.server e.client | on h2 tar -C /tmp -x
  # Twice where it has just ended, at home, and back.
  for at in h2 h2 h1 h2; do
    end_job e
    restart "$at"
    await "the job goes on, on $at" sends
  done
  ends e
  ok 'a job goes on from its checkpoint on another host'
}

# The memory of a large program is copied while it runs, and what is stored last is what it had at the stop: also of
# pages that it has dropped, mapped anew or moved since they were copied.
group_ahead() {
  local id pid
  job m 6000 --memory 96 --rewrite 20 --storm
  checkpoint m
  id=$(latest)
  jq -e '[.checkpoint.programs[].files[]] | (map(select(.name | startswith("ferry-pages-")).bytes) | add) > 64e6 and
    (map(select(.name | startswith("pages-")).bytes) | add) < 8e6' <(on h1 cat "/tmp/store/$id/manifest.json") \
    >/dev/null || fail "its memory was not copied ahead: $(on h1 cat "/tmp/store/$id/manifest.json")"
  await 'the job goes on' sends
  for pid in $(pids m); do ! grep '^VmFlags:.* uw' "/proc/$pid/smaps" >&2 || fail 'its memory is still tracked'; done
  on h1 ls /run/ferry/images | grep . && fail 'there is an image left'
  checkpoint m --stop
  for pid in $(pids m); do await "process $pid has ended" no_process "$pid"; done
  restart
  await 'the job goes on from its checkpoint' sends
  checkpoint m
  end_job m
  restart
  ends m
  on h1 jq -e '.pages_corrupted == 0' /tmp/m.client >/dev/null || fail "$(on h1 cat /tmp/m.client)"
  ok 'memory that was copied ahead comes back as it was at the stop'
}

# A later checkpoint writes what has changed since the last one, and needs no other one.
group_again() {
  local first second id
  job g 3000 --memory 96 --rewrite 0.1
  checkpoint g --json
  first=$(jq .stored_bytes "$work/out") id=$(jq -r .id "$work/out")
  await 'the job goes on' sends
  checkpoint g --json
  second=$(jq .stored_bytes "$work/out")
  ((second * 5 <= first)) || fail "the first checkpoint has written $first bytes, and the next one $second"
  on h1 "$ferry" checkpoints /tmp/store rm "$id" || fail 'the first one cannot be deleted'
  on h1 "$ferry" checkpoints /tmp/store verify >/dev/null || fail 'the second one needs the first one'
  await 'the job goes on' sends
  checkpoint g --keep 1
  end_job g
  restart
  await 'the job goes on from its checkpoint' sends
  # A damaged one in the way is of no use.
  id=$(latest)
  on h1 jq -er '.checkpoint.programs[].shards[].from // empty' "/tmp/store/$id/manifest.json" >/dev/null ||
    fail 'it has no files of the first one'
  on h1 find "/tmp/store/$id" -name '*.zst' -size +1M -exec truncate -s -1 {} + # the index is smaller
  checkpoint g --json
  (($(jq .stored_bytes "$work/out") * 2 > first)) || fail "what is damaged was used: $(<"$work/out")"
  checkpoint g --stop --json
  (($(jq .stored_bytes "$work/out") * 5 <= first)) || fail "all was written again: $(<"$work/out")"
  restart
  ends g
  on h1 jq -e '.pages_corrupted == 0' /tmp/g.client >/dev/null || fail "$(on h1 cat /tmp/g.client)"
  ok 'checkpoints after the first one write what has changed'
}

# Periodic checkpoints go on after one that fails, and end when the programs have ended.
group_every() {
  local runner
  fails '--every: Missing mandatory unit' on h1 "$ferry" checkpoint x --to /tmp --every 5
  fails '--stop excludes --every' on h1 "$ferry" checkpoint x --to /tmp --every 5s --stop
  job p 1000000
  : >"$work/reports"
  # shellcheck disable=SC2046 # two words
  on h1 "$ferry" checkpoint $(pids p) --to /tmp/store --every 3s --keep 2 --json >"$work/reports" 2>"$work/said" &
  runner=$!
  await 'there are two checkpoints' has_lines 2 "$work/reports"
  on h1 mv /tmp/store /tmp/away
  await 'it says that one has failed' says "$work/said" \
    '^ferry: .*/tmp/store.*; the next checkpoint is tried 3 s after this one$'
  on h1 mv /tmp/away /tmp/store
  await 'the next one succeeds' has_lines $(($(wc -l <"$work/reports") + 1)) "$work/reports"
  await 'the job goes on' sends
  end_job p
  if wait "$runner"; then fail 'it has ended without an error'; fi
  [[ $(tail -n 1 "$work/said") == 'ferry: '*p* ]] || fail "it does not say why it has ended: $(<"$work/said")"
  jq -es 'length >= 3 and (map(.id) | unique | length) == length' <"$work/reports" >/dev/null ||
    fail "$(<"$work/reports")"
  on h1 "$ferry" checkpoints /tmp/store --json | jq -e --slurpfile reports "$work/reports" \
    '[.checkpoints[] | select(.complete) | .id] == [$reports[-2:][].id]' >/dev/null ||
    fail "the last two are not there: $(on h1 "$ferry" checkpoints /tmp/store)"
  restart
  await 'the job goes on from the last one' sends
  end_job p
  ok 'periodic checkpoints'
}
has_lines() { (($(wc -l <"$2") >= $1)); }

# What the store has of an encrypted checkpoint is of no use without the key, and of use with it. A later one for the
# same recipients writes what has changed, and one for others all.
group_encrypted() {
  local first second id name kind
  for name in keeper other; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj "/CN=$name" \
      -keyout "$work/$name.key" -out "$work/$name.pem" 2>/dev/null
    for kind in pem key; do on h1 tee "/tmp/$name.$kind" <"$work/$name.$kind" >/dev/null; done
  done
  job c 20000 --memory 96 --rewrite 0.1 # so many that it has not ended when the last checkpoint is taken
  # Without encryption its files have what its environment has.
  checkpoint c
  id=$(latest)
  stored_text "$id" zst | grep -a LD_PRELOAD= >/dev/null || fail 'the test finds nothing in what is not encrypted'
  checkpoint c --json --encrypt-to /tmp/keeper.pem --encrypt-to /tmp/other.pem
  first=$(jq .stored_bytes "$work/out")
  jq -e .encrypted "$work/out" >/dev/null || fail "it is not encrypted: $(<"$work/out")"
  ((first > 64000000)) || fail "it has files of one that is not encrypted: $(<"$work/out")"
  await 'the job goes on' sends
  checkpoint c --json --encrypt-to /tmp/other.pem --encrypt-to /tmp/keeper.pem
  second=$(jq .stored_bytes "$work/out") id=$(jq -r .id "$work/out")
  ((second * 5 <= first)) || fail "the first checkpoint has written $first bytes, and the next one $second"
  checkpoint c --json --encrypt-to /tmp/other.pem
  ((first < $(jq .stored_bytes "$work/out") * 2)) || fail "it has files for other recipients: $(<"$work/out")"
  on h1 find "/tmp/store/$id" -type f ! -name '*.enc' ! -name key.cms ! -name manifest.json | grep . &&
    fail 'there is a file that is not encrypted'
  stored_text "$id" enc | grep -a LD_PRELOAD= >/dev/null && fail 'what the programs have can be read'
  on h1 "$ferry" checkpoints /tmp/store | grep -q "^$id .* complete, encrypted$" || fail 'the list does not say so'
  on h1 "$ferry" checkpoints /tmp/store verify "$id" | grep -q 'by its digests alone' || fail 'verify without a key'
  on h1 "$ferry" checkpoints /tmp/store verify "$id" --key /tmp/keeper.key | grep -q 'by who had its content key' ||
    fail 'verify with the key'
  end_job c
  fails "$id is encrypted: give the private key with --key" on h1 "$ferry" restart /tmp/store --checkpoint "$id"
  fails "does not open /tmp/store/$(latest)/key.cms" on h1 "$ferry" restart /tmp/store --key /tmp/keeper.key
  [[ $(on h1 "$ferry" ps --json | jq '.programs | length') == 0 ]] || fail 'a program was started'
  on h1 "$ferry" restart /tmp/store --checkpoint "$id" --key /tmp/keeper.key >"$work/out" 2>&1 ||
    fail "restart: $(<"$work/out")"
  await 'the job goes on from its checkpoint' sends
  ends c
  on h1 jq -e '.pages_corrupted == 0' /tmp/c.client >/dev/null || fail "$(on h1 cat /tmp/c.client)"
  # The latest is for another one.
  on h1 "$ferry" restart /tmp/store --key /tmp/other.key >"$work/out" 2>&1 || fail "restart: $(<"$work/out")"
  await 'the job goes on from the latest' sends
  end_job c
  ok 'an encrypted checkpoint is read with its key, and not without'
}
# stored_text ID EXTENSION: what can be read in its shards.
stored_text() {
  # shellcheck disable=SC2016 # expanded there
  on h1 sh -c 'for file in "/tmp/store/$1/"*."$2"; do zstd -dcqf "$file" 2>/dev/null || cat "$file"; done' sh "$1" "$2"
}

# How far a checkpoint and a restart are is told meanwhile; and who asks for one gives it up by Ctrl-C, or by going
# away, until it is decided.
group_gives_up() {
  job u 1000000 --memory 256
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/held-criu 'case $1 in
      dump)
        until [ ! -e /tmp/hold-dump ]; do sleep 0.02; done
        # A file of the image that is a pipe when the image is stored.
        dir=$(printf "%s" "$*" | sed "s/.*--images-dir \([^ ]*\).*/\1/")
        [ ! -e /tmp/hold-store ] || touch "$dir/hold"
        code=0
        /opt/ferry/bin/criu "$@" || code=$?
        [ ! -e "$dir/hold" ] || { rm "$dir/hold" && mkfifo "$dir/hold"; }
        exit "$code" ;;
      restore)
        mkdir /tmp/first 2>/dev/null || until [ ! -e /tmp/hold-restore ]; do sleep 0.02; done ;;
    esac
    exec /opt/ferry/bin/criu "$@"' h1
  ferryd_with h1 --criu /tmp/held-criu
  await 'the job is known to the next ferryd' sends

  ask_checkpoint
  told_all store jq .image_bytes "$work/report"
  [[ $(events | jq -r .phase | uniq | paste -sd ,) == 'look,check,copy ahead,stop,go on,store,stored' ]] ||
    fail "its phases: $(<"$work/said")"
  events | jq -es --slurpfile report "$work/report" 'any(.[]; .phase == "copy ahead" and .total_bytes > 256e6) and
    (map(select(.phase == "store"))[0].standstill_ms == $report[0].standstill_ms)' >/dev/null ||
    fail "its events: $(<"$work/said")"

  # While memory is copied; in case it is quicker, what comes next waits.
  on h1 touch /tmp/hold-dump
  ask_checkpoint
  comes_to 'copy ahead'
  signal_asked INT
  comes_to 'give up'
  on h1 rm /tmp/hold-dump
  checkpoint_is_given_up
  # While images are stored.
  on h1 touch /tmp/hold-store
  ask_checkpoint
  await 'the images are being stored' is_storing
  signal_asked INT
  comes_to 'give up'
  await 'it has ended' open_holds_until asked_has_ended
  checkpoint_is_given_up
  # The command is killed.
  ask_checkpoint
  await 'the images are being stored' is_storing
  signal_asked KILL
  wait "$asked" && fail 'it was too late to kill the command'
  await 'the checkpoint is given up' open_holds_until nothing_is_partial
  checkpoint_leaves_nothing
  on h1 rm /tmp/hold-store
  checkpoint u --keep 1
  end_job u

  # A restart, while it reads, and while one program is restored and the other one is not.
  on h1 touch /tmp/hold-restore
  for phase in read restore; do
    on h1 rm -rf /tmp/first
    ask restart /tmp/store --json
    comes_to "$phase"
    if [[ $phase == restore ]]; then await 'one is restored' on h1 test -e /tmp/first; fi
    signal_asked INT
    is_given_up "the restart is given up: none of its programs runs; the ends of files that it has cut back, if any, \
are in FILE.ferry-$(latest)"
    for pid in $(pids u); do no_process "$pid" || fail "process $pid is left"; done
    on h1 ls /run/ferry/images | grep . && fail 'there is an image left'
  done
  on h1 rm /tmp/hold-restore
  ask restart /tmp/store --json
  told_all read image_bytes /tmp/store
  await 'the job goes on from its checkpoint' sends
  end_job u
  ok 'checkpoints and restarts tell how far they are, and are given up'
}
ask_checkpoint() {
  # shellcheck disable=SC2046 # two words
  ask checkpoint $(pids u) --to /tmp/store --json
}
is_storing() { events | jq -es 'any(.[]; .phase == "store" and .done_bytes > 0)' >/dev/null; }
asked_has_ended() { ! kill -0 "$asked" 2>/dev/null; }
nothing_is_partial() { ! on h1 sh -c 'ls -d /tmp/store/*.partial' >/dev/null 2>&1; }
# open_holds_until CMD...: who waits for somebody to write to the pipes of held-criu waits no longer.
open_holds_until() {
  # shellcheck disable=SC2016 # expanded there
  on h1 sh -c 'for hold in /run/ferry/images/*/hold; do [ ! -p "$hold" ] || : 1<>"$hold"; done'
  "$@"
}
checkpoint_is_given_up() {
  is_given_up 'the checkpoint is given up: nothing of it is left, and the programs go on'
  checkpoint_leaves_nothing
}
checkpoint_leaves_nothing() {
  nothing_is_partial || fail "this is left: $(on h1 ls /tmp/store)"
  await 'no image is left' no_image
  [[ $(on h1 "$ferry" checkpoints /tmp/store --json | jq '.checkpoints | length') == 1 ]] ||
    fail "the earlier checkpoint is not alone: $(on h1 "$ferry" checkpoints /tmp/store)"
  await 'the job goes on' sends
}
no_image() { ! on h1 ls /run/ferry/images | grep -q .; }

# A command that waits for the programs ends with them, and they with it, unless ferryd is what ends.
group_wait() {
  local side signal
  job w 1500
  checkpoint w --stop
  await_ends
  restart_and_wait
  for side in server client; do await "the $side has its report" reported "/tmp/w.$side"; done
  signal_all TERM
  waiter_ends 0
  restart_and_wait
  kill -KILL "$(pids w | head -n 1)"
  await 'the line of the one that was killed' says "$work/waited" ' on h1 has ended with exit status 137$'
  kill -0 "$(pids w | tail -n 1)" || fail 'the other one has ended as well'
  signal_all KILL
  waiter_ends 137
  for signal in TERM KILL; do
    restart_and_wait
    kill "-$signal" "$(on h1 cat /tmp/waiter.pid)"
    await_ends
    wait "$waiter" && fail "it has ended well after SIG$signal"
  done
  # SIGTERM is of no use to those that do not run: they are killed later.
  restart_and_wait
  signal_all STOP
  kill -INT "$(on h1 cat /tmp/waiter.pid)"
  waiter_ends 137
  restart_and_wait
  kill_ferryd h1
  await 'the line about ferryd' says "$work/waited" 'the programs go on, and this waits for a ferryd on this host'
  start_ferryd h1
  await 'the ferryd of h1 answers' answers h1
  await 'the job goes on' sends
  signal_all KILL
  waiter_ends 0
  says "$work/waited" ' on h1 has ended; nobody knows with which exit status$' || fail "$(<"$work/waited")"
  ok 'a command that waits for programs ends with them, and they with it'
}
# restart_and_wait: `waiter` is a job of this shell then, and the programs go on.
restart_and_wait() {
  : >"$work/waited"
  # shellcheck disable=SC2016 # expanded there
  on h1 sh -c 'echo $$ >/tmp/waiter.pid; exec "$@"' sh "$ferry" restart /tmp/store --wait >"$work/waited" 2>&1 &
  waiter=$!
  await 'the programs go on' says "$work/waited" '^checkpoint .* goes on: '
}
signal_all() { # SIGNAL
  local pid
  for pid in $(pids w); do kill "-$1" "$pid" 2>/dev/null || true; done
}
await_ends() {
  local pid
  for pid in $(pids w); do await "process $pid has ended" no_process "$pid"; done
}
waiter_ends() { # STATUS
  local status=0
  wait "$waiter" || status=$?
  ((status == $1)) || fail "it has ended with $status: $(<"$work/waited")"
  await_ends
}

use_lab ckpt 2 jq openssl zstd
if (($# == 0)); then set -- goes_on stopped refused killed slow elsewhere ahead again every encrypted gives_up wait; fi
for group in "$@"; do "group_$group"; done
