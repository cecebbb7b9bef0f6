#!/bin/bash
# Plain `runc checkpoint` and `podman container checkpoint` of programs that use RDMA, and restore, on the same host and on another: no
# ferry command (docs/containers.md). Needs root.
#
#   runtimes_test.sh [GROUP...]     groups: runc podman (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly rootfs=$FERRY_BIN/../rootfs/debian12

# A root file system that knows nothing of Ferry. Cached: lab hosts see the build's folder.
need_rootfs() {
  [[ ! -e $rootfs/.complete ]] || return 0
  local mirror
  # shellcheck disable=SC2016 # apt's own substitutions
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(CODENAME)' 'Identifier: Packages' 2>/dev/null |
    awk '$2 == "Debian" && $3 !~ /-/ { print $1; exit }')
  rm -rf "$rootfs"
  mkdir -p "${rootfs%/*}"
  mmdebstrap --quiet --variant=extract --include=bash,coreutils,perftest,libibverbs1,librdmacm1,libstdc++6 bookworm "$rootfs" \
    "${mirror:-http://deb.debian.org/debian}" >"$work/mmdebstrap" 2>&1 ||
    { echo "skipped: no Debian 12: $(tail -n 1 "$work/mmdebstrap")"; exit 77; }
  rm -rf "${rootfs:?}"/{usr/share,var/lib/apt,var/lib/dpkg,var/cache}
  mkdir -p "$rootfs"/{opt/ferry,run/ferry,proc,sys,dev}
  touch "$rootfs/.complete"
}

# network HOST NAME NUMBER: a network namespace with addresses of its own on both networks of the hosts. no_network takes it away.
network() {
  on "$1" ip netns add "$2"
  on "$1" ip -batch - <<BATCH
link add name e$2 type veth peer name eth0 address 02:77:09:00:00:0$3 netns $2
link add name r$2 mtu 9000 type veth peer name rdma0 address 02:78:09:00:00:0$3 mtu 9000 netns $2
link set dev e$2 master br0
link set dev r$2 master brm
link set dev e$2 up
link set dev r$2 up
BATCH
  on "$1" ip -n "$2" -batch - <<BATCH
link set dev lo up
link set dev eth0 up
link set dev rdma0 up
address add 10.77.240.$3/16 dev eth0
address add 10.78.253.$3/16 dev rdma0
BATCH
}
no_network() {
  on "$1" ip link del dev "e$2"
  on "$1" ip link del dev "r$2"
  on "$1" ip netns del "$2"
}

# bundle HOST NAME NETWORK CMD...: for runc. NETWORK: a namespace's name, or host.
bundle() {
  local host=$1 name=$2 network=$3 folder=/run/bundles/$2
  shift 3
  on "$host" sh -c "mkdir -p $folder/rootfs $folder/up $folder/work && cd $folder && runc spec &&
    mount -t overlay overlay -o lowerdir=$rootfs,upperdir=$folder/up,workdir=$folder/work rootfs"
  # shellcheck disable=SC2016 # jq's own variables
  on "$host" jq --arg bin "$FERRY_BIN" --arg name "$name" --arg network "$network" '
    .linux.cgroupsPath = "/" + $name | .process += {terminal: false, args: $ARGS.positional, rlimits: []} | .root.readonly = false |
    .process.env += ["LD_PRELOAD=/opt/ferry/libferry.so", "FERRY_NETDEV=" + if $network == "host" then "rdma" else "rdma0" end] |
    .mounts |= map(select(.type != "cgroup")) |
    .mounts += [{destination: "/opt/ferry", source: $bin, type: "bind", options: ["rbind", "ro"]},
      {destination: "/run/ferry", source: "/run/ferry", type: "bind", options: ["rbind"]}] |
    if $network == "host" then del(.linux.namespaces[] | select(.type == "network"))
    else (.linux.namespaces[] | select(.type == "network")).path = "/run/netns/" + $network end' \
    "$folder/config.json" --args -- "$@" >"$work/config"
  on "$host" sh -c "cat >$folder/config.json" <"$work/config"
}

# runs HOST NAME runc ARGS...: with its output in a pipe, as a container engine does it; what was written is in the bundle's log.
runs() {
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" bash -c 'cd "/run/bundles/$1" && exec > >(exec setsid cat >>log 2>/dev/null) && shift && exec "$@" </dev/null 2>&1' bash "${@:2}"
}

checkpoint() {
  on "$1" runc checkpoint --image-path "/run/image/$2" --work-path "/run/image/$2.work" --tcp-established "${@:3}" "$2" 2>"$work/runc" ||
    fail "runc checkpoint: $(cat "$work/runc"): $(on "$1" grep Error "/run/image/$2.work/dump.log")"
}
restore() { runs "$1" "$2" runc restore --detach --tcp-established --image-path "/run/image/$2" --work-path "/run/image/$2.work" "$2"; }

# packets HOST PID: received by that program. goes_on HOST PID: it receives.
packets() { on "$1" "$ferry" ps --json | jq --argjson pid "$2" '[.programs[] | select(.pid == $pid) | .devices[].qps[].received_packets] | add // 0'; }
goes_on() {
  local before
  before=$(packets "$1" "$2")
  await "process $2 on $1 receives" has_more "$1" "$2" "$before"
}
has_more() { (($(packets "$1" "$2") > $3 + 50)); }
pid_of() { on "$1" runc state "$2" | jq .pid; }

# refuses HOST PATTERN CMD...: CRIU does not restore, and says why in its log.
refuses() {
  if "${@:3}" 2>/dev/null; then fail "this should have failed: ${*:3}"; fi
  on "$1" sh -c 'cat /run/image/*.work/restore.log' >"$work/restore.log"
  grep -Eq "Error \(ferry\): .*$2" "$work/restore.log" || fail "CRIU said: $(grep Error "$work/restore.log")"
}

ends_well() { # HOST NAME
  await "$2 ends" sh -c "! '$lab' exec '$1' -- runc state '$2' 2>/dev/null | jq -e '.status == \"running\"' >/dev/null"
  on "$1" jq -e '.messages_lost == 0 and .messages_duplicated == 0 and .messages_corrupted == 0' "/run/bundles/$2/log" >/dev/null ||
    fail "$2: $(on "$1" tail -n 20 "/run/bundles/$2/log")"
}

copy_image() { on "$1" tar -C /run/image -c "$3" | on "$2" sh -c 'mkdir -p /run/image && tar -C /run/image -x'; }

# A server of the lab, a client in a container with an address of its own.
group_runc() {
  local peer pid
  start h2 rs "$FERRY_BIN/stream_check" --json
  await_listen h2 rs 18600
  peer=$(address_of h2 rs)
  network h1 rc 1
  bundle h1 rc rc /opt/ferry/stream_check "$peer" --seconds 0 --qps 2 --json
  runs h1 rc runc run --detach rc
  pid=$(pid_of h1 rc)
  await 'rc uses RDMA' has_more h1 "$pid" 0
  fails "^ferry: process $pid \\(stream_check\\) is in a container that another runtime runs" on h1 "$ferry" move "$pid" --to h3
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
  bundle h3 rc rc /opt/ferry/stream_check "$peer" --seconds 0 --qps 2 --json
  restore h3 rc
  pid=$(pid_of h3 rc)
  goes_on h3 "$pid"
  # Nowhere a second time.
  on h1 ip netns add rc
  refuses h1 "'stream_check' cannot go on from this checkpoint: (it was restored on h3 already|its program has gone on since)" restore h1 rc
  on h1 sh -c 'rm -rf /run/image/rc && mv /run/image/left /run/image/rc'
  refuses h1 "'stream_check' cannot go on from this checkpoint: its program has gone on since" restore h1 rc
  goes_on h3 "$pid"
  kill -INT "$pid"
  ends_well h3 rc
  finishes rs
  lost_nothing rs
  ok 'runc checkpoint and restore, on another host'
}

# pod HOST ARGS...: podman with everything in the lab host's own /run: never the machine's containers. In a sandbox, limits cannot be raised.
pod() {
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" bash -c 'if mkdir /run/pod 2>/dev/null; then
      mkdir /run/pod/net
      printf "%s\n" "[containers]" "default_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]" "[engine]" "runtime = \"runc\"" \
        "cgroup_manager = \"cgroupfs\"" "events_logger = \"none\"" "[network]" "network_config_dir = \"/run/pod/net\"" >/run/pod/conf
    fi
    export CONTAINERS_CONF=/run/pod/conf XDG_CACHE_HOME=/run/pod/cache
    exec podman --root /run/pod/root --runroot /run/pod/run --tmpdir /run/pod/tmp --storage-driver overlay "$@"' bash "${@:2}"
}
pod_pid() { pod "$1" inspect --format '{{.State.Pid}}' "$2"; }

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
    /opt/ferry/stream_check "$peer" --seconds 0 --qps 2 --json >/dev/null
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
