#!/bin/bash
# ferryds, and the ferry command, that are killed while a container of podman's moves: one copy of it is left, and nothing else
# (docs/containers.md). Needs root.
#
#   podman_killed_test.sh [GROUP...]     groups: killed (default: all)
# shellcheck source=tests/migrate/podman_lib.sh
source "$(dirname "$0")/podman_lib.sh"

# podman_waiting HOST VERB: the next podman of that kind that ferryd starts waits for /run/go. It says so by /run/waiting.
podman_waiting() {
  on "$1" rm -f /run/go /run/waiting
  # shellcheck disable=SC2016 # expanded by the script
  printf '#!/bin/bash\n%s\n' "if [[ \"\$*\" == *'container $2'* ]] && mkdir /run/waited 2>/dev/null; then
    touch /run/waiting; until [ -e /run/go ]; do sleep 0.02; done; fi
    exec $PODMAN \"\$@\"" | on "$1" sh -c 'rm -rf /run/waited; cat >/run/podman && chmod 755 /run/podman'
  ferryd_with "$1" --podman /run/podman
}
# stops_of HOST: checkpoints that its journal has. has_stopped HOST COUNT: it has more.
stops_of() { on "$1" grep -c ' source kept ' /var/tmp/ferry/decisions || true; }
has_stopped() { (($(stops_of "$1") > $2)); }
go_on() { on "$1" touch /run/go; }
is_in_doubt() { on "$1" "$ferry" ps --json | jq -e --arg name "$2" '.programs[] | select(.name == $name and .state == "in doubt")' >/dev/null; }

group_killed() {
  local runner before
  prepare pks
  contain h1 pkc 7

  # The destination's, before anything is restored: the source needs no word of it.
  podman_waiting h3 restore
  on h1 "$ferry" move pkc --to h3 >"$work/move" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /run/waiting
  kill_ferryd h3
  if wait "$runner"; then fail 'moved to a ferryd that died'; fi
  goes_on_in h1 pkc
  go_on h3
  start_ferryd h3
  await 'h3 clears up' has_nothing h3 pkc
  ok "the destination's ferryd is killed while the archive is there: it goes on where it was"

  # The source's, while the archive is sent.
  podman_waiting h3 restore
  on h1 "$ferry" move pkc --to h3 >"$work/move" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /run/waiting
  kill_ferryd h1
  if wait "$runner"; then fail 'moved by a ferryd that died'; fi
  runs_on h1 pkc && fail 'it runs without anybody having decided so'
  start_ferryd h1
  await 'the next ferryd waits for the word of h3' is_in_doubt h1 pkc
  runs_on h1 pkc && fail 'it runs on h1 while it may on h3'
  go_on h3
  await 'it goes on on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  await 'h3 clears up' has_nothing h3 pkc
  no_archive h1 || fail 'an archive is left'
  ok "the source's ferryd is killed while the archive is there: the next one restores it, when the destination has said that it does not"

  # The source's, while podman writes.
  podman_waiting h1 checkpoint
  goes_on_in h1 pkc # it has found the new ferryd
  before=$(stops_of h1)
  on h1 "$ferry" move pkc --to h3 >"$work/move" 2>&1 &
  runner=$!
  await 'h1 checkpoints' on h1 test -e /run/waiting
  go_on h1
  await 'it is stopped' has_stopped h1 "$before"
  kill_ferryd h1
  if wait "$runner"; then fail 'moved by a ferryd that died'; fi
  start_ferryd h1
  await 'the ferryd of h1 answers' answers h1
  await 'it runs on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  await 'h3 clears up' has_nothing h3 pkc
  ok "the source's ferryd is killed at the checkpoint: it goes on"

  # An operator's word, where the destination never comes back.
  podman_waiting h3 restore
  on h1 "$ferry" move pkc --to h3 >"$work/move" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /run/waiting
  kill_ferryd h1
  kill_ferryd h3
  if wait "$runner"; then fail 'moved by a ferryd that died'; fi
  start_ferryd h1
  await 'the next ferryd waits for the word of h3' is_in_doubt h1 pkc
  on h1 "$ferry" resolve "$(on h1 "$ferry" ps --json | jq -r '.programs[] | select(.name == "pkc") | .move_id')" --abort
  await 'it goes on on h1' runs_on h1 pkc
  goes_on_in h1 pkc
  go_on h3
  start_ferryd h3
  await 'h3 clears up' has_nothing h3 pkc
  ok 'ferry resolve --abort restores it at the source'
  ends_well h1 pkc pks
}

use_podman
if (($# == 0)); then set -- killed; fi
for group in "$@"; do "group_$group"; done
