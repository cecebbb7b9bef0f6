#!/bin/bash
# Jobs of Slurm that go on from their checkpoints. The job script is the one of docs/checkpoint.md, and its program a
# stream_check with its peer. munged, slurmctld and slurmd are Debian's, without systemd, on the hosts of a lab. Needs
# root, and slurmctld, slurmd, slurm-client and munge.
#
#   slurm_test.sh [GROUP...]     groups: requeue scancel node (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

export SLURM_CONF=/srv/slurm.conf

# in_background HOST NAME CMD...
in_background() {
  # shellcheck disable=SC2016 # expanded there
  on "$1" sh -c 'name=$1; shift; setsid "$@" >"/run/slurm/$name.log" 2>&1 </dev/null &' sh "${@:2}"
}

configure() {
  local host
  for host in h1 h2; do on "$host" mkdir -m 755 /run/slurm; done
  on h1 sh -c 'umask 077 && head -c 1024 /dev/urandom >/srv/munge.key'
  on h1 tee /srv/slurm.conf >/dev/null <<'CONF'
ClusterName=lab
SlurmctldHost=h1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that is requeued waits for as long as its credential is valid.
AuthInfo=socket=/run/slurm/munge.socket,cred_expire=5
CryptoType=crypto/munge
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/linear
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
KillWait=15
NodeName=h[1-2] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=h[1-2] Default=YES State=UP
CONF
  for host in h1 h2; do
    in_background "$host" munged munged --foreground --num-threads 2 --key-file /srv/munge.key \
      --socket /run/slurm/munge.socket --pid-file /run/slurm/munge.pid --seed-file /run/slurm/munge.seed \
      --log-file /run/slurm/munge.log
    await "the munged of $host" on "$host" test -S /run/slurm/munge.socket
  done
  on h1 mkdir /run/slurm/state
  in_background h1 slurmctld slurmctld -D -f /srv/slurm.conf
  for host in h1 h2; do
    on "$host" mkdir /run/slurm/spool
    in_background "$host" slurmd slurmd -D -f /srv/slurm.conf -N "$host"
  done
  await 'both nodes are idle' are_idle
}
are_idle() { [[ $(on h1 sinfo -h -o '%T %D' 2>/dev/null) == 'idle 2' ]]; }
show_hosts() {
  local host
  for host in h1 h2; do
    on "$host" sh -c 'tail -n 15 /run/ferry/ferryd.log /run/slurm/*.log' || true
  done
  on h1 sh -c 'tail -n 20 /srv/job/*' || true
}

# The script of the page; its program and its folder are the test's.
job_script() {
  sed -n '/^#!\/bin\/bash$/,/^```$/p' "$repository/docs/checkpoint.md" | sed '$d' |
    sed "s|^store=.*/|store=/srv/store/|; s|\./solver|/srv/pair $1|" | on h1 tee /srv/job.sh >/dev/null
  # shellcheck disable=SC2016 # so it is in the script
  on h1 grep -q '^store=/srv/store/\$job$' /srv/job.sh || fail "the script of the page: $(on h1 cat /srv/job.sh)"
  on h1 grep -q "/srv/pair $1" /srv/job.sh || fail "the script of the page: $(on h1 cat /srv/job.sh)"
}

# submit MESSAGES: a job, whose number is then in `job`; it sends when this returns, on `at`.
submit() {
  on h1 mkdir -m 700 -p /srv/job /srv/store
  on h1 tee /srv/pair >/dev/null <<PAIR
#!/bin/bash
"$FERRY_BIN/stream_check" --json --listen 18700 &
until ss -Hltn 'sport = :18700' | grep -q .; do sleep 0.05; done
nice "$FERRY_BIN/stream_check" 127.0.0.1 --port 18700 --json --events --qps 2 --size 4096 --messages "\$1" --rate 1000 \
  --memory 32 --rewrite 10 && wait "\$!"
PAIR
  on h1 chmod 755 /srv/pair
  job_script "$1"
  job=$(on h1 env PATH="$FERRY_BIN:/opt/ferry/bin:$PATH" FERRY_NETDEV=rdma \
    sbatch --parsable --chdir=/srv/job /srv/job.sh) || fail 'sbatch'
  await 'the job runs' is_in RUNNING
  at=$(field BatchHost)
  await "the job sends, on $at" sends
}
field() { on h1 scontrol --oneliner show job "$job" | tr ' ' '\n' | sed -n "s/^$1=//p"; }
is_in() { [[ $(field JobState) == "$1" ]]; }
has_ended() { [[ $(field JobState) =~ ^(COMPLETED|FAILED|CANCELLED) ]]; }
received() { on "$at" "$ferry" ps --json | jq '[.programs[].devices[].qps[].received_packets] | add // 0'; }
sends() {
  local before
  before=$(received) && sleep 0.1 && (($(received) > before))
}
# Not from its beginning, but from its checkpoint.
goes_on() {
  await "the job is requeued" is_requeued
  # Slurm would let it wait until its credential has expired.
  await 'the job runs again' runs_again
  at=$(field BatchHost)
  await "the job sends again, on $at" sends
  on h1 grep -q "^checkpoint .* goes on: .* on $at\$" "/srv/job/slurm-$job.out" ||
    fail "it has not gone on from its checkpoint: $(on h1 cat "/srv/job/slurm-$job.out")"
}
is_requeued() { [[ $(field Restarts) == 1 ]]; }
runs_again() { is_requeued && is_in RUNNING; }
# programs: the ids of all processes of the job's programs, on whichever host.
programs() { grep -lzs "^FERRY_JOB=slurm-$job\$" /proc/[0-9]*/environ | tr -dc '0-9\n'; }
is_gone() { [[ -z $(programs) ]]; }
checkpoints() { on h1 "$ferry" checkpoints "/srv/store/slurm-$job" "$@"; }

# held HOST: from now on its checkpoints stand still when programs are about to be dumped.
held() {
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/held-dump '[ "$1" = dump ] && [ -e /tmp/hold ] && {
      touch /tmp/dumping
      until [ -e /tmp/dump-now ]; do sleep 0.02; done
    }
    exec /opt/ferry/bin/criu "$@"' "$1"
  ferryd_with "$1" --criu /tmp/held-dump
}

# Its time is nearly over: it goes on when it has its turn again, and ends well.
group_requeue() {
  submit 6000
  on h1 scancel --signal=USR1 --batch "$job"
  goes_on
  await 'the job ends' has_ended
  [[ $(field JobState) == COMPLETED && $(field ExitCode) == 0:0 ]] ||
    fail "the job: $(field JobState) $(field ExitCode)"
  on h1 jq -es 'length == 2 and all(.[]; .messages_lost == 0 and .messages_duplicated == 0 and
    .messages_corrupted == 0) and any(.[]; .pages_corrupted == 0)' "/srv/job/solver.$job.log" >/dev/null ||
    fail "$(on h1 cat "/srv/job/solver.$job.log")"
  await 'nothing is left of its programs' is_gone
  ok 'a job of Slurm goes on from its checkpoint when it is requeued'
}

# A job that has come from its checkpoint is cancelled while the next one is taken.
group_scancel() {
  held h1
  on h1 scontrol update NodeName=h2 State=DRAIN Reason=test
  submit 1000000
  on h1 "$ferry" checkpoint --job "slurm-$job" --to "/srv/store/slurm-$job" >"$work/out" 2>&1 || fail "$(<"$work/out")"
  on h1 scontrol requeue "$job"
  goes_on
  on h1 touch /tmp/hold
  on h1 scancel --signal=USR1 --batch "$job"
  await 'the programs are about to be dumped' on h1 test -e /tmp/dumping
  on h1 scancel "$job"
  await 'the job ends' has_ended
  [[ $(field JobState) == CANCELLED ]] || fail "the job is $(field JobState)"
  on h1 touch /tmp/dump-now
  await 'the programs have ended' is_gone
  await 'the checkpoint is given up' nothing_partial
  [[ $(checkpoints --json | jq '[.checkpoints[] | select(.complete)] | length') == 1 ]] || fail "$(checkpoints)"
  checkpoints verify >/dev/null || fail 'the earlier checkpoint is damaged'
  [[ $(on h1 "$ferry" ps --json | jq '.programs | length') == 0 ]] || fail "$(on h1 "$ferry" ps)"
  ok 'a job of Slurm that is cancelled ends with all of its programs, also in mid-checkpoint'
}
nothing_partial() { [[ -z $(on h1 find "/srv/store/slurm-$job" -name '*.partial') ]]; }

# Its node fails in mid-checkpoint: it goes on from the checkpoint before, on the other node.
group_node() {
  held h2
  on h1 scontrol update NodeName=h1 State=DRAIN Reason=test
  submit 6000
  [[ $at == h2 ]] || fail "the job is on $at"
  # The node is known to be off.
  on h1 sed -i 's/ --wait/ --force --wait/' /srv/job.sh
  on h2 "$ferry" checkpoint --job "slurm-$job" --to "/srv/store/slurm-$job" >"$work/out" 2>&1 || fail "$(<"$work/out")"
  on h2 touch /tmp/hold
  on h1 scancel --signal=USR1 --batch "$job"
  await 'the programs are about to be dumped' on h2 test -e /tmp/dumping
  fail_h2
  on h1 scontrol update NodeName=h1 State=RESUME
  on h1 scontrol update NodeName=h2 State=DOWN Reason=test
  goes_on
  [[ $at == h1 ]] || fail "the job goes on on $at"
  await 'the job ends' has_ended
  is_in COMPLETED || fail "the job is $(field JobState)"
  on h1 jq -es 'length == 2 and all(.[]; .messages_lost == 0 and .messages_duplicated == 0 and
    .messages_corrupted == 0)' "/srv/job/solver.$job.log" >/dev/null || fail "$(on h1 cat "/srv/job/solver.$job.log")"
  ok 'a job of Slurm whose node fails in mid-checkpoint goes on from the one before, on another'
}
# All processes of h2 end at once.
fail_h2() {
  local pid
  local -a pids
  mapfile -t pids < <(processes_of_h2)
  kill -KILL "${pids[@]}" 2>/dev/null || true
  for pid in "${pids[@]}"; do await "process $pid has ended" no_process "$pid"; done
}
processes_of_h2() {
  local uts
  uts=$(on h2 readlink /proc/self/ns/uts)
  find /proc/[0-9]*/ns/uts -maxdepth 0 -lname "$uts" 2>/dev/null | tr -dc '0-9\n'
}

shares=yes
use_lab ckslu 2 jq munged slurmctld slurmd sbatch
configure
if (($# == 0)); then set -- requeue scancel node; fi
for group in "$@"; do "group_$group"; done
