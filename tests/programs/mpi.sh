# Sourced by the tests of MPI, after lib.sh: launching four ranks on h1 and h2, or in containers, and judging what they print. The launchers
# talk over eth; no rank may use shared memory, so that everything goes over RDMA.
# shellcheck shell=bash

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
export LAB_OUTSIDE=$$
library=$(realpath "$FERRY_BIN/libferry.so")

# launched PATTERN CMD...: a launcher on h1; the output must have a line like PATTERN (if there is one). What stands still for `limit` seconds is
# launched again, `attempts` times in all.
launched() {
  local pattern=$1 code=124 left=${attempts:-1} started=${EPOCHREALTIME/./}
  shift
  runs=$((runs + 1))
  while ((code == 124 && left-- > 0)); do
    code=0
    : >"$work/server"
    on h1 sh -c 'cd /tmp && exec "$@"' sh timeout --kill-after=5 "${limit:-300}" "$@" >"$work/client" 2>&1 </dev/null || code=$?
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

## ranks that move: each in a container of its own, together with the launcher's daemon that started it; mpi_check runs

# shellcheck disable=SC2034 # for the scripts
nodes=rank0-h1,rank1-h2,rank2-h3,rank3-h1

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

# moved_ranks CMD...: a launcher on h1, which starts mpi_check by container_agent on `nodes`; h4 has no rank.
moved_ranks() {
  local launcher
  on h1 sh -c 'cd /tmp && exec "$@" >/tmp/ranks 2>&1' sh timeout --kill-after=5 900 "$@" </dev/null &
  launcher=$!
  await_rounds 2
  move_rank rank1-h2 h2 h4
  move_rank rank2-h3 h3 h2
  move_rank rank0-h1 h1 h3
  kill -USR1 "$(on h3 "$ferry" ps --json | jq '.programs[] | select(.container == "rank0-h1") | .pid')"
  wait "$launcher" || fail "the launcher ended with $?: $(on h1 tail -n 10 /tmp/ranks)"
  on h1 grep -E '^mpi_check: .* no errors' /tmp/ranks || fail "no verdict: $(on h1 tail -n 10 /tmp/ranks)"
  ok "$what"
}

# hpcc's input: all of its tests, as small as they go, four ranks.
hpcc_input() { on h1 sh -c 'rm -f /tmp/hpccoutf.txt; cat >/tmp/hpccinf.txt' <"$here/hpccinf.txt"; }

# What hpcc found when it verified its own results.
hpcc_verified() {
  local report
  runs=$((runs + 1))
  report=$(on h1 cat /tmp/hpccoutf.txt 2>&1) || true
  if grep -q '^Success=1' <<<"$report" && grep -q '^CommWorldProcs=4' <<<"$report" &&
    grep -q 'Finished *5 tests' <<<"$report" && grep -q '^ *1 tests completed and passed residual checks' <<<"$report" &&
    ! grep -Eq 'FAILED|^Failure|[1-9][0-9]* tests completed and failed' <<<"$report" &&
    [[ $(grep -Ec 'Found 0 errors in .*passed' <<<"$report") -ge 2 ]]; then
    ok 'hpcc verified all of its results'
  else
    not_ok "hpcc verified its results: $(grep -En 'FAILED|Success|errors|failed' <<<"$report" | tail -n 20)"
  fi
}
