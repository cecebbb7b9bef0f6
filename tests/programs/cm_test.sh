#!/bin/bash
# Programs that connect by rdma_cm, through the stock librdmacm, between two hosts.
#
#   cm_test.sh [GROUP...]     groups: rc ud rsockets several refused wire moved (default: all)
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
  if ((client_code != 0 || server_code != 0)); then
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
  runs=$((runs + 1))
  local receiver code=0
  with_ferry h1 180 stdbuf -oL mckey -m 239.7.7.7 -b "$one" -C 10 >"$work/server" 2>&1 &
  receiver=$!
  await 'mckey has joined' ended_or "$receiver" says "$work/server" 'receiving data transfers'
  with_ferry h2 180 mckey -m 239.7.7.7 -b "$two" -s -C 10 >"$work/client" 2>&1 || code=$?
  wait "$receiver" || code=$?
  if ((code != 0)); then not_ok "mckey (exit status $code)"; else ok 'mckey'; fi
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

# Several processes of a host listen; whoever holds UDP port 4791 passes on what is for others, and when it ends another one
# does. A port is one process's.
group_several() {
  local port servers=() clients=() code=0
  for port in 8001 8002 8003 8004; do
    with_ferry h1 180 rping -s -p "$port" -C 200 -V >"$work/server$port" 2>&1 &
    servers+=($!)
    await_listener "${servers[-1]}" "$port"
  done
  runs=$((runs + 2))
  if with_ferry h1 180 rping -s -p 8003 -C 1 >"$work/client" 2>&1 || ! grep -qi 'address already in use' "$work/client"; then
    not_ok 'a second listener on a port'
  else
    ok 'a second listener on a port is refused'
  fi
  # One after the other, so that the holder ends first and the others go on.
  for port in 8001 8002; do
    with_ferry h2 180 rping -c -a "$one" -p "$port" -C 200 -V >"$work/client$port" 2>&1 || code=$?
  done
  for port in 8003 8004; do
    with_ferry h2 180 rping -c -a "$one" -p "$port" -C 200 -V >"$work/client$port" 2>&1 &
    clients+=($!)
  done
  for port in "${clients[@]}" "${servers[@]}"; do wait "$port" || code=$?; done
  if ((code != 0)); then
    tail -n 3 "$work"/{server,client}800? >"$work/client"
    not_ok "four listeners (exit status $code)"
  else
    ok 'four listeners'
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
  slow_rdma
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

# Reads "ATTRIBUTE-ID DATA-IN-HEX" of MADs, and holds SIDR_REQ and SIDR_REP against the tables of clause 12.11: service ID of port
# 7174 of RDMA_PS_UDP, status, Q_Key, the request that is answered.
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
  if sidr_as_meant <"$work/client"; then ok 'a resolution is as clause 12.11 has it'; else not_ok 'fields of SIDR_REQ and SIDR_REP'; fi
  runs=$((runs + 1))
  if tshark -r "$work/cm.pcap" -Y '_ws.malformed || _ws.expert.severity == error' 2>&1 >"$work/client" | grep -v 'Running as user' ||
    [[ -s $work/client ]]; then
    not_ok 'packets that tshark finds malformed'
  else
    ok 'tshark finds nothing malformed'
  fi
  end "$capture"
  wait "$capture" || true
}

use_lab pcm 3 rping ucmatose rstream ib_send_bw tcpdump tshark
if (($# == 0)); then set -- rc ud rsockets several refused wire moved; fi
for group in "$@"; do "group_$group"; done
summary
