#!/bin/bash
# New connections to a program that has moved, at the address that it still believes it has: its peers know no other.
#
#   whereabouts_test.sh [GROUP...]     groups: stand_in chain end rdma_cm hosts etcd (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

# serve HOST NAME CMD...: a server that has opened its device and waits for a client over TCP.
serve() {
  start "$@"
  await_listen "$1" "$2"
}

# send_away NAME FROM TO: moves a program that has no connected QP yet, or none at all.
send_away() { on "$2" "$ferry" move "$1" --to "$3" --json >"$work/move" || fail "cannot move $1 from $2 to $3"; }

# meets HOST NAME SERVER ON CMD...: a client on HOST connects to the server, which is on host ON now but believes that
# it is on h1; both end well.
meets() {
  start "$1" "$2" "${@:5}" "$(address_of "$4" "$3")"
  finishes "$2"
  "$lab" logs "$2" >"$work/client"
  finishes "$3"
  grep -A 1 'remote address:' "$work/client" | grep -Eq 'GID ::ffff:10\.78\.1\.|GID:.*:255:255:10:78:01:' ||
    fail "$2 was told another address than that of h1: $(<"$work/client")"
  ok "${*:5}: from $1 to h1, where the server has gone to $4"
}

# Peers on three hosts ask the stand-in on h1.
group_stand_in() {
  serve h1 pp ibv_rc_pingpong -g 0 -c -n 200 # its QP is there already
  send_away pp h1 h2
  meets h3 ppc pp h2 ibv_rc_pingpong -g 0 -c -n 200
  serve h1 up ibv_ud_pingpong -g 0 -c -n 200
  send_away up h1 h2
  meets h3 upc up h2 ibv_ud_pingpong -g 0 -c -n 200
  serve h1 sl ib_send_lat -F -u 18 -n 1000 # these make QPs after the move
  send_away sl h1 h2
  meets h1 slc sl h2 ib_send_lat -F -u 18 -n 1000
  serve h1 wb ib_write_bw -F -u 18 -n 1000 -q 4
  send_away wb h1 h3
  meets h3 wbc wb h3 ib_write_bw -F -u 18 -n 1000 -q 4
}

# A client that has moved itself, to a server that has moved twice.
group_chain() {
  serve h1 ch ib_send_bw -F -u 18 -n 1000
  send_away ch h1 h2
  send_away ch h2 h3
  meets h2 chc ch h3 ib_send_bw -F -u 18 -n 1000
}

held_on_h1() { shows "^$1\." on h1 ls /run/netns; }
free_on_h1() { ! held_on_h1 "$1"; }

# The slot is held, in its namespace, while the program lives, wherever that is, and no longer.
group_end() {
  serve h1 en ib_read_bw -F -u 18 -n 1000
  send_away en h1 h2
  send_away en h2 h3
  held_on_h1 en || fail 'h1 gave the slot away'
  ferryd_with h1
  meets h1 enc en h3 ib_read_bw -F -u 18 -n 1000
  await 'h1 frees the slot' free_on_h1 en
  serve h1 ek ib_read_bw -F -u 18 -n 1000
  send_away ek h1 h2
  held_on_h1 ek || fail 'h1 gave the slot away'
  hit KILL ek
  await 'h1 frees the slot' free_on_h1 ek
  ok 'the slot of a program that has ended is free'
}

group_rdma_cm() {
  local address
  # rping binds the address that its container gets: it has an RNIC then, before it is moved.
  # shellcheck disable=SC2016 # expanded there
  start h1 rp sh -c 'exec rping -s -P -V -a "$(ip -4 -j address show rdma0 | jq -r ".[0].addr_info[0].local")"'
  address=$(on h1 jq -r .rdma0.address /run/ferry/containers/rp/config.json)
  await 'rping listens' unless_ended h1 rp listens_by_cm rp
  send_away rp h1 h2
  start h3 rpc rping -c -a "$address" -C 20 -V
  finishes rpc
  send_away rp h2 h3
  start h1 rpd rping -c -a "$address" -C 20 -V
  finishes rpd
  ok "rping: two clients of $address, which is on h2 and then on h3"
}

# h1 is gone: its ferryd, its stand-ins and its network.
lose_h1() {
  kill -9 "$(on h1 cat /run/ferry/ferryd.pid)"
  on h1 ip link set dev rdma down
  on h1 ip link set dev uplink down
}

without_h1() {
  serve h1 lo ib_send_bw -F -u 18 -n 1000
  send_away lo h1 h2
  lose_h1
  meets h3 loc lo h2 ib_send_bw -F -u 18 -n 1000
}

lab_with() { # DIRECTORY
  "$lab" down
  if [[ -n $1 ]]; then export FERRY_LAB_DIRECTORY=$1; else unset FERRY_LAB_DIRECTORY; fi
  "$lab" up 3
}

group_hosts() {
  lab_with ''
  without_h1
  lab_with ''
}

# etcd runs on h3, with its host's certificate, and demands one.
ctl() {
  on h3 env ETCDCTL_API=3 etcdctl --endpoints https://10.77.0.3:2379 --cacert /run/ferry/tls/ca.pem \
    --cert /run/ferry/tls/host.pem --key /run/ferry/tls/host.key "$@"
}
etcd_answers() { ctl endpoint health >/dev/null 2>&1; }

group_etcd() {
  lab_with etcds://10.77.0.3:2379
  "$lab" exec h3 -- etcd --data-dir /tmp/etcd --listen-client-urls https://10.77.0.3:2379 \
    --advertise-client-urls https://10.77.0.3:2379 --client-cert-auth --trusted-ca-file /run/ferry/tls/ca.pem \
    --cert-file /run/ferry/tls/host.pem --key-file /run/ferry/tls/host.key --listen-peer-urls http://10.77.0.3:2380 \
    --initial-advertise-peer-urls http://10.77.0.3:2380 --initial-cluster default=http://10.77.0.3:2380 \
    >"$work/etcd" 2>&1 &
  await 'etcd answers' etcd_answers
  without_h1
  shows '"host":"h2"' ctl get --prefix /ferry/v1/places/ ||
    fail 'etcd was told nothing'
  lab_with ''
}

use_lab where 3 ibv_rc_pingpong ib_send_lat rping etcd etcdctl
groups=("$@")
((${#groups[@]} > 0)) || groups=(stand_in chain end rdma_cm hosts etcd)
for group in "${groups[@]}"; do "group_$group"; done
