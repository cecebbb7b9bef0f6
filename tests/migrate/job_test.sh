#!/bin/bash
# A job of several containers: four ranks of MPI, each in a container of its own, on two hosts. One rank is moved while
# the job runs, and then all of them at once, to two other hosts. The ranks check every message and every sum
# themselves.
#
#   job_test.sh [GROUP...]     groups: mpich openmpi (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"
# shellcheck source=tests/programs/mpi.sh
source "$(dirname "$0")/../programs/mpi.sh"

readonly ranks=rank0-h1,rank1-h1,rank2-h2,rank3-h2

# No rank is left on the hosts that all have moved away from, and each of the others has its two.
all_have_moved() {
  local host expected
  for host in h1:0 h2:0 h3:2 h4:2; do
    expected=${host#*:} host=${host%:*}
    [[ $(on "$host" "$ferry" ps --json | jq '.programs | length') == "$expected" ]] ||
      fail "not $expected ranks on $host: $("$lab" ps)"
  done
}

# job CMD...: a launcher on h1.
job() {
  local launcher first second
  launch "$@"
  move_rank rank3-h2 h2 h3
  move_rank rank3-h2 h3 h2
  # All at once: one command on each host, which moves its ranks as one.
  move_group h1 h3 rank0-h1 rank1-h1 &
  first=$!
  move_group h2 h4 rank2-h2 rank3-h2 &
  second=$!
  wait "$first" || fail 'the ranks of h1 were not moved'
  wait "$second" || fail 'the ranks of h2 were not moved'
  await_rounds 2
  all_have_moved
  end_job h3
}

group_mpich() { what='four ranks of MPICH in four containers, moved in mid-run' mpich_ranks job "$ranks"; }

group_openmpi() {
  what='four ranks of Open MPI in four containers, moved in mid-run' open_mpi_ranks job "$ranks" "${open_mpi_ucx[@]}"
}

use_lab job 4 mpiexec.hydra mpirun.openmpi "$FERRY_BIN/mpi_check_mpich" "$FERRY_BIN/mpi_check_openmpi"
if (($# == 0)); then set -- mpich openmpi; fi
for group in "$@"; do "group_$group"; done
