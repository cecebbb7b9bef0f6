# Sourced by the tests of MPI, after lib.sh: launching four ranks on h1 and h2, or in containers, and judging what they
# print. The launchers talk over eth; no rank may use shared memory, so that everything goes over RDMA.
# shellcheck shell=bash

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
: "${work?lib.sh sets it}" "${ferry?lib.sh sets it}"
export LAB_OUTSIDE=$$
library=$(realpath "$FERRY_BIN/libferry.so")

# launched PATTERN CMD...: a launcher on h1; the output must have a line like PATTERN (if there is one). What stands
# still for `limit` seconds is launched again, `attempts` times in all.
launched() {
  local pattern=$1 code=124 left=${attempts:-1} started=${EPOCHREALTIME/./}
  shift
  runs=$((runs + 1))
  while ((code == 124 && left-- > 0)); do
    code=0
    : >"$work/server"
    on h1 sh -c 'cd /tmp && exec "$@"' sh timeout --kill-after=5 "${limit:-300}" "$@" >"$work/client" 2>&1 </dev/null ||
      code=$?
  done
  if ((code != 0)) || { [[ -n $pattern ]] && ! grep -Eq -- "$pattern" "$work/client"; }; then
    not_ok "${what:-$*} (exit status $code, no '$pattern')"
  else
    ok "${what:-$*} ($(((${EPOCHREALTIME/./} - started) / 1000)) ms)"
  fi
}

open_mpi() { # PATTERN, options and program
  launched "$1" mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$here/rsh_agent" \
    --mca oob_tcp_if_include 10.77.0.0/16 --mca mpi_yield_when_idle 1 -H h1:2,h2:2 --map-by node \
    -x LD_PRELOAD="$library" -x FERRY_NETDEV=rdma -x OPENBLAS_NUM_THREADS=1 "${@:2}"
}

mpich() { # PATTERN, options and program
  launched "$1" mpiexec.hydra -launcher rsh -launcher-exec "$here/rsh_agent" -iface br0 -hosts h1:2,h2:2 \
    -genv LD_PRELOAD "$library" -genv FERRY_NETDEV rdma "${@:2}"
}

# What carries Open MPI's and MPICH's messages over RDMA by UCX.
# shellcheck disable=SC2034 # for the scripts
open_mpi_ucx=(--mca pml ucx --mca osc ucx --mca btl self --mca pml_ucx_tls any --mca pml_ucx_devices any
  -x UCX_NET_DEVICES=ferry0:1 -x "UCX_TLS=rc_verbs,ud_verbs,self")
mpich_rdma=(-genv UCX_NET_DEVICES ferry0:1 -genv MPIR_CVAR_NOLOCAL 1)

## ranks that move: each in a container of its own, together with the launcher's daemon that started it; mpi_check runs

# shellcheck disable=SC2034 # for the scripts
nodes=rank0-h1,rank1-h2,rank2-h3,rank3-h1

# open_mpi_ranks JOB NODES OPTION...: JOB gets the command that starts them. OPTIONs choose what carries the messages.
#
# A pseudo terminal, through which orted reads its rank's output, keeps its number when it is moved. So each host gets
# its own terminals, as a machine has them, and a rank goes where its number is free: where no rank is. What orted would
# share with its rank by files, which are not on other hosts, goes over their connection (gds, see container_agent) or
# is not used.
open_mpi_ranks() {
  local host
  for host in h1 h2 h3 h4; do
    on "$host" sh -c 'mountpoint -q /dev/ptmx || {
      mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx; }'
  done
  "$1" mpirun.openmpi --allow-run-as-root --leave-session-attached \
    --mca plm_rsh_agent "$here/container_agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.77.0.0/16 \
    --mca rtc_hwloc_vmhole none --mca shmem mmap --mca mpi_yield_when_idle 1 -H "$2" -np 4 --map-by node \
    -x PMIX_MCA_gds=hash -x LD_PRELOAD="$library" -x FERRY_NETDEV=rdma0 "${@:3}" "$FERRY_BIN/mpi_check_openmpi" 600
}

# mpich_ranks JOB NODES
mpich_ranks() {
  "$1" mpiexec.hydra -launcher rsh -launcher-exec "$here/container_agent" -iface br0 -hosts "${2//,/:1,}:1" \
    -genv LD_PRELOAD "$library" -genv FERRY_NETDEV rdma0 "${mpich_rdma[@]}" -genv UCX_TLS rc_verbs,ud_verbs,self \
    -n 4 "$FERRY_BIN/mpi_check_mpich" 600
}

rounds() { on h1 sh -c 'grep -c "^round " /tmp/ranks 2>/dev/null' || true; }

have_done() { # ROUNDS
  if (($(rounds) >= $1)); then return 0; fi
  kill -0 "$launcher" 2>/dev/null || fail "the launcher has ended: $(on h1 tail -n 10 /tmp/ranks)"
  return 1
}

# await_rounds N: until the ranks have done N rounds more.
await_rounds() { await "$1 rounds more of the ranks" have_done $(($(rounds) + $1)); }

# move_rank NODE FROM TO
move_rank() {
  move "$@"
  await_rounds 2 # one of them has begun behind the move
}

# launch CMD...: a launcher on h1, which starts mpi_check by container_agent. Sets `launcher`; the first rounds are
# done.
launch() {
  on h1 sh -c 'cd /tmp && exec "$@" >/tmp/ranks 2>&1' sh timeout --kill-after=5 900 "$@" </dev/null &
  launcher=$!
  await_rounds 2
}

# end_job HOST: rank 0, which is there, is told to end the job; what the ranks have checked is said.
end_job() {
  kill -USR1 "$(on "$1" "$ferry" ps --json | jq '.programs[] | select(.container == "rank0-h1") | .pid')"
  wait "$launcher" || fail "the launcher ended with $?: $(on h1 tail -n 10 /tmp/ranks)"
  on h1 grep -E '^mpi_check: .* no errors' /tmp/ranks || fail "no verdict: $(on h1 tail -n 10 /tmp/ranks)"
  ok "$what"
}

# moved_ranks CMD...: ranks on `nodes`; h4 has none.
moved_ranks() {
  local launcher
  launch "$@"
  move_rank rank1-h2 h2 h4
  move_rank rank2-h3 h3 h2
  move_rank rank0-h1 h1 h3
  end_job h3
}

# hpcc's input: all of its tests, as small as they go, four ranks.
hpcc_input() { on h1 sh -c 'rm -f /tmp/hpccoutf.txt; cat >/tmp/hpccinf.txt' <"$here/hpccinf.txt"; }

# What hpcc found when it verified its own results.
hpcc_verified() {
  local report
  runs=$((runs + 1))
  report=$(on h1 cat /tmp/hpccoutf.txt 2>&1) || true
  if grep -q '^Success=1' <<<"$report" && grep -q '^CommWorldProcs=4' <<<"$report" &&
    grep -q 'Finished *5 tests' <<<"$report" &&
    grep -q '^ *1 tests completed and passed residual checks' <<<"$report" &&
    ! grep -Eq 'FAILED|^Failure|[1-9][0-9]* tests completed and failed' <<<"$report" &&
    [[ $(grep -Ec 'Found 0 errors in .*passed' <<<"$report") -ge 2 ]]; then
    ok 'hpcc verified all of its results'
  else
    not_ok "hpcc verified its results: $(grep -En 'FAILED|Success|errors|failed' <<<"$report" | tail -n 20)"
  fi
}
