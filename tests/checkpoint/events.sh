# Sourced by the tests of checkpoints, behind programs/lib.sh: commands of h1 that tell how far they are, and that are
# interrupted.
# shellcheck shell=bash

# ask COMMAND ARGUMENT...: `ferry COMMAND` in the background, as the job `asked`; its report goes to $work/report, its
# events and other lines to $work/said.
ask() {
  : >"${work:?}/said"
  on h1 rm -f /tmp/asked
  # shellcheck disable=SC2016 # expanded on the host
  on h1 sh -c 'echo $$ >/tmp/asked; exec env --default-signal=INT "$@"' sh "${ferry:?}" "$@" --events \
    >"$work/report" 2>"$work/said" &
  asked=$!
}
signal_asked() { kill "-$1" "$(on h1 cat /tmp/asked)"; }

# comes_to PHASE: the command does, unless it has ended.
comes_to() {
  await "it comes to: $1" ended_or "$asked" says "$work/said" "\"phase\":\"$1\""
  says "$work/said" "\"phase\":\"$1\"" || fail "it does not come to: $1; it says: $(<"$work/said")"
}

# is_given_up LINE: the command has ended with this line and no other one.
is_given_up() {
  if wait "$asked"; then fail "it was not given up: $(<"$work/report")"; fi
  [[ $(grep -v '^{' "$work/said") == "ferry: $1" ]] || fail "it says: $(<"$work/said")"
  events | jq -es --arg line "$1" '.[-1] | .phase == "failed" and .failure == $line' >/dev/null ||
    fail "its events: $(<"$work/said")"
}
events() { grep '^{' "$work/said"; }

# told_all PHASE CMD...: the command has ended well, its events are as documented, and they count the bytes of the phase
# up to all of them, whose number CMD prints.
told_all() {
  local bytes
  wait "$asked" || fail "it has failed: $(<"$work/said")"
  bytes=$("${@:2}")
  events | "${repository:?}/tests/cli/json_fields.py" "$repository/docs/json.md" 'ferry checkpoint --events' ||
    fail "the events are not as documented: $(<"$work/said")"
  events | jq -es --arg phase "$1" --argjson bytes "$bytes" 'map(select(.phase == $phase)) |
    (map(.done_bytes) | . == sort and unique[-1] == $bytes) and .[-1].total_bytes == $bytes and
    all(.[]; .done_bytes <= .total_bytes)' >/dev/null ||
    fail "its events do not count $bytes bytes of $1: $(<"$work/said")"
}
# image_bytes DIR: of the latest checkpoint.
image_bytes() { on h1 "$ferry" checkpoints "$1" --json | jq '.checkpoints[-1].image_bytes'; }
