#!/bin/bash
# A checkpoint of two containers of runc's on two hosts, which go on from it on a third one. Needs root, and runc.
#
#   runc_test.sh
# shellcheck source=tests/migrate/runc_lib.sh
source "$(dirname "$0")/../migrate/runc_lib.sh"

# container HOST NAME NUMBER CMD...: sets `pid`.
container() {
  network "$1" "$2" "$3"
  bundle "$1" "$2" "$2" "${@:4}"
  runs "$1" "$2" runc run --detach "$2"
  pid=$(pid_of "$1" "$2")
}
# nothing_left HOST NAME: neither the container nor its network, at whose addresses it goes on elsewhere.
nothing_left() {
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" sh -c '! runc state "$1" 2>/dev/null && [ ! -e "/run/netns/$1" ] && ! ip link show dev "e$1" 2>/dev/null &&
    [ ! -e "/run/ferry/runc/$1" ]' sh "$2" >/dev/null
}

shares=yes
use_lab ckptr 3 jq runc mmdebstrap
need_rootfs
on h1 mkdir -m 700 /srv/store
container h1 server 3 /opt/ferry/stream_check --json --listen 18700
await 'the server listens' on h1 ip netns exec server sh -c "ss -Hltn 'sport = :18700' | grep -q ."
container h2 client 4 /opt/ferry/stream_check 10.77.240.3 --port 18700 --json --qps 2 --size 4096 --messages 1500 \
  --rate 500 --memory 80 --rewrite 10
await 'the client uses RDMA' has_more h2 "$pid" 0
on h1 "$ferry" checkpoint server client@h2 --to /srv/store --stop >"$work/out" 2>&1 || fail "$(<"$work/out")"
# shellcheck disable=SC2016 # expanded on the host
on h1 sh -c 'jq -e "$1" /srv/store/*/manifest.json' sh \
  'any(.checkpoint.programs[].files[]; .name | startswith("ferry-pages-"))' >/dev/null ||
  fail "the client's memory was not copied while it ran"
await 'nothing of the server is left on h1' nothing_left h1 server
await 'nothing of the client is left on h2' nothing_left h2 client
fails "^ferry: h3: there is no root filesystem in /run/bundles/(server|client)/rootfs" \
  on h1 "$ferry" restart /srv/store --on h3
root_filesystem h3 server
root_filesystem h3 client
on h1 "$ferry" restart /srv/store --on h3 >"$work/out" 2>&1 || fail "restart: $(<"$work/out")"
# Their reports, which they exchange, go over the TCP connection.
ends_well h3 client stdio.log
ends_well h3 server stdio.log
on h3 grep -q '"pages_corrupted": *0[,}]' /run/bundles/client/stdio.log ||
  fail "$(on h3 cat /run/bundles/client/stdio.log)"
ok "two containers of runc's go on from their checkpoint on another host"
