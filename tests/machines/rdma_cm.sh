# shellcheck shell=bash
# Connections of the stock librdmacm over a device of the kernel, and their moves: functions of machines_test.sh.

# runs_to_its_end HOST FILE: the status that a program's shell has written there, and that it is 0.
runs_to_its_end() {
  local status
  await "the program of $2 ends" vm "$1" "test -s $2"
  status=$(vm "$1" "cat $2")
  [[ $status == 0 ]] || fail "the program of $2 ends with status $status"
}
shell_of() { vm "$1" "ps -o ppid= -p \"\$(pgrep -x $2)\"" | tr -d ' '; }

# Connections by the stock librdmacm. A persistent server (-P) listens where it goes; a client that counts disconnects.
# shellcheck disable=SC2016 # the machines' shells expand
connections_of_rdma_cm() {
  local shell
  on_all 'modprobe rdma_ucm'
  start_of_kernel h2 'rping -s -P -a 0.0.0.0'
  await 'the server listens' vm h2 'rdma resource show cm_id | grep -q "state LISTEN .*comm rping"'
  vm h3 'cd /tmp; setsid nohup rping -s -P -a 0.0.0.0 >/dev/null 2>&1 </dev/null &'
  await 'another server listens' vm h3 'rdma resource show cm_id | grep -q "state LISTEN .*comm rping"'
  fails 'port 7174 of rdma_cm, which it cannot have on h3' h2 'ferry move rping --to h3'
  end_of_kernel_on h3 rping
  bring h2 h3 rping
  vm h1 'timeout 100 ferry run --device rxe0 -- rping -c -C 3 -a 10.79.0.3' || fail 'nobody reaches the moved server'
  start_of_kernel h1 'rping -c -a 10.79.0.3'
  await 'the client runs' packets_go_on h1
  move_of_kernel h1 h2 rping
  move_of_kernel h3 h1 rping
  move_both h2 rping h3 h1 rping h2
  await 'both go on' packets_go_on h3
  end_of_kernel rping

  start_of_kernel h2 'rping -s -a 0.0.0.0' # ends with its only client
  await 'the server listens' vm h2 'rdma resource show cm_id | grep -q "state LISTEN .*comm rping"'
  on_all 'rm -f /tmp/client'
  start_of_kernel h1 'sh -c "rping -c -C 1000 -a 10.79.0.2; echo \$? >/tmp/client"'
  await 'the client runs' packets_go_on h1
  shell=$(shell_of h1 rping)
  move_of_kernel h1 h3 rping "$shell" # with the shell, which tells how the client ends
  runs_to_its_end h3 /tmp/client
  await 'the server hears of it' not vm h2 'pgrep -x rping'
}

# perftest connects by rdma_cm (-R), without any TCP connection, and polls. Each end is moved, then both at once.
latency_over_rdma_cm() {
  local client server perftest='ib_send_lat -R -u 18 -n 10000 -s 64'
  on_all 'rm -f /tmp/client /tmp/server'
  start_of_kernel h2 "sh -c \"$perftest; echo \\\$? >/tmp/server\""
  await 'the server listens' vm h2 'rdma resource show cm_id | grep -q "state LISTEN .*comm ib_send_lat"'
  start_of_kernel h1 "sh -c \"$perftest 10.79.0.2; echo \\\$? >/tmp/client\""
  await 'the client runs' packets_go_on h1
  client=$(shell_of h1 ib_send_lat) server=$(shell_of h2 ib_send_lat)
  move_of_kernel h1 h3 ib_send_lat "$client"
  move_of_kernel h2 h1 ib_send_lat "$server"
  move_both h3 "$client" h2 h1 "$server" h3
  runs_to_its_end h2 /tmp/client
  runs_to_its_end h3 /tmp/server
}
