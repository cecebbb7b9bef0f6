# shellcheck shell=bash
# What tests of the pipe share: network namespaces on bridges, and a ferry-piped. Its user has $bin, the folder of the
# binaries, and $lab, with which names begin. All is cleaned up when the test ends.
: "${bin:?}" "${lab:?}"

work=$(mktemp -d /tmp/ferry-pipe.XXXXXX)
readonly work
export FERRY_PIPE_SOCKET=$work/pipe.sock
started=()
spaces=()
bridges=()
clean_up() {
  local what
  for what in "${started[@]}"; do kill "$what" 2>/dev/null || true; done
  for what in "${spaces[@]}"; do ip netns delete "$what" || true; done
  for what in "${bridges[@]}"; do ip link delete "$what" || true; done
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  tail -n 20 "$work"/*.log >&2 || true
  exit 1
}

# await WHAT CMD...: until CMD succeeds.
await() {
  local what=$1 deadline=$((SECONDS + 20))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || fail "not within 20 s: $what"
    sleep 0.02
  done
}

# bridge NAME [OPTION...]
bridge() {
  ip link delete "$lab-$1" 2>/dev/null || true  # of a run that was killed
  ip link add "$lab-$1" type bridge "${@:2}" || return 1
  bridges+=("$lab-$1")
  ip link set "$lab-$1" up
}

# space NAME BRIDGE ADDRESS [VLAN]: a network namespace with eth0 on the bridge.
space() {
  local name=$lab-$1 port=$lab-v$1
  ip netns delete "$name" 2>/dev/null || true
  ip netns add "$name"
  spaces+=("$name")
  ip link add "$port" type veth peer name eth0 netns "$name"
  ip link set "$port" master "$lab-$2" up
  if [[ $# -gt 3 ]]; then command bridge vlan add dev "$port" vid "$4" pvid untagged; fi
  ip -n "$name" link set lo up
  ip -n "$name" address add "$3/24" dev eth0
  ip -n "$name" link set eth0 up
}

start_piped() {
  "$bin/ferry-piped" --socket "$FERRY_PIPE_SOCKET" >"$work/piped.log" 2>&1 &
  piped=$!
  started+=("$piped")
  await 'ferry-piped listens' test -S "$FERRY_PIPE_SOCKET"
}
