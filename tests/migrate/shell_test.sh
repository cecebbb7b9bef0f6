#!/bin/bash
# Moves programs that nobody put into a container: started from a shell, with nohup or in its terminal, by ssh, or as a
# service; or what they need of their host is not there. Each host is a machine here, with process ids of its own, for a
# program keeps its ids. Needs root.
#
#   shell_test.sh [GROUP...]     groups: nohup terminal ssh service ties (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

# boot HOST COUNT: a pid namespace for the host, and its ferryd in it. COUNT ids are taken before, so that a program of
# one machine finds its own free on another.
boot() {
  # shellcheck disable=SC2016 # expanded in the machine
  on "$1" sh -c 'setsid unshare --pid --fork --mount-proc sh -c "$0" >/dev/null 2>&1 </dev/null &
    echo $! >/run/machine' 'while :; do wait; sleep 0.2; done'
  await "a machine on $1" machine "$1" true
  machine "$1" mount -o remount,bind,rw /dev/pts
  # shellcheck disable=SC2016
  machine "$1" sh -c 'echo $(($1 + 300)) >/proc/sys/kernel/ns_last_pid' sh "$2"
  kill_ferryd "$1"
  local command
  mapfile -d '' -t command <"$work/ferryd_$1"
  # shellcheck disable=SC2016
  machine "$1" sh -c 'setsid "$@" >>/run/ferry/ferryd.log 2>&1 </dev/null &' sh \
    env PATH="$FERRY_BIN:/opt/ferry/bin:$PATH" "${command[@]}"
  await "the ferryd of $1 answers" answers "$1"
}

# machine HOST CMD...: a command in its pid namespace.
machine() {
  local init
  # shellcheck disable=SC2016 # expanded on the host
  init=$(on "$1" sh -c 'pgrep -P "$(cat /run/machine)"') || return 1
  on "$1" nsenter --target "$init" --pid --mount -- "${@:2}"
}

# by_shell HOST SCRIPT: what somebody types at a prompt there. The shell ends, what it has started in the background
# stays.
by_shell() {
  # shellcheck disable=SC2016 # expanded there
  machine "$1" setsid -w bash -c 'exec </dev/null >/dev/null 2>&1
    for fd in /proc/self/fd/*; do ((${fd##*/} < 3 || ${fd##*/} == 255)) || eval "exec ${fd##*/}>&-"; done
    eval "$1"' bash "$2"
}

# runs_on HOST: a program there receives packets.
runs_on() {
  local before after
  before=$(received_on "$1") && sleep 0.2 && after=$(received_on "$1") && ((after > before))
}
received_on() {
  on "$1" "$ferry" ps --json | jq -e '[.programs[].devices[].qps[].received_packets] | add'
}

# A pingpong without end, which keeps no TCP connection; one side is on h2.
server() {
  by_shell h2 "nohup $ferry run --netdev rdma -- ibv_rc_pingpong -e -g 0 -n 2000000000 >/tmp/out 2>&1 &"
  await 'h2 listens' listens h2 18515
}
client() { echo "$ferry run --netdev rdma -- ibv_rc_pingpong -e -g 0 -n 2000000000 $(rdma_of h2)"; }

# Of the client. Words behind are options of ferry move.
goes_there_and_back() {
  local from to
  await 'the client runs' runs_on h1
  while read -r from to; do
    machine "$from" "$ferry" move ibv_rc_pingpong --to "$to" "$@" >"$work/move" 2>&1 </dev/null ||
      fail "$(<"$work/move")"
    await "it goes on on $to" runs_on "$to"
  done <<<$'h1 h3\nh3 h1'
}

# /tmp/chatter on h1: the client, which says something now and then.
chatter() {
  on h1 sh -c 'cat >/tmp/chatter && chmod 755 /tmp/chatter' <<<"#!/bin/bash
(while kill -0 \$\$ && sleep 0.2; do echo tick; done) &
exec $(client)"
}

# prints_on HOST: what it says arrives in the file there that --stdio names.
prints_on() { [[ $(on "$1" tail -n 1 /tmp/printed) == tick* ]]; }

# redirected PATTERN: the client's input and output lead out of it. That is said before it is stopped, and with --stdio
# it moves: its output goes to a file.
redirected() {
  await 'the client runs' runs_on h1
  fails "$1.*, or move it with --stdio FILE|$1.*; move it with --stdio FILE" \
    machine h1 "$ferry" move ibv_rc_pingpong --to h3
  await 'it goes on' runs_on h1
  fails 'there is no folder for --stdio /nowhere/printed' \
    machine h1 "$ferry" move ibv_rc_pingpong --to h3 --stdio /nowhere/printed
  goes_there_and_back --stdio /tmp/printed
  await 'it printed on h3' prints_on h3
  await 'it prints on h1' prints_on h1
  machine h1 pkill -x ibv_rc_pingpong
  machine h2 pkill -x ibv_rc_pingpong
  await 'nobody is left who would copy its output' unless_copied
}
unless_copied() { ! machine h1 pgrep -x ferry-append >/dev/null && ! machine h3 pgrep -x ferry-append >/dev/null; }

group_nohup() {
  server
  on h3 touch /tmp/out
  by_shell h1 "nohup $(client) >/tmp/out 2>&1 &"
  await 'the client runs' runs_on h1
  fails 'process [0-9]+ \(ibv_rc_pingpong\): has nothing that --stdio could take' \
    machine h1 "$ferry" move ibv_rc_pingpong --to h3 --stdio /tmp/printed
  goes_there_and_back
  machine h1 pkill -x ibv_rc_pingpong
  machine h2 pkill -x ibv_rc_pingpong
  ok 'a program that a shell has started with nohup moves there and back'
}

# An interactive shell's foreground job: its terminal stays where it is.
group_terminal() {
  server
  chatter
  by_shell h1 "script -qfc \"bash -ic '/tmp/chatter; true'\" /tmp/typescript &"
  redirected 'descriptor 0 \(?/dev/pts/[0-9]+\)? is a terminal of a window or sshd, outside .*; start it with nohup'
  ok 'the foreground job of a shell in a terminal leaves the terminal behind'
}

# A command that somebody runs by ssh, without a terminal: pipes to the server. Its root has a home of its own, so that
# nobody's keys are touched.
group_ssh() {
  server
  chatter
  by_shell h1 'mkdir -p -m 700 /tmp/home/.ssh && cd /tmp/home && chown root /tmp/home/.ssh &&
    sed "s,^root:.*,root:x:0:0:root:/tmp/home:/bin/bash," /etc/passwd >passwd && mount --bind passwd /etc/passwd &&
    dropbearkey -t ed25519 -f host && dropbearkey -t ed25519 -f key &&
    dropbearkey -y -f key | grep ^ssh- >.ssh/authorized_keys && chmod 600 .ssh/authorized_keys &&
    dropbear -r host -s -p 127.0.0.1:2222 -P /tmp/home/pid'
  on h3 mkdir /tmp/home # its folder
  await 'the ssh server' shows ':2222 ' on h1 ss -Hltn
  by_shell h1 'dbclient -y -i /tmp/home/key -p 2222 root@127.0.0.1 /tmp/chatter >/tmp/home/out 2>&1 &'
  redirected 'descriptor [012] is a pipe to process [0-9]+ \(dropbear\), outside'
  shows tick on h1 cat /tmp/home/out || fail 'ssh printed nothing before the move'
  ok 'a program that was started by ssh moves, and leaves the connection behind'
}

# A service of systemd: its output is a connection to the journal.
group_service() {
  server
  chatter
  by_shell h1 'mkdir -p /run/systemd/journal && /lib/systemd/systemd-journald &'
  await 'the journal listens' on h1 test -S /run/systemd/journal/stdout
  by_shell h1 'systemd-cat -t chatter /tmp/chatter &'
  redirected 'descriptor 1 \(UNIX socket\) is connected with /run/systemd/journal/stdout, outside'
  ok 'a program whose output goes to the journal moves'
}

# What a program of the host has of it: addresses and process ids.
group_ties() {
  local id
  server
  on h3 touch /tmp/out
  by_shell h1 "nohup $(client) >/tmp/out 2>&1 &"
  await 'the client runs' runs_on h1
  id=$(machine h1 pgrep -x ibv_rc_pingpong)
  # shellcheck disable=SC2016 # expanded in the machine
  machine h3 sh -c 'while :; do
      echo "$(($1 - 1))" >/proc/sys/kernel/ns_last_pid
      sleep 600 &
      [ "$!" = "$1" ] && exec sleep 600
      kill "$!"
    done' sh "$id" >/dev/null 2>&1 </dev/null &
  await 'its id is taken on h3' machine h3 grep -qs 600 "/proc/$id/cmdline"
  fails "h3 has a process [0-9]+ \(sleep\) already, and 'ibv_rc_pingpong' keeps its ids" \
    machine h1 "$ferry" move ibv_rc_pingpong --to h3
  await 'it goes on' runs_on h1
  machine h1 pkill -x ibv_rc_pingpong
  machine h2 pkill -x ibv_rc_pingpong
  by_shell h2 "nohup $ferry run --netdev rdma -- $FERRY_BIN/stream_check >/tmp/out 2>&1 &"
  await 'h2 listens' listens h2 18600
  by_shell h1 "nohup $ferry run --netdev rdma -- $FERRY_BIN/stream_check $(rdma_of h2) --seconds 0 >/tmp/out 2>&1 &"
  await 'the client runs' runs_on h1
  fails "it is on the host's network and has a TCP connection \(to port 18600\), which cannot move" \
    machine h1 "$ferry" move stream_check --to h3
  await 'it goes on' runs_on h1
  ok 'what a program needs of its host and would not find is said before it is stopped'
}

use_lab shell 3 jq ibv_rc_pingpong dropbear dbclient systemd-cat
for host in h1 h2 h3; do boot "$host" "${host#h}000"; done
if (($# == 0)); then set -- nohup terminal ssh service ties; fi
for group in "$@"; do "group_$group"; done
