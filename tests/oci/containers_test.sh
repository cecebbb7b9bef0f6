#!/bin/bash
# Ferry's devices in containers whose images know nothing of Ferry, with podman and with runc.
#
#   containers_test.sh [GROUP...]     groups: podman runc checkpoint unsuitable (default: all)
#
# All of it happens in namespaces of this script's own: /run is a tmpfs, podman's storage and the containers' networks
# go with it, and ferryd serves this "host" only.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
FERRY_BIN=${FERRY_BIN:-$here/../../build/release/bin}
# shellcheck source=tests/oci/images.sh
source "$here/images.sh"
readonly ferry=$FERRY_BIN/ferry patience=120 # seconds that anything may take that is waited for
failures=0

ok() { printf 'ok - %s\n' "$*"; }
bad() {
  failures=$((failures + 1))
  printf 'FAILED: %s\n' "$*"
}
die() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# says WHAT PATTERN TEXT; lacks WHAT PATTERN TEXT
says() { if [[ $3 =~ $2 ]]; then ok "$1"; else bad "$1: not like '$2': $3"; fi; }
lacks() { if [[ $3 =~ $2 ]]; then bad "$1: $3"; else ok "$1"; fi; }

await() {
  local i
  for ((i = 0; i < patience * 20; i++)); do
    if "${@:2}" >/dev/null 2>&1; then return 0; fi
    sleep 0.05
  done
  die "$1 did not come to pass; $(pod logs server 2>&1)"
}

## the "host"

pod() {
  command podman --root "$work/podman" --runroot "$work/run" --tmpdir "$work/libpod" --storage-driver overlay \
    --storage-opt additionalimagestore="$(image_store)" --runtime runc --cgroup-manager cgroupfs "$@"
}

# run_image IMAGE ARGS...: with Ferry's device and the network of c1.
run_image() {
  local image=$1
  shift
  pod run --rm --cgroup-parent "$cgroup" --network ns:/run/netns/c1 --device ferry.dev/rnic=all "localhost/$image" "$@"
}

make_networks() {
  ip link set lo up # CRIU tries something there
  mkdir -p /run/netns
  local name k=0
  for name in c1 c2; do
    k=$((k + 1))
    ip netns add $name
    ip -n $name link set lo up
  done
  ip -n c1 link add eth0 type veth peer name eth0 netns c2
  for k in 1 2; do
    ip -n c$k address add 10.99.0.$k/24 dev eth0
    ip -n c$k link set eth0 up
  done
}

cleanup() {
  local status=$? pid folder
  trap - EXIT
  if [[ -n ${ferryd:-} ]]; then kill "$ferryd" 2>/dev/null || true; fi
  pod rm --all --force --time 0 >/dev/null 2>&1 || true
  if [[ -e $work/bundle ]]; then
    runc kill ferry-oci KILL >/dev/null 2>&1 || true
    runc delete --force ferry-oci >/dev/null 2>&1 || true
    umount "$work/bundle/rootfs" 2>/dev/null || true
  fi
  for name in c1 c2; do ip netns del $name 2>/dev/null || true; done
  find /sys/fs/cgroup/*"$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
  umount -l "$work/podman/overlay" 2>/dev/null || true
  umount -l "$work"
  rmdir "$work"
  exit "$status"
}

make_host() {
  mount --make-rprivate /
  mount -t tmpfs -o mode=755 tmpfs /run
  mount -t tmpfs -o mode=755 tmpfs "$work"
  mkdir -p /run/cdi
  # Where even root may not raise limits, podman must not try.
  export CONTAINERS_CONF=$work/containers.conf
  printf '%s\n' '[containers]' 'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]' '[engine]' \
    'events_logger = "file"' '[network]' 'network_backend = "netavark"' >"$CONTAINERS_CONF"
  make_networks
  "$FERRY_BIN/ferryd" --tls-dir "$work/tls" --state-dir "$work/state" >"$work/ferryd.log" 2>&1 &
  ferryd=$!
  await 'ferryd' test -S /run/ferry/programs/ferryd.sock
  "$ferry" cdi generate --library-dir "$work/cdi" --output /run/cdi/ferry.json >/dev/null
}

## groups

# pair SERVER_IMAGE CLIENT_IMAGE COMMAND...: between two containers, with networks of their own.
pair() {
  local output status=0 what="$3, $1 and $2"
  pod run -d --name server --cgroup-parent "$cgroup" --network ns:/run/netns/c2 --device ferry.dev/rnic=all \
    "localhost/$1" "${@:3}" >/dev/null
  await "the server of $what listens" listens
  output=$(run_image "$2" "${@:3}" 10.99.0.2 2>&1) || status=$?
  if [[ $status == 0 && $(pod wait server) == 0 ]]; then
    ok "$what"
  else
    bad "$what: status $status: $output; $(pod logs server 2>&1)"
  fi
  pod rm -f server >/dev/null
}
listens() { [[ -n $(ip netns exec c2 ss -Hltn 'sport = :18515') ]]; }

group_podman() {
  local image output
  cp "$(image_root bookworm)/usr/bin/ibv_devinfo" "$work/ibv_devinfo"
  for image in bookworm trixie forky; do
    output=$(run_image "$image" ibv_devinfo -v 2>&1) || bad "ibv_devinfo in $image ended with $?"
    says "ibv_devinfo in $image" 'hca_id:.*ferry0.*GID\[  0\]:.*::ffff:10.99.0.1, RoCE v2' "$output"
    lacks "nothing else is said in $image" 'ferry:|ld.so' "$output"
  done
  output=$(pod run --rm --cgroup-parent "$cgroup" --network ns:/run/netns/c1 --device ferry.dev/rnic=all \
    -v "$work/ibv_devinfo:/usr/bin/ibv_devinfo:ro" localhost/plain ibv_devinfo 2>&1) || bad "ibv_devinfo ended with $?"
  says 'an image without libibverbs has the host'"'"'s' 'hca_id:.*ferry0' "$output"
  pair bookworm trixie ib_send_bw -n 2000 -s 4096
  pair trixie forky ibv_rc_pingpong -g 0 -n 1000 -c
  pair forky bookworm ib_send_bw -n 2000 -s 4096

  # Each process has the library: without the environment, of another user, and one that podman adds.
  pod run -d --name server --cgroup-parent "$cgroup" --network ns:/run/netns/c2 --device ferry.dev/rnic=all \
    localhost/bookworm ib_send_bw >/dev/null
  await 'the server listens' listens
  says 'a process without environment has it' 'libferry.so' "$(pod exec server env -i cat /proc/self/maps)"
  says 'a process of another user has it' 'libferry.so' "$(pod exec --user 1000 server cat /proc/self/maps)"
  await 'ferryd knows the program of the container' knows_program
  says 'ferryd is not to be commanded from a container' '^ferryd.sock$' "$(pod exec server ls /run/ferry)"
  says 'the library is read-only' 'Read-only file system' \
    "$(pod exec server sh -c 'echo x >/usr/lib/ferry/libferry.so' 2>&1 || true)"
  pod exec server sh -c 'cp /usr/bin/ibv_devinfo /tmp/own && chown 1:1 /tmp/own && chmod 4755 /tmp/own'
  says 'FERRY_NETDEV is read in programs' 'ferry0' "$(pod exec -e FERRY_NETDEV=lo server ibv_devinfo -l 2>&1)"
  says 'FERRY_NETDEV=lo chooses lo' '127.0.0.1' "$(pod exec -e FERRY_NETDEV=lo server ibv_devinfo -v 2>&1)"
  says 'but not in set-user-ID programs' '10.99.0.2' \
    "$(pod exec --user 1000 -e FERRY_NETDEV=lo server /tmp/own -v 2>&1)"
  pod rm -f -t 0 server >/dev/null
  says 'the image is as it was' '^$' "$(find "$(image_root bookworm)/etc" -name ld.so.preload)"
}
knows_program() { "$ferry" ps --json | jq -e '[.programs[].devices[]] | length > 0'; }

# bundle IMAGE JQ: $work/bundle, with Ferry in its config.json.
bundle() {
  if mountpoint -q "$work/bundle/rootfs"; then umount "$work/bundle/rootfs"; fi
  rm -rf "$work/bundle"
  mkdir -p "$work/bundle"/{rootfs,upper,overlay}
  mount -t overlay -o "lowerdir=$(image_root "$1"),upperdir=$work/bundle/upper,workdir=$work/bundle/overlay" overlay \
    "$work/bundle/rootfs"
  runc spec --bundle "$work/bundle"
  jq --arg cgroup "$cgroup/runc" '.process.terminal = false | .root.readonly = false | .linux.cgroupsPath = $cgroup |
    (.linux.namespaces[] | select(.type == "network")).path = "/run/netns/c1" | '"$2" \
    "$work/bundle/config.json" >"$work/config.json"
  mv "$work/config.json" "$work/bundle/config.json"
  "$ferry" cdi apply "$work/bundle" --library-dir "$work/cdi"
}

run_bundle() { runc run --bundle "$work/bundle" ferry-oci 2>&1 </dev/null; }

group_runc() {
  local before output
  bundle bookworm '.process.args = ["ibv_devinfo"]'
  output=$(run_bundle) || bad "ibv_devinfo ended with $?"
  says 'ibv_devinfo by runc' 'hca_id:.*ferry0' "$output"
  before=$(<"$work/bundle/config.json")
  "$ferry" cdi apply "$work/bundle" --library-dir "$work/cdi"
  if [[ $(<"$work/bundle/config.json") == "$before" ]]; then
    ok 'applying it again changes nothing'
  else
    bad 'applied twice'
  fi
  bundle bookworm '.process.args = ["cat", "/proc/self/mountinfo"]'
  output=$(run_bundle)
  lacks 'the host'"'"'s libibverbs is not in an image with its own' ' /usr/lib/ferry/host ' "$output"
  says 'the library is' ' /usr/lib/ferry .* /etc/ld.so.preload ' "$output"
  bundle plain '.process.args = ["cat", "/proc/self/mountinfo"]'
  says 'an image without has both' ' /usr/lib/ferry .* /usr/lib/ferry/host ' "$(run_bundle)"

  bundle bookworm '.process.args = ["cat", "/etc/ld.so.preload"]'
  echo /usr/lib/x86_64-linux-gnu/libibverbs.so.1 >"$work/bundle/rootfs/etc/ld.so.preload"
  local line='^ferry: no RDMA in this container: the image has an /etc/ld.so.preload of its own'
  line+='.*/usr/lib/x86_64-linux-gnu/libibverbs.so.1$'
  says 'an /etc/ld.so.preload of the image is left alone' "$line" "$(run_bundle)"
  bundle bookworm '.process.args = ["ibv_devinfo"] | .process.env += ["LD_PRELOAD=/usr/lib/ferry/libferry.so"]'
  echo /usr/lib/x86_64-linux-gnu/libnl-3.so.200 >"$work/bundle/rootfs/etc/ld.so.preload"
  says 'and what the line says to do works' 'hca_id:.*ferry0' "$(run_bundle)"
}

# What CRIU restores has the mounts that the hook has left: all of them, those of libferry.so, none.
group_checkpoint() {
  local image before count=4 log=$work/image
  for image in plain bookworm bullseye; do # from all mounts to two of them
    bundle "$image" '.process.args = ["sleep", "1000"]'
    runc run --detach --bundle "$work/bundle" ferry-oci <>/dev/null >&0 2>&0
    before=$(mounts)
    says "$image has $count mounts" "^$count\$" "$(wc -l <<<"$before")"
    count=$((count - 1))
    PATH=/opt/ferry/bin:$PATH runc checkpoint --image-path "$log" --work-path "$log" ferry-oci >/dev/null 2>&1 ||
      die "$image cannot be dumped: $(grep Error "$log/dump.log")"
    PATH=/opt/ferry/bin:$PATH runc restore --detach --image-path "$log" --work-path "$log" \
      --bundle "$work/bundle" ferry-oci \
      <>/dev/null >&0 2>&0 || die "$image cannot be restored: $(grep Error "$log/restore.log")"
    says "$image, restored" "^$before\$" "$(mounts)"
    runc delete --force ferry-oci
    rm -rf "$log"
  done
}
mounts() { runc exec ferry-oci cat /proc/self/mountinfo | awk '$5 ~ "/ferry|preload" { print $5, $6 }' | sort; }

group_unsuitable() {
  local output status=0 musl='the image has musl as its C library; Ferry needs glibc 2.34 or later'
  local old='ferry: no RDMA in this container: the image has glibc 2.31; Ferry needs 2.34 or later'
  output=$(run_and_log bullseye sh -c 'echo started; exit 7') || status=$?
  says 'a container with an older glibc runs' '^7$' "$status"
  says 'and one line names it' "^$old.started\$" "$output"
  says 'programs do not find what is not there' 'Failed to get IB devices list|No IB devices found' \
    "$(run_image bullseye ibv_devinfo 2>&1 || true)"
  output=$(run_and_log musl busybox echo started) || bad "the musl image ended with $?"
  says 'so is musl' "^ferry: no RDMA in this container: $musl.started\$" "$output"
  says 'on a terminal' "^$old.+started.+\$" "$(run_on_terminal bullseye sh -c 'echo started')"
}
# What is in the container's log at the end; as another user than root.
run_and_log() {
  local image=$1 status
  shift
  pod run -d --name server --user 1000 --cgroup-parent "$cgroup" --network none --device ferry.dev/rnic=all \
    "localhost/$image" \
    "$@" >/dev/null
  status=$(pod wait server)
  pod logs server 2>&1
  pod rm -f server >/dev/null
  return "$status"
}
run_on_terminal() {
  local image=$1
  shift
  script -qec "$(printf '%q ' command podman --root "$work/podman" --runroot "$work/run" --tmpdir "$work/libpod" \
    --storage-driver overlay --storage-opt additionalimagestore="$(image_store)" --runtime runc \
    --cgroup-manager cgroupfs run -t --rm --cgroup-parent "$cgroup" --network ns:/run/netns/c1 \
    --device ferry.dev/rnic=all "localhost/$image" "$@")" /dev/null </dev/null
}

if [[ ${1:-} != --inside ]]; then
  ((EUID == 0)) || { echo 'skipped: containers need root'; exit 77; }
  for program in podman runc mmdebstrap jq script; do
    command -v $program >/dev/null || { echo "skipped: $program is not installed; run scripts/setup"; exit 77; }
  done
  make_images bookworm trixie forky plain bullseye musl # inside there is no network
  work=$(mktemp -d /tmp/ferry-oci.XXXXXX)
  export work
  exec unshare --mount --net --ipc --uts "$0" --inside "$@"
fi
shift
readonly cgroup=/ferry-oci-test-$$
trap cleanup EXIT
make_host
if (($# == 0)); then set -- podman runc checkpoint unsuitable; fi
for group in "$@"; do "group_$group"; done
if ((failures > 0)); then tail -n 20 "$work/ferryd.log"; fi
echo "$failures failed"
((failures == 0))
