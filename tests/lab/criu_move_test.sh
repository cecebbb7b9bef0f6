#!/bin/bash
# Moves a container between hosts of the lab with CRIU alone, without ferryd: proves the network hook, the order of
# CRIU's action scripts and the rollback, on an established TCP connection whose numbered lines must neither get lost
# nor doubled. Needs root. Prints one line per check; exits non-zero when one fails.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly hook=$repository/lab/network-hook
readonly criu=/opt/ferry/bin/criu
export FERRY_LAB=${FERRY_LAB:-criut}

milliseconds() { printf '%d\n' $(($(date +%s%N) / 1000000)); }

cleanup() {
  local status=$?
  if ((status != 0)); then
    for host in h1 h2 h3; do
      # shellcheck disable=SC2016 # expanded on the host
      on "$host" sh -c 'for f in /run/ferry/lab.log /run/ferry/move/*/*.log; do
        [ ! -s "$f" ] || { echo "--- $(hostname): $f"; tail -n 20 "$f"; }; done' >&2 || true
    done
  fi
  "$lab" down
  exit "$status"
}

# The number in the last line of a container's log.
progress() { "$lab" logs "$1" | tail -n 1 | tr -dc '0-9'; }

runs_on() { [[ $("$lab" ps | awk -v n="$1" '$1 == n && $3 == "running" { print $2 }') == "$2" ]]; }

has_come_to() { (($(progress "$1" || echo 0) >= $2)); }

wait_progress() { await "$1 comes to line $2" has_come_to "$1" "$2"; }

# $1 may be a container's name with a number behind a dot: which move of it this is.
folder() { printf '/run/ferry/move/%s\n' "$1"; }

config() { on "$1" cat "/run/ferry/containers/$2/config.json"; }

set_state() {
  on "$1" sh -c "cd /run/ferry/containers/$2 && jq '.state = \"$3\"' config.json >new && mv new config.json"
}

# Starts the dump of container $2 on host $1; returns when it waits in post-dump, frozen.
dump() {
  local host=$1 name=$2 move=$3 instance pid netns image
  image=$(folder "$move")
  instance=$(config "$host" "$name" | jq -r .instance)
  netns=$(config "$host" "$name" | jq -r .netns)
  pid=$(config "$host" "$name" | jq -r .pid)
  on "$host" mkdir -p "$image"
  on "$host" mkfifo "$image/event" "$image/verdict"
  on "$host" sh -c "cat >$image/script && chmod +x $image/script" <<SCRIPT
#!/bin/sh
case \$CRTOOLS_SCRIPT_ACTION in
  network-lock) exec $hook deactivate $instance ;;
  network-unlock) exec $hook activate $instance ;;
  post-dump)
    echo dumped >$image/event
    read -r verdict <$image/verdict
    [ "\$verdict" = commit ]
    ;;
esac
SCRIPT
  # shellcheck disable=SC2016 # expanded on the host
  on "$host" sh -c '"$@"; echo "ended $?" >>'"$image/ended" sh "$criu" dump --tree "$pid" --images-dir "$image" \
    --tcp-established --external "net[$(on "$host" stat -L -c %i "$netns")]:ferry-net" --manage-cgroups=ignore \
    --network-lock skip --action-script "$image/script" -v2 --log-file dump.log >/dev/null 2>&1 &
  [[ $(on "$host" timeout "$patience" cat "$image/event") == dumped ]] || fail "dump of $name on $host"
}

# Restores it on host $4 up to post-restore, where it waits, frozen and silent. The log and the image go along.
restore() {
  local from=$1 name=$2 move=$3 to=$4 image instance
  image=$(folder "$move")
  instance=$(config "$to" "$name" | jq -r .instance)
  on "$from" tar -C / -c --exclude='*/event' --exclude='*/verdict' --exclude='*/script' "${image#/}" \
    "run/ferry/containers/$name/log" | on "$to" tar -C / -x
  on "$to" mkfifo "$image/event" "$image/verdict"
  on "$to" sh -c "cat >$image/script && chmod +x $image/script" <<SCRIPT
#!/bin/sh
[ "\$CRTOOLS_SCRIPT_ACTION" = post-restore ] || exit 0
echo restored >$image/event
read -r verdict <$image/verdict
[ "\$verdict" = commit ] && exec $hook activate $instance
SCRIPT
  on "$to" setsid "$repository/tests/lab/restore.py" "$criu" "$image" "$image/script" \
    "/run/ferry/containers/$name/config.json" >/dev/null 2>&1 &
  [[ $(on "$to" timeout "$patience" cat "$image/event") == restored ]] || fail "restore of $name on $to"
}

verdict() { on "$1" sh -c "echo $3 >$(folder "$2")/verdict"; }

# What ferryd does around dump and restore; the last argument says how it ends.
move() {
  local name=$1 from=$2 to=$3 number=$4 outcome=$5 move=$1.$4 old start frozen
  old=$(config "$from" "$name" | jq -r .instance)
  config "$from" "$name" | on "$to" "$hook" prepare "$name" >"$work/config"
  on "$to" sh -c "mkdir -p /run/ferry/containers/$name && cat >/run/ferry/containers/$name/config.json" <"$work/config"
  start=$(milliseconds)
  dump "$from" "$name" "$move"
  frozen=$(progress "$name")
  restore "$from" "$name" "$move" "$to"
  sleep 0.3 # nothing may run on either side
  [[ $(progress "$name") == "$frozen" ]] || fail "$name ran while it was frozen"
  if [[ $outcome == commit ]]; then
    set_state "$from" "$name" moved
    verdict "$to" "$move" commit
    verdict "$from" "$move" commit
    wait_progress "$name" $((frozen + 20))
    await "$name runs on $to" runs_on "$name" "$to"
    on "$from" "$hook" release "$old"
  else
    verdict "$to" "$move" rollback
    verdict "$from" "$move" rollback
    on "$to" "$hook" release "$(jq -r .instance "$work/config")"
    on "$to" rm -rf "/run/ferry/containers/$name"
    wait_progress "$name" $((frozen + 20))
    [[ $(config "$from" "$name" | jq -r .instance) == "$old" ]] || fail "$name is not where it was"
  fi
  ok "$(printf 'move %d of %s from %s to %s: %s after line %d (%d ms with the pause)' "$number" "$name" "$from" "$to" \
    "$outcome" "$frozen" $(($(milliseconds) - start)))"
}

readonly server='
import socket
listener = socket.create_server(("0.0.0.0", 7000))
connection, _ = listener.accept()
for expected, line in enumerate(connection.makefile("r"), 1):
    if int(line) != expected:
        raise SystemExit(f"line {line.strip()} instead of {expected}")
    print(expected)
    connection.sendall(line.encode())
'
readonly client='
import socket, sys, time, pathlib
connection = socket.create_connection((sys.argv[1], 7000))
lines = connection.makefile("r")
for number in range(1, 1000000):
    connection.sendall(b"%d\n" % number)
    answer = lines.readline()
    if answer != f"{number}\n":
        raise SystemExit(f"answer {answer!r} to {number}")
    print(number)
    time.sleep(0.002)
    if pathlib.Path("/run/ferry/stop").exists():
        sys.exit(7)
'

work=$(mktemp -d)
trap cleanup EXIT
"$lab" down  # of a test that was killed
"$lab" up 3 2>/dev/null
"$lab" run h1 server -d -- /usr/bin/python3 -u -c "$server"
address=$("$lab" exec h1 -- jq -r .eth0.address /run/ferry/containers/server/config.json)
"$lab" run h2 client -d -- /usr/bin/python3 -u -c "$client" "$address"
wait_progress client 50

move client h2 h3 1 commit
move client h3 h2 2 rollback
move client h3 h2 3 commit
move server h1 h3 1 commit
move server h3 h1 2 rollback
move client h2 h3 4 commit # both on one host now

on h3 touch /run/ferry/stop
status=0
"$lab" wait client --timeout "$patience" >"$work/log" || status=$?
((status == 7)) || fail "the moved program's exit status is $status, not 7"
ok 'the exit status of the moved program'
seq "$(wc -l <"$work/log")" | cmp - "$work/log" || fail 'the log that moved along is not complete'
"$lab" wait server --timeout "$patience" >"$work/log" || fail 'the server saw a line lost or doubled'
seq "$(wc -l <"$work/log")" | cmp - "$work/log" || fail "the server's log is not complete"
ok "$(wc -l <"$work/log") lines, none lost or doubled"
