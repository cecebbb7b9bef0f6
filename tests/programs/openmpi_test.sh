#!/bin/bash
# Debian's Open MPI, with four ranks on two hosts of the lab: over UCX, and over libfabric (mtl ofi). And ranks that are moved.
#
#   openmpi_test.sh [GROUP...]     groups: ucx rxm rxd move move_ofi (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=tests/programs/mpi.sh
source "$(dirname "$0")/mpi.sh"

ucx=(--mca pml ucx --mca osc ucx --mca btl self --mca pml_ucx_tls any --mca pml_ucx_devices any
  -x UCX_NET_DEVICES=ferry0:1 -x "UCX_TLS=rc_verbs,ud_verbs,self")
ofi=(--mca pml cm --mca mtl ofi --mca osc pt2pt --mca btl self)

group_ucx() {
  what='mpi_check over UCX' open_mpi '^mpi_check: .* no errors' "${ucx[@]}" "$FERRY_BIN/mpi_check_openmpi"
  what='mpi_check over UCX, UD alone' open_mpi '^mpi_check: .* no errors' "${ucx[@]}" \
    -x UCX_TLS=ud_verbs,self "$FERRY_BIN/mpi_check_openmpi"
  hpcc_input
  what='hpcc over UCX' open_mpi '' "${ucx[@]}" hpcc
  hpcc_verified
}

# over_libfabric PROVIDER
over_libfabric() {
  local options=("${ofi[@]}" --mca mtl_ofi_provider_include "$1")
  what="mpi_check over libfabric, $1" open_mpi '^mpi_check: .* no errors' "${options[@]}" \
    "$FERRY_BIN/mpi_check_openmpi"
  hpcc_input
  what="hpcc over libfabric, $1" open_mpi '' "${options[@]}" hpcc
  hpcc_verified
}

group_rxm() { over_libfabric 'verbs;ofi_rxm'; }
# ofi_rxd of libfabric 1.17 stands still now and then by itself: over the kernel's UDP (`udp;ofi_rxd`, without Ferry) in two of
# four runs of ten seconds of mpi_check. So it has three attempts, and is not moved.
group_rxd() { attempts=3 limit=90 over_libfabric 'verbs;ofi_rxd'; }

# A pseudo terminal, through which orted reads its rank's output, keeps its number when it is moved. So each host gets its own
# terminals, as a machine has them, and a rank goes where its number is free: where no rank is. What orted would share
# with its rank by files, which are not on other hosts, goes over their connection (gds, see container_agent) or is not used.
# moved OPTION...: those that choose what carries the messages.
moved() {
  local host
  for host in h1 h2 h3 h4; do
    on "$host" sh -c 'mountpoint -q /dev/ptmx || {
      mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx; }'
  done
  moved_ranks mpirun.openmpi --allow-run-as-root --leave-session-attached \
    --mca plm_rsh_agent "$here/container_agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.77.0.0/16 \
    --mca rtc_hwloc_vmhole none --mca shmem mmap --mca mpi_yield_when_idle 1 -H "$nodes" -np 4 --map-by node \
    -x PMIX_MCA_gds=hash -x LD_PRELOAD="$library" -x FERRY_NETDEV=rdma0 "$@" "$FERRY_BIN/mpi_check_openmpi" 600
}

group_move() { what='ranks of Open MPI over UCX, moved in mid-run' moved "${ucx[@]}"; }

group_move_ofi() {
  what='ranks of Open MPI over libfabric, verbs;ofi_rxm, moved in mid-run' moved "${ofi[@]}" --mca mtl_ofi_provider_include 'verbs;ofi_rxm'
}

use_lab ompi 4 mpirun.openmpi hpcc "$FERRY_BIN/mpi_check_openmpi"
if (($# == 0)); then set -- ucx rxm rxd move move_ofi; fi
for group in "$@"; do "group_$group"; done
summary
