#!/bin/bash
# What `ferry doctor` says on the hosts of a lab, one of which lacks something or is broken. Needs root.
#
#   doctor_test.sh [GROUP...]     groups: well broken certificates (default: all)
#
# Prints one line per check; exits non-zero when one fails.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly nobody=65534

# in_fabric CMD...: where the switches of the lab are.
in_fabric() { nsenter --net="/run/ferry-lab/$FERRY_LAB/ns/fabric.net" "$@"; }

# looks STATUS HOST [CMD...]: a doctor on a host, with its arguments or as CMD says; the report stays in $work/report.
looks() {
  local status=0
  on "$2" "${@:3}" >"$work/report" || status=$?
  [[ $status == "$1" ]] || fail "exit status $status of: ${*:3}: $(<"$work/report")"
}

# says_of HOST CHECK STATE FOUND WAY_OUT: the report has one line of that check of that host, as these expressions say.
says_of() {
  jq -e --arg host "$1" --arg check "$2" --arg state "$3" --arg found "$4" --arg way "$5" '
    [.checks[] | select(.host == $host and .check == $check)] | length == 1 and
    (.[0] | .state == $state and (.found | test($found)) and (.way_out | test($way)))' "$work/report" >/dev/null ||
    fail "no $3 of '$2' of host '$1' like '$4' and '$5': $(jq -c '.checks[]' "$work/report")"
}

# A healthy lab: nothing is a problem, for root and for anybody.
group_well() {
  looks 0 h1 "$ferry" doctor --json
  [[ $(jq -r '[.checks[] | select(.state == "problem")] | length' "$work/report") == 0 ]] || fail 'a problem'
  says_of '' 'libferry.so' ok 'can be preloaded' '^$'
  says_of '' 'interface rdma' ok '10.78.1.1, .*MTU 9000, so RDMA MTU 4096' '^$'
  says_of '' 'UDP port 4791 of 10.78.1.1' ok 'free' '^$'
  says_of '' ferryd ok 'runs as h1, version' '^$'
  says_of '' CRIU ok 'works here' '^$'
  says_of '' certificate ok 'of h1, for 10.77.0.1' '^$'
  says_of '' ports ok '10.77.0.1:4780' '^$'
  says_of '' images ok 'in memory' '^$'
  # The hosts that ferryd knows.
  for host in h2 h3; do
    says_of "$host" reachable ok "as $host on TCP port 4780, round trip" '^$'
    says_of "$host" CRIU ok 'works there' '^$'
    says_of "$host" clock ok '' '^$'
    says_of "$host" 'port for images' ok 'is reached' '^$'
    says_of "$host" "RDMA to 10.78.${host#h}.1" ok 'RDMA MTU 4096 passes' '^$'
    says_of "$host" "RDMA to fd78::${host#h}:1" ok 'RDMA MTU 4096 passes' '^$'
    says_of "$host" "RDMA to 10.77.0.${host#h}" ok 'RDMA MTU 1024 passes' '^$'
  done
  looks 0 h1 "$ferry" doctor
  grep -Eq '^  ok       h3, version: ' "$work/report" || fail "no line of h3: $(<"$work/report")"
  # Anybody sees the same of ferryd and of other hosts.
  looks 0 h1 setpriv --reuid $nobody --regid $nobody --clear-groups "$ferry" doctor h2 --json
  says_of h2 reachable ok 'as h2' '^$'
  says_of '' CRIU ok 'works here' '^$'
  [[ $(jq -r '[.checks[] | select(.host == "h3")] | length' "$work/report") == 0 ]] || fail 'h3 was not named'
  # A program of Ferry's that has the port passes on what is for others.
  start h1 holder ib_send_bw -F -D 300
  await_listen h1 holder
  looks 0 h1 "$ferry" doctor --json
  interrupt h1 holder
  ok 'on a healthy host all is well, for everybody'
}

# One thing at a time is broken.
group_broken() {
  local taker
  # Another program has UDP port 4791.
  taker='import os, socket, time
print(os.getpid(), flush=True)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.78.1.1", 4791))
time.sleep(600)'
  on h1 python3 -c "$taker" >"$work/taker" &
  await 'the port is taken' shows '10.78.1.1:4791' on h1 ss -Hlun
  looks 1 h1 "$ferry" doctor --json
  says_of '' 'UDP port 4791 of 10.78.1.1' problem "taken by python3 \\(pid $(<"$work/taker")\\)" 'end it: kill [0-9]+$'
  looks 0 h1 setpriv --reuid $nobody --regid $nobody --clear-groups "$ferry" doctor --json
  says_of '' 'UDP port 4791 of 10.78.1.1' note 'a process of user 0' 'sudo ferry doctor'
  kill "$(<"$work/taker")"
  wait "$!" 2>/dev/null || true
  # A ferryd whose CRIU is missing, seen from there and from here.
  another h3 4796 --criu /nonexistent/criu
  looks 1 h1 "$ferry" doctor h3:4796 --json
  says_of h3:4796 reachable ok 'as h3-4796 on TCP port 4796' '^$'
  says_of h3:4796 CRIU problem 'CRIU is missing' '^run ferry-get-criu'
  looks 1 h3 env FERRYD_SOCKET=/tmp/ferryd-4796/sock FERRYD_API_SOCKET=/tmp/ferryd-4796/api "$ferry" doctor --json
  says_of '' CRIU problem 'CRIU is missing' '^run ferry-get-criu'
  # A switch that drops what it calls too long; a host that answers no such questions, which tells nothing.
  in_fabric ip link set r2 mtu 1500
  on h3 nft -f - <<'RULES'
table inet doctor {
  chain in { type filter hook input priority 0; udp dport 61440 drop; }
}
RULES
  looks 1 h1 "$ferry" doctor h2 h3 --json
  says_of h2 'RDMA to 10.78.2.1' problem 'RDMA MTU 1024 passes, 4096 does not' 'ip link set rdma mtu 1124$'
  says_of h3 clock ok '' '^$'
  [[ $(jq -r '[.checks[] | select(.host == "h3" and (.check | startswith("RDMA")))] | length' "$work/report") == 0 ]] ||
    fail 'what is not known was guessed'
  on h3 nft delete table inet doctor
  in_fabric ip link set r2 mtu 9000
  # A host whose ferryd has ended, one that is down, and one that nobody knows.
  kill_ferryd h2
  looks 1 h1 "$ferry" doctor h2 10.77.0.99 h9 --json
  says_of h2 reachable problem 'there is no ferryd on h2' '^start it there$'
  says_of 10.77.0.99 reachable problem '^10.77.0.99 .* does not answer' '^look whether it runs, and whether'
  says_of h9 reachable problem "unknown host 'h9'" '^check the name'
  # Images cannot come in.
  on h3 nft -f - <<'RULES'
table inet doctor {
  chain in { type filter hook input priority 0; tcp dport != { 22, 4780 } tcp flags syn reject with tcp reset; }
}
RULES
  looks 1 h1 "$ferry" doctor h3 --json
  says_of h3 reachable ok 'as h3' '^$'
  says_of h3 'port for images' problem 'cannot connect to 10.77.0.3:' 'firewall pass TCP port'
  on h3 nft delete table inet doctor
  # The host without a ferryd itself; `ferry run` works there.
  looks 1 h2 "$ferry" doctor h1 --json
  says_of '' ferryd problem 'no ferryd runs on this host' '^start it'
  says_of '' CRIU ok 'works here' '^$'
  says_of '' certificate problem 'there is none' 'ferry host add'
  says_of h1 reachable problem 'cannot be asked' '^start it'
  looks 1 h2 setpriv --reuid $nobody --regid $nobody --clear-groups "$ferry" doctor --json
  says_of '' CRIU note 'only root can see' 'sudo ferry doctor'
  says_of '' 'libferry.so' ok '' '^$'
  ok 'what is broken is said, with the way out'
}

# Hosts that do not belong here, and certificates that have expired.
group_certificates() {
  local ca=/run/ferry-lab/$FERRY_LAB/ca
  # shellcheck disable=SC2016 # expanded on the host
  on h3 sh -c '"$1" ca init --name h3 --also 10.77.0.3 --ca-dir /tmp/other-ca --tls-dir /tmp/other-tls >/dev/null' \
    sh "$ferry"
  launch h3 stranger --tls-dir /tmp/other-tls --listen 10.77.0.3:4782
  looks 1 h1 "$ferry" doctor h3:4782 --json
  says_of h3:4782 reachable problem "refused: the certificate of h3 is not of this host's CA" 'ferry host add'
  looks 1 h3 env FERRYD_SOCKET=/tmp/stranger/sock FERRYD_API_SOCKET=/tmp/stranger/api "$ferry" doctor h1 --json
  says_of h1 reachable problem 'not of this host.s CA' 'ferry host add'
  # An expired one keeps ferryd from starting.
  on h2 mkdir /tmp/expired
  on h2 cp /run/ferry/tls/ca.pem /tmp/expired
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=h2 -keyout "$work/key" \
    -out "$work/request" 2>/dev/null
  openssl x509 -req -in "$work/request" -CA "$ca/ca.pem" -CAkey "$ca/ca.key" -set_serial 7 -days -1 \
    -out "$work/certificate" 2>/dev/null
  on h2 sh -c 'umask 077; cat >/tmp/expired/host.key' <"$work/key"
  on h2 sh -c 'cat >/tmp/expired/host.pem' <"$work/certificate"
  kill_ferryd h2
  looks 1 h2 "$ferry" doctor --tls-dir /tmp/expired --json
  says_of '' certificate problem 'certificate has expired' 'ferry host add h2'
  looks 1 h2 "$ferry" doctor --tls-dir /run/ferry/tls --json
  says_of '' certificate ok 'is good' '^$'
  ok 'certificates of others and old ones are told'
}

use_lab doctor 3 ib_send_bw python3 openssl
if (($# == 0)); then set -- well broken certificates; fi
for group in "$@"; do "group_$group"; done
