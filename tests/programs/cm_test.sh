#!/bin/bash
# Programs that connect by rdma_cm, through the stock librdmacm, between two hosts.
#
#   cm_test.sh [GROUP...]     groups: rc ud lost rsockets endpoint several refused wire moved
#                             moved_endpoint moved_datagrams (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"

one=$(rdma_of h1) one6=$(rdma6_of h1) two=$(rdma_of h2)

# listening PORT [SPACE]: somebody on h1 listens on a port of RDMA_PS_TCP (or, with "udp", RDMA_PS_UDP).
listening() {
  local space=0106
  if [[ ${2:-} == udp ]]; then space=0111; fi
  listens_by_cm h1 "/00000000$space$(printf %04x "$1")"
}

# await_listener JOB PORT [SPACE]: until somebody does, or the job that should has ended.
await_listener() { await "$2 is listened on" ended_or "$1" listening "${@:2}"; }

# cm_pair PORT SPACE SERVER... -- CLIENT...: the client starts when somebody listens on the port; both must end well.
cm_pair() {
  local port=$1 space=$2 words=() server server_code=0 client_code=0
  shift 2
  while [[ $1 != -- ]]; do
    words+=("$1")
    shift
  done
  shift
  runs=$((runs + 1))
  with_ferry h1 180 "${words[@]}" >"$work/server" 2>&1 &
  server=$!
  await_listener "$server" "$port" "$space"
  with_ferry h2 180 "$@" >"$work/client" 2>&1 || client_code=$?
  wait "$server" || server_code=$?
  if ! ended_well "$client_code" "$(<"$work/client")" || ! ended_well "$server_code" "$(<"$work/server")"; then
    not_ok "$* (exit status of client $client_code, server $server_code)"
  else
    ok "$*"
  fi
}

group_rc() {
  cm_pair 7174 tcp rping -s -C 20 -V -- rping -c -a "$one" -C 20 -V
  cm_pair 7174 tcp rping -s -a "$one6" -C 20 -V -- rping -c -a "$one6" -C 20 -V
  cm_pair 7174 tcp rping -s -C 50 -S 65000 -V -- rping -c -a "$one" -C 50 -S 65000 -V
  cm_pair 7471 tcp ucmatose -- ucmatose -s "$one"
  cm_pair 7471 tcp ucmatose -c 50 -C 20 -S 4000 -- ucmatose -s "$one" -c 50 -C 20 -S 4000
  cm_pair 7471 tcp ucmatose -m -- ucmatose -s "$one" -m # IDs are migrated to other channels
  cm_pair 18515 tcp ib_send_bw -F -R -n 200 -- ib_send_bw -F -R -n 200 "$one"
  cm_pair 18515 tcp ib_write_bw -F -R -n 200 -q 8 -- ib_write_bw -F -R -n 200 -q 8 "$one"
}

group_ud() {
  cm_pair 7174 udp udaddy -- udaddy -s "$one"
  cm_pair 7174 udp udaddy -c 10 -C 20 -- udaddy -s "$one" -c 10 -C 20
  multicast_pair h1 "$one" h2 "$two"
}

group_rsockets() {
  cm_pair 7471 tcp rstream -I 100 -- rstream -s "$one" -I 100
  cm_pair 7471 tcp rstream -I 100 -T v -S 4096 -- rstream -s "$one" -I 100 -T v -S 4096
  cm_pair 7471 tcp riostream -S 64 -I 50 -- riostream -s "$one" -S 64 -I 50
  head -c 3000000 /dev/urandom >"$work/file"
  on h1 sh -c 'mkdir -p /tmp/rcopy'
  on h2 sh -c 'cat >/tmp/file' <"$work/file"
  runs=$((runs + 1))
  with_ferry h1 180 rcopy >"$work/server" 2>&1 &
  local server=$! code=0
  await_listener "$server" 7427
  with_ferry h2 180 rcopy /tmp/file "$one:/tmp/rcopy/file" >"$work/client" 2>&1 || code=$?
  kill "$server" 2>/dev/null || true
  wait "$server" || true
  if ((code != 0)) || ! on h1 cat /tmp/rcopy/file | cmp - "$work/file"; then
    not_ok "rcopy (exit status $code)"
  else
    ok 'rcopy'
  fi
}

# Several processes of a host listen; whoever holds UDP port 4791 passes on what is for others, and when it ends another
# one does. A port is one process's.
group_several() {
  local port code i started=() jobs=() failed=()
  # in_background NAME CMD...: its output goes to $work/NAME.
  in_background() {
    with_ferry "$2" 180 "${@:3}" >"$work/$1" 2>&1 &
    started+=("$1") jobs+=($!)
  }
  client() { in_background "client$1" h2 rping -c -a "$one" -p "$1" -C 200 -V; }
  for port in 8001 8002 8003 8004; do
    in_background "server$port" h1 rping -s -p "$port" -C 200 -V
    await_listener "${jobs[-1]}" "$port"
  done
  runs=$((runs + 2))
  if with_ferry h1 180 rping -s -p 8003 -C 1 >"$work/client" 2>&1 ||
    ! grep -qi 'address already in use' "$work/client"; then
    not_ok 'a second listener on a port'
  else
    ok 'a second listener on a port is refused'
  fi
  # One after the other, so that the holder ends first and the others go on.
  for port in 8001 8002; do
    client "$port"
    wait "${jobs[-1]}" || true
  done
  client 8003
  client 8004
  : >"$work/server"
  : >"$work/client"
  for i in "${!jobs[@]}"; do
    code=0
    wait "${jobs[i]}" || code=$?
    if ended_well "$code" "$(<"$work/${started[i]}")"; then continue; fi
    failed+=("${started[i]}: $code")
    tail -n 5 "$work/${started[i]}" >>"$work/client"
  done
  if ((${#failed[@]} > 0)); then not_ok "four listeners (${failed[*]})"; else ok 'four listeners'; fi
}

# lose_first ATTRIBUTE: the first message of a kind that comes to h1, and the first that comes to h2, is lost.
lose_first() {
  local host
  for host in h1 h2; do
    # BTH and DETH are 20 bytes, a MAD has its attribute ID at 16.
    on "$host" nft -f - <<NFT
table ip lost
delete table ip lost
table ip lost {
  chain in {
    type filter hook input priority 0;
    udp dport 4791 @th,64,8 0x64 @th,352,16 $1 limit rate 1/day burst 1 packets counter drop
  }
}
NFT
  done
}

# lost: how many were.
lost() {
  local host
  for host in h1 h2; do
    on "$host" nft -j list table ip lost
  done | jq -s '[.[].nftables[].rule.expr[]?.counter.packets // 0] | add'
}

# One message of each kind is lost, also the last that a program sends before it ends.
group_lost() {
  local kind
  for kind in REQ=0x0010 REP=0x0013 RTU=0x0014 DREQ=0x0015 DREP=0x0016 SIDR_REQ=0x0017 SIDR_REP=0x0018; do
    lose_first "${kind#*=}"
    if [[ $kind == SIDR* ]]; then
      cm_pair 7174 udp udaddy -- udaddy -s "$one"
    else
      cm_pair 7174 tcp rping -s -C 5 -V -- rping -c -a "$one" -C 5 -V
    fi
    runs=$((runs + 1))
    if (($(lost) > 0)); then ok "a lost ${kind%=*}"; else not_ok "no ${kind%=*} was lost"; fi
  done
}

# The endpoints of librdmacm.
group_endpoint() {
  cm_pair 7200 tcp endpoint_check -s 0.0.0.0 7200 500 -- endpoint_check -c "$one" 7200 500
  cm_pair 7200 tcp endpoint_check -s "$one6" 7200 50 -- endpoint_check -c "$one6" 7200 50
  runs=$((runs + 1))
  if with_ferry h2 60 endpoint_check -c "$one" 7201 1 >"$work/client" 2>&1 ||
    ! grep -q 'rdma_connect: Connection refused' "$work/client"; then
    not_ok 'an endpoint where nobody listens'
  else
    ok 'an endpoint where nobody listens is refused'
  fi
}

group_refused() {
  local server code
  with_ferry h1 180 rping -s -p 8001 -C 1 >"$work/server" 2>&1 &
  server=$!
  await_listener "$server" 8001
  refusal() { # PATTERN WHAT CMD...
    code=0
    runs=$((runs + 1))
    with_ferry h2 180 "${@:3}" >"$work/client" 2>&1 || code=$?
    if ((code == 124 || code == 137)) || ! grep -Eq -- "$1" "$work/client"; then
      not_ok "$2 (exit status $code, no '$1')"
    else
      ok "$2: $(grep -Eom 1 -- "$1" "$work/client")"
    fi
  }
  refusal 'EVENT_REJECTED, error 8' 'a port where nobody listens' rping -c -a "$one" -p 8002 -C 1
  refusal 'EVENT_REJECTED, error 8' 'a host without an RNIC' rping -c -a "$(rdma_of h3)" -p 8002 -C 1
  refusal 'EVENT_ADDR_ERROR, error -110' 'an address that nobody has' rping -c -a 10.78.1.250 -p 8002 -C 1
  refusal 'rdma_resolve_addr|EVENT_ADDR_ERROR' 'an address without a route' rping -c -a 192.0.2.1 -p 8002 -C 1
  refusal 'rdma_bind_addr' 'an address that this host has not' rping -s -a "$one" -p 8002 -C 1
  kill "$server" 2>/dev/null || true
  wait "$server" || true
}

rdma0_of() { on "$1" jq -r .rdma0.address "/run/ferry/containers/$2/config.json"; }

# A server is moved while it listens, and once more while a client is connected; new clients find it where it is.
group_moved() {
  start h2 srv rping -s -P -S 4096
  await 'srv listens' unless_ended h2 srv listens_by_cm srv
  on h2 "$ferry" move srv --to h1 >"$work/server" 2>&1 || fail "cannot move a listening server: $(cat "$work/server")"
  start h3 one rping -c -a "$(rdma0_of h1 srv)" -C 10 -S 4096 -V
  finishes one
  ok 'a moved listener'
  slow_rdma 4mbit
  start h3 two rping -c -a "$(rdma0_of h1 srv)" -C 4000 -S 4096 -V
  await_traffic h3 two
  move srv h1 h2
  start h1 three rping -c -a "$(rdma0_of h2 srv)" -C 10 -S 4096 -V
  finishes three
  move two h3 h1
  fast_rdma
  finishes two
  ok 'connections before and after the move of their server'
}

# has_received HOST NAME COUNT: the programs of a container have received so many packets.
has_received() { (($(received "$1" "$2" | jq "add // 0") >= $3)); }

# An endpoint and its peer, in mid-run.
group_moved_endpoint() {
  start h2 eps endpoint_check -s 0.0.0.0 7200 4000
  await 'eps listens' unless_ended h2 eps listens_by_cm eps
  slow_rdma 4mbit
  start h1 epc endpoint_check -c "$(rdma0_of h2 eps)" 7200 4000
  await_traffic h1 epc
  move eps h2 h3
  await_traffic h1 epc
  move epc h1 h2
  await_traffic h2 epc
  move eps h3 h1
  fast_rdma
  finishes epc
  finishes eps
  ok 'endpoints'
}

# Datagrams: nothing is sent between a stop and its resume, so nothing may be lost. Both programs count, and wait for
# the last.
group_moved_datagrams() {
  # Half of what they wait for comes before the move, half after it, from another client.
  start h2 uds udaddy -c 2 -C 20
  await 'uds listens' unless_ended h2 uds listens_by_cm uds
  start h1 uda udaddy -s "$(rdma0_of h2 uds)" -c 1 -C 20
  await 'uds has received' unless_ended h2 uds has_received h2 uds 20
  move uds h2 h3
  move uda h1 h2 # it waits for the answers
  start h1 udb udaddy -s "$(rdma0_of h3 uds)" -c 1 -C 20
  finishes udb
  finishes uda
  finishes uds
  ok 'udaddy'
  # shellcheck disable=SC2016 # expanded in the container
  local mckey='exec stdbuf -oL mckey -m 239.7.7.7 -b "$(ip -4 -o address show rdma0 | sed "s/.*inet \([^/]*\).*/\1/")"'
  start h2 mcr sh -c "$mckey -C 20"
  await 'mcr has joined' unless_ended h2 mcr prints mcr 'receiving data transfers'
  start h1 mca sh -c "$mckey -s -C 10"
  finishes mca
  await 'mcr has received' unless_ended h2 mcr has_received h2 mcr 10
  move mcr h2 h3
  start h1 mcb sh -c "$mckey -s -C 10"
  finishes mcb
  finishes mcr
  ok 'mckey'
}

prints() { "$lab" logs "$1" | grep -- "$2" >/dev/null; }

# capture_qp1 FILE: packets for QP 1 on h1's rdma go to FILE from now on, each at once, until `end "$capture"`.
capture_qp1() {
  : >"$work/tcpdump"
  on_own h1 tcpdump -i rdma -n --immediate-mode -U -w - \
    'udp dst port 4791 and udp[8] = 0x64 and udp[13:2] = 0 and udp[15] = 1' >"$1" 2>"$work/tcpdump" &
  capture=$!
  await 'the capture' says "$work/tcpdump" 'listening on'
}

decoded() { tshark -r "$work/cm.pcap" -Y infiniband.mad -T fields "$@" 2>/dev/null; }

# What tshark calls the messages, each once: a busy machine's come again, and are announced by MRA.
message_names() { decoded -e _ws.col.Info | sed 's/.*CM: //' | grep -v MsgRcptAck | awk '!seen[$0]++' | xargs; }

# messages NAME...: waits until these have been captured, in this order, and no others.
messages() { await "the capture is of: $*" has_messages "$*"; }
has_messages() { [[ $(message_names) == "$1" ]]; }

# Reads "ATTRIBUTE-ID DATA-IN-HEX" of MADs, and holds SIDR_REQ and SIDR_REP against the tables of clause 12.11: service
# ID of port 7174 of RDMA_PS_UDP, status, Q_Key, the request that is answered.
sidr_as_meant() {
  local attribute data request=''
  local service=0000000001111c06
  while read -r attribute data; do
    case $attribute in
      0x0017)
        [[ $data =~ ^([0-9a-f]{8})ffff0000$service ]] || return 1
        request=${BASH_REMATCH[1]}
        ;;
      0x0018) [[ -n $request && $data =~ ^${request}00000000[0-9a-f]{6}00${service}01234567 ]] || return 1 ;;
    esac
  done
  [[ -n $request ]]
}

# What tshark makes of a connection and its end, and of a resolution.
group_wire() {
  local capture all=(ConnectRequest ConnectReply ReadyToUse DisconnectRequest DisconnectReply)
  capture_qp1 "$work/cm.pcap"
  cm_pair 7174 tcp rping -s -C 1 -- rping -c -a "$one" -C 1
  messages "${all[@]}"
  ok "tshark reads ${all[*]}"
  cm_pair 7174 udp udaddy -c 1 -C 1 -- udaddy -s "$one" -c 1 -C 1
  all+=(ServiceIDResReq ServiceIDResReqResp)
  messages "${all[@]}"
  ok "tshark reads ${all[*]:5}"
  runs=$((runs + 1))
  decoded -e infiniband.mad.attributeid -e infiniband.mad.data >"$work/client"
  if sidr_as_meant <"$work/client"; then
    ok 'a resolution is as clause 12.11 has it'
  else
    not_ok 'fields of SIDR_REQ and SIDR_REP'
  fi
  runs=$((runs + 1))
  if tshark -r "$work/cm.pcap" -Y '_ws.malformed || _ws.expert.severity == error' 2>&1 >"$work/client" |
    grep -v 'Running as user' ||
    [[ -s $work/client ]]; then
    not_ok 'packets that tshark finds malformed'
  else
    ok 'tshark finds nothing malformed'
  fi
  end "$capture"
  wait "$capture" || true
}

use_lab pcm 3 rping ucmatose rstream ib_send_bw tcpdump tshark nft
if (($# == 0)); then set -- rc ud lost rsockets endpoint several refused wire moved moved_endpoint moved_datagrams; fi
for group in "$@"; do "group_$group"; done
summary
