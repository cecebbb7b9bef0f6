#!/bin/bash
# Moves programs that nobody put into a container: started from a shell, with nohup or in its terminal; or what they
# need of their host is not there. Each host is a machine here, with process ids of its own, for a program keeps its
# ids. Needs root.
#
#   shell_test.sh [GROUP...]     groups: nohup terminal ties (default: all)
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

# Of the client.
goes_there_and_back() {
  local from to
  await 'the client runs' runs_on h1
  while read -r from to; do
    machine "$from" "$ferry" move ibv_rc_pingpong --to "$to" >"$work/move" 2>&1 </dev/null || fail "$(<"$work/move")"
    await "it goes on on $to" runs_on "$to"
  done <<<$'h1 h3\nh3 h1'
}

group_nohup() {
  server
  on h3 touch /tmp/out
  by_shell h1 "nohup $(client) >/tmp/out 2>&1 &"
  goes_there_and_back
  machine h1 pkill -x ibv_rc_pingpong
  machine h2 pkill -x ibv_rc_pingpong
  ok 'a program that a shell has started with nohup moves there and back'
}

# An interactive shell's foreground job, whose terminal stays where it is: that is said before anything is stopped.
group_terminal() {
  server
  by_shell h1 "script -qfc \"bash -ic '$(client); true'\" /tmp/typescript &"
  await 'the client runs' runs_on h1
  fails 'descriptor 0 \(/dev/pts/[0-9]+\) is a terminal, whose other side is outside .*; start it with nohup' \
    machine h1 "$ferry" move ibv_rc_pingpong --to h3
  await 'it goes on' runs_on h1
  machine h1 pkill -x ibv_rc_pingpong
  machine h2 pkill -x ibv_rc_pingpong
  ok 'the foreground job of a shell in a terminal is refused'
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

use_lab shell 3 jq ibv_rc_pingpong
for host in h1 h2 h3; do boot "$host" "${host#h}000"; done
if (($# == 0)); then set -- nohup terminal ties; fi
for group in "$@"; do "group_$group"; done
