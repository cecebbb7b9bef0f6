# Sourced by the tests that run unmodified programs in the lab; bash only. A test says
#
#   source "$(dirname "$0")/lib.sh"
#   use_lab NAME HOSTS [PROGRAM...]    makes the lab; it is removed however the test ends. Without root, or without one
#                                      of the programs, the test is skipped (exit status 77)
#
# and then one of:
#   pair ...                           a server on $server_host (h1) and a client on $client_host (h2), not in
#                                      containers: counted, goes on after a failure
#   start, move, finishes ...          programs in containers, which can be moved: the first failure ends the test
#
# and last `summary`. Programs find their peer by eth (the names h1, h2), RDMA goes over rdma_of HOST, rdma6_of HOST.
#
# Nothing here depends on how fast the machine is: whoever needs that something has happened waits for it (`await` and
# its kin), and a program that is moved runs until it is told (`expire`, `interrupt`), or counts messages that slow_rdma
# keeps from going fast until fast_rdma.
#
# Programs run under `nice`: one that polls its CQs takes a whole processor, and what tests wait for (ferryd, CRIU, a
# virtual machine) comes first.
# shellcheck shell=bash
set -euo pipefail

repository=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
readonly repository lab=$repository/lab/lab
export FERRY_BIN=${FERRY_BIN:-$repository/build/release/bin}
readonly ferry=$FERRY_BIN/ferry
work=
hosts=0
runs=0
failures=0
server_host=h1 # of pair
client_host=h2
export last_report= # of the last move
readonly patience=120 # however busy the machine is
# shellcheck source=tests/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

show_hosts() {
  local host
  for ((host = 1; host <= hosts; host++)); do
    printf -- '--- ferryd of h%d\n' "$host"
    "$lab" exec "h$host" -- tail -n 20 /run/ferry/ferryd.log || true
    # shellcheck disable=SC2016 # expanded on the host
    "$lab" exec "h$host" -- sh -c 'for log in /run/ferry/containers/*/log; do
      [ ! -s "$log" ] || {
        echo "--- $(hostname): $log"
        head -n 24 "$log"
        echo ...
        tail -n 6 "$log"
      } | cut -c -400
    done' || true
  done
}

# sanitizer_reports: what a ferryd that is built with a sanitizer has found.
sanitizer_reports() {
  local host
  for ((host = 1; host <= hosts; host++)); do
    # shellcheck disable=SC2016 # expanded on the host
    "$lab" exec "h$host" -- sh -c 'for log in /run/ferry/ferryd.log /tmp/ferryd-*/log; do
      [ ! -e "$log" ] || sed -n "/Sanitizer:/,/^=====/p" "$log"; done' || true
  done
}

remove_lab() { # [STATUS]
  local status=${1:-$?} reports
  reports=$(sanitizer_reports 2>/dev/null)
  if [[ -n $reports ]]; then
    printf 'FAILED: a ferryd says:\n%s\n' "$reports" >&2
    status=1
  fi
  "$lab" down || true
  rm -rf "$work"
  exit "$status"
}

# use_lab NAME HOSTS PROGRAM...: with `shares` set, all hosts have one folder at /srv.
use_lab() {
  local program
  ((EUID == 0)) || { echo 'skipped: the lab needs root'; exit 77; }
  for program in "${@:3}"; do
    command -v "$program" >/dev/null || { echo "skipped: $program is not installed; run scripts/setup"; exit 77; }
  done
  export FERRY_LAB=${FERRY_LAB:-$1}
  hosts=$2
  work=$(mktemp -d)
  trap remove_lab EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  if [[ -n ${shares:-} ]]; then
    export FERRY_LAB_SHARED=$work/shared
    mkdir -m 700 "$FERRY_LAB_SHARED"
  fi
  "$lab" down
  "$lab" up "$hosts"
}

summary() {
  echo "$((runs - failures)) of $runs runs passed"
  ((failures == 0))
}

on() { "$lab" exec "$1" -- "${@:2}"; }

# shows PATTERN CMD...: the output of CMD has a line like this. Not `CMD | grep -q`: that ends at the first such line,
# and a CMD that writes on then fails.
shows() {
  local output
  output=$("${@:2}") && grep -Eq -- "$1" <<<"$output"
}

# listens HOST PORT: something on a host, or in a container, listens on a TCP port.
listens() { [[ -n $(on "$1" ss -Hltn "sport = :$2") ]]; }

# listens_by_cm HOST [ADDRESS]: something listens over rdma_cm. ADDRESS: end of the name under which a listener receives
# messages for QP 1 (src/gsi).
listens_by_cm() { on "$1" grep -q "@ferry-cm/l/.*${2:-}" /proc/net/unix; }

# says FILE PATTERN: a program has printed a line like PATTERN.
says() { grep -Eqs -- "$2" "$1"; }

rdma_of() { echo "10.78.${1#h}.1"; }
rdma6_of() { echo "fd78::${1#h}:1"; }

## pairs

# on_own HOST CMD...: a command on a host, in a session of its own.
on_own() { setsid -w "$lab" exec "$1" -- "${@:2}"; }

# with_ferry HOST SECONDS CMD...: a program on a host, with Ferry; ended after SECONDS.
with_ferry() { on_own "$1" timeout --foreground --kill-after=5 "$2" nice "$ferry" run --netdev rdma -- "${@:3}"; }

# multicast_pair HOST ADDRESS HOST ADDRESS: mckey on the first host is a member of the group to which the
# second one sends.
multicast_pair() {
  local group_address=239.7.7.7 member code=0
  runs=$((runs + 1))
  with_ferry "$1" 180 stdbuf -oL mckey -m $group_address -b "$2" -C 10 >"$work/server" 2>&1 &
  member=$!
  await 'mckey has joined' ended_or "$member" says "$work/server" 'receiving data transfers'
  with_ferry "$3" 180 mckey -m $group_address -b "$4" -s -C 10 >"$work/client" 2>&1 || code=$?
  wait "$member" || code=$?
  if ((code != 0)); then not_ok "mckey, $3 to $1 (exit status $code)"; else ok "mckey, $3 to $1"; fi
}

# end PID: SIGTERM to what on_own or with_ferry started in the background, as the job PID of the shell.
end() {
  local child
  for child in $(pgrep -P "$1"); do kill -- -"$child" 2>/dev/null || true; done
}

not_ok() { # what
  local side
  failures=$((failures + 1))
  printf 'FAILED: %s\n' "$1"
  for side in server client; do
    printf -- '--- %s\n' "$side"
    tail -n 40 "$work/$side" 2>/dev/null || true
  done
}

# alone PATTERN CMD...: one program on h1; its output must have a line like PATTERN.
alone() {
  local pattern=$1 code=0
  shift
  runs=$((runs + 1))
  : >"$work/server"
  with_ferry h1 180 "$@" >"$work/client" 2>&1 || code=$?
  if ((code != 0)) || ! grep -Eq -- "$pattern" "$work/client"; then
    not_ok "$* (exit status $code, no '$pattern')"
  else
    ok "$*"
  fi
}

# refused PATTERN CMD...: one program on h1 that must fail by itself and say PATTERN.
refused() {
  local pattern=$1 code=0
  shift
  runs=$((runs + 1))
  : >"$work/server"
  with_ferry h1 180 "$@" >"$work/client" 2>&1 || code=$?
  if ((code == 0 || code >= 124)) || ! grep -Eq -- "$pattern" "$work/client"; then
    not_ok "$* (exit status $code, no '$pattern')"
  else
    ok "$*: $(grep -Eom 1 -- "$pattern" "$work/client")"
  fi
}

# ended_or PID CMD...: CMD succeeds, or there is nothing to wait for because the job PID has ended.
ended_or() { "${@:2}" || ! kill -0 "$1" 2>/dev/null; }

# pair [OPTION...] SERVER... [-- CLIENT...]: both must end with exit status 0. Without CLIENT it is SERVER and the
# host of the server.
#   -p PORT     the client starts when the server listens on this TCP port (default 18515)
#   -r PATTERN  ... when the server has printed a line like this (-r '' at once)
#   -l          ... when something on the server's host listens over rdma_cm
#   -s PATTERN  the server's output must have a line like this
#   -c PATTERN  the client's output must have a line like this
#   -k          the server does not end by itself: SIGTERM, and its exit status says nothing
#   -f PATTERN  the pair must fail: neither ends well or is killed, and the client's output has a line like this
#   -t SECONDS  how long each side may take (default 180)
pair() {
  local port=18515 ready='' by_output=false by_rdma_cm=false from_server='' from_client='' kill_server=false
  local refusal='' limit=180
  local option OPTIND=1 OPTARG server_words=() client_words=() condition what server started server_code=0 client_code=0
  while getopts 'p:r:ls:c:f:kt:' option; do
    case $option in
      p) port=$OPTARG ;;
      l) by_rdma_cm=true ;;
      r) ready=$OPTARG by_output=true ;;
      s) from_server=$OPTARG ;;
      c) from_client=$OPTARG ;;
      f) refusal=$OPTARG ;;
      k) kill_server=true ;;
      t) limit=$OPTARG ;;
      *) fail "pair: unknown option in: $*" ;;
    esac
  done
  shift $((OPTIND - 1))
  while (($# > 0)) && [[ $1 != -- ]]; do
    server_words+=("$1")
    shift
  done
  if (($# > 0)); then client_words=("${@:2}"); else client_words=("${server_words[@]}" "$server_host"); fi
  what="${client_words[*]}"
  runs=$((runs + 1))
  started=${EPOCHREALTIME/./}
  : >"$work/client"
  with_ferry "$server_host" "$limit" "${server_words[@]}" >"$work/server" 2>&1 &
  server=$!
  if $by_rdma_cm; then
    condition=(listens_by_cm "$server_host")
  elif $by_output; then
    condition=(says "$work/server" "$ready")
  else
    condition=(listens "$server_host" "$port")
  fi
  if [[ -n $ready ]] || ! $by_output; then await "$what: the server is ready" ended_or "$server" "${condition[@]}"; fi
  with_ferry "$client_host" "$limit" "${client_words[@]}" >"$work/client" 2>&1 || client_code=$?
  if $kill_server; then end "$server"; fi
  wait "$server" || server_code=$?
  if $kill_server; then server_code=0; fi
  if [[ -n $refusal ]]; then
    if ((client_code == 0 || client_code >= 124 || server_code == 0 || server_code >= 124)) ||
      ! grep -Eq -- "$refusal" "$work/client"; then
      not_ok "$what (exit status of client $client_code, server $server_code; the client had to say '$refusal')"
    else
      ok "$what: $(grep -Eom 1 -- "$refusal" "$work/client")"
    fi
  elif ((client_code != 0 || server_code != 0)); then
    not_ok "$what (exit status of client $client_code, server $server_code)"
  elif ! grep -Eq -- "$from_client" "$work/client"; then
    not_ok "$what (the client printed no '$from_client')"
  elif ! grep -Eq -- "$from_server" "$work/server"; then
    not_ok "$what (the server printed no '$from_server')"
  else
    ok "$what ($(((${EPOCHREALTIME/./} - started) / 1000)) ms)"
  fi
}

## moves

# fails PATTERN CMD...: the command has to fail with exactly one line on stderr, matching PATTERN.
fails() {
  local pattern=$1 output
  shift
  if output=$("$@" 2>&1 >/dev/null); then fail "this should have failed: $*"; fi
  [[ $output =~ $pattern && $output != *$'\n'* ]] || fail "'$*' said '$output', not one line like '$pattern'"
}

# eth0 of a container.
address_of() { on "$1" jq -r .eth0.address "/run/ferry/containers/$2/config.json"; }

# has_given_up HOST NAME: no arrival of it is left.
has_given_up() { ! on "$1" test -e "/run/ferry/containers/$2"; }

# start HOST NAME CMD...: in a container, with Ferry.
start() { "$lab" run "$1" "$2" -d -- nice "$ferry" run --netdev rdma0 -- "${@:3}"; }

# await_listen HOST NAME [PORT]: waits until the program in a container listens.
await_listen() { await "$2 on $1 listens on port ${3:-18515}" unless_ended "$1" "$2" listens "$2" "${3:-18515}"; }

# unless_ended HOST NAME CMD...: CMD; the test fails if the program in a container has ended, for what it waits for
# cannot come.
unless_ended() {
  if "${@:3}"; then return 0; fi
  if on "$1" test -e "/run/ferry/containers/$2/exit"; then
    fail "$2 on $1 has ended: $("$lab" logs "$2" | tail -n 3)"
  fi
  return 1
}

# received HOST NAME: {"pid": packets received} of the programs of a container that use RDMA.
received() {
  on "$1" "$ferry" ps --json | jq -c --arg name "$2" '[.programs[] |
    select(.container == $name and (.devices | length > 0)) |
    {key: (.pid | tostring), value: ([.devices[].qps[].received_packets] | add // 0)}] | from_entries'
}

# await_traffic HOST NAME [COUNT]: waits until so many programs (1) in a container receive, from now on.
await_traffic() {
  local before=''
  await "$2 on $1 receives" unless_ended "$1" "$2" receives_more "$1" "$2" "${3:-1}"
}

# serves HOST NAME; asks HOST NAME SERVER ON: the two sides of a stream_check.
serves() {
  start "$1" "$2" "$FERRY_BIN/stream_check" --json
  await_listen "$1" "$2" 18600
}
asks() {
  start "$1" "$2" "$FERRY_BIN/stream_check" "$(address_of "$4" "$3")" --seconds 0 --rate 100 --qps 2 --json
  await_traffic "$1" "$2"
}

# receives_more HOST NAME COUNT: so many programs have received more than when this was first asked; `before` is the
# caller's.
receives_more() {
  local now
  now=$(received "$1" "$2") || return 1
  before=${before:-$now}
  jq -e --argjson before "$before" --argjson count "$3" \
    '[to_entries[] | select(.value >= ($before[.key] // 0) + 50)] | length >= $count' >/dev/null <<<"$now"
}

# slow_rdma [RATE]: makes programs slow that count messages, not time. At 4 Mbit/s, 4 KiB both ways take 17 ms on any
# machine.
slow_rdma() {
  local host
  for ((host = 1; host <= hosts; host++)); do
    on "h$host" tc qdisc replace dev rdma root tbf rate "${1:-4mbit}" burst 16k latency 1s
  done
}

# Changed, not deleted: packets that are queued or sent while a queueing discipline is deleted are lost, and ib_send_lat
# -e waits for ever for a send's completion that comes after the answer.
fast_rdma() {
  local host
  for ((host = 1; host <= hosts; host++)); do
    on "h$host" tc qdisc change dev rdma root tbf rate 100gbit burst 64mb latency 1s
  done
}

# move NAME FROM TO: moves and checks the report, which stays in last_report.
move() {
  local report
  report=$(on "$2" "$ferry" move "$1" --to "$3" --json "${@:4}") || fail "cannot move $1 from $2 to $3"
  jq -er --arg to "$3" 'select(.to == $to and .blackout_ms > 0 and .qps > 0 and .image_bytes > 100000 and
    .rdma_share_ms > 0 and .rdma_share_ms < .blackout_ms and
    ((.stop_ms + .dump_ms + .transfer_ms + .restore_ms + .commit_ms + .resume_ms - .blackout_ms) | fabs) < 0.01 and
    ([.stop_ms, .dump_ms, .transfer_ms, .restore_ms, .commit_ms, .resume_ms] | all(. >= 0))) |
    "     \(.program) \(.from) -> \(.to): \(.blackout_ms * 10 | round / 10) ms, " +
    "RDMA \(.rdma_share_ms * 100 | round / 100) ms, \(.unacked_psns) PSNs unacknowledged"' <<<"$report" ||
    fail "the report of moving $1 to $3 contradicts itself: $report"
  last_report=$report
}

# move_group FROM TO NAME...: moves them as one and checks the report.
move_group() {
  local report
  report=$(on "$1" "$ferry" move "${@:3}" --to "$2" --json) || fail "cannot move ${*:3} from $1 to $2"
  jq -er --arg from "$1" --arg to "$2" 'select(.from == $from and .to == $to and
    ([.programs[].program] == $ARGS.positional) and ([.programs[].blackout_ms] | max) <= .blackout_ms + 0.01 and
    all(.programs[]; .to == $to and .qps > 0 and .image_bytes > 100000)) |
    "     \(.programs | length) programs \(.from) -> \(.to): \(.blackout_ms * 10 | round / 10) ms"' \
    --args "${@:3}" <<<"$report" || fail "the report of moving ${*:3} to $2 contradicts itself: $report"
}

# interrupt HOST NAME: SIGINT to the program in a container.
interrupt() { kill -INT "$(on "$1" jq .pid "/run/ferry/containers/$2/config.json")"; }

# programs_of NAME...: "HOST NAME PID" for each program, wherever it is, that has not ended.
programs_of() {
  local name host state
  while read -r name host state _; do
    if [[ $state == running && " $* " == *" $name "* ]]; then
      on "$host" "$ferry" ps --json </dev/null | jq -r --arg name "$name" --arg host "$host" \
        '.programs[] | select(.container == $name) | "\($host) \($name) \(.pid)"'
    fi
  done < <("$lab" ps)
}

# hit SIGNAL NAME...: sends a signal to programs, wherever they are; who has ended does not matter. Of each of the
# others a ferryd has to know a process, now or soon: else nobody would get the signal, and the test fails.
hit() {
  local pid targets=''
  await "a process of each of these, for SIG$1: ${*:2}" finds_programs "${@:2}"
  while read -r _ _ pid; do kill "-$1" "$pid" 2>/dev/null || true; done <<<"$targets"
}

# finds_programs NAME...: each has ended, or is in `targets`, the caller's.
finds_programs() {
  local name states
  targets=$(programs_of "$@" || true)
  for name in "$@"; do
    if [[ $targets == *" $name "* ]]; then continue; fi
    states=$("$lab" ps | awk -v name="$name" '$1 == name { print $3 }')
    [[ -n $states ]] || fail "there is no program $name that could get a signal"
    [[ $states == *exited* ]] || return 1
  done
}

# alarm NAME...: SIGALRM to those that have a handler for it; a server that only lends its memory has no clock.
alarm() {
  local pid caught
  while read -r _ _ pid; do
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null) || continue
    if (((16#${caught:-0} >> 13) & 1)); then kill -ALRM "$pid" 2>/dev/null || true; fi
  done < <(programs_of "$@")
}

# expire NAME...: ends perftest's programs whose time (-D) is not over, however slow the machine has been, and checks
# that they end well. SIGALRM is their own clock: each leads on to the next phase of the run, of three. -u: an unknown
# exit status (255) will do.
expire() {
  local deadline=$((SECONDS + patience)) name status running unknown=0
  if [[ $1 == -u ]]; then
    unknown=255
    shift
  fi
  while :; do
    alarm "$@"
    running=()
    for name in "$@"; do
      status=0
      # The first of them waits for what the signal brings, so that a phase is not over before anything went in it.
      "$lab" wait "$name" --timeout $((${#running[@]} == 0 ? 1 : 0)) >"$work/expired" 2>&1 || status=$?
      if ((status == 124)); then
        running+=("$name")
      elif ((status != 0 && status != unknown)); then
        fail "$name ended with $status: $(tail -n 5 "$work/expired")"
      fi
    done
    if ((${#running[@]} == 0)); then return 0; fi
    ((SECONDS < deadline)) || fail "these do not end: ${running[*]}"
  done
}

# ended_well STATUS OUTPUT: a program has. Debian's rping closes its event channel while its other thread may be about
# to wait there, and then ends with 255 after all is done (later versions of rping wait for that thread).
ended_well() {
  [[ $1 == 0 ]] || { [[ $1 == 255 && $2 == *'rdma_get_cm_event: Bad file descriptor' ]] &&
    ! grep -Eq 'failed|error|mismatch' <<<"$2"; }
}

# finishes NAME [SECONDS]: the program ends well. Its output is in $work/NAME.
finishes() {
  local status=0
  "$lab" wait "$1" --timeout "${2:-$patience}" >"$work/$1" || status=$?
  ended_well "$status" "$(<"$work/$1")" || fail "$1 ended with $status: $(tail -n 5 "$work/$1" | cut -c -400)"
}

# lost_nothing NAME: the report of a stream_check --json that has ended says so.
lost_nothing() {
  "$lab" logs "$1" |
    jq -e '.messages_lost == 0 and .messages_duplicated == 0 and .messages_corrupted == 0' >/dev/null ||
    fail "$1: $("$lab" logs "$1" | tail -n 20)"
}

## ferryds

# launch HOST NAME OPTION...: one more ferryd on a host, in the folder /tmp/NAME there. Programs would not find it.
launch() {
  local folder=/tmp/$2
  on "$1" mkdir -p "$folder"
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" sh -c 'folder=$1; shift; setsid "$@" >"$folder/log" 2>&1 & echo $! >"$folder/pid"' sh "$folder" \
    "$FERRY_BIN/ferryd" --socket "$folder/sock" --api-socket "$folder/api" --state-dir "$folder/state" \
    --image-dir "$folder/images" --image-port 0 \
    --network-hook "$repository/lab/network-hook" "${@:3}"
  await "the ferryd $2 on $1" on "$1" test -S "$folder/api"
}

# another HOST PORT ARGS...: one with a certificate of the lab's CA, for what its arguments make fail.
another() {
  local folder=/tmp/ferryd-$2
  "$ferry" host add "$1-$2" --also "$1" --also "10.77.0.${1#h}" --ca-dir "/run/ferry-lab/$FERRY_LAB/ca" --output - |
    on "$1" "$ferry" host join - --tls-dir "$folder/tls" >/dev/null
  launch "$1" "ferryd-$2" --tls-dir "$folder/tls" --listen "10.77.0.${1#h}:$2" "${@:3}"
}

# script FILE TEXT [HOST]: an executable script on that host, or h3.
script() { printf '#!/bin/sh\n%s\n' "$2" | on "${3:-h3}" sh -c "cat >$1 && chmod 755 $1"; }

# kill_ferryd HOST [PROCESS...]: and these behind it. start_ferryd starts it anew. It has ended when this returns, and
# holds nothing any more.
kill_ferryd() {
  local pid
  pid=$(on "$1" cat /run/ferry/ferryd.pid)
  cp "/proc/$pid/cmdline" "$work/ferryd_$1"
  kill -9 "$pid" "${@:2}"
  await "the ferryd of $1 has ended" no_process "$pid"
}
no_process() { [[ ! -e /proc/$1 ]]; }

# start_ferryd HOST [OPTION VALUE]: with the same arguments as the one that was killed, but this one.
start_ferryd() {
  local command i
  mapfile -d '' -t command <"$work/ferryd_$1"
  for ((i = ${#command[@]} - 2; $# > 1 && i > 0; i--)); do
    if [[ ${command[i]} == "$2" ]]; then command=("${command[@]:0:i}" "${command[@]:i+2}"); fi
  done
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" sh -c 'setsid "$@" >>/run/ferry/ferryd.log 2>&1 & echo $! >/run/ferry/ferryd.pid' sh \
    env PATH="$FERRY_BIN:/opt/ferry/bin:$PATH" "${command[@]}" "${@:2}"
}

restart_ferryd() { # HOST [OPTION VALUE]
  kill_ferryd "$1"
  start_ferryd "$@"
}

# The same, and it answers when this returns.
ferryd_with() {
  restart_ferryd "$@"
  await "the ferryd of $1 answers" answers "$1"
}
answers() { on "$1" "$ferry" ps >/dev/null 2>&1; }
