#!/bin/bash
# Copies memory ahead of moves, and compares it afterwards. Needs root.
#
#   ahead_test.sh [GROUP...]    groups: rounds storm kinds killed late failures (default: all)
#
# Prints one line per check; exits non-zero when one fails.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

# serve NAME; check NAME PEER OPTION...: stream_check on h2 and h1, the latter with memory.
serve() {
  start h2 "$1" "$FERRY_BIN/stream_check"
  await_listen h2 "$1" 18600
}
check() {
  start h1 "$1" "$FERRY_BIN/stream_check" "$(address_of h2 "$2")" --seconds 0 --qps 2 --json --memory "${@:3}"
  await_traffic h1 "$1"
}

# intact NAME PEER: both end, and nothing of the first's memory or messages has been lost.
intact() {
  hit INT "$1"
  finishes "$1"
  finishes "$2"
  lost_nothing "$1"
  "$lab" logs "$1" | jq -e '.pages_corrupted == 0' >/dev/null || fail "$1: $("$lab" logs "$1" | tail -n 20)"
}

# ahead NAME FROM TO [OPTION...]: moves by copying ahead.
ahead() {
  last_report=$(on "$2" "$ferry" move "$1" --to "$3" --json "${@:4}") || fail "cannot move $1 from $2 to $3"
  was_ahead "$1"
}

# was_ahead NAME: in the last move. CRIU's image has less than `most_image` bytes.
most_image=4000000
was_ahead() {
  jq -e '.ahead_rounds > 0 and .ahead_bytes > 0 and .blackout_ms > 0' >/dev/null <<<"$last_report" ||
    fail "$1 was not copied ahead: $last_report"
  # CRIU has left out what was copied.
  jq -e --argjson most "$most_image" '.image_bytes - .ahead_bytes - .last_bytes < $most' >/dev/null \
    <<<"$last_report" || fail "$1 has an image with its memory: $last_report"
  jq -r '"     \(.program) \(.from) -> \(.to): \(.blackout_ms | round) ms, " +
    "ahead \(.ahead_bytes / 1e6 | round) MB in \(.ahead_rounds) rounds, " +
    "last \(.last_bytes / 1e6 | round) MB, " +
    "image \((.image_bytes - .ahead_bytes - .last_bytes) / 1e6 * 10 | round / 10) MB"' <<<"$last_report"
}

# untouched HOST NAME: nobody tracks what a program writes there, and nothing of its images is left.
untouched() {
  local pid
  for pid in $(on "$1" "$ferry" ps --json | jq --arg name "$2" '.programs[] | select(.container == $name) | .pid'); do
    if grep '^VmFlags:.* uw' "/proc/$pid/smaps" >&2; then fail "memory of $2 is still tracked on $1"; fi
  done
  no_image_on "$1" || fail "$1 keeps an image"
}

no_ferryd() { no_process "$(on "$1" cat /run/ferry/ferryd.pid)"; }

no_image_on() { [[ -z $(on "$1" ls /run/ferry/images) ]]; }

group_rounds() {
  serve ros
  check roc ros 96 --rewrite 10
  ahead roc h1 h3 # by size
  (($(jq '.last_bytes * 2 < .ahead_bytes' <<<"$last_report" | grep -c true))) ||
    fail "more was sent in the stop than ahead: $last_report"
  untouched h3 roc
  [[ -z $(on h1 ls /run/ferry/images) ]] || fail 'h1 keeps an image'
  last_report=$(on h3 "$ferry" move roc --to h1 --json --no-copy-ahead) || fail 'cannot move roc without copying ahead'
  jq -e '.ahead_rounds == 0 and .image_bytes > 96000000' >/dev/null <<<"$last_report" ||
    fail "copied ahead all the same: $last_report"
  ahead roc h1 h2 --max-blackout 60000
  ahead roc h2 h1
  last_report=$(on h1 "$ferry" move roc --to h2 --json --ahead-rate 24) || fail 'cannot move roc slowly'
  was_ahead roc
  jq -e '.ahead_ms > 3500' >/dev/null <<<"$last_report" || fail "it was sent faster than 24 MB/s: $last_report"
  last_report=$(on h2 "$ferry" move ros --to h3 --json --copy-ahead) || fail 'cannot move ros, a small one'
  was_ahead ros
  intact roc ros
  ok 'memory that is written arrived as it was, with and without copying ahead'
}

group_storm() {
  serve sts
  check stc sts 64 --rewrite 50 --storm
  ahead stc h1 h3
  ahead stc h3 h2
  ahead stc h2 h1
  intact stc sts
  ok 'memory whose mappings are moved, replaced, protected and dropped arrived as it was'
}

# Processes without the library, and every kind of memory.
group_kinds() {
  local most_image=12000000 # with shared memory, and private pages of files
  serve kis
  "$lab" run h1 kic -d -- sh -c '"$@" & exec '"$repository"'/tests/migrate/hold_memory.py' sh \
    "$ferry" run --netdev rdma0 -- "$FERRY_BIN/stream_check" "$(address_of h2 kis)" --seconds 0 --qps 1 --memory 16 \
    --rewrite 20
  await_traffic h1 kic
  ahead kic h1 h3 --copy-ahead
  ahead kic h3 h1 --copy-ahead
  kill -TERM "$(on h1 jq .pid /run/ferry/containers/kic/config.json)"
  finishes kic
  finishes kis
  "$lab" logs kic | grep -q 'all as it was written' || fail "kic: $("$lab" logs kic)"
  ok 'shared, locked and file memory, of children too, arrived as it was'
}

# on_event HOST NAME TO PATTERN CMD...: moves, and runs CMD when the move tells of this.
on_event() {
  local line runner
  mkfifo "$work/events.$2"
  on "$1" "$ferry" move "$2" --to "$3" --events >"$work/report" 2>"$work/events.$2" &
  runner=$!
  while read -r line; do
    if [[ -n ${4:-} && $line == *$4* ]]; then
      "${@:5}"
      set -- "$1" "$2" "$3"
    fi
  done <"$work/events.$2"
  rm "$work/events.$2"
  wait "$runner" || true
}

# The source's ferryd is killed when it commits: wherever the program goes on then, every page is there.
group_killed() {
  local host
  serve kls
  check klc kls 96 --rewrite 10
  on_event h1 klc h3 '"phase":"commit"' kill_ferryd h1
  start_ferryd h1
  host=h1
  await 'klc goes on' goes_on
  await_traffic "$host" klc
  intact klc kls
  ok "every page was there when the source was killed at the commit ($host)"
}
goes_on() {
  host=$("$lab" ps | awk '$1 == "klc" && $3 == "running" { print $2 }')
  [[ -n $host ]] && answers "$host" &&
    [[ -n $(on "$host" "$ferry" ps --json |
      jq '.programs[] | select(.container == "klc" and .state == "running" and (.devices | length > 0)) | .pid') ]]
}

# The processes of ferry-pages on a host, while a program there has not got all of its memory: the one that fills in,
# and its guard, which is younger. (The hosts of all labs see each other's processes.)
late_pages_on() {
  local pid network
  network=$(on "$1" stat -Lc %i /proc/self/ns/net)
  for pid in $(pgrep -x ferry-pages); do
    [[ $(stat -Lc %i "/proc/$pid/ns/net" 2>/dev/null) == "$network" ]] || continue
    pgrep -x -P "$pid" ferry-pages >/dev/null || printf '%s\n' "$pid" # else it is about to end
  done
}
no_late_pages() { [[ -z $(late_pages_on "$1") ]]; }

# kill_late_pages: kills the one that fills in on h3. It may have done so before.
kill_late_pages() {
  local pids deadline=$((SECONDS + 5))
  while ((SECONDS < deadline)); do
    mapfile -t pids < <(late_pages_on h3)
    if ((${#pids[@]} == 2)); then
      kill -KILL "${pids[0]}" 2>/dev/null || true
      break
    fi
    sleep 0.005
  done
  await 'the guard has killed the program, or all memory is there' no_late_pages h3
}

# The source's ferryd, which has to make the commit, stands still meanwhile.
kill_before_commit() {
  local ferryd
  ferryd=$(on h1 cat /run/ferry/ferryd.pid)
  kill -STOP "$ferryd"
  kill_late_pages
  kill -CONT "$ferryd"
}

# kill_until WORDS HOST PHASE CMD NAME: moves programs of 512 MiB from h1 to h3, and runs CMD in this phase, until the
# log of HOST says WORDS of one. All may be too late on a quick machine. The last program is NAMEc$attempt.
kill_until() {
  for ((attempt = 0; attempt < 10; attempt++)); do
    serve "$5s$attempt"
    check "$5c$attempt" "$5s$attempt" 512
    on_event h1 "$5c$attempt" h3 "\"phase\":\"$3\"" "$4"
    sleep 0.2
    ! on "$2" grep -q "'$5c$attempt' $1" /run/ferry/ferryd.log || return 0
    hit KILL "$5c$attempt" || true
    hit KILL "$5s$attempt" || true
  done
  fail "ferry-pages was killed ten times in the phase $3, each time too late"
}

# Memory comes after the program goes on: the next move waits for it, the ferryd is not needed, and ferry-pages is.
group_late() {
  local attempt runner how
  serve las
  check lac las 256 --rewrite 10
  ahead lac h1 h3
  ahead lac h3 h1
  on_event h1 lac h3 '"phase":"resume"' kill_ferryd h3
  start_ferryd h3
  await 'the ferryd of h3 answers' answers h3
  await_traffic h3 lac
  await 'all memory is there' no_late_pages h3
  [[ -z $(on h3 ls /var/tmp/ferry/late-pages) ]] || fail 'h3 has notes of memory that has come'
  intact lac las
  ok 'memory arrived as it was after the program went on, also without a ferryd'
  # ferryd dies when it has let CRIU go on, which has not ended yet: with memory that was copied ahead, and without.
  # shellcheck disable=SC2016 # expanded by the scripts
  script /tmp/last-action "$FERRY_BIN"'/ferry-criu-action || exit
    [ "$CRTOOLS_SCRIPT_ACTION" != post-restore ] || kill -9 "$(cat /run/ferry/ferryd.pid)"'
  # shellcheck disable=SC2016
  script /tmp/last-criu '[ "$1" != restore ] || set -- "$@" --action-script /tmp/last-action
    exec /opt/ferry/bin/criu "$@"'
  for how in --copy-ahead --no-copy-ahead; do
    ferryd_with h3 --criu /tmp/last-criu
    serve "lds$how"
    check "ldc$how" "lds$how" 64
    on h1 "$ferry" move "ldc$how" --to h3 "$how" >"$work/word" 2>&1 &
    runner=$!
    await 'the ferryd of h3 dies' no_ferryd h3
    start_ferryd h3 --criu /opt/ferry/bin/criu
    await 'the ferryd of h3 answers' answers h3
    wait "$runner" || fail "ldc$how: $(cat "$work/word")"
    await_traffic h3 "ldc$how"
    intact "ldc$how" "lds$how"
  done
  ok 'a program goes on whose ferryd died while CRIU let it go on'
  # A program that forks, executes, maps and drops memory all the time.
  serve lfs
  "$lab" run h1 lfc -d -- sh -c '"$@" & exec '"$repository"'/tests/migrate/use_memory.py 192' sh \
    "$ferry" run --netdev rdma0 -- "$FERRY_BIN/stream_check" "$(address_of h2 lfs)" --seconds 0 --qps 1
  await_traffic h1 lfc
  most_image=12000000 ahead lfc h1 h3
  most_image=12000000 ahead lfc h3 h1
  await 'all memory is there' no_late_pages h1
  kill -TERM "$(on h1 jq .pid /run/ferry/containers/lfc/config.json)"
  finishes lfc
  finishes lfs
  "$lab" logs lfc | grep -q 'all memory as it was written' || fail "lfc: $("$lab" logs lfc)"
  ok 'a program forked, executed and dropped memory while its memory came'
  kill_until 'was killed before it went on' h1 restore kill_before_commit lh
  await_traffic h1 "lhc$attempt"
  intact "lhc$attempt" "lhs$attempt"
  ok 'a program goes on where it was when its ferry-pages is killed before the commit'
  kill_until '(process [0-9]*) has ended with status 137' h3 resume kill_late_pages lk
  on h3 grep -q 'ferry-pages: killed processes' /run/ferry/ferryd.log || fail 'nobody says why the program was killed'
  ok 'a program ends whose ferry-pages is killed, and the log says why'
}

# How often a program of h1 has been stopped.
epoch_of() {
  on h1 "$ferry" ps --json |
    jq --arg name "$1" '[.programs[] | select(.container == $name) | .devices[].qps[].epoch] | max'
}

# What fails while memory is copied ahead leaves the program as it was. Moves that are refused stop nobody.
group_failures() {
  local epoch
  serve fas
  check fac fas 96 --rewrite 10
  fails 'would stand still for about [0-9]+ ms.*raise --max-blackout' on h1 "$ferry" move fac --to h3 --max-blackout 1
  untouched h1 fac
  [[ $(epoch_of fac) == 0 ]] || fail 'fac was stopped'
  on_event h1 fac h3 '"phase":"copy ahead"' kill_ferryd h3
  [[ ! -s $work/report ]] || fail "it moved to a ferryd that was killed: $(cat "$work/report")"
  untouched h1 fac
  start_ferryd h3
  await 'the ferryd of h3 answers' answers h3
  no_image_on h3 || fail 'h3 keeps an image'
  on_event h1 fac h3 '"phase":"copy ahead"' on h3 ip link set dev uplink down
  [[ ! -s $work/report ]] || fail "it moved to a host that was cut off: $(cat "$work/report")"
  untouched h1 fac
  on h3 ip link set dev uplink up
  await 'h3 drops the image' no_image_on h3
  another h3 4784 --memory-limit 100M
  epoch=$(epoch_of fac) # not 0 when the ferryd died after the last round
  fails 'not enough memory on h3-4784' on h1 "$ferry" move fac --to h3:4784
  [[ $(epoch_of fac) == "$epoch" ]] || fail 'fac was stopped'
  ahead fac h1 h3
  intact fac fas
  ok 'a move that fails while memory is copied ahead leaves nothing behind'
}

use_lab aheadt 3
groups=("$@")
((${#groups[@]})) || groups=(rounds storm kinds killed late failures)
for group in "${groups[@]}"; do "group_$group"; done
