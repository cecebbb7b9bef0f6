# Sourced by machines_test.sh; bash only: containers of runc's and of podman's with a device of the kernel, as
# docs/containers.md says. stream_check in them counts what is lost and doubled; its peer is on h2.
# shellcheck shell=bash

readonly kernel_client='stream_check 10.79.0.2 --json --gid-index 1 --timeout 18 --qps 2 --seconds 0 --rate 40'

# shellcheck disable=SC2016 # the machines' shells expand
group_containers() {
  local host
  make_image
  make_bridges
  load_rxe
  vm h2 'rdma link add rxe0 type rxe netdev eth0'
  # The MTU of a bridge is that of its smallest port, unless somebody sets it.
  for host in h1 h3; do
    vm "$host" 'ip link set br0 mtu 9000; rdma link add rxe0 type rxe netdev br0; ferry cdi generate' >/dev/null
  done
  runc_with_kernel_device
  podman_with_kernel_device
  unload_rxe
}

start_peer() {
  vm h2 'cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check --json --gid-index 1 --timeout 18 \
    >/tmp/server 2>&1 </dev/null &'
  await 'the peer listens' vm h2 'ss -Hltn "sport = :18600" | grep -q .'
}
reports() { # HOST COMMAND: that prints what stream_check has reported
  await "$1 reports" vm "$1" "$2 | jq -e .result"
  vm "$1" "$2" | jq -e '.result == "ok"' >/dev/null || fail "stream_check on $1: $(vm "$1" "$2")"
}
is_connected() { vm "$1" "ferry ps --json | jq -e '[.programs[].devices[].qps[] | select(.state == \"RTS\")] |
  length == 2'" >/dev/null; }

# shellcheck disable=SC2016
runc_with_kernel_device() {
  start_peer
  vm h1 "words='$kernel_client'
    $(
      cat <<'SCRIPT'
    ip netns add kern
    ip link add kern0 type veth peer name eth0 netns kern
    ip link set kern0 master br0 up
    ip -n kern link set lo up
    ip -n kern link set eth0 up
    ip -n kern address add 10.79.0.82/24 dev eth0
    mkdir -p /srv/kern/rootfs && cd /srv/kern
    podman create --name export localhost/client x
    podman export export | tar -x -C rootfs
    podman rm export
    runc spec
    jq --arg words "$words" '.process.args = ($words | split(" ")) | .process.terminal = false |
      (.linux.namespaces[] | select(.type == "network")).path = "/run/netns/kern"' config.json >spec
    mv spec config.json
    ferry cdi apply /srv/kern --device rxe0
    (runc run --detach kern </dev/null 2>&1 | cat >>log) >/dev/null 2>&1 &
SCRIPT
    )" >/dev/null 2>&1
  await 'the container of runc has QPs' is_connected h1
  vm h3 'rdma link delete rxe0; rdma link add rxe9 type rxe netdev eth1; rdma link add rxe0 type rxe netdev br0'
  fails "rxe0 is uverbs1 .* here, and the container's /dev has uverbs0 .*; let the RDMA devices of both hosts" h1 \
    'ferry move --runc kern --to h3 --copy-rootfs'
  vm h3 'rdma link delete rxe9; rdma link delete rxe0; rdma link add rxe0 type rxe netdev br0'
  if vm h1 'cd /srv/kern; runc checkpoint --tcp-established --image-path /tmp/kern kern' >/dev/null 2>&1; then
    fail 'runc has checkpointed a container with a device of the kernel'
  fi
  vm h1 'journalctl -u ferryd -o cat | grep -q "uses rxe0, a device of the kernel: ferry move moves it"' ||
    fail 'ferryd does not say why not'
  packets_go_on h1 || fail 'the container does not go on after what was refused'
  vm h1 'ferry move --runc kern --to h3 --copy-rootfs' || fail 'no move from h1 to h3'
  await 'it goes on on h3' packets_go_on h3
  vm h3 'ferry move --runc kern --to h1' || fail 'no move from h3 to h1'
  await 'it goes on on h1 again' packets_go_on h1
  vm h1 'runc kill kern INT'
  reports h1 'cat /srv/kern/stdio.log'
  reports h2 'cat /tmp/server'
  vm h1 'runc delete --force kern'
  ok "a container of runc's with a device of the kernel moves there and back, and nothing is lost"
}

podman_with_kernel_device() {
  local moving host
  start_peer
  for host in h1 h3; do
    vm "$host" 'podman network exists lan || podman network create -d macvlan -o parent=br0 --subnet 10.79.0.0/24 lan' \
      >/dev/null 2>&1
  done
  vm h1 'podman save localhost/client | ssh h3 podman load' >/dev/null 2>&1
  vm h1 "podman run -d --name kern --network lan:ip=10.79.0.83 --device ferry.dev/rnic=rxe0 --ulimit memlock=-1 \
    localhost/client $kernel_client" >/dev/null 2>&1
  await 'the container of podman has QPs' is_connected h1
  begin_move kern
  vm h3 'systemctl kill -s KILL ferryd'
  if wait "$moving"; then fail 'a move whose ferryd on h3 was killed succeeded'; fi
  await "podman's container goes on where it was" packets_go_on h1
  serves h3
  await 'nothing of it is on h3' vm h3 '! pgrep -x stream_check'
  vm h1 'ferry move kern --to h3' || fail 'no move from h1 to h3'
  await 'it goes on on h3' packets_go_on h3
  vm h3 'ferry move kern --to h1' || fail 'no move from h3 to h1'
  await 'it goes on on h1 again' packets_go_on h1
  vm h1 'podman kill -s INT kern' >/dev/null 2>&1
  reports h1 'podman logs kern 2>/dev/null'
  reports h2 'cat /tmp/server'
  vm h1 'podman rm --force --time 0 kern' >/dev/null 2>&1
  ok "a container of podman's moves with it, also after a ferryd was killed in the middle, and nothing is lost"
}
