#!/bin/bash
# Strangers on the hosts of programs that move: they say that others' RNICs are theirs, answer for others, send what is
# cut off, damaged, repeated and out of turn, and take what they can get. Nothing that others see changes. Needs root.
#
#   attacks_test.sh [GROUP...]     groups: user nested container (default: all)
#
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly attack=$FERRY_BIN/attack seed=${FERRY_SEED:-$RANDOM}
# Of another user; of that user's own namespaces, where it is root; of a container's root, who has a socket of its own.
readonly user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
readonly nested=("${user[@]}" unshare --user --map-root-user --pid --fork)
readonly container=(env FERRYD_SOCKET=/run/ferry/programs/ferryd.sock unshare --pid --fork --mount-proc)

declare -A strangers

# unleash HOST ORIGIN WORD...: a stranger, started by these words. The RNIC at ORIGIN is its own, it says, and on HOST.
unleash() {
  local log=$work/attack_$1
  on_own "$1" "${@:3}" "$attack" "$2" "10.78.${1#h}.1/0" "$seed" >"$log" 2>&1 &
  strangers[$1]=$!
  await "the attack on $1" says "$log" 'seed'
}

# calm HOST: the stranger there ends; it has been at work.
calm() {
  local log=$work/attack_$1 report
  kill -0 "${strangers[$1]}" || fail "the attack on $1 has ended: $(<"$log")"
  end "${strangers[$1]}"
  await "the attack on $1 says what it did" says "$log" messages
  report=$(sed -n '/^{/p' "$log")
  jq -e '.messages > 1000 and .connections > 20' >/dev/null <<<"$report" ||
    fail "the attack on $1 did little: $(<"$log")"
  echo "     on $1: $report"
}

# is_short HOST: nobody fills the disk with lines of ferryd's log.
is_short() {
  local lines
  lines=$(on "$1" sed -n '$=' /run/ferry/ferryd.log)
  ((lines < 100 + 2 * SECONDS)) || fail "the log of ferryd on $1 has $lines lines after $SECONDS s"
}

# is_at ORIGIN PLACE: ferryd's answer to a program of h3 that looks for a peer.
is_at() { [[ $(on h3 "$attack" --ask "$1") == "$2" ]]; }

# place_of HOST NAME: of the first RNIC of a container.
place_of() { on "$1" "$ferry" ps --json | jq -r --arg name "$2" '.programs[] | select(.container == $name) |
  .devices[0].qps[0].local' | sed 's/:.*//'; }

under() {
  local origin place
  start h1 sv "$FERRY_BIN/stream_check" --json
  await_listen h1 sv 18600
  start h3 cl "$FERRY_BIN/stream_check" "$(address_of h1 sv)" --seconds 0 --rate 100 --qps 2 --json
  await_traffic h1 sv
  origin=$(place_of h1 sv)/0
  unleash h1 "$origin" "$@"
  unleash h2 "$origin" "$@"
  move sv h1 h2
  await_traffic h2 sv
  place=$(place_of h2 sv)/0
  await "the directory says $place" is_at "$origin" "$place"
  # What the journal has of it survives as well, and the next ferryds know no more than it.
  ferryd_with h1
  ferryd_with h2
  await "the directory still says $place" is_at "$origin" "$place"
  await_traffic h2 sv
  move sv h2 h3
  await_traffic h3 sv
  calm h1
  calm h2
  on h1 "$ferry" ps >/dev/null
  is_short h1
  is_short h2
  hit INT cl
  finishes cl
  lost_nothing cl
  finishes sv
  lost_nothing sv
  ok "a stranger changes nothing ($group, seed $seed)"
}

group_user() { under "${user[@]}"; }
group_nested() { under "${nested[@]}"; }
group_container() { under "${container[@]}"; }

use_lab atk 3 jq
if (($# == 0)); then set -- user nested container; fi
for group in "$@"; do "group_$group"; done
