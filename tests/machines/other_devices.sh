# Sourced by machines_test.sh; bash only: programs with a device of the kernel that go on with another one, or with
# Ferry's own (ferry move --to-device).
# shellcheck shell=bash

# stream_check counts what is lost and doubled. Its client goes from rxe0 on h1 to rxe7 on h3, to ferry0 on h1, which
# has no device of the kernel then, and to rxe0 on h2; its server goes from rxe0 on h2 to rxe7 on h3 meanwhile.
other_devices() {
  local side host
  vm h3 'rdma link delete rxe0; rdma link add rxe7 type rxe netdev eth0; rdma link add rxe8 type rxe netdev eth1'
  for host in h1 h2 h3; do vm "$host" ': >/tmp/client; : >/tmp/server'; done
  vm h2 'cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check --apart --json --gid-index 1 --timeout 14 \
    --events >/tmp/server 2>&1 </dev/null &'
  await 'the server listens' vm h2 'ss -Hltn "sport = :18600" | grep -q .'
  vm h1 'cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check h2 --apart --json --gid-index 1 --timeout 14 \
    --events --qps 3 --idle 5 --size 4096 --messages 3000 --rate 60 >/tmp/client 2>&1 </dev/null &'
  await 'the client runs' packets_go_on h1
  fails 'there is no RDMA device rxe0, and more than one other' h1 'ferry move stream_check --to h3'
  fails 'there is no RDMA device rxe9; there is rxe7, rxe8' h1 'ferry move stream_check --to h3 --to-device rxe9'
  vm h1 'ferry move stream_check --to h3 --to-device rxe7' || fail 'no move to rxe7'
  vm h1 'rdma link delete rxe0'
  fails 'ferry0 cannot have UDP port 4791, which rdma_rxe has' h3 'ferry move stream_check --to h1 --to-device ferry0'
  vm h1 'modprobe -r rdma_rxe'
  fails 'with --to-device ferry0 the program goes on' h3 'ferry move stream_check --to h1'
  vm h3 'ferry move stream_check --to h1 --to-device ferry0' || fail "no move to Ferry's own RNIC"
  await 'the server gets packets from it' packets_go_on h2
  vm h2 'ferry move stream_check --to h3 --to-device rxe7' || fail "no move of the peer of Ferry's own RNIC"
  vm h1 'ferry move stream_check --to h2' || fail "no move from Ferry's own RNIC to rxe0"
  await 'the client goes on with rxe0' packets_go_on h2
  for side in client server; do
    host=h2
    if [ "$side" = server ]; then host=h3; fi
    await "the $side reports" vm "$host" "jq -e .result /tmp/$side"
    vm "$host" "cat /tmp/$side" | jq -e '.result == "ok" and .operations.read.received == 9000' >/dev/null ||
      fail "the $side: $(vm "$host" "cat /tmp/$side")"
  done
  end_of_kernel stream_check
  vm h1 'modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0'
  vm h3 'rdma link delete rxe7; rdma link delete rxe8; rdma link add rxe0 type rxe netdev eth0'
}
