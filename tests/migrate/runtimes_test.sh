#!/bin/bash
# Plain `runc checkpoint` and `podman container checkpoint` of programs that use RDMA, and restore, on the same host and
# on another: no ferry command (docs/containers.md). Needs root.
#
#   runtimes_test.sh [GROUP...]     groups: runc podman (default: all)
# shellcheck source=tests/migrate/runc_lib.sh
source "$(dirname "$0")/runc_lib.sh"

checkpoint() {
  on "$1" runc checkpoint --image-path "/run/image/$2" --work-path "/run/image/$2.work" --tcp-established "${@:3}" \
    "$2" 2>"$work/runc" ||
    fail "runc checkpoint: $(cat "$work/runc"): $(on "$1" grep Error "/run/image/$2.work/dump.log")"
}
restore() {
  runs "$1" "$2" runc restore --detach --tcp-established --image-path "/run/image/$2" --work-path "/run/image/$2.work" \
    "$2"
}

# refuses HOST PATTERN CMD...: CRIU does not restore, and says why in its log.
refuses() {
  if "${@:3}" 2>/dev/null; then fail "this should have failed: ${*:3}"; fi
  on "$1" sh -c 'cat /run/image/*.work/restore.log' >"$work/restore.log"
  grep -Eq "Error \(ferry\): .*$2" "$work/restore.log" || fail "CRIU said: $(grep Error "$work/restore.log")"
}

copy_image() { on "$1" tar -C /run/image -c "$3" | on "$2" sh -c 'mkdir -p /run/image && tar -C /run/image -x'; }

# A server of the lab, a client in a container with an address of its own.
group_runc() {
  local peer pid
  start h2 rs "$FERRY_BIN/stream_check" --json
  await_listen h2 rs 18600
  peer=$(address_of h2 rs)
  network h1 rc 1
  bundle h1 rc rc /opt/ferry/stream_check "$peer" --seconds 0 --rate 100 --qps 2 --json
  runs h1 rc runc run --detach rc
  pid=$(pid_of h1 rc)
  await 'rc uses RDMA' has_more h1 "$pid" 0
  local line="^ferry: 'rc' was not moved: h3: there is no root filesystem in /run/bundles/rc/rootfs; "
  line+="have it copied: --copy-rootfs$"
  fails "$line" on h1 "$ferry" move "$pid" --to h3
  goes_on h1 "$pid"
  checkpoint h1 rc --leave-running
  goes_on h1 "$pid"
  # Its image is of no use any more: the program has gone on.
  on h1 sh -c 'mv /run/image/rc /run/image/left'
  checkpoint h1 rc
  restore h1 rc
  pid=$(pid_of h1 rc)
  goes_on h1 "$pid"
  ok 'runc checkpoint and restore, on the same host'
  checkpoint h1 rc
  copy_image h1 h3 rc
  no_network h1 rc
  network h3 rc 1
  bundle h3 rc rc /opt/ferry/stream_check "$peer" --seconds 0 --rate 100 --qps 2 --json
  restore h3 rc
  pid=$(pid_of h3 rc)
  goes_on h3 "$pid"
  # Nowhere a second time.
  on h1 ip netns add rc
  refuses h1 \
    "'stream_check' cannot go on from this checkpoint: (it was restored on h3 already|its program has gone on since)" \
    restore h1 rc
  on h1 sh -c 'rm -rf /run/image/rc && mv /run/image/left /run/image/rc'
  refuses h1 "'stream_check' cannot go on from this checkpoint: its program has gone on since" restore h1 rc
  goes_on h3 "$pid"
  kill -INT "$pid"
  ends_well h3 rc
  finishes rs
  lost_nothing rs
  ok 'runc checkpoint and restore, on another host'
}

# The same by podman, and its archive.
group_podman() {
  local peer pid
  command -v podman >/dev/null || { echo 'skipped: podman is not installed; run scripts/setup'; return 0; }
  start h2 ps "$FERRY_BIN/stream_check" --json
  await_listen h2 ps 18600
  peer=$(address_of h2 ps)
  tar -C "$rootfs" -c . | pod h1 import -q - ferry-test >/dev/null
  pod h1 save -q localhost/ferry-test:latest | pod h3 load -q >/dev/null # the same image, by its id
  network h1 pc 2
  pod h1 run -d --name pc --network ns:/run/netns/pc -v "$FERRY_BIN:/opt/ferry:ro" -v /run/ferry:/run/ferry \
    -e LD_PRELOAD=/opt/ferry/libferry.so -e FERRY_NETDEV=rdma0 localhost/ferry-test:latest \
    /opt/ferry/stream_check "$peer" --seconds 0 --rate 100 --qps 2 --json >/dev/null
  pid=$(pod_pid h1 pc)
  await 'pc uses RDMA' has_more h1 "$pid" 0
  pod h1 container checkpoint --tcp-established --leave-running pc >/dev/null
  goes_on h1 "$pid"
  pod h1 container checkpoint --tcp-established pc >/dev/null
  pod h1 container restore --tcp-established pc >/dev/null
  pid=$(pod_pid h1 pc)
  goes_on h1 "$pid"
  ok 'podman container checkpoint and restore, on the same host'
  pod h1 container checkpoint --tcp-established --export /run/pod/pc.tar pc >/dev/null
  on h1 cat /run/pod/pc.tar | on h3 sh -c 'cat >/run/pod/pc.tar'
  pod h1 rm pc >/dev/null
  no_network h1 pc
  network h3 pc 2
  pod h3 container restore --tcp-established --import /run/pod/pc.tar >/dev/null
  pid=$(pod_pid h3 pc)
  goes_on h3 "$pid"
  on h1 ip netns add pc
  if pod h1 container restore --tcp-established --import /run/pod/pc.tar >/dev/null 2>&1; then fail 'restored twice'; fi
  goes_on h3 "$pid"
  kill -INT "$pid"
  await 'pc ends' sh -c "! kill -0 $pid 2>/dev/null"
  pod h3 logs pc >"$work/pc"
  jq -e '.messages_lost == 0 and .messages_duplicated == 0 and .messages_corrupted == 0' "$work/pc" >/dev/null ||
    fail "pc: $(tail -n 20 "$work/pc")"
  finishes ps
  lost_nothing ps
  ok 'podman container checkpoint --export and restore --import, on another host'
}

use_lab runtim 3 runc jq mmdebstrap
on h1 mountpoint -q /usr/lib/criu || { echo 'skipped: no /usr/lib/criu; run scripts/setup'; exit 77; }
on h1 mountpoint -q /sys/fs/cgroup || { echo 'skipped: no cgroups of version 1'; exit 77; }
need_rootfs
if (($# == 0)); then set -- runc podman; fi
for group in "$@"; do "group_$group"; done
