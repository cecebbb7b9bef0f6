#!/bin/bash
# Captures real traffic of two hosts of the lab and holds it against an independent decoder: tshark must find nothing malformed, the fields we
# meant (decode_check.py), and a right ICRC over the IP header as it was on the wire. Needs root and a release build.
set -euo pipefail

repository=$(readlink -f "$(dirname "$0")/../..")
readonly repository lab=$repository/lab/lab
export FERRY_LAB=${FERRY_LAB:-tshk}
work=$(mktemp -d)

cleanup() {
  local status=$?
  [[ -z ${capture:-} ]] || kill "$capture" 2>/dev/null || true
  "$lab" down
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT

"$lab" down
"$lab" up 2

# Payloads are pseudo-random: tshark must not guess at protocols inside them.
plain=()
while read -r _ protocol _; do plain+=(--disable-protocol "$protocol"); done \
  < <(tshark -G heuristic-decodes 2>/dev/null | grep '^infiniband\.payload' | grep -v ethertype)

# Wire packets, not super-packets: the kernel cuts them before the link.
for host in h1 h2; do
  "$lab" exec $host -- ethtool -K rdma tx-udp-segmentation off gso off gro off >/dev/null
done

for family in 4 6; do
  "$lab" exec h1 -- tcpdump -i rdma -n -s 9216 -B 262144 --immediate-mode -U -w - 'udp' >"$work/$family.pcap" 2>"$work/tcpdump.log" &
  capture=$!
  for _ in $(seq 100); do
    if grep -q 'listening on' "$work/tcpdump.log"; then break; fi
    sleep 0.05
  done

  "$lab" exec h2 -- env FERRY_FAMILY=$family ferry run --netdev rdma -- stream_check --listen 7471 >"$work/server.log" 2>&1 &
  server=$!
  sleep 0.5
  "$lab" exec h1 -- env FERRY_FAMILY=$family ferry run --netdev rdma -- \
    stream_check h2 --port 7471 --qps 1 --size 6000 --mtu 1024 --messages 200 >"$work/client.log" 2>&1 ||
    { cat "$work/client.log" "$work/server.log"; exit 1; }
  wait "$server"
  sleep 0.3
  kill "$capture"
  wait "$capture" 2>/dev/null || true
  capture=
  tail -n 3 "$work/tcpdump.log"
  tshark "${plain[@]}" -r "$work/$family.pcap" -Y '_ws.malformed || _ws.expert.severity == error' >"$work/malformed" 2>/dev/null
  if [[ -s $work/malformed ]]; then
    head "$work/malformed"
    echo "FAILED: tshark finds $(wc -l <"$work/malformed") of our packets malformed (IPv$family)"
    exit 1
  fi
  python3 "$repository/tests/wire/decode_check.py" "$work/$family.pcap" --mtu 1024 --max-length 6000
  echo "ok - tshark decodes IPv$family traffic as meant"
done
