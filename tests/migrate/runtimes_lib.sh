# Sourced by the tests of container runtimes, behind programs/lib.sh, which it sources: an image's root file system,
# what a process on a host receives, and podman in the lab.
# shellcheck shell=bash
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../programs/lib.sh"

readonly rootfs=$FERRY_BIN/../rootfs/debian12

# A root file system that knows nothing of Ferry. Cached: lab hosts see the build's folder.
need_rootfs() {
  [[ ! -e $rootfs/.complete ]] || return 0
  local lock
  mkdir -p "${rootfs%/*}"
  exec {lock}>"${rootfs%/*}/lock" # several tests at a time need it
  flock "$lock"
  if [[ -e $rootfs/.complete ]]; then
    exec {lock}>&-
    return 0
  fi
  rm -rf "$rootfs"
  mmdebstrap --quiet --variant=extract --include=bash,coreutils,perftest,libibverbs1,librdmacm1,libstdc++6 bookworm \
    "$rootfs" \
    "$("$repository/scripts/get-criu" --mirror)" >"$work/mmdebstrap" 2>&1 ||
    { echo "skipped: no Debian 12: $(tail -n 1 "$work/mmdebstrap")"; exit 77; }
  rm -rf "${rootfs:?}"/{usr/share,var/lib/apt,var/lib/dpkg,var/cache}
  mkdir -p "$rootfs"/{opt/ferry,run/ferry,proc,sys,dev}
  touch "$rootfs/.complete"
  exec {lock}>&-
}

# packets HOST PID: received by that program. goes_on HOST PID: it receives.
packets() {
  on "$1" "$ferry" ps --json |
    jq --argjson pid "$2" '[.programs[] | select(.pid == $pid) | .devices[].qps[].received_packets] | add // 0'
}
goes_on() {
  local before
  before=$(packets "$1" "$2")
  await "process $2 on $1 receives" has_more "$1" "$2" "$before"
}
has_more() { (($(packets "$1" "$2") > $3 + 50)); }

# podman on a host of the lab: PODMAN is a command that does not touch the machine's containers, for ferryd as well.
readonly PODMAN=$repository/lab/bin/podman
pod() { on "$1" "$PODMAN" "${@:2}"; }
pod_pid() { pod "$1" inspect --format '{{.State.Pid}}' "$2"; }
