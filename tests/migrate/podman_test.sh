#!/bin/bash
# ferry move of podman's containers (docs/containers.md): there and back, what fails on the way, ferryds that are killed in the middle, and
# what is refused. Needs root.
#
#   podman_test.sh [GROUP...]     groups: moved failed killed refused (default: all)
# shellcheck source=tests/migrate/runtimes_lib.sh
source "$(dirname "$0")/runtimes_lib.sh"

readonly image=localhost/ferry-test:latest

# podman's networks reach other hosts: a container has addresses of its own there, which move along.
networks() {
  local host
  for host in "$@"; do
    pod "$host" network create -d macvlan -o parent=br0 --subnet 10.77.0.0/16 --disable-dns lan >/dev/null
    pod "$host" network create -d macvlan -o parent=rdma --opt mtu=9000 --subnet 10.78.0.0/16 --disable-dns fast >/dev/null
  done
}

# A server of the lab on h2, and the image and the networks on h1 and h3.
prepare() {
  start h2 "$1" "$FERRY_BIN/stream_check" --json
  await_listen h2 "$1" 18600
  peer=$(address_of h2 "$1")
  pod h1 image exists "$image" && return
  tar -C "$rootfs" -c . | pod h1 import -q - ferry-test >/dev/null
  pod h1 save -q "$image" | pod h3 load -q >/dev/null # the same image, by its id
  networks h1 h3
}

# contain HOST NAME NUMBER [OPTION...]: a client in a container of podman's.
contain() {
  pod "$1" run -d --name "$2" --network "lan:ip=10.77.240.$3,interface_name=eth0" \
    --network "fast:ip=10.78.253.$3,interface_name=rdma0" -v "$FERRY_BIN:/opt/ferry:ro" -v /run/ferry:/run/ferry \
    -e LD_PRELOAD=/opt/ferry/libferry.so -e FERRY_NETDEV=rdma0 "${@:4}" "$image" \
    /opt/ferry/stream_check "$peer" --seconds 0 --qps 2 --json >/dev/null
  await "$2 uses RDMA" has_more "$1" "$(pod_pid "$1" "$2")" 0
}
goes_on_in() { goes_on "$1" "$(pod_pid "$1" "$2")"; }

runs_on() { [[ $(pod "$1" inspect --format '{{.State.Running}}' "$2" 2>/dev/null) == true ]]; }

# has_nothing HOST NAME: neither a container nor an archive of it.
has_nothing() {
  ! pod "$1" container exists "$2" && on "$1" sh -c '! ls /run/ferry/images/* /var/tmp/ferry/podman-* >/dev/null 2>&1'
}
no_archive() { on "$1" sh -c '! ls /run/ferry/images/* /var/tmp/ferry/podman-* >/dev/null 2>&1'; }

# ends_well HOST NAME SERVER: nothing was lost, on either side.
ends_well() {
  kill -INT "$(pod_pid "$1" "$2")"
  await "$2 ends" sh -c "! '$lab' exec '$1' -- '$PODMAN' ps -q --filter name='$2' | grep -q ."
  pod "$1" logs "$2" >"$work/$2"
  jq -e '.messages_lost == 0 and .messages_duplicated == 0 and .messages_corrupted == 0' "$work/$2" >/dev/null ||
    fail "$2: $(tail -n 20 "$work/$2")"
  finishes "$3"
  lost_nothing "$3"
  pod "$1" rm "$2" >/dev/null
}

group_moved() {
  local address
  prepare pms
  contain h1 pmc 5 -v data:/data
  on h1 sh -c "echo kept >\$($PODMAN volume inspect --format '{{.Mountpoint}}' data)/file"
  address=$(pod h1 inspect --format '{{.NetworkSettings.Networks.lan.IPAddress}} {{.NetworkSettings.Networks.lan.MacAddress}}' pmc)
  move pmc h1 h3
  has_nothing h1 pmc || fail "h1 has something of pmc still: $(pod h1 ps -a)"
  goes_on_in h3 pmc
  [[ $(pod h3 inspect --format '{{.NetworkSettings.Networks.lan.IPAddress}} {{.NetworkSettings.Networks.lan.MacAddress}}' pmc) == "$address" ]] ||
    fail 'its address has not moved along'
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
  prepare pfs
  contain h1 pfc 6 -v data:/data
  on h3 mv /run/ferry/ferryd.sock /run/ferry/hidden
  fails "^ferry: 'pfc' was not moved: h3: cannot restore 'pfc': podman container restore: .*no ferryd answers here" on h1 "$ferry" move pfc --to h3
  on h3 mv /run/ferry/hidden /run/ferry/ferryd.sock
  goes_on_in h1 pfc
  await 'h3 has nothing of it' has_nothing h3 pfc
  no_archive h1 || fail 'an archive is left'
  if pod h3 volume exists data; then fail 'its volume is left on h3'; fi
  ok 'a restore that fails: it goes on where it was'
  ferryd_with h3 --memory-limit 67108865
  fails "^ferry: 'pfc' was not moved: h3: not enough memory on h3" on h1 "$ferry" move pfc --to h3
  ferryd_with h3 --memory-limit 0
  move pfc h1 h3
  ends_well h3 pfc pfs
  ok 'and moves after that'
}

# podman_waiting HOST VERB: the next podman of that kind that ferryd starts waits for /run/go. It says so by /run/waiting.
podman_waiting() {
  on "$1" rm -f /run/go /run/waiting
  # shellcheck disable=SC2016 # expanded by the script
  printf '#!/bin/bash\n%s\n' "if [[ \"\$*\" == *'container $2'* ]] && mkdir /run/waited 2>/dev/null; then
    touch /run/waiting; until [ -e /run/go ]; do sleep 0.02; done; fi
    exec $PODMAN \"\$@\"" | on "$1" sh -c 'rm -rf /run/waited; cat >/run/podman && chmod 755 /run/podman'
  ferryd_with "$1" --podman /run/podman
}
# stops_of HOST: checkpoints that its journal has. has_stopped HOST COUNT: it has more.
stops_of() { on "$1" grep -c ' source kept ' /var/tmp/ferry/decisions || true; }
has_stopped() { (($(stops_of "$1") > $2)); }
go_on() { on "$1" touch /run/go; }
is_in_doubt() { on "$1" "$ferry" ps --json | jq -e --arg name "$2" '.programs[] | select(.name == $name and .state == "in doubt")' >/dev/null; }

group_killed() {
  local runner before
  prepare pks
  contain h1 pkc 7

  # The destination's, before anything is restored: the source needs no word of it.
  podman_waiting h3 restore
  on h1 "$ferry" move pkc --to h3 >"$work/move" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /run/waiting
  kill_ferryd h3
  if wait "$runner"; then fail 'moved to a ferryd that died'; fi
  goes_on_in h1 pkc
  go_on h3
  start_ferryd h3
  await 'h3 clears up' has_nothing h3 pkc
  ok "the destination's ferryd is killed while the archive is there: it goes on where it was"

  # The source's, while the archive is sent.
  podman_waiting h3 restore
  on h1 "$ferry" move pkc --to h3 >"$work/move" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /run/waiting
  kill_ferryd h1
  if wait "$runner"; then fail 'moved by a ferryd that died'; fi
  runs_on h1 pkc && fail 'it runs without anybody having decided so'
  start_ferryd h1
  await 'the next ferryd waits for the word of h3' is_in_doubt h1 pkc
  runs_on h1 pkc && fail 'it runs on h1 while it may on h3'
  go_on h3
  await 'it goes on on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  await 'h3 clears up' has_nothing h3 pkc
  no_archive h1 || fail 'an archive is left'
  ok "the source's ferryd is killed while the archive is there: the next one restores it, when the destination has said that it does not"

  # The source's, while podman writes.
  podman_waiting h1 checkpoint
  goes_on_in h1 pkc # it has found the new ferryd
  before=$(stops_of h1)
  on h1 "$ferry" move pkc --to h3 >"$work/move" 2>&1 &
  runner=$!
  await 'h1 checkpoints' on h1 test -e /run/waiting
  go_on h1
  await 'it is stopped' has_stopped h1 "$before"
  kill_ferryd h1
  if wait "$runner"; then fail 'moved by a ferryd that died'; fi
  start_ferryd h1
  await 'the ferryd of h1 answers' answers h1
  await 'it runs on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  await 'h3 clears up' has_nothing h3 pkc
  ok "the source's ferryd is killed at the checkpoint: it goes on"

  # An operator's word, where the destination never comes back.
  podman_waiting h3 restore
  on h1 "$ferry" move pkc --to h3 >"$work/move" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /run/waiting
  kill_ferryd h1
  kill_ferryd h3
  if wait "$runner"; then fail 'moved by a ferryd that died'; fi
  start_ferryd h1
  await 'the next ferryd waits for the word of h3' is_in_doubt h1 pkc
  on h1 "$ferry" resolve "$(on h1 "$ferry" ps --json | jq -r '.programs[] | select(.name == "pkc") | .move_id')" --abort
  await 'it goes on on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  go_on h3
  start_ferryd h3
  await 'h3 clears up' has_nothing h3 pkc
  ok 'ferry resolve --abort restores it at the source'
  ends_well h1 pkc pks
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
  fails "^ferry: 'prc' is a container of podman's, whose memory cannot be copied ahead" on h1 "$ferry" move prc --to h3 --copy-ahead
  fails "^ferry: 'prc' is not yours" on h1 setpriv --reuid 1234 --clear-groups "$ferry" move prc --to h3

  pod h3 create --name prc "$image" true >/dev/null
  fails "^ferry: 'prc' was not moved: h3: there is a container 'prc' already \(created\); remove it: podman rm prc$" on h1 "$ferry" move prc --to h3
  pod h3 rm prc >/dev/null
  pod h3 network rm fast >/dev/null
  fails "^ferry: 'prc' was not moved: h3: there is no network 'fast'; make it: podman network create" on h1 "$ferry" move prc --to h3
  pod h3 network create -d macvlan -o parent=rdma --opt mtu=9000 --subnet 10.78.0.0/16 --disable-dns fast >/dev/null
  pod h3 rmi "$image" >/dev/null
  fails "^ferry: 'prc' was not moved: h3: there is no image $image with the id [0-9a-f]{12}; take it there: podman save" on h1 "$ferry" move prc --to h3
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

FERRY_LAB_FERRYD="--podman $PODMAN"
export FERRY_LAB_FERRYD
use_lab podman 3 podman runc jq mmdebstrap
on h1 mountpoint -q /usr/lib/criu || { echo 'skipped: no /usr/lib/criu; run scripts/setup'; exit 77; }
on h1 mountpoint -q /sys/fs/cgroup || { echo 'skipped: no cgroups of version 1'; exit 77; }
need_rootfs
peer=
if (($# == 0)); then set -- moved failed killed refused; fi
for group in "$@"; do "group_$group"; done
