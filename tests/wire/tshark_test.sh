#!/bin/bash
# Captures real traffic of two hosts of the lab and holds it against an independent decoder: tshark must find nothing
# malformed, the fields we meant (decode_check.py), and a right ICRC over the IP header as it was on the wire. Needs
# root and a release build.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

capture=
use_lab tshk 2 tshark tcpdump
trap '[[ -z $capture ]] || kill "$capture" 2>/dev/null || true; remove_lab' EXIT

# Payloads are pseudo-random: tshark must not guess at protocols inside them.
plain=()
while read -r _ protocol _; do plain+=(--disable-protocol "$protocol"); done \
  < <(tshark -G heuristic-decodes 2>/dev/null | grep '^infiniband\.payload' | grep -v ethertype)

# Wire packets, not super-packets: the kernel cuts them before the link.
for host in h1 h2; do
  on $host ethtool -K rdma tx-udp-segmentation off gso off gro off >/dev/null
done

for family in 4 6; do
  on h1 tcpdump -i rdma -n -s 9216 -B 262144 --immediate-mode -U -w - 'udp or icmp or icmp6' \
    >"$work/$family.pcap" 2>"$work/tcpdump.log" &
  capture=$!
  await 'tcpdump listens' says "$work/tcpdump.log" 'listening on'

  on h2 env FERRY_FAMILY=$family ferry run --netdev rdma -- stream_check --listen 7471 >"$work/server.log" 2>&1 &
  server=$!
  await 'stream_check listens' listens h2 7471
  on h1 env FERRY_FAMILY=$family ferry run --netdev rdma -- \
    stream_check h2 --port 7471 --qps 1 --size 6000 --mtu 1024 --messages 200 >"$work/client.log" 2>&1 ||
    { cat "$work/client.log" "$work/server.log"; exit 1; }
  wait "$server"
  # Whatever tcpdump has seen before it is in the file when this is.
  if [[ $family == 4 ]]; then address=$(rdma_of h2); else address=$(rdma6_of h2); fi
  on h1 ping -c 1 -W 60 -q -p 21666572727921 "$address" >/dev/null
  await 'the capture is complete' grep -q '!ferry!!ferry!' "$work/$family.pcap"
  kill "$capture"
  wait "$capture" 2>/dev/null || true
  capture=
  tail -n 3 "$work/tcpdump.log"
  tshark "${plain[@]}" -r "$work/$family.pcap" -Y '_ws.malformed || _ws.expert.severity == error' \
    >"$work/malformed" 2>/dev/null
  if [[ -s $work/malformed ]]; then
    head "$work/malformed"
    fail "tshark finds $(wc -l <"$work/malformed") of our packets malformed (IPv$family)"
  fi
  python3 "$repository/tests/wire/decode_check.py" "$work/$family.pcap" --mtu 1024 --max-length 6000
  ok "tshark decodes IPv$family traffic as meant"
done
