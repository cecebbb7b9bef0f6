#!/bin/bash
# ferry move of podman's containers (docs/containers.md): there and back, what fails on the way, and what is refused.
# Needs root.
#
#   podman_test.sh [GROUP...]     groups: moved failed hang back refused obstacles (default: all)
# shellcheck source=tests/migrate/podman_lib.sh
source "$(dirname "$0")/podman_lib.sh"

# known_as NAME: what `ferry ps` calls the container on h1 whose id podman knows by this name.
known_as() {
  shows "^stream_check .* $1 " on h1 "$ferry" ps || fail "ferry ps does not say $1: $(on h1 "$ferry" ps)"
  on h1 "$ferry" ps --json | jq -e --arg name "$1" --arg id "$(pod h1 inspect --format '{{.Id}}' "$1")" \
    'any(.programs[]; .container == $name and .runtime == "podman" and .container_id == $id)' >/dev/null ||
    fail "ferry ps --json does not say $1: $(on h1 "$ferry" ps --json)"
}

group_moved() {
  local address
  prepare pms
  contain h1 pmc 5 -v data:/data
  on h1 sh -c "echo kept >\$($PODMAN volume inspect --format '{{.Mountpoint}}' data)/file"
  format='{{.NetworkSettings.Networks.lan.IPAddress}} {{.NetworkSettings.Networks.lan.MacAddress}}'
  address=$(pod h1 inspect --format "$format" pmc)
  known_as pmc
  pod h1 rename pmc other
  known_as other
  # The lab has a container of this name, too.
  start h1 other "$FERRY_BIN/stream_check" --listen 18601
  await_listen h1 other 18601
  fails "'other' is ambiguous on h1: (podman and lab|lab and podman) have a container of this name; give a pid" \
    on h1 "$ferry" move other --to h3
  kill -KILL "$(on h1 jq .pid /run/ferry/containers/other/config.json)"
  pod h1 rename other pmc
  move pmc h1 h3
  has_nothing h1 pmc || fail "h1 has something of pmc still: $(pod h1 ps -a)"
  fails "^ferry: 'pmc' has moved from h1 to h3; to move it on, on h3: ferry move pmc --to HOST$" on h1 "$ferry" \
    move pmc --to h2
  goes_on_in h3 pmc
  [[ $(pod h3 inspect --format "$format" pmc) == "$address" ]] || fail 'its address has not moved along'
  [[ $(pod h3 exec pmc cat /data/file) == kept ]] || fail 'its volume has not moved along'
  # By its id, the name of its program, and a pid.
  move "$(pod h3 inspect --format '{{.Id}}' pmc)" h3 h1
  has_nothing h3 pmc || fail 'h3 has something of pmc still'
  move stream_check h1 h3
  move "$(pod_pid h3 pmc)" h3 h1
  goes_on_in h1 pmc
  ends_well h1 pmc pms
  ok 'a container of podman with its addresses and its volume, there and back'
}

# CRIU there finds no ferryd; then a disk that is full.
group_failed() {
  local host
  prepare pfs
  contain h1 pfc 6 -v data:/data
  on h3 mv /run/ferry/ferryd.sock /run/ferry/hidden
  fails "^ferry: 'pfc' was not moved: h3: cannot restore 'pfc': podman container restore: .*no ferryd answers here" \
    on h1 "$ferry" move pfc --to h3
  on h3 mv /run/ferry/hidden /run/ferry/ferryd.sock
  for host in h1 h3; do
    tells $host '.program == "pfc" and .outcome == "failed" and .step == "restore" and
      (.reason | test("cannot restore .pfc.: podman container restore: .*no ferryd answers here"))' ||
      fail "the history of $host: $(on $host "$ferry" history)"
  done
  goes_on_in h1 pfc
  await 'h3 has nothing of it' has_nothing h3 pfc
  no_archive h1 || fail 'an archive is left'
  if pod h3 volume exists data; then fail 'its volume is left on h3'; fi
  ok 'a restore that fails: it goes on where it was'
  ferryd_with h3 --memory-limit 67108865
  fails "^ferry: 'pfc' was not moved: h3: not enough memory on h3" on h1 "$ferry" move pfc --to h3
  tells h1 '.outcome == "failed" and .step == "check" and (.reason | test("not enough memory on h3"))' ||
    fail "the history of h1: $(on h1 "$ferry" history)"
  ferryd_with h3 --memory-limit 0
  move pfc h1 h3
  tells h1 '.program == "pfc" and .outcome == "moved" and .to == "h3" and .parts.restore_ms > 0' ||
    fail "the history of h1: $(on h1 "$ferry" history)"
  ends_well h3 pfc pfs
  ok 'and moves after that'
}

# hanging_criu HOST: what stands for CRIU there, and for the action script of containers with `hanging`, hangs once at
# the step that criu_hangs names: before CRIU does anything for a verb of runc's, or where CRIU is at an action.
hanging_criu() {
  if on "$1" mountpoint -q /opt/ferry/bin/criu; then return 0; fi
  on "$1" sh -c 'cp -L /opt/ferry/bin/criu /run/real-criu && echo nowhere >/run/step &&
    cat >/run/hanging-criu && chmod 755 /run/hanging-criu && echo "action-script /run/hanging-criu" >/run/held.conf &&
    mount --bind /run/hanging-criu /opt/ferry/bin/criu' <<'SCRIPT'
#!/bin/bash
at() {
  [[ $1 == "$(cat /run/step)" ]] || return 0
  trap '' TERM
  echo nowhere >/run/step
  touch /run/hung
  while :; do sleep 1; done
}
if [[ -n ${CRTOOLS_SCRIPT_ACTION:-} ]]; then
  at "$CRTOOLS_SCRIPT_ACTION"
  exit 0
fi
if [[ $(cat /proc/$PPID/comm) == runc ]]; then
  mapfile -d '' -t words <"/proc/$PPID/cmdline"
  for word in "${words[@]}"; do at "$word"; done
fi
exec /run/real-criu "$@"
SCRIPT
}
readonly hanging=(--annotation org.criu.config=/run/held.conf)
criu_hangs() { on "$1" sh -c "rm -f /run/hung; echo $2 >/run/step"; }
podman_hangs() { podman_waiting "$@"; }
has_hung() { on "$1" sh -c 'test -e /run/hung || test -e /run/waiting'; }

# talk: an entrypoint with a TCP connection to h2 beside stream_check. talks: it goes on.
readonly echo_port=7800
talk() {
  on h2 sh -c "setsid '$repository/tests/migrate/echo_peer.py' 10.77.0.2 $echo_port /run/echoed >/dev/null 2>&1 &"
  await 'the peer of a TCP connection listens' listens h2 "$echo_port"
  local words="exec 3<>/dev/tcp/10.77.0.2/$echo_port; while read -r -u 3 line; do echo \$line >&3; done & "
  talking=(--entrypoint "[\"bash\", \"-c\", \"$words exec 3>&-; exec \\\"\$@\\\"\", \"bash\"]")
}
echoed() { on h2 cat /run/echoed; }
has_echoed() {
  local now
  now=$(echoed)
  [[ $now != broken* ]] || fail "the TCP connection is $now"
  ((now > $1 + 5))
}
talks() { await 'its TCP connection goes on' has_echoed "$(echoed)"; }
# has_stayed PID: phc was not even restored: its processes are those it had, and so is its TCP connection.
has_stayed() {
  [[ $(pod_pid h1 phc) == "$1" ]] || fail 'it has ended and was restored'
  talks
}

# rules PID: of the firewall in its network.
rules() { nsenter --net="/proc/$1/ns/net" sh -c 'iptables -S; ip6tables -S; nft list tables'; }
has_rules() { [[ $(rules "$1") == "$2" ]]; }

gone_from() { has_nothing h3 "$1" && ! on h3 pgrep --ns $$ --nslist mnt -x conmon >/dev/null; }

# hangs HOST KIND STEP PATTERN: KIND, criu or podman, hangs at a STEP of the move of phc. `ferry move` says PATTERN, and
# phc goes on on h1 with all that it has.
hangs() {
  on "$1" rm -f /run/hung /run/waiting
  "$2_hangs" "$1" "$3"
  uses_rdma h1 phc
  fails "$4" on h1 "$ferry" move phc --to h3
  has_hung "$1" || fail "no $2 has hung on $1"
  if [[ $2 == podman ]]; then ferryd_with "$1" --podman "$PODMAN"; fi
  goes_on_in h1 phc
  await 'nothing of it is left on h3' gone_from phc
  ok "$2 that hangs on $1 at $3: the container goes on"
}

# podman, or CRIU below it, that hangs on either side is killed before the peers give up, and costs nobody anything.
group_hang() {
  local host before pid line="^ferry: 'phc' was not moved: it stood still for"
  prepare phs
  talk
  for host in h1 h3; do
    hanging_criu "$host"
    ferryd_with "$host" --limit standstill=4s
  done
  contain h1 phc 7 "${hanging[@]}" "${talking[@]}"
  pid=$(pod_pid h1 phc)
  has_stayed "$pid"
  hangs h1 criu checkpoint "$line 4s and its peers wait no longer"
  has_stayed "$pid"
  hangs h1 podman checkpoint "$line 4s and its peers wait no longer"
  has_stayed "$pid"

  # Time for the checkpoint, also on a busy machine. At its end CRIU has locked the network and stopped TCP.
  ferryd_with h1 --limit standstill=20s
  # shellcheck disable=SC2016 # expanded there
  nsenter --net="/proc/$pid/ns/net" sh -c 'for tables in iptables ip6tables; do
    $tables -N OURS; $tables -A INPUT -j OURS; $tables -A OURS -p udp --dport 9 -j DROP; done'
  before=$(rules "$pid")
  remember h1
  hangs h1 criu post-dump "$line 20s and its peers wait no longer"
  has_stayed "$pid"
  await "no rules are left but the container's own" has_rules "$pid" "$before"
  leaves_nothing h1
  ok 'so do its TCP connection and its firewall'
  hangs h3 criu restore "^ferry: 'phc' was not moved: "
  hangs h3 criu post-restore "^ferry: 'phc' was not moved: "
  hangs h3 podman restore "^ferry: 'phc' was not moved: "

  for host in h1 h3; do ferryd_with "$host" --limit standstill=45s; done
  uses_rdma h1 phc
  move phc h1 h3
  goes_on_in h3 phc
  ends_well h3 phc phs
  ok 'nothing was lost, and it moves when nothing hangs'
}

# The same at the restore on the host where it was, when that on h3 has failed.
group_back() {
  local line="^ferry: 'phc' was not moved: h3: cannot restore 'phc': podman container restore: .*no ferryd answers here"
  prepare pbs
  for host in h1 h3; do hanging_criu "$host"; done
  contain h1 phc 14 "${hanging[@]}"
  ferryd_with h1 --limit restore=15s
  uses_rdma h1 phc
  remember h1
  on h3 mv /run/ferry/ferryd.sock /run/ferry/hidden
  hangs h1 criu restore "$line"
  leaves_nothing h1
  hangs h1 criu post-restore "$line"
  leaves_nothing h1
  hangs h1 podman restore "$line"
  leaves_nothing h1
  on h3 mv /run/ferry/hidden /run/ferry/ferryd.sock
  uses_rdma h1 phc
  move phc h1 h3
  goes_on_in h3 phc
  ends_well h3 phc pbs
  ok 'and it moves when nothing hangs'
}

group_refused() {
  local pid
  prepare prs
  on h1 mkdir -p /run/only
  contain h1 prc 8
  pid=$(pod_pid h1 prc)
  fails "^ferry: there is no program 'nothing' on h1; see: ferry ps, and podman ps$" on h1 "$ferry" move nothing --to h3
  fails "^ferry: 'prc' was not moved: there is no ferryd on h3:4799" on h1 "$ferry" move prc --to h3:4799
  fails "^ferry: 'prc' is a container of podman's, which moves alone" on h1 "$ferry" move prc prs --to h3
  fails "^ferry: 'prc' is a container of podman's, whose memory cannot be copied ahead" on h1 "$ferry" move prc \
    --to h3 --copy-ahead
  fails "^ferry: 'prc' is not yours" on h1 setpriv --reuid 1234 --clear-groups "$ferry" move prc --to h3

  pod h3 create --name prc "$image" true >/dev/null
  fails "^ferry: 'prc' was not moved: h3: there is a container 'prc' already \(created\); remove it: podman rm prc$" \
    on h1 "$ferry" move prc --to h3
  pod h3 rm prc >/dev/null
  pod h3 network rm fast >/dev/null
  fails "^ferry: 'prc' was not moved: h3: there is no network 'fast'; make it: podman network create" \
    on h1 "$ferry" move prc --to h3
  pod h3 network create -d macvlan -o parent=rdma --opt mtu=9000 --subnet 10.78.0.0/16 --disable-dns fast >/dev/null
  pod h3 rmi "$image" >/dev/null
  local line="^ferry: 'prc' was not moved: h3: there is no image $image with the id [0-9a-f]{12}; "
  line+="take it there: podman save"
  fails "$line" on h1 "$ferry" move prc --to h3
  pod h1 save -q "$image" | pod h3 load -q >/dev/null
  ferryd_with h3 --podman /run/no-podman
  fails "^ferry: 'prc' was not moved: h3: there is no /run/no-podman; install podman" on h1 "$ferry" move prc --to h3
  ferryd_with h3 --podman "$PODMAN"
  goes_on h1 "$pid"
  [[ $(pod_pid h1 prc) == "$pid" ]] || fail 'it was stopped'
  ok 'what the destination lacks, or has already, is said before anything is stopped'

  prepare prt
  contain h1 prm 9 --volume /run/only:/only
  fails "^ferry: 'prm' was not moved: h3: there is no /run/only, which 'prm' mounts" on h1 "$ferry" move prm --to h3
  pod h1 rm -f -t 0 prm >/dev/null
  pod h1 run -d --rm --name prm "$image" sleep 1000 >/dev/null
  fails "^ferry: 'prm' was not moved: it was started with --rm" on h1 "$ferry" move prm --to h3
  pod h1 rm -f -t 0 prm >/dev/null
  pod h1 run -d --name prm --network "container:prc" "$image" sleep 1000 >/dev/null
  fails "^ferry: 'prm' was not moved: it shares a network with other containers" on h1 "$ferry" move prm --to h3
  pod h1 rm -f -t 0 prm >/dev/null
  pod h1 run -d --name prm "$image" sleep 1000 >/dev/null
  fails "^ferry: 'prm' was not moved: no process in it uses an RDMA device of Ferry's" on h1 "$ferry" move prm --to h3
  pod h1 stop -t 0 prm >/dev/null
  fails "^ferry: 'prm' was not moved: it does not run on h1: it is exited" on h1 "$ferry" move prm --to h3
  pod h1 rm prm >/dev/null
  ends_well h1 prc prs
  ok 'so is what cannot be moved by podman'
}

# holds KIND: hold_obstacle.py does, beside stream_check, with the machine's python. Not in a sandbox that has no such
# thing.
holds() {
  # shellcheck disable=SC2016 # expanded on the host
  on h1 sh -c 'echo "$1" >/run/held/want' sh "$1"
  # shellcheck disable=SC2016
  await "$1 is held" on h1 sh -c '[ "$(cat /run/held/has)" = "$1" ] || [ "$(cat /run/held/has)" = nothing ]' sh "$1"
  [[ $(on h1 cat /run/held/has) == "$1" ]] || { echo "     this machine has no $1"; return 1; }
}
readonly holder=(--entrypoint '["sh", "-c", "/tests/hold_obstacle.py /held & exec \"$@\"", "sh"]' --device /dev/fuse
  --security-opt seccomp=unconfined -v /usr:/usr:ro -v "$repository/tests/migrate:/tests:ro" -v /run/held:/held)

# room HOST SIZE: of /run, where podman keeps everything there.
room() { on "$1" mount -o remount,size="$2" /run; }
room_left() { # HOST MEBIBYTES
  local used
  used=$(on "$1" df --output=used -k /run | tail -n 1)
  room "$1" "$((used + $2 * 1024))k"
}

group_obstacles() {
  local host pid sleeper runner held='process [0-9]+ \(hold_obstacle\.p\): descriptor [0-9]+'
  # While the container is paused it answers nobody, and its peer would give up after 1.8 s.
  local stream_options=(--timeout 18)
  prepare pos
  for host in h1 h3; do on "$host" sh -c 'mkdir /run/held; echo none >/run/held/want; echo none >/run/held/has'; done
  contain h1 poc 13 "${holder[@]}"
  remember h1 h3
  pid=$(pod_pid h1 poc)
  if holds io_uring; then
    fails "^ferry: 'poc' was not moved: $held \(anon_inode:\[io_uring\]\) is of a kind that CRIU cannot move$" \
      on h1 "$ferry" move poc --to h3
  fi
  if holds device; then
    fails "^ferry: 'poc' was not moved: $held \(/dev/fuse\) is a device that CRIU does not know, 10:229$" \
      on h1 "$ferry" move poc --to h3
  fi
  holds none >/dev/null || true
  pod h1 exec -d poc sleep 3600 >/dev/null
  sleeper=$(on h1 pgrep --ns "$pid" --nslist pid -x sleep)
  local line="^ferry: 'poc' was not moved: process $sleeper \\(sleep\\) was started in it by podman exec, "
  line+="and would not move along; let it end$"
  fails "$line" on h1 "$ferry" move poc --to h3
  kill "$sleeper"
  pod h1 pause poc >/dev/null
  fails "^ferry: 'poc' was not moved: it is paused; let it run to move it: podman unpause poc$" \
    on h1 "$ferry" move poc --to h3
  pod h1 unpause poc >/dev/null
  room_left h3 16
  local line="^ferry: 'poc' was not moved: h3: not enough room in /run/ferry/images on h3: "
  line+="[0-9]+ MiB needed, [0-9]+ MiB free; "
  fails "$line" on h1 "$ferry" move poc --to h3
  room_left h3 60
  fails "^ferry: 'poc' was not moved: h3: not enough disk for 'poc': [0-9]+ MiB needed, [0-9]+ MiB free$" \
    on h1 "$ferry" move poc --to h3
  room h3 50%
  room_left h1 16
  fails "^ferry: 'poc' was not moved: not enough disk for its checkpoint: [0-9]+ MiB needed, [0-9]+ MiB free$" \
    on h1 "$ferry" move poc --to h3
  room h1 50%
  goes_on_in h1 poc
  [[ $(pod_pid h1 poc) == "$pid" ]] || fail 'it was stopped'
  leaves_nothing h1 h3
  ok 'what CRIU cannot move, a pause, and full disks are said before anything is stopped'

  restore_begins h1 poc
  room_left h3 0
  go_on h3
  fails_to_move \
    "^ferry: 'poc' was not moved: h3: cannot restore 'poc': podman container restore: .*no space left on device"
  room h3 50%
  goes_on_in h1 poc
  leaves_nothing h1 h3
  ok 'a disk that is full later: it goes on where it was'

  move poc h1 h3
  goes_on_in h3 poc
  ends_well h3 poc pos
  ok 'and it moves when there is nothing of that'
}

use_podman
if (($# == 0)); then set -- moved failed hang back refused obstacles; fi
for group in "$@"; do "group_$group"; done
