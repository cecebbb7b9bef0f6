#!/bin/bash
# Debian's MPICH (over UCX), with four ranks on two hosts of the lab, or in containers that are moved.
#
#   mpich_test.sh [GROUP...]     groups: check netpipe move (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=tests/programs/mpi.sh
source "$(dirname "$0")/mpi.sh"

group_check() {
  local tls
  for tls in rc_verbs,ud_verbs,self ud_verbs,self; do
    what="mpi_check over $tls" mpich '^mpi_check: .* no errors' "${mpich_rdma[@]}" -genv UCX_TLS $tls -n 4 \
      "$FERRY_BIN/mpi_check_mpich"
  done
}

# -i: contents are checked.
group_netpipe() {
  what='NetPIPE' mpich '^ *[0-9]+: +65536 bytes +[0-9]+ times' "${mpich_rdma[@]}" -genv UCX_TLS rc_verbs,ud_verbs,self \
    -ppn 1 -n 2 NPmpich2 -u 100000 -n 20
  what='NetPIPE, both directions' mpich '^ *[0-9]+: +65536 bytes +[0-9]+ times' "${mpich_rdma[@]}" \
    -genv UCX_TLS rc_verbs,ud_verbs,self -ppn 1 -n 2 NPmpich2 -2 -u 100000 -n 20
  what='NetPIPE, contents checked' mpich 'Integrity check passed|^ *[0-9]+: +65536' "${mpich_rdma[@]}" \
    -genv UCX_TLS rc_verbs,ud_verbs,self -ppn 1 -n 2 NPmpich2 -i -u 100000
}

group_move() { what='ranks of MPICH over UCX, moved in mid-run' mpich_ranks moved_ranks "$nodes"; }

use_lab mpich 4 mpiexec.hydra NPmpich2 "$FERRY_BIN/mpi_check_mpich"
if (($# == 0)); then set -- check netpipe move; fi
for group in "$@"; do "group_$group"; done
summary
