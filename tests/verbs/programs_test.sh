#!/bin/bash
# Debian's ibv_devices and ibv_devinfo over libferry.so, where there is a device and where there can be none.
#   programs_test.sh LIBFERRY
# Exit code 77: skipped, because it needs root or a program that is not installed.
set -u
library=$(realpath "$1")
[ "$(id -u)" = 0 ] || { echo "skipped: network namespaces need root"; exit 77; }
for program in ip ibv_devinfo ib_send_bw; do
  command -v $program >/dev/null || { echo "skipped: $program is not installed"; exit 77; }
done

one=ferryprog$$a none=ferryprog$$n
work=$(mktemp -d)
clean_up() {
  local pid
  for pid in $(ip netns pids $one 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
  ip netns del $one 2>/dev/null
  ip netns del $none 2>/dev/null
  rm -rf "$work"
}
trap clean_up EXIT
set -e
ip netns add $one
ip netns add $none
ip link add rdma0 netns $one mtu 9000 type veth peer name peer0 netns $one
ip -n $one addr add 10.77.0.1/24 dev rdma0
for link in lo rdma0 peer0; do ip -n $one link set $link up; done
set +e

failures=0 runs=0
fail() { # what
  failures=$((failures + 1))
  echo "FAILED: $1"
  tail -15 "$work/output" 2>/dev/null
}
on() { # namespace, command...
  local namespace=$1
  shift
  ip netns exec "$namespace" env LD_PRELOAD="$library" FERRYD_SOCKET=/nonexistent timeout 180 "$@"
}
alone() { # pattern that the output must have, command...
  local pattern=$1
  shift
  runs=$((runs + 1))
  { on $one "$@" >"$work/output" 2>&1 && grep -Eq "$pattern" "$work/output"; } || fail "$*"
}
# A library that cannot work: the program says that there is no device, and is not killed by a signal.
without_device() { # pattern that the output must have, shell command
  runs=$((runs + 1))
  ip netns exec $none env LD_PRELOAD="$library" FERRYD_SOCKET=/nonexistent timeout 180 bash -c "$2" >"$work/output" 2>&1
  local code=$?
  if [[ $code -ge 124 && $code -le 192 ]] || ! grep -Eq "$1" "$work/output"; then
    fail "$2 (exit code $code)"
  else
    echo "ok: $2"
  fi
}
alone "^ +ferry0[[:space:]]+[0-9a-f]{16}\$" ibv_devices
alone 'GID\[ +0\]:.*10\.77\.0\.1, RoCE v2' ibv_devinfo -v
alone 'state:.*PORT_ACTIVE' ibv_devinfo
without_device 'No IB devices found' ibv_devinfo
without_device 'No IB devices found|Unable to find the Infiniband' ib_send_bw
ip -n $none link set lo up
without_device '^ +ferry0' 'ibv_devices'  # there is one now, but:
without_device 'Failed to open device' 'exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n 4; ibv_devinfo'
for kilobytes in 5500 5600 5700 5800; do
  without_device "Failed to open device|PORT_ACTIVE" "ulimit -v $kilobytes; ibv_devinfo"
done
echo "$((runs - failures)) of $runs runs passed"
[ $failures = 0 ]
