#!/bin/bash
# ferry move of podman's containers, made with Ferry's CDI device, on each kind of network (docs/containers.md): what
# moves along, and what is left where they were. Needs root.
#
#   podman_networks_test.sh [GROUP...]     groups: host path bridge (default: all)
# shellcheck source=tests/migrate/podman_lib.sh
source "$(dirname "$0")/podman_lib.sh"

# place HOST NAME: where its RDMA is.
place() {
  on "$1" "$ferry" ps --json |
    jq -r --argjson pid "$(pod_pid "$1" "$2")" \
    '[.programs[] | select(.pid == $pid) | .devices[].qps[].local] | unique[]'
}

# Programs that count their messages, which they all check, and end; while RDMA is slow they are far from that.
readonly pingpong=(ibv_rc_pingpong -g 0 -e -c -s 1024 -n 1000)
pingpong_server() {
  start h2 "$1" "${pingpong[@]}"
  await_listen h2 "$1"
}
pingpong_client() { # HOST NAME SERVER [OPTION...]
  run_with_device "$1" "$2" -v /usr/bin/ibv_rc_pingpong:/usr/bin/ibv_rc_pingpong:ro "${@:4}" -- "${pingpong[@]}" \
    "$(address_of h2 "$3")"
  uses_rdma "$1" "$2"
}
pingpong_ends_well() { # HOST NAME SERVER
  local status
  status=$(exited "$1" "$2")
  { [[ $status == 0 ]] && says "$work/$2" '^1000 iters'; } || fail "$2 ended with $status: $(tail -n 5 "$work/$2")"
  finishes "$3"
  pod "$1" rm "$2" >/dev/null
}

group_host() {
  remember h1
  slow_rdma 256kbit
  pingpong_server phs
  pingpong_client h1 phc phs --network host -e FERRY_NETDEV=rdma
  [[ $(place h1 phc) == 10.78.1.1:* ]] || fail "RDMA of phc is at $(place h1 phc)"
  on h3 mv /run/ferry-cdi /run/hidden
  fails "^ferry: 'phc' was not moved: h3: there is no /run/ferry-cdi/[0-9a-f]+/[a-z.]+, which 'phc' mounts" \
    on h1 "$ferry" move phc --to h3
  on h3 mv /run/hidden /run/ferry-cdi
  move phc h1 h3
  leaves_nothing h1
  [[ $(place h3 phc) == 10.78.3.1:* ]] || fail "RDMA of phc is at $(place h3 phc)"
  fast_rdma
  pingpong_ends_well h3 phc phs
  ok "a container on the host's network: its RDMA goes on at the other host's address"

  run_with_device h1 phl --network host -e FERRY_NETDEV=rdma -- /opt/ferry/stream_check --json
  await 'phl listens' listens h1 18600
  start h2 pht "$FERRY_BIN/stream_check" 10.77.0.1 --seconds 0 --rate 100 --json
  uses_rdma h1 phl
  local line="^ferry: 'phl' was not moved: it is on the host's network and has a TCP connection \(to port [0-9]+\), "
  line+="which cannot move to another address$"
  fails "$line" on h1 "$ferry" move phl --to h3
  goes_on_in h1 phl
  hit INT pht
  finishes pht
  lost_nothing pht
  pod h1 rm -f -t 0 phl >/dev/null
  leaves_nothing h1
  ok "but not its TCP connections: it is refused, and goes on"
}

# Namespaces that are there on both hosts, with an address of its own on each: Ferry leaves them as they are.
group_path() {
  local host
  for host in h1 h3; do network "$host" ppn "${host#h}"; done
  remember h1 h3
  slow_rdma 256kbit
  pingpong_server pps
  pingpong_client h1 ppc pps --network ns:/run/netns/ppn -e FERRY_NETDEV=rdma0
  move ppc h1 h3
  leaves_nothing h1
  [[ $(place h3 ppc) == 10.78.253.3:* ]] || fail "RDMA of ppc is at $(place h3 ppc)"
  fast_rdma
  pingpong_ends_well h3 ppc pps
  leaves_nothing h3
  ok 'a container in a network namespace given by path: its RDMA goes on at the address of the one there'
}

# A network of podman's own, whose bridge has a port of the network between the hosts: its addresses move along.
rdma_network() {
  local bridge
  pod "$1" network create --subnet 10.89.0.0/24 --gateway "10.89.0.${1#h}" --disable-dns rdma >/dev/null
  bridge=$(pod "$1" network inspect --format '{{.NetworkInterface}}' rdma)
  on "$1" ip -batch - <<BATCH
link add name $bridge mtu 9000 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link add name port type veth peer name nic
link set dev port mtu 9000 master $bridge up
link set dev nic mtu 9000 master brm up
link set dev $bridge up
BATCH
}

group_bridge() {
  local host address
  for host in h1 h2 h3; do rdma_network "$host"; done
  run_with_device h2 pbs --network rdma:ip=10.89.0.20 -- /opt/ferry/stream_check --json
  pod h1 run --rm --network rdma -p 8080:80 "$image" true # from then on podman has its chains for the bridge
  remember h1
  run_with_device h1 pbc --network rdma:ip=10.89.0.30 -p 8080:80 -- /opt/ferry/stream_check 10.89.0.20 --seconds 0 \
    --rate 100 --qps 2 --json
  uses_rdma h1 pbc
  format='{{.NetworkSettings.Networks.rdma.IPAddress}} {{.NetworkSettings.Networks.rdma.MacAddress}}'
  address=$(pod h1 inspect --format "$format" pbc)
  move pbc h1 h3
  leaves_nothing h1
  [[ $(pod h3 inspect --format "$format" pbc) == "$address" ]] || fail 'its address has not moved along'
  shows '10.89.0.30:80' on h3 sh -c "nft list table ip nat 2>/dev/null" || fail 'its published port has not moved along'
  goes_on_in h3 pbc
  kill -INT "$(pod_pid h3 pbc)"
  for host in "h3 pbc" "h2 pbs"; do
    # shellcheck disable=SC2086 # words
    [[ $(exited $host) == 0 ]] || fail "$host did not end well"
    finds_nothing_lost "${host#* }"
  done
  ok "a container on a bridge of podman's: its addresses and its published port move along"
}

use_podman
images h1 h2 h3
devices h1 h2 h3
if (($# == 0)); then set -- host path bridge; fi
for group in "$@"; do "group_$group"; done
