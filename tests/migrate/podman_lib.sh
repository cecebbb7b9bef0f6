# Sourced by the tests of podman's containers, behind runc_lib.sh, which it sources: networks, containers, and what they
# leave.
# shellcheck shell=bash
# shellcheck source=tests/migrate/runc_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/runc_lib.sh"

FERRY_LAB_FERRYD="--podman $PODMAN"
export FERRY_LAB_FERRYD
readonly image=localhost/ferry-test:latest
stream_options=()  # of both ends of a stream

# podman's networks reach other hosts: a container has addresses of its own there, which move along.
networks() {
  local host
  for host in "$@"; do
    pod "$host" network create -d macvlan -o parent=br0 --subnet 10.77.0.0/16 --disable-dns lan >/dev/null
    pod "$host" network create -d macvlan -o parent=rdma --opt mtu=9000 --subnet 10.78.0.0/16 --disable-dns fast \
      >/dev/null
  done
}

# images HOST...: the same image on each, by its id.
images() {
  local host
  tar -C "$rootfs" -c . | pod "$1" import -q - ferry-test >/dev/null
  pod "$1" save -q "$image" >"$work/image"
  for host in "${@:2}"; do pod "$host" load -q <"$work/image" >/dev/null; done
}

# A server of the lab on h2, and the image and the networks on h1 and h3.
prepare() {
  start h2 "$1" "$FERRY_BIN/stream_check" --json "${stream_options[@]}"
  await_listen h2 "$1" 18600
  peer=$(address_of h2 "$1")
  pod h1 image exists "$image" && return
  images h1 h3
  networks h1 h3
}

# contain HOST NAME NUMBER [OPTION...]: a client in a container of podman's.
contain() {
  pod "$1" run -d --name "$2" --network "lan:ip=10.77.240.$3,interface_name=eth0" \
    --network "fast:ip=10.78.253.$3,interface_name=rdma0" -v "$FERRY_BIN:/opt/ferry:ro" -v /run/ferry:/run/ferry \
    -e LD_PRELOAD=/opt/ferry/libferry.so -e FERRY_NETDEV=rdma0 "${@:4}" "$image" \
    /opt/ferry/stream_check "$peer" --seconds 0 --rate 100 --qps 2 --json "${stream_options[@]}" >/dev/null
  uses_rdma "$1" "$2"
}

# devices HOST...: Ferry's, for podman run --device.
devices() {
  local host
  for host in "$@"; do
    on "$host" "$ferry" cdi generate --library-dir /run/ferry-cdi --output /run/cdi/ferry.json >/dev/null
  done
}

# run_with_device HOST NAME [OPTION...] -- CMD...: a container that has Ferry's devices from there.
run_with_device() {
  local options=()
  while [[ $3 != -- ]]; do
    options+=("$3")
    set -- "$1" "$2" "${@:4}"
  done
  pod "$1" run -d --name "$2" --device ferry.dev/rnic=all -v "$FERRY_BIN:/opt/ferry:ro" "${options[@]}" "$image" \
    "${@:4}" >/dev/null
}
uses_rdma() { await "$2 uses RDMA" has_more "$1" "$(pod_pid "$1" "$2")" 0; }
goes_on_in() { goes_on "$1" "$(pod_pid "$1" "$2")"; }

runs_on() { [[ $(pod "$1" inspect --format '{{.State.Running}}' "$2" 2>/dev/null) == true ]]; }

no_archive() { on "$1" sh -c '! ls /run/ferry/images/* /var/tmp/ferry/podman-* >/dev/null 2>&1'; }
# has_nothing HOST NAME: neither a container nor an archive of it.
has_nothing() { ! pod "$1" container exists "$2" && no_archive "$1"; }

# traces HOST: all that containers, moves, and what fails in them may leave there. remember HOST...: what it is now;
# leaves_nothing HOST...: it is that again, but for an empty folder that a CRIU which is killed leaves in /tmp.
traces() {
  local kind
  for kind in 'ps --all --format {{.Names}}' 'volume ls -q' 'images -q' 'network ls -q'; do
    # shellcheck disable=SC2086 # words
    pod "$1" $kind
  done
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" sh -c '{ findmnt -rn -o TARGET | sort
      ls -A /run/netns /run/ferry/images /var/tmp /var/tmp/ferry /tmp 2>&1
    } | sed "s/netns-[0-9a-f-]*/netns-OF-PODMAN/; /^\.criu\.mntns\./d"
    ip -br link | sed "s/[@ ].*//" | sort
    nft -s list ruleset 2>/dev/null
    find /sys/fs/cgroup/ -name "libpod-*"
    echo "conmon: $(pgrep --ns $$ --nslist mnt -c -x conmon)"' || true
}
remember() {
  local host
  for host in "$@"; do traces "$host" >"$work/before_$host"; done
}
is_as_before() {
  traces "$1" >"$work/now_$1"
  cmp -s "$work/before_$1" "$work/now_$1"
}
leaves_nothing() {
  local host deadline=$((SECONDS + patience))
  for host in "$@"; do
    until is_as_before "$host"; do
      ((SECONDS < deadline)) || fail "$host is not as before: $(diff "$work/before_$host" "$work/now_$host")"
      sleep 0.1
    done
  done
}

# exited HOST NAME: the container's exit status, when it has ended; its output is in $work/NAME.
exited() {
  pod "$1" wait "$2"
  pod "$1" logs "$2" >"$work/$2"
}
finds_nothing_lost() {
  jq -e '.messages_lost == 0 and .messages_duplicated == 0 and .messages_corrupted == 0' "$work/$1" >/dev/null || 
    fail "$1: $(tail -n 20 "$work/$1")"
}

# ends_well HOST NAME SERVER: nothing was lost, on either side.
ends_well() {
  kill -INT "$(pod_pid "$1" "$2")"
  exited "$1" "$2" >/dev/null
  finds_nothing_lost "$2"
  finishes "$3"
  lost_nothing "$3"
  pod "$1" rm "$2" >/dev/null
}

# podman_waiting HOST VERB: the next podman of that kind that ferryd starts waits for /run/go. It says so by
# /run/waiting.
podman_waiting() {
  on "$1" rm -f /run/go /run/waiting
  # shellcheck disable=SC2016 # expanded by the script
  printf '#!/bin/bash\n%s\n' "if [[ \"\$*\" == *'container $2'* ]] && mkdir /run/waited 2>/dev/null; then
    touch /run/waiting; until [ -e /run/go ]; do sleep 0.02; done; fi
    exec $PODMAN \"\$@\"" | on "$1" sh -c 'rm -rf /run/waited; cat >/run/podman && chmod 755 /run/podman'
  ferryd_with "$1" --podman /run/podman
}
go_on() { on "$1" touch /run/go; }

# move_begins HOST NAME: a move to h3 in the background, as job `runner`, of which /run/mover on HOST is the pid.
move_begins() {
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" sh -c 'echo $$ >/run/mover; exec "$0" move "$1" --to h3' "$ferry" "$2" >"$work/move" 2>&1 &
  runner=$!
}
# restore_begins HOST NAME: the same, and podman on h3 waits before it restores.
restore_begins() {
  podman_waiting h3 restore
  move_begins "$1" "$2"
  await 'h3 restores' on h3 test -e /run/waiting
}
# fails_to_move PATTERN: what ferry move says then.
fails_to_move() {
  if wait "$runner"; then fail "moved: $(<"$work/move")"; fi
  grep -Eq "$1" "$work/move" || fail "ferry move said: $(<"$work/move")"
}

# tells HOST CONDITION: so the history of that host has its latest move.
tells() { on "$1" "$ferry" history --json | jq -e ".moves[-1] | $2" >/dev/null; }

# use_podman: the lab, with podman on its hosts.
use_podman() {
  use_lab podman 3 podman runc jq mmdebstrap
  on h1 mountpoint -q /usr/lib/criu || { echo 'skipped: no /usr/lib/criu; run scripts/setup'; exit 77; }
  on h1 mountpoint -q /sys/fs/cgroup || { echo 'skipped: no cgroups of version 1'; exit 77; }
  need_rootfs
  peer=
}
