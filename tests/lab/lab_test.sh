#!/bin/bash
# Tests the lab itself: what hosts share and do not share, containers, the network hook's contract, removal.
# Needs root. Prints one line per check; exits non-zero when one fails.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly hook=$repository/lab/network-hook
export FERRY_LAB=${FERRY_LAB:-labt}

cleanup() {
  local status=$?
  "$lab" down
  rm -rf "$work"
  exit "$status"
}

work=$(mktemp -d)
trap cleanup EXIT
limit=$(</proc/sys/net/core/rmem_max)
"$lab" down
"$lab" down  # of a test that was killed
"$lab" up 3 2>/dev/null

## hosts

fails 'is up already' "$lab" up 2
fails "no host 'h4'" "$lab" exec h4 -- true
fails 'is no number of hosts' "$lab" up 0
fails 'unknown command' "$lab" upp
[[ $("$lab" up --help) == *'ferry lab COMMAND'* ]] || fail 'ferry lab up --help prints no usage'
fails 'must be 1 to 6' env FERRY_LAB=too-long-a-name "$lab" ps
for host in h1 h2 h3; do
  for other in h1 h2 h3 10.78.1.1 10.78.2.1 10.78.3.1 fd78::1:1 fd78::2:1 fd78::3:1; do
    on "$host" ping -c 1 -W 20 -q "$other" >/dev/null || fail "$host cannot reach $other"
  done
done
[[ $(on h2 hostname) == h2 ]] || fail 'h2 has another name'
ok 'hosts reach each other by name on both networks'

# A host's visible mounts that can be written are its own tmpfs, and nothing else; /proc holds no files.
for host in h1 h2; do
  # shellcheck disable=SC2016 # expanded on the host
  on "$host" sh -c 'findmnt -rn -o TARGET | while read -r target; do
    case $target in /proc | /proc/*) continue ;; esac
    if mountpoint -q "$target" && touch "$target/ferry-probe" 2>/dev/null; then
      rm "$target/ferry-probe"
      echo "$target $(stat -c %d "$target")"
    fi; done | sort -u' >"$work/$host"
done
[[ $(cut -d ' ' -f 1 "$work/h1" | xargs) == '/dev/shm /run /tmp /var/tmp' ]] ||
  fail "h1 can write here: $(xargs <"$work/h1")"
[[ -z $(cut -d ' ' -f 2 "$work"/h[12] | sort | uniq -d) ]] || fail 'h1 and h2 share a file system that they can write'
[[ ! -e /tmp/ferry-probe ]] || fail 'a host wrote to the machine'
on h1 /usr/bin/python3 -c 'import socket, time
s = socket.socket(socket.AF_UNIX); s.bind("\0ferry-lab-probe"); s.listen(); time.sleep(1000)' &
await 'a UNIX socket on h1' on h1 grep -q '@ferry-lab-probe' /proc/net/unix
fails 'refused' on h2 /usr/bin/python3 -c 'import socket, sys
try: socket.socket(socket.AF_UNIX).connect("\0ferry-lab-probe")
except OSError as error: sys.exit(str(error))'
[[ -z $(on h1 ipcmk -M 4096 >/dev/null && on h2 ipcs -m | grep 0x || true) ]] || fail 'hosts share System V memory'
ok 'hosts share no writable file, no UNIX socket and no System V memory'

## containers

has_said() { "$lab" logs "$1" | grep "$2" >/dev/null; } # NAME PATTERN

status=0
# shellcheck disable=SC2016 # expanded in the container
"$lab" run h1 first -- sh -c 'echo "$FERRY_NETDEV" $$; echo >&2 error; ls /proc/self/fd | xargs; exit 3' \
  9</etc/passwd >"$work/out" || status=$?
((status == 3)) || fail "run returned $status, not 3"
[[ $(xargs <"$work/out") == 'rdma0 '*' error 0 1 2 3' ]] || fail "the container said: $(xargs <"$work/out")"
[[ $(on h1 cat /run/ferry/containers/first/exit) == 3 ]] || fail 'the exit status was not recorded'
[[ -z $(on h1 ls /run/netns) ]] || fail 'the network namespace outlived its program'
status=0
# shellcheck disable=SC2016
"$lab" run h1 killed -- sh -c 'kill -9 $$' >/dev/null || status=$?
((status == 137)) || fail "a killed program's status is $status, not 137"
status=0
"$lab" run h1 absent -- /no/such/program >"$work/out" || status=$?
{ ((status == 127)) && grep -q 'No such file' "$work/out"; } || fail "a program that is not there: $status"
ok 'exit status, output and environment of a program'

"$lab" run h1 a -d -- sleep 1000
"$lab" run h1 b -d -- sh -c 'echo started; exec sleep 1000'
"$lab" run h2 c -d --move-rdma -- sleep 1000
fails 'runs on h1 already' "$lab" run h2 a -- true
fails 'is no name for a container' "$lab" run h1 h2 -- true
fails 'needs a host, a name and a command' "$lab" run h1 z
fails "no container 'z'" "$lab" logs z
await 'b starts' has_said b started
status=0
"$lab" wait b --timeout 1 >"$work/out" 2>"$work/err" || status=$?
[[ $status == 124 && $(<"$work/out") == started ]] || fail "wait --timeout: status $status, output $(<"$work/out")"
[[ $("$lab" logs b) == started ]] || fail 'logs'
[[ $("$lab" ps | awk 'NR > 1 && $3 == "running" { print $1, $2 }' | xargs) == 'a h1 b h1 c h2' ]] || fail "$("$lab" ps)"

# A test that sends a signal to nobody fails (lib.sh): to what no ferryd knows, and to what there is not.
hit_at_once() { (await() { "${@:2}" || fail "$1"; }; hit "$@"); }
fails '^FAILED: a process of each of these, for SIGKILL: killed a$' hit_at_once KILL killed a
fails '^FAILED: there is no program nobody that could get a signal$' hit_at_once KILL nobody
hit_at_once KILL killed first || fail 'a signal for programs that have ended is a failure'
config() { on "$1" cat "/run/ferry/containers/$2/config.json"; }
address() { config "$1" "$2" | jq -r "$3"; }
b_eth=$(address h1 b .eth0.address) b_rdma=$(address h1 b .rdma0.address) b_rdma6=$(address h1 b .rdma0.address6)
c_rdma=$(address h2 c .rdma0.address) c_rdma6=$(address h2 c .rdma0.address6)
for peer in "$b_eth" "$b_rdma" "$b_rdma6" "$c_rdma" "$c_rdma6" 10.78.2.1; do
  on a ping -c 1 -W 20 -q "$peer" >/dev/null || fail "container a cannot reach $peer"
done
[[ $b_rdma == 10.78.1.* ]] || fail "b's rdma0 address $b_rdma is not h1's"
[[ $(on b cat /proc/sys/net/ipv4/conf/rdma0/arp_notify) == 1 ]] || fail 'exec in a container is not in its network'
ok 'containers reach each other on both networks'

## network hook

# hook_moves NAME FROM TO INTERFACE BRIDGE: prepared it is silent, activated it announces and answers.
hook_moves() {
  local name=$1 from=$2 to=$3 interface=$4 bridge=$5 old new ip mac
  old=$(address "$from" "$name" .instance)
  config "$from" "$name" | on "$to" "$hook" prepare "$name" >"$work/new"
  new=$(jq -r .instance "$work/new")
  ip=$(jq -r ".$interface.address" "$work/new") mac=$(jq -r ".$interface.mac" "$work/new")
  [[ $ip == "$(address "$from" "$name" ".$interface.address")" ]] || fail "$interface of $name changed its address"
  [[ $(jq -r '.pid, .state' "$work/new" | xargs) == '0 restoring' ]] || fail 'prepare: pid or state'
  watch h3 "$bridge" "$mac"
  on "$to" nsenter --net="/run/netns/$new" ping -c 2 -i 0.2 -W 1 -q -I "$interface" "${ip%.*}.250" >/dev/null 2>&1 ||
    true
  on "$to" nsenter --net="/run/netns/$new" /usr/bin/python3 -c "import socket; socket.create_server(('$ip', 80))"
  kill "$(awk '{ print $2 }' "$work/watching")"
  watched
  [[ $seen == '0 0' ]] || fail "$name on $to is not silent before activate: $seen frames, announcements"
  on "$from" "$hook" deactivate "$old"
  watch h3 "$bridge" "$mac" 1
  on "$to" "$hook" activate "$new"
  watched
  [[ $seen == *' 1' ]] || fail "$name on $to did not announce $ip: $seen"
  on h3 ping -c 1 -W 20 -q "$ip" >/dev/null || fail "$name on $to does not answer after activate"
  on "$from" nsenter --net="/run/netns/$old" ping -c 1 -W 1 -q -I "$interface" 10.77.0.3 >/dev/null 2>&1 &&
    fail "the old namespace of $name still reaches h3"
  on "$to" "$hook" activate "$new" # may be repeated
  on "$from" "$hook" deactivate "$old"
}

# watch HOST INTERFACE MAC [COUNT]: in the background, from when this returns.
watch() {
  : >"$work/watching"
  "$lab" exec "$1" -- timeout "$patience" "$repository/tests/lab/watch_frames.py" "${@:2}" \
    >"$work/seen" 2>"$work/watching" &
  watcher=$!
  await 'the watch begins' says "$work/watching" watching
}

# Sets `seen`: frames and announcements.
watched() {
  wait "$watcher"
  seen=$(<"$work/seen")
}

hook_moves a h1 h2 eth0 br0
first_rdma=$(jq -r .rdma0.address "$work/new")
[[ $first_rdma == 10.78.2.* ]] || fail "rdma0 of a on h2 has the address $first_rdma"
on h3 ping -c 1 -W 20 -q "$first_rdma" >/dev/null || fail 'rdma0 of a does not answer on h2'
# Back to h1, where its old namespace still is; then that of h2 is removed.
moved=$(jq -r .instance "$work/new")
config h1 a >"$work/old"
on h1 "$hook" prepare a <"$work/new" >"$work/back"
[[ $(jq -r .instance "$work/back") != "$(jq -r .instance "$work/old")" ]] || fail 'an instance name came twice'
[[ $(jq -r .rdma0.address "$work/back") != "$(jq -r .rdma0.address "$work/old")" ]] ||
  fail 'an rdma0 address is used twice'
on h2 "$hook" release "$moved"
on h2 "$hook" release "$moved"
[[ $(on h2 ls /run/netns | wc -l) == 1 ]] || fail 'release left a namespace'
on h1 "$hook" release "$(jq -r .instance "$work/back")"
[[ $(on h1 ip -o link | grep -c ' e[0-9]*@') == 2 ]] || fail 'release left a port, or removed the wrong one'
ok "the hook: eth0 is silent, then announced; rdma0 gets the destination's address"

# refuses HOST ADDRESS: a TCP connection to a port where nobody listens is refused at once, by a kernel that is there.
refuses() {
  [[ $(on "$1" timeout 20 python3 -c "import socket; socket.create_connection(('$2', 9))" 2>&1) == *refused* ]]
}

# Held, c answers ping and not TCP: not even a reset.
held=$(address h2 c .instance) held_status=0
refuses h3 "$c_rdma" || fail 'c does not refuse a connection'
on h2 "$hook" hold "$held"
on h2 "$hook" hold "$held" # may be repeated
on h3 ping -c 1 -W 20 -q "$c_rdma" >/dev/null || fail 'rdma0 of c left the network when it was held'
on h3 ping -c 1 -W 20 -q "$c_rdma6" >/dev/null || fail 'rdma0 of c left the IPv6 network when it was held'
on h3 timeout 1 python3 -c "import socket; socket.create_connection(('$c_rdma', 9))" 2>/dev/null || held_status=$?
((held_status == 124)) || fail 'TCP came through to a container that is held'
on h2 "$hook" activate "$held"
refuses h3 "$c_rdma" || fail 'c is held still after activate'
ok 'the hook: a held rdma0 answers for itself, and TCP sees nothing'

hook_moves c h2 h1 rdma0 rdma
ok 'the hook with --move-rdma: rdma0 is silent, then announced'

fails 'has no eth0 address' on h1 "$hook" prepare x <<<'{}'
fails 'is no instance' on h1 "$hook" release x
fails 'no network namespace' on h1 "$hook" activate x.77
fails 'not a host' "$hook" activate x.77
[[ $(on h1 ls /run/netns | wc -l) == 3 ]] || fail 'a failed prepare left a namespace'
ok 'the hook refuses wrong input'

## side by side, and removal

FERRY_LAB=labt2 "$lab" up 1 2>/dev/null
FERRY_LAB=labt2 "$lab" exec h1 -- ping -c 1 -W 1 -q h2 >/dev/null 2>&1 && fail 'two labs are one network'
FERRY_LAB=labt2 "$lab" down
[[ $("$lab" ps | grep -c running) == 3 ]] || fail "another lab's down ended our containers"
# A container runtime's process: in namespaces of its own, and paused.
outside=''
if on h1 mountpoint -q /sys/fs/cgroup/freezer; then
  on h1 mkdir /sys/fs/cgroup/freezer/of_runtime
  # shellcheck disable=SC2016 # expanded on the host
  on h1 sh -c 'echo $$ >/sys/fs/cgroup/freezer/of_runtime/cgroup.procs; exec unshare --mount --net sleep 3600' \
    >/dev/null 2>&1 &
  # shellcheck disable=SC2016 # expanded on the host
  await 'there is one' \
    on h1 sh -c 'grep -x sleep $(sed "s|.*|/proc/&/comm|" /sys/fs/cgroup/freezer/of_runtime/cgroup.procs)' \
    >/dev/null 2>&1
  outside=$(on h1 cat /sys/fs/cgroup/freezer/of_runtime/cgroup.procs)
  on h1 sh -c 'echo FROZEN >/sys/fs/cgroup/freezer/of_runtime/freezer.state'
fi
"$lab" down
"$lab" down
if [[ -n $outside ]] && kill -0 "$outside" 2>/dev/null; then fail 'down left a process of a container runtime'; fi
[[ ! -e /run/ferry-lab/$FERRY_LAB ]] || fail 'down left files'
! grep -q "/run/ferry-lab/${FERRY_LAB}[/ ]" /proc/mounts || fail 'down left mounts'
if [[ ! -d /run/ferry-lab ]]; then
  [[ $(</proc/sys/net/core/rmem_max) == "$limit" ]] || fail 'down did not restore net.core.rmem_max'
fi
ok 'labs side by side; down removes everything'

# An up that fails half-way: `ip` fails when it comes to h2.
mkdir "$work/bin"
cat >"$work/bin/unshare" <<'FAKE'
#!/bin/sh
case "$*" in *h2.mnt*) exit 1 ;; esac
exec /usr/bin/unshare "$@"
FAKE
chmod +x "$work/bin/unshare"
PATH=$work/bin:$PATH "$lab" up 3 >/dev/null 2>&1 && fail 'up succeeded although h2 failed'
[[ ! -e /run/ferry-lab/$FERRY_LAB ]] || fail 'a half-failed up left files'
ok 'a half-failed up leaves nothing behind'

# A ferryd that writes down how it was called, and one that fails. They lie in /tmp, which hosts have of their own.
cat >"$work/bin/ferryd" <<'FAKE'
#!/usr/bin/python3
import os, socket, sys, time
print(*sys.argv[1:], *os.environ["PATH"].split(":")[:2], flush=True)
socket.socket(socket.AF_UNIX).bind("/run/ferry/ferryd.sock")
time.sleep(1000)
FAKE
chmod +x "$work/bin/ferryd"
cp "${FERRY_BIN:-$repository/build/release/bin}"/ferry{,-client} "$work/bin" # make the certificates
export FERRY_BIN=$work/bin
"$lab" up 2
expected="--tls-dir /run/ferry/tls --listen 10.77.0.2:4780 --network-hook $hook --state-dir /var/tmp/ferry"
expected+=" --directory ferryd://h1,h2 $repository/lab/bin $FERRY_BIN"
[[ $(on h2 cat /run/ferry/ferryd.log) == "$expected" ]] ||
  fail "ferryd was called so: $(on h2 cat /run/ferry/ferryd.log)"
expected='700 /run/ferry/tls 600 /run/ferry/tls/ca.pem 600 /run/ferry/tls/host.key 600 /run/ferry/tls/host.pem '
[[ $(on h2 sh -c "stat -c '%a %n' /run/ferry/tls /run/ferry/tls/*" | tr '\n' ' ') == "$expected" ]] ||
  fail "certificates: $(on h2 ls -l /run/ferry/tls)"
fails 'Read-only' on h1 touch "$FERRY_BIN/file"
"$lab" down
printf '#!/bin/sh\necho no such luck >&2\nexit 1\n' >"$work/bin/ferryd"
"$lab" up 2 >/dev/null 2>"$work/err" && fail 'up succeeded without ferryd'
grep -q 'ferryd on h1 does not start: no such luck' "$work/err" || fail "up said: $(<"$work/err")"
[[ ! -e /run/ferry-lab/$FERRY_LAB ]] || fail 'up without ferryd left files'
ok 'ferryd is started on every host, and its failure reported'
