# Sourced by the tests that run unmodified programs in the lab; bash only. A test says
#
#   source "$(dirname "$0")/lib.sh"
#   use_lab NAME HOSTS [PROGRAM...]    makes the lab; it is removed however the test ends. Without root, or without one of
#                                      the programs, the test is skipped (exit status 77)
#
# and then one of:
#   pair ...                           a server on h1 and a client on h2, not in containers: counted, goes on after a failure
#   start, move, finishes ...          programs in containers, which can be moved: the first failure ends the test
#
# and last `summary`. Programs find their peer by eth (the names h1, h2), RDMA goes over rdma_of HOST, rdma6_of HOST.
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
export last_report= # of the last move

ok() { printf 'ok - %s\n' "$*"; }

fail() {
  local host
  printf 'FAILED: %s\n' "$*" >&2
  for ((host = 1; host <= hosts; host++)); do
    printf -- '--- ferryd of h%d\n' "$host" >&2
    "$lab" exec "h$host" -- tail -n 20 /run/ferry/ferryd.log >&2 || true
  done
  exit 1
}

remove_lab() {
  local status=$?
  "$lab" down || true
  rm -rf "$work"
  exit "$status"
}

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
  "$lab" down
  "$lab" up "$hosts"
}

summary() {
  echo "$((runs - failures)) of $runs runs passed"
  ((failures == 0))
}

on() { "$lab" exec "$1" -- "${@:2}"; }

rdma_of() { echo "10.78.${1#h}.1"; }
rdma6_of() { echo "fd78::${1#h}:1"; }

## pairs

# with_ferry HOST SECONDS CMD...: a program on a host, with Ferry; ended after SECONDS.
with_ferry() { setsid -w "$lab" exec "$1" -- timeout --foreground --kill-after=5 "$2" "$ferry" run --netdev rdma -- "${@:3}"; }

# end PID: SIGTERM to what with_ferry started in the background, as the job PID of the shell.
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
    tail -n 15 "$work/$side" 2>/dev/null || true
  done
}

# alone PATTERN CMD...: one program on h1; its output must have a line like PATTERN.
alone() {
  local pattern=$1 code=0
  shift
  runs=$((runs + 1))
  : >"$work/server"
  with_ferry h1 60 "$@" >"$work/client" 2>&1 || code=$?
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
  with_ferry h1 60 "$@" >"$work/client" 2>&1 || code=$?
  if ((code == 0 || code >= 124)) || ! grep -Eq -- "$pattern" "$work/client"; then
    not_ok "$* (exit status $code, no '$pattern')"
  else
    ok "$*: $(grep -Eom 1 -- "$pattern" "$work/client")"
  fi
}

listens() { [[ -n $(on h1 ss -Hltn "sport = :$1") ]]; }

# pair [OPTION...] SERVER... [-- CLIENT...]: both must end with exit status 0. Without CLIENT it is SERVER and "h1".
#   -p PORT     the client starts when the server listens on this TCP port (default 18515)
#   -r PATTERN  ... when the server has printed a line like this (-r '' at once)
#   -l          ... when something on the server's host listens over rdma_cm
#   -s PATTERN  the server's output must have a line like this
#   -c PATTERN  the client's output must have a line like this
#   -k          the server does not end by itself: SIGTERM, and its exit status says nothing
#   -f PATTERN  the pair must fail: neither ends well or is killed, and the client's output has a line like this
#   -t SECONDS  how long each side may take (default 60)
pair() {
  local port=18515 ready='' by_output=false by_rdma_cm=false from_server='' from_client='' kill_server=false refusal='' limit=60
  local option OPTIND=1 OPTARG server_words=() client_words=() what server i started server_code=0 client_code=0
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
  if (($# > 0)); then client_words=("${@:2}"); else client_words=("${server_words[@]}" h1); fi
  what="${client_words[*]}"
  runs=$((runs + 1))
  started=${EPOCHREALTIME/./}
  : >"$work/client"
  with_ferry h1 "$limit" "${server_words[@]}" >"$work/server" 2>&1 &
  server=$!
  for ((i = 0; i < 500; i++)); do
    if $by_rdma_cm; then
      # The name under which a listener receives messages for QP 1 (src/gsi).
      if on h1 grep -q '@ferry-cm/l/' /proc/net/unix; then break; fi
    elif $by_output; then
      if grep -Eq -- "$ready" "$work/server" || [[ -z $ready ]]; then break; fi
    elif listens "$port"; then
      break
    fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.02
  done
  with_ferry h2 "$limit" "${client_words[@]}" >"$work/client" 2>&1 || client_code=$?
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

# start HOST NAME CMD...: in a container, with Ferry.
start() { "$lab" run "$1" "$2" -d -- "$ferry" run --netdev rdma0 -- "${@:3}"; }

# await_listen HOST NAME [PORT]: waits until the program in a container listens.
await_listen() {
  local i
  for ((i = 0; i < 250; i++)); do
    if [[ -n $(on "$2" ss -Hltn "sport = :${3:-18515}") ]]; then return 0; fi
    sleep 0.02
  done
  fail "$2 on $1 does not listen: $("$lab" logs "$2" | tail -n 3)"
}

# await_traffic HOST NAME [COUNT]: waits until so many programs (1) in a container have a connected QP that receives.
await_traffic() {
  local i
  for ((i = 0; i < 100; i++)); do
    if on "$1" "$ferry" ps --json | jq -e --arg name "$2" --argjson count "${3:-1}" '[.programs[] |
      select(.container == $name and any(.devices[].qps[]; .received_packets > 100))] | length >= $count' >/dev/null; then return 0; fi
    sleep 0.05
  done
  fail "no traffic of $2 on $1: $("$lab" logs "$2" | tail -n 3)"
}

# Makes programs slow that count messages, not time: at so few Mbit/s, 4 KiB both ways take 3 ms on any machine.
slow_rdma() {
  local host
  for ((host = 1; host <= hosts; host++)); do on "h$host" tc qdisc replace dev rdma root tbf rate 20mbit burst 16k latency 1s; done
}

fast_rdma() {
  local host
  for ((host = 1; host <= hosts; host++)); do on "h$host" tc qdisc del dev rdma root; done
}

# move NAME FROM TO: moves and checks the report, which stays in last_report.
move() {
  local report
  report=$(on "$2" "$ferry" move "$1" --to "$3" --json) || fail "cannot move $1 from $2 to $3"
  jq -e --arg to "$3" '.to == $to and .blackout_ms > 0 and .qps > 0 and .image_bytes > 100000 and
    .rdma_share_ms > 0 and .rdma_share_ms < .blackout_ms and
    ((.stop_ms + .dump_ms + .transfer_ms + .restore_ms + .commit_ms + .resume_ms - .blackout_ms) | fabs) < 0.01 and
    ([.stop_ms, .dump_ms, .transfer_ms, .restore_ms, .commit_ms, .resume_ms] | all(. >= 0))' \
    >/dev/null <<<"$report" || fail "the report of moving $1 to $3 contradicts itself: $report"
  jq -r '"     \(.program) \(.from) -> \(.to): \(.blackout_ms * 10 | round / 10) ms, RDMA \(.rdma_share_ms * 100 | round / 100) ms, \(.unacked_psns) PSNs unacknowledged"' <<<"$report"
  last_report=$report
}

# interrupt HOST NAME: SIGINT to the program in a container.
interrupt() { kill -INT "$(on "$1" jq .pid "/run/ferry/containers/$2/config.json")"; }

# finishes NAME [SECONDS]: the program ends well.
finishes() {
  local output status=0
  output=$("$lab" wait "$1" --timeout "${2:-60}") || status=$?
  ((status == 0)) || fail "$1 ended with $status: $(tail -n 5 <<<"$output")"
}
