#!/bin/bash
# Several devices on a host, several processes on it, what tools read in /sys, programs that load libibverbs by name,
# and port events.
#
#   devices_test.sh [GROUP...]     groups: names together files loaded events (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

# all_devices CMD...: on h1, where br0 and rdma have addresses, without choosing one.
all_devices() { on h1 timeout 180 "$ferry" run -- "$@" 2>&1; }

# same WHAT EXPECTED FOUND
same() {
  runs=$((runs + 1))
  if [[ $3 == "$2" ]]; then
    ok "$1"
  else
    failures=$((failures + 1))
    printf 'FAILED: %s\nexpected: %s\nfound:    %s\n' "$1" "$2" "$3"
  fi
}

group_names() {
  # shellcheck disable=SC2016 # expanded on the host
  local first list='for d in /sys/class/infiniband/*; do echo "${d##*/} $(cat "$d/parent")"; done'
  first=$(all_devices sh -c "$list" | sort -k2)
  same 'one device for each interface with an address' 'br0 rdma' "$(awk '{ print $2 }' <<<"$first" | xargs)"
  same 'other processes find the same names' "$first" "$(all_devices sh -c "$list" | sort -k2)"
  same 'FERRY_NETDEV chooses and orders' 'ferry0 rdma ferry1 br0' \
    "$(on h1 env FERRY_NETDEV=rdma,br0 "$ferry" run -- sh -c "$list" | sort | xargs)"
  same 'libibverbs lists what /sys shows' "$(awk '{ print $1 }' <<<"$first" | sort | xargs)" \
    "$(all_devices ibv_devices | awk '/ferry/ { print $1 }' | sort | xargs)"
}

# Six pairs at a time between the same two hosts, over two devices, IPv4 and IPv6.
group_together() {
  local i device gid pids=() good=0
  for i in 1 2 3 4 5 6; do
    device=ferry$((i % 2)) gid=0
    if ((i > 4)); then device=ferry0 gid=1; fi
    on h1 timeout 180 "$ferry" run --netdev rdma,br0 -- ibv_rc_pingpong -d $device -g $gid -p $((18600 + i)) -n 2000 \
      -c \
      >"$work/server$i" 2>&1 &
    pids+=($!)
  done
  for i in 1 2 3 4 5 6; do
    await "server $i listens" listens h1 $((18600 + i))
    device=ferry$((i % 2)) gid=0
    if ((i > 4)); then device=ferry0 gid=1; fi
    on h2 timeout 180 "$ferry" run --netdev rdma,br0 -- ibv_rc_pingpong -d $device -g $gid -p $((18600 + i)) -n 2000 \
      -c h1 \
      >"$work/client$i" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do
    if wait "$i"; then good=$((good + 1)); fi
  done
  same 'six pairs of processes at a time, over two devices' 12 $good
}

group_files() {
  local port=/sys/class/infiniband/ferry0/ports/1
  same 'the port' '4: ACTIVE 5: LinkUp 10 Gb/sec (1X FDR10) Ethernet' \
    "$(with_ferry h1 180 sh -c "cd / && cat $port/state $port/phys_state $port/rate $port/link_layer" | xargs)"
  same 'the GID table' 'RoCE v2 rdma 0000:0000:0000:0000:0000:ffff:0a4e:0101' \
    "$(with_ferry h1 180 cat $port/gid_attrs/types/0 $port/gid_attrs/ndevs/0 $port/gids/0 | xargs)"
  alone 'Rate: 10 \(FDR10\)' ibstat ferry0
  alone 'state:.*4: ACTIVE' ibstatus ferry0:1
  same 'the nodes' 'character special file uverbs500' \
    "$(with_ferry h1 180 sh -c 'stat -c %F /dev/infiniband/uverbs500; ls /dev/infiniband | grep uverbs' | xargs)"
}

# Python's ctypes loads it by name, as NCCL does.
group_loaded() {
  same 'a program that loads libibverbs' 'ferry0' "$(with_ferry h1 180 python3 -c '
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
count = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(count))
print(*(verbs.ibv_get_device_name(devices[i]).decode() for i in range(count.value)))')"
}

group_events() {
  local watch
  on h1 timeout 600 "$ferry" run --netdev rdma -- stdbuf -oL ibv_asyncwatch ferry0 >"$work/watch" 2>&1 &
  watch=$!
  await 'ibv_asyncwatch watches' says "$work/watch" 'async event FD'
  on h1 ip link set rdma down
  await 'ibv_asyncwatch sees the link go' says "$work/watch" 'port error|PORT_ERR'
  on h1 ip link set rdma up
  await 'ibv_asyncwatch sees the link come' says "$work/watch" 'port active|PORT_ACTIVE'
  kill $watch 2>/dev/null || true
  wait $watch || true
  runs=$((runs + 1))
  ok 'ibv_asyncwatch sees the link go and come'
}

use_lab devs 2 ibv_rc_pingpong ibv_asyncwatch ibstat python3
if (($# == 0)); then set -- names together files loaded events; fi
for group in "$@"; do "group_$group"; done
summary
