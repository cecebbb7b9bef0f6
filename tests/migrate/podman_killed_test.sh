#!/bin/bash
# ferryds, and the ferry command, that are killed while a container of podman's moves: one copy of it is left, and
# nothing else (docs/containers.md). Needs root.
#
#   podman_killed_test.sh [GROUP...]     groups: archive wire claimed decided (default: all)
# shellcheck source=tests/migrate/podman_lib.sh
source "$(dirname "$0")/podman_lib.sh"

# stops_of HOST: programs that its journal has as stopped there. has_stopped HOST COUNT: it has more.
stops_of() { on "$1" grep -c ' source held ' /var/tmp/ferry/decisions || true; }
has_stopped() { (($(stops_of "$1") > $2)); }
is_in_doubt() {
  on "$1" "$ferry" ps --json |
    jq -e --arg name "$2" '.programs[] | select(.name == $name and .state == "in doubt")' >/dev/null
}

group_archive() {
  local runner before
  prepare pks
  contain h1 pkc 7

  # The destination's, before anything is restored: the source needs no word of it.
  restore_begins h1 pkc
  kill_ferryd h3
  fails_to_move "^ferry: 'pkc' was not moved: "
  goes_on_in h1 pkc
  go_on h3
  start_ferryd h3
  await 'h3 clears up' has_nothing h3 pkc
  ok "the destination's ferryd is killed while the archive is there: it goes on where it was"

  # The source's, while the archive is sent.
  restore_begins h1 pkc
  kill_ferryd h1
  fails_to_move 'ferryd'
  runs_on h1 pkc && fail 'it runs without anybody having decided so'
  start_ferryd h1
  await 'it goes on on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  go_on h3
  await 'h3 clears up' has_nothing h3 pkc
  await 'no archive is left' no_archive h1
  tells h1 '.program == "pkc" and .outcome == "failed" and (.reason | test("ferryd that led it ended"))' ||
    fail "the history of h1: $(on h1 "$ferry" history)"
  ok "the source's ferryd is killed while the archive is there: the next one, which has promised nothing, restores it"

  # The source's, while podman writes.
  podman_waiting h1 checkpoint
  goes_on_in h1 pkc # it has found the new ferryd
  before=$(stops_of h1)
  move_begins h1 pkc
  await 'h1 checkpoints' on h1 test -e /run/waiting
  go_on h1
  await 'it is stopped' has_stopped h1 "$before"
  kill_ferryd h1
  fails_to_move 'ferryd'
  start_ferryd h1
  await 'the ferryd of h1 answers' answers h1
  await 'it runs on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  await 'h3 clears up' has_nothing h3 pkc
  ok "the source's ferryd is killed at the checkpoint: it goes on"

  # Both.
  restore_begins h1 pkc
  kill_ferryd h1
  kill_ferryd h3
  fails_to_move 'ferryd'
  start_ferryd h1
  await 'it goes on on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  go_on h3
  start_ferryd h3
  await 'h3 clears up' has_nothing h3 pkc
  ok "both ferryds are killed: the source's next one restores it, the destination's removes what podman has made"
  ends_well h1 pkc pks
}

# kill_ferry HOST: the command of its last move.
kill_ferry() {
  kill -9 "$(on "$1" cat /run/mover)"
  if wait "$runner" 2>/dev/null; then fail "ferry move ended before it was killed: $(<"$work/move")"; fi
}

# Once podman has made there what it keeps when its first container has gone.
remember_h3() {
  pod h3 run --rm --network lan "$image" true
  remember h3
}

# is_on_the_wire: h3 has a part of the archive; the rest takes ten seconds.
is_on_the_wire() { [[ -n $(on h3 find /run/ferry/images -name archive.tar -size +64k) ]]; }
wire() { on h1 tc qdisc replace dev uplink root tbf rate "$1" burst 64k latency 1s; }

group_wire() {
  local runner pid
  prepare pws
  remember_h3
  contain h1 pwc 11
  remember h1
  pid=$(pod_pid h1 pwc)

  wire 3mbit
  move_begins h1 pwc
  await 'its archive is on the wire' is_on_the_wire
  kill_ferryd h1
  fails_to_move 'ferryd'
  # podman waits for who reads its archive
  if kill -0 "$pid" 2>/dev/null; then fail 'it runs without anybody having decided so'; fi
  wire 10gbit
  start_ferryd h1
  await 'it goes on on h1' runs_on h1 pwc
  goes_on_in h1 pwc
  leaves_nothing h1 h3
  ok "the source's ferryd is killed while the archive is on the wire: the next one restores it"

  wire 3mbit
  move_begins h1 pwc
  await 'its archive is on the wire' is_on_the_wire
  kill_ferryd h3
  wire 10gbit
  fails_to_move "^ferry: 'pwc' was not moved: "
  goes_on_in h1 pwc
  start_ferryd h3
  leaves_nothing h1 h3
  ok "the destination's ferryd is killed while the archive is on the wire: it goes on where it was"

  wire 3mbit
  move_begins h1 pwc
  await 'its archive is on the wire' is_on_the_wire
  kill_ferry h1
  wire 10gbit
  await 'it goes on on h3' runs_on h3 pwc
  goes_on_in h3 pwc
  pod h1 container exists pwc && fail 'h1 has it still'
  ends_well h3 pwc pws
  leaves_nothing h3
  ok 'ferry is killed while the archive is on the wire: the move goes on without it'
}

# CRIU on h3 waits when it has made the processes, which are not held yet.
readonly held=(--annotation org.criu.config=/run/held.conf)
hold_claimed() {
  on h3 rm -rf /run/claimed /run/go
  # shellcheck disable=SC2016 # expanded by the script
  script /run/held \
    '[ "$CRTOOLS_SCRIPT_ACTION" != post-restore ] || { touch /run/claimed; until [ -e /run/go ]; do sleep 0.02; done; }'
  on h3 sh -c 'echo "action-script /run/held" >/run/held.conf'
}

# is_held HOST: CRIU there asks, by the plugin, whether a process may run.
is_held() { on "$1" grep -rqs --include=restore.log 'is about to run' /run/pod; }

group_claimed() {
  local runner
  prepare pcs
  remember_h3
  contain h1 pcc 12 "${held[@]}"
  remember h1

  hold_claimed
  move_begins h1 pcc
  await 'h3 has claimed it' on h3 test -e /run/claimed
  kill_ferryd h3
  fails_to_move "^ferry: 'pcc' was not moved: "
  goes_on_in h1 pcc
  go_on h3
  await 'what is restored on h3 is held there, without a ferryd' is_held h3
  goes_on_in h1 pcc
  start_ferryd h3
  leaves_nothing h1 h3
  goes_on_in h1 pcc
  ok "the destination's ferryd is killed in the restore: nothing runs there, and the next one removes it"

  hold_claimed
  move_begins h1 pcc
  await 'h3 has claimed it' on h3 test -e /run/claimed
  kill_ferryd h1
  fails_to_move 'ferryd'
  start_ferryd h1
  await 'it goes on on h1' runs_on h1 pcc
  goes_on_in h1 pcc
  leaves_nothing h1 h3
  ok "the source's ferryd is killed in the restore: the next one has the destination end it, and restores it"

  hold_claimed
  move_begins h1 pcc
  await 'h3 has claimed it' on h3 test -e /run/claimed
  kill_ferry h1
  go_on h3
  goes_on_in h3 pcc
  await 'h1 has it no more' has_nothing h1 pcc
  ends_well h3 pcc pcs
  leaves_nothing h3
  ok 'ferry is killed after the claim: the move goes on without it'
}

# The network of what is held is opened when its commit is on record: nft on h3 waits before it does that.
opens_late() {
  on h3 rm -rf /run/opening /run/go
  on h3 mountpoint -q /usr/sbin/nft || on h3 sh -c 'cp -L /usr/sbin/nft /run/real-nft && cat >/run/slow-nft &&
    chmod 755 /run/slow-nft && mount --bind /run/slow-nft /usr/sbin/nft' <<'SCRIPT'
#!/bin/bash
rules=$([[ $* != "-f -" ]] || cat)
if [[ $rules == delete*ferry_held* ]] && mkdir /run/opening 2>/dev/null; then
  until [[ -e /run/go ]]; do sleep 0.02; done
fi
exec /run/real-nft "$@" <<<"$rules"
SCRIPT
}
is_opening() { on h3 test -d /run/opening; }

group_decided() {
  local runner
  prepare pds
  remember_h3
  contain h1 pdc 15
  remember h1

  opens_late
  move_begins h1 pdc
  await 'h3 commits' is_opening
  kill_ferryd h3
  await 'h1 waits for the word of h3' is_in_doubt h1 pdc
  if runs_on h1 pdc; then fail 'it runs on h1 while it may on h3'; fi
  start_ferryd h3
  wait "$runner" || fail "ferry move said: $(<"$work/move")"
  goes_on_in h3 pdc
  await 'h1 has it no more' has_nothing h1 pdc
  on h3 touch /run/go
  tells h1 '.direction == "out" and .outcome == "moved"' || fail "the history of h1: $(on h1 "$ferry" history)"
  await 'h3 tells that it arrived' tells h3 '.direction == "in" and .outcome == "moved"'
  ok "the destination's ferryd is killed when it has committed: the next one lets it go on"

  move pdc h3 h1
  goes_on_in h1 pdc
  opens_late
  move_begins h1 pdc
  await 'h3 commits' is_opening
  kill_ferryd h1
  fails_to_move 'ferryd'
  on h3 touch /run/go
  goes_on_in h3 pdc
  if runs_on h1 pdc; then fail 'it runs on both'; fi
  start_ferryd h1
  await 'h1 has it no more' has_nothing h1 pdc
  tells h1 '.direction == "out" and .outcome == "moved" and .to == "h3"' ||
    fail "the history of h1: $(on h1 "$ferry" history)"
  ends_well h3 pdc pds
  on h3 umount /usr/sbin/nft
  leaves_nothing h3
  ok "the source's ferryd is killed when the destination has committed: the next one removes it there"
}

use_podman
if (($# == 0)); then set -- archive wire claimed decided; fi
for group in "$@"; do "group_$group"; done
