#!/bin/bash
# The limits that end waiting (docs/settings.md), with unmodified programs: what both ends of a connection get when a
# program stays stopped for too long, and when nobody hears that it goes on; what `ferry move` says when it does not
# hear it. Needs root.
#
#   limits_test.sh [GROUP...]     groups: paused unheard word hang silent (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly limit_ms=3000

# WRITEs both ways: both sides have requests under way, and no receives that would be flushed first. NAMEs on h2, NAMEc
# on h1.
perftest_pair() {
  limited h2 "$1s"
  await_listen h2 "$1s"
  limited h1 "$1c" "$(address_of h2 "$1s")"
  await_traffic h1 "$1c"
}

limited() { # HOST NAME [ARGUMENT...]
  "$lab" run "$1" "$2" -d -- env FERRY_PAUSED_LIMIT_MS=$limit_ms nice "$ferry" run --netdev rdma0 -- ib_write_bw -F \
    -u 18 -D 600 -b "${@:3}"
}

# ends_by_limit NAME: its requests end with IBV_WC_RETRY_EXC_ERR, which is 12.
ends_by_limit() {
  local status=0 output
  output=$("$lab" wait "$1" --timeout "$patience") || status=$?
  ((status != 0 && status != 124)) || fail "$1 ended with $status, not by the limit: $(tail -n 5 <<<"$output")"
  grep -q 'Failed status 12' <<<"$output" || fail "$1 does not say IBV_WC_RETRY_EXC_ERR: $(tail -n 5 <<<"$output")"
}

is_over() { ! kill -0 "$1" 2>/dev/null; }

# A CRIU on h3 that waits for /tmp/enough before it restores, and then fails.
slow_criu() {
  # shellcheck disable=SC2016 # expanded by the script
  on h3 sh -c 'rm -f /tmp/restoring /tmp/enough; printf "%s\n" "#!/bin/sh" \
    "[ \"\$1\" != restore ] || { touch /tmp/restoring; until [ -e /tmp/enough ]; do sleep 0.1; done; exit 1; }" \
    "exec /opt/ferry/bin/criu \"\$@\"" >/tmp/slow-criu && chmod 755 /tmp/slow-criu'
}

# A program that is stopped for longer than its peer waits: its restore hangs. The peer gives up; the program, back at
# its source, finds nobody who would answer.
group_paused() {
  local runner
  perftest_pair lip
  slow_criu
  another h3 4787 --criu /tmp/slow-criu
  on h1 "$ferry" move lipc --to h3:4787 >"$work/slow" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  ends_by_limit lips
  on h3 touch /tmp/enough
  if wait "$runner"; then fail 'moved by a CRIU that fails'; fi
  grep -q "'lipc' was not moved" "$work/slow" || fail "a hanging restore: $(cat "$work/slow")"
  ends_by_limit lipc
  ok "a peer that stays stopped: both ends get IBV_WC_RETRY_EXC_ERR after $limit_ms ms"
}

# A program whose new place nobody hears, while it hears everybody: a one-way fault of the RDMA network.
group_unheard() {
  local fabric=/run/ferry-lab/$FERRY_LAB/ns/fabric.net
  perftest_pair liu
  nsenter --net="$fabric" nft 'add table bridge mute
    add chain bridge mute drops { type filter hook forward priority 0; }
    add rule bridge mute drops iifname "r3" ether type ip udp dport >= 4791 counter drop'
  move liuc h1 h3
  ends_by_limit liuc
  ends_by_limit lius
  shows 'packets [1-9]' nsenter --net="$fabric" nft list table bridge mute || fail 'nothing was dropped'
  nsenter --net="$fabric" nft delete table bridge mute
  ok "a RESUME that nobody hears: both ends get IBV_WC_RETRY_EXC_ERR after $limit_ms ms"
}

# A program of which its source hears nothing after the commit: the ferryd of its new place dies before it runs. The
# move is done all the same, and the program goes on as soon as there is a ferryd.
group_word() {
  ferryd_with h1 --limit resume=1s
  start h2 lws ib_write_bw -F -u 18 -D 600 -b
  await_listen h2 lws
  start h1 lwc ib_write_bw -F -u 18 -D 600 -b "$(address_of h2 lws)"
  await_traffic h1 lwc
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/last-action '[ "$CRTOOLS_SCRIPT_ACTION" != pre-resume ] || kill -9 "$(cat /run/ferry/ferryd.pid)"'
  # shellcheck disable=SC2016
  script /tmp/last-criu '[ "$1" != restore ] || set -- "$@" --action-script /tmp/last-action
    exec /opt/ferry/bin/criu "$@"'
  ferryd_with h3 --criu /tmp/last-criu
  if on h1 "$ferry" move lwc --to h3 >"$work/word" 2>&1; then fail 'a move whose end nobody saw is reported as done'; fi
  grep -q "'lwc' is on h3 now, but does not go on there: no sign of it" "$work/word" ||
    fail "no sign: $(cat "$work/word")"
  start_ferryd h3 --criu /opt/ferry/bin/criu
  await 'the ferryd of h3 answers' answers h3
  await_traffic h3 lwc
  expire lwc lws
  ok 'a program of which no sign comes is said to be there, and goes on with the next ferryd'
}

# hang_at HOST POINT: CRIU, or its action script, does nothing more when it comes to that point, and ignores SIGTERM.
hang_at() { on "$1" sh -c "rm -f /tmp/hanging; echo $2 >/tmp/hang"; }

# gives_up HOST POINT PATTERN: a move of lhc to h3 whose CRIU hangs there is given up with that line, in which LIMIT
# stands for the limit. `standstill`, a variable of the caller's in seconds, is doubled while the machine is too slow to
# come to that point within it.
gives_up() {
  local host said
  while :; do
    hang_at "$1" "$2"
    if said=$(on h1 "$ferry" move lhc --to h3 2>&1 >/dev/null); then fail "moved with a CRIU that hangs at $2"; fi
    if on "$1" test -e /tmp/hanging; then break; fi
    ((standstill < 40)) || fail "CRIU has not hung at $2: $said"
    standstill=$((2 * standstill))
    hang_at "$1" nowhere
    for host in h1 h3; do ferryd_with "$host" --criu /tmp/hanging-criu --limit "standstill=${standstill}s"; done
  done
  [[ $said =~ ${3/LIMIT/${standstill}s} && $said != *$'\n'* ]] ||
    fail "a CRIU that hangs at $2: ferry move said '$said'"
  await_traffic h1 lhc
}

# A CRIU that hangs, wherever it does, costs nobody anything: the move is given up, and both ends go on.
no_hanging_criu() { ! pgrep -f '[b]ash /tmp/hanging-criu' >/dev/null; }

group_hang() {
  local host point standstill=2
  # shellcheck disable=SC2016 # expanded by the script
  for host in h1 h3; do
    on "$host" sh -c 'cat >/tmp/hanging-criu && chmod 755 /tmp/hanging-criu' <<'SCRIPT'
#!/bin/bash
at() {
  [[ $1 == "$(cat /tmp/hang)" ]] || return 0
  trap '' TERM
  touch /tmp/hanging
  if [[ $1 == *-of-criu ]]; then kill -STOP "$PPID"; fi
  while :; do sleep 1; done
}
if [[ -n ${CRTOOLS_SCRIPT_ACTION:-} ]]; then
  at "$CRTOOLS_SCRIPT_ACTION"
  if [[ $CRTOOLS_SCRIPT_ACTION == post-dump ]]; then at post-dump-of-criu; fi
  exec "$HANGING_ACTION"
fi
at "$1"
words=()
while (($# > 0)); do
  words+=("$1")
  if [[ $1 == --action-script ]]; then
    export HANGING_ACTION=$2
    words+=(/tmp/hanging-criu)
    shift
  fi
  shift
done
exec /opt/ferry/bin/criu "${words[@]}"
SCRIPT
    hang_at "$host" nowhere
    ferryd_with "$host" --criu /tmp/hanging-criu --limit "standstill=${standstill}s"
  done
  start h2 lhs "$FERRY_BIN/stream_check"
  await_listen h2 lhs 18600
  start h1 lhc "$FERRY_BIN/stream_check" "$(address_of h2 lhs)" --seconds 0 --rate 200 --json
  await_traffic h1 lhc
  # Last CRIU itself, not its script, when it has put the program's TCP sockets into repair mode.
  for point in dump network-lock post-dump post-dump-of-criu; do
    gives_up h1 "$point" "'lhc' was not moved: it stood still for LIMIT"
    ok "a CRIU that hangs at $point: the program goes on"
  done
  hang_at h1 nowhere
  for point in restore setup-namespaces post-restore; do
    gives_up h3 "$point" "'lhc' was not moved: .*criu restore does not end"
    await 'h3 gives it up' has_given_up h3 lhc
    ok "a CRIU that hangs at $point: the program goes on at its source"
  done
  hang_at h3 nowhere
  for host in h1 h3; do
    ferryd_with "$host" --limit standstill=45s
  done
  # Others begin in the same way, and end.
  await 'no CRIU that hung is still there' no_hanging_criu
  await_traffic h1 lhc
  move lhc h1 h3
  hit INT lhc
  finishes lhc
  finishes lhs
  lost_nothing lhc
  ok 'nothing was lost, and the program moves when CRIU works'
}

# A destination that is cut off while it restores, as one without power: nothing tells the source so. It does not wait
# until the limit of the standstill is over.
group_silent() {
  local runner
  start h2 lss "$FERRY_BIN/stream_check"
  await_listen h2 lss 18600
  start h1 lsc "$FERRY_BIN/stream_check" "$(address_of h2 lss)" --seconds 0 --rate 200 --json
  await_traffic h1 lsc
  slow_criu
  another h3 4788 --criu /tmp/slow-criu
  on h1 "$ferry" move lsc --to h3:4788 >"$work/cut" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  on h3 ip link set dev uplink down
  if wait "$runner"; then fail 'moved to a host that was cut off'; fi
  grep -q "'lsc' was not moved: h3:4788 .* does not answer; look whether it runs" "$work/cut" ||
    fail "a host that is cut off: $(cat "$work/cut")"
  await_traffic h1 lsc
  on h3 ip link set dev uplink up
  on h3 touch /tmp/enough
  await 'h3 gives it up' has_given_up h3 lsc
  move lsc h1 h3
  hit INT lsc
  finishes lsc
  finishes lss
  lost_nothing lsc
  ok 'a destination that falls silent while it restores: the program goes on at its source, and moves later'
}

use_lab limit 3 ib_write_bw nft
if (($# == 0)); then set -- paused unheard word hang silent; fi
for group in "$@"; do "group_$group"; done
