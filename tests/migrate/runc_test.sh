#!/bin/bash
# `ferry move --runc`: containers of runc's, from the bundle to the cgroup (docs/containers.md). Needs root.
#
#   runc_test.sh [GROUP...]     groups: move together host ahead rootfs rollback killed refused (default: all)
# shellcheck source=tests/migrate/runc_lib.sh
source "$(dirname "$0")/runc_lib.sh"

# A server of the lab on h2, and a client with a limit of memory in the container ID on h1, with addresses ending in
# NUMBER. `pid` is the caller's. `launcher`: what starts it in the container.
launcher=()
begin() { # ID NUMBER [OPTION...]
  start h2 "s$1" "$FERRY_BIN/stream_check" --json
  await_listen h2 "s$1" 18600
  network h1 "$1" "$2"
  on h1 ip -n "$1" route add 10.99.0.0/16 via 10.77.0.1 dev eth0
  bundle h1 "$1" "$1" "${launcher[@]}" /opt/ferry/stream_check "$(address_of h2 "s$1")" --seconds 0 --rate 100 --qps 2 \
    --json "${@:3}"
  on h1 sh -c \
    "cd /run/bundles/$1 && jq '.linux.resources.memory.limit = 268435456' config.json >new && mv new config.json"
  runs h1 "$1" runc run --detach "$1"
  pid=$(pid_of h1 "$1")
  await "$1 uses RDMA" has_more h1 "$pid" 0
}

# comes ID FROM TO: it is moved, and all is there that was here.
comes() {
  move_runc "$1" "$2" "$3"
  pid=$(pid_of "$3" "$1")
  goes_on "$3" "$pid"
  nothing_left "$2" "$1" bundle
  [[ $(on "$3" cat "/sys/fs/cgroup/memory/$1/memory.limit_in_bytes") == 268435456 ]] ||
    fail "$1 on $3 has no limit of memory"
  on "$3" grep -q "^$pid$" "/sys/fs/cgroup/memory/$1/cgroup.procs" || fail "$1 is not in its cgroup on $3"
  shows '^10.99.0.0/16 via 10.77.0.1 dev eth0' on "$3" ip -n "$1" route show
  shows 'mtu 9000 .*UP' on "$3" ip -n "$1" link show dev rdma0
  [[ $(on "$3" ip -n "$1" -json link show | jq -r '.[] | "\(.ifname) \(.ifindex) \(.address)"') == "$interfaces" ]] ||
    fail "the interfaces of $1 on $3: $(on "$3" ip -n "$1" link)"
}
move_runc() { # ID FROM TO
  local report
  report=$(on "$2" "$ferry" move --runc "$1" --to "$3" --json) || fail "cannot move $1 from $2 to $3"
  jq -r '"     \(.program) \(.from) -> \(.to): \(.blackout_ms | round) ms " +
    "(stop \(.stop_ms | round), dump \(.dump_ms | round), " +
    "restore \(.restore_ms | round)), RDMA \(.rdma_share_ms * 100 | round / 100) ms"' <<<"$report"
}

# nothing_left HOST ID [KEPT]: of the container, but for a bundle that it was run from.
nothing_left() {
  await "nothing of $2 is left on $1" gone "$1" "$2" "${3:-}"
}
gone() {
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" sh -c '! runc state "$1" 2>/dev/null && ! ip netns exec "$1" true 2>/dev/null && [ ! -e "/run/netns/$1" ] &&
    ! ip link show dev "e$1" 2>/dev/null && ! ls -d /sys/fs/cgroup/*/"$1" 2>/dev/null &&
    [ -z "$(ls /run/ferry/images)" ] &&
    [ ! -e "/run/ferry/runc/$1" ] && { [ -n "$2" ] || [ ! -e "/run/bundles/$1/config.json" ]; }' sh "$2" \
    "$3" >/dev/null
}

# refuses_to_go_on ID: h1 says where it went.
refuses_to_go_on() {
  fails "^ferry: '$1' has moved from h1 to h3; to move it on, on h3: ferry move $1 --to HOST$" \
    on h1 "$ferry" move --runc "$1" --to h2
}

# forgotten HOST: the journal of its ferryd holds nothing of moves from there.
forgotten() {
  # shellcheck disable=SC2016 # awk's own
  on "$1" awk '$2 == "source" && $3 == "held" { held[$1] } $2 == "source" && $3 == "forgotten" { delete held[$1] }
    END { for (id in held) exit 1 }' /var/tmp/ferry/decisions
}

group_move() {
  local pid interfaces
  begin rm 3
  interfaces=$(on h1 ip -n rm -json link show | jq -r '.[] | "\(.ifname) \(.ifindex) \(.address)"')
  root_filesystem h3 rm
  shows "^stream_check +$pid +rm .* running$" on h1 "$ferry" ps
  comes rm h1 h3
  ok 'a container of runc under load, to a host that has its root filesystem'
  comes rm h3 h1
  # By its name alone it is the same container, as ferry ps has it.
  on h1 "$ferry" ps --json | jq -e 'any(.programs[]; .container == "rm" and .runtime == "runc")' >/dev/null ||
    fail "ferry ps --json does not say rm: $(on h1 "$ferry" ps --json)"
  on h1 "$ferry" move rm --to h3 --dry-run >/dev/null || fail 'a container of runc is not found by its name'
  # By its pid it is the same container.
  on h1 "$ferry" move "$pid" --to h3 >/dev/null
  pid=$(pid_of h3 rm)
  goes_on h3 "$pid"
  refuses_to_go_on rm
  kill -INT "$pid"
  ends_well h3 rm stdio.log
  await 'its network has gone' on h3 test ! -e /run/netns/rm
  # Also when h1 holds nothing for it any more, and its ferryd is another one.
  await 'the moves of rm are over on h1' forgotten h1
  ferryd_with h1
  refuses_to_go_on rm
  on h3 runc delete rm
  finishes srm
  lost_nothing srm
  ok 'and back, and by its pid'
}

# Two as one.
group_together() {
  local pid first name
  begin ta 7
  first=$pid
  begin tb 8
  root_filesystem h3 ta
  root_filesystem h3 tb
  fails "^ferry: 'ta' and 'tb' were not moved: 'tb': h3: there is a container 'tb' already" in_the_way
  goes_on h1 "$first"
  goes_on h1 "$pid"
  nothing_left h3 ta
  on h1 "$ferry" move --runc ta tb --to h3 >/dev/null
  for name in ta tb; do
    pid=$(pid_of h3 "$name")
    goes_on h3 "$pid"
    nothing_left h1 "$name" bundle
    kill -INT "$pid"
    ends_well h3 "$name" stdio.log
  done
  ok 'two containers as one'
}
in_the_way() {
  local status=0
  on h3 mkdir -p /run/runc/tb
  on h1 "$ferry" move --runc ta tb --to h3 || status=$?
  on h3 rmdir /run/runc/tb
  return "$status"
}

# A container on the host's network: its address changes.
group_host() {
  local pid
  start h2 sho ibv_rc_pingpong -g 0 -n 100000000
  await_listen h2 sho
  bundle h1 ho host /opt/host/ibv_rc_pingpong -g 0 -n 100000000 "$(address_of h2 sho)"
  on h1 sh -c 'cd /run/bundles/ho && jq ".mounts += [{destination: \"/opt/host\", source: \"/usr/bin\", type: \"bind\",
    options: [\"rbind\", \"ro\"]}]" config.json >new && mv new config.json'
  runs h1 ho runc run --detach ho
  pid=$(pid_of h1 ho)
  await 'ho uses RDMA' has_more h1 "$pid" 0
  root_filesystem h3 ho
  move_runc ho h1 h3
  pid=$(pid_of h3 ho)
  goes_on h3 "$pid"
  nothing_left h1 ho bundle
  kill -KILL "$pid"
  hit KILL sho
  ok "a container on the host's network"
  bundle h1 tc host /opt/ferry/stream_check --json
  runs h1 tc runc run --detach tc
  await 'tc listens' listens h1 18600
  start h2 ctc "$FERRY_BIN/stream_check" --seconds 0 --rate 100 10.77.0.1
  pid=$(pid_of h1 tc)
  await 'tc uses RDMA' has_more h1 "$pid" 0
  root_filesystem h3 tc
  local line="^ferry: 'tc' cannot move: it is on the host's network and has a TCP connection \\(to port [0-9]+\\), "
  line+="which cannot move"
  fails "$line" on h1 "$ferry" move --runc tc --to h3
  goes_on h1 "$pid"
  kill -KILL "$pid"
  ok 'but not its TCP connections'
}

# moves_ahead ID FROM TO [OPTION...]: its memory is copied ahead; it and `pid` are on the other host then.
moves_ahead() {
  local report
  report=$(on "$2" "$ferry" move --runc "$1" --to "$3" --json "${@:4}") || fail "cannot move $1 from $2 to $3"
  jq -e '.ahead_rounds > 0 and .ahead_bytes > 90000000 and .last_bytes * 2 < .ahead_bytes' >/dev/null <<<"$report" ||
    fail "$1 was not copied ahead: $report"
  jq -e '.image_bytes - .ahead_bytes - .last_bytes < 4e6' >/dev/null <<<"$report" ||
    fail "$1 has an image with its memory: $report"
  pid=$(pid_of "$3" "$1")
  goes_on "$3" "$pid"
  if grep '^VmFlags:.* uw' "/proc/$pid/smaps" >&2; then fail "memory of $1 is still tracked on $3"; fi
  nothing_left "$2" "$1" bundle
}

# Memory is sent while the container runs; not one page gets lost.
group_ahead() {
  local pid runner line
  begin ra 9 --memory 96 --rewrite 10
  root_filesystem h3 ra
  fails "^ferry: 'ra' was not moved: it would stand still for about [0-9]+ ms.*raise --max-blackout" \
    on h1 "$ferry" move --runc ra --to h3 --max-blackout 1
  still ra
  # It comes back after all was dumped but for the pages.
  # shellcheck disable=SC2016 # expanded by the script
  another_runc 4783 no-restore 'case "$*" in
    *" restore "*) echo "time=\"x\" level=error msg=\"no luck today\"" >&2; exit 1 ;;
    esac
    exec runc "$@"'
  fails "^ferry: 'ra' was not moved: .*cannot restore 'ra': " on h1 "$ferry" move --runc ra --to h3:4783
  still ra
  moves_ahead ra h1 h3 # by size
  moves_ahead ra h3 h1 --max-blackout 60000
  # The source's ferryd is killed when it commits.
  mkfifo "$work/events"
  on h1 "$ferry" move --runc ra --to h3 --events >/dev/null 2>"$work/events" &
  runner=$!
  while read -r line; do
    if [[ $line == *'"phase":"commit"'* ]]; then kill_ferryd h1; fi
  done <"$work/events"
  wait "$runner" || true
  start_ferryd h1
  local host
  await 'ra goes on' lives ra
  goes_on "$host" "$pid"
  kill -INT "$pid"
  ends_well "$host" ra stdio.log
  ok 'memory is copied ahead, and every page was there when the source was killed at the commit'
}
# lives ID: on one of h1 and h3, and is not held; this becomes `host`.
lives() {
  for host in h3 h1; do
    if pid=$(on "$host" runc state "$1" 2>/dev/null | jq -e 'select(.status == "running") | .pid') &&
      (($(packets "$host" "$pid") > 0)); then
      return 0
    fi
  done
  return 1
}

# A shell that writes on, into a file that it opens each time and one that it holds open, and renames one.
# shellcheck disable=SC2016 # expanded in the container
readonly writes='exec 5>>/var/held; i=0
  (while i=$((i + 1)); do
    echo $i >>/var/counted; echo $i >&5
    mv -f /var/log/a$((i - 1)) /var/log/a$i 2>/dev/null || : >/var/log/a$i
    sleep 0.02
  done) & exec "$@"'

# listing HOST ID: what is in a root filesystem, but for what changes.
listing() {
  on "$1" sh -c "cd /run/bundles/$2/rootfs && find . -xdev \\( -path ./var -o -path ./tmp \\) -prune -o \
    \\( -type d -printf '%y %m %U %G %T@ %p\n' -o \
    -printf '%y %m %U %G %s %n %T@ %p %l\n' \\) | sort && md5sum bin/bash etc/capable &&
    python3 -c 'import os; print(os.getxattr(\"etc/capable\", \"security.capability\"))'"
}

has_written() { (($(on "$1" tail -n 1 /run/bundles/rc/rootfs/var/held) > $2)); }

# nothing_came ID: h3 has no folder of its.
nothing_came() {
  still "$1"
  await "nothing of $1's files is left on h3" on h3 test ! -e "/run/bundles/$1"
}

# The root filesystem is copied with the move.
group_rootfs() {
  local pid line runner last
  launcher=(bash -c "$writes" bash)
  begin rc 5
  launcher=()
  on h1 sh -c 'cd /run/bundles/rc/rootfs && echo x >etc/capable && ln etc/capable etc/linked &&
    chown 33:44 etc/capable &&
    printf "\001\000\000\002\000\040\000\000\000\000\000\000\000\000\000\000\000\000\000\000" >/run/capability &&
    python3 -c "import os
os.setxattr(\"etc/capable\", \"security.capability\", open(\"/run/capability\", \"rb\").read())" &&
    mkfifo -m 640 etc/fifo && ln -s /nowhere etc/link && truncate -s 64M etc/sparse'
  await 'it writes' on h1 test -s /run/bundles/rc/rootfs/var/held
  fails "^ferry: 'src' is no container of runc's, for which --copy-rootfs and --stdio are$" on h2 "$ferry" move src \
    --to h3 --copy-rootfs
  on h3 mkdir -p /run/bundles/rc/rootfs/proc
  line="'rc' was not moved: h3: there are files in /run/bundles/rc/rootfs already; "
  line+="remove them, or move without --copy-rootfs"
  refuses "$line" rc --copy-rootfs
  on h3 rm -r /run/bundles/rc
  refuses "'rc' was not moved: h3: there is no folder for --stdio /nowhere/log" rc --copy-rootfs --stdio /nowhere/log
  on h3 sh -c 'mkdir -p /run/bundles && mount -t tmpfs -o size=40m none /run/bundles'
  line="'rc' was not moved: h3: not enough room for the root filesystem in /run/bundles/rc/rootfs: "
  line+="[5-9][0-9] MiB needed, 40 MiB free"
  refuses "$line" rc --copy-rootfs
  on h3 mount -o remount,size=1g,nr_inodes=50 /run/bundles
  refuses "'rc' was not moved: the destination could not take the root filesystem: No space left on device" rc \
    --copy-rootfs
  nothing_came rc
  on h3 umount /run/bundles
  # shellcheck disable=SC2016 # expanded by the script
  another_runc 4782 no-restore 'case "$*" in
    *" restore "*) echo "time=\"x\" level=error msg=\"no luck today\"" >&2; exit 1 ;;
    esac
    exec runc "$@"'
  fails "^ferry: 'rc' was not moved: .*cannot restore 'rc': " on h1 "$ferry" move --runc rc --to h3:4782 --copy-rootfs
  nothing_came rc
  # The source's ferryd is killed while it copies.
  mkfifo "$work/copying"
  on h1 "$ferry" move --runc rc --to h3 --copy-rootfs --events >/dev/null 2>"$work/copying" &
  runner=$!
  while read -r line; do
    if [[ $line == *'"phase":"copy rootfs"'* && -z ${last:-} ]]; then last=seen; kill_ferryd h1; fi
  done <"$work/copying"
  if wait "$runner"; then fail 'moved by a ferryd that was killed'; fi
  start_ferryd h1
  await 'the ferryd of h1 answers' answers h1
  nothing_came rc

  last=$(on h1 "$ferry" move --runc rc --to h3 --copy-rootfs --copy-ahead --stdio /run/rc.out --json) ||
    fail 'cannot move rc with its root filesystem'
  jq -e '.rootfs_bytes > 10000000 and .rootfs_last_bytes > 0 and .rootfs_last_bytes < 2000000 and .ahead_bytes > 0' \
    >/dev/null <<<"$last" ||
    fail "what was copied: $last"
  jq -r '"     \(.program): root filesystem \(.rootfs_bytes / 1e6 | round) MB in \(.rootfs_ms | round) ms, " +
    "then \(.rootfs_last_bytes / 1e3 | round) kB; " +
    "\(.blackout_ms | round) ms"' <<<"$last"
  pid=$(pid_of h3 rc)
  goes_on h3 "$pid"
  nothing_left h1 rc bundle
  diff <(listing h1 rc) <(listing h3 rc) >&2 || fail 'the root filesystem on h3 is another'
  last=$(on h1 tail -n 1 /run/bundles/rc/rootfs/var/held)
  await 'it writes on' has_written h3 "$last"
  kill -INT "$pid"
  await 'rc ends' on h3 jq -e '.messages_lost == 0' /run/rc.out >/dev/null
  for line in counted held; do
    # shellcheck disable=SC2016 # awk's own
    on h3 awk '$1 != NR { exit 1 }' "/run/bundles/rc/rootfs/var/$line" || fail "lines of $line are missing"
  done
  (($(on h3 ls /run/bundles/rc/rootfs/var/log | grep -c '^a[0-9]') == 1)) ||
    fail "a file is there twice: $(on h3 ls /run/bundles/rc/rootfs/var/log)"
  ok 'a root filesystem is copied while it is written to, and leaves nothing when the move fails'
}

# another_runc PORT NAME TEXT: one more ferryd on h3, whose runc is this script.
another_runc() {
  script "/tmp/$2" "$3"
  another h3 "$1" --runc "/tmp/$2" --runc-records "/tmp/ferryd-$1/runc"
}

# still ID: it runs on h1, where it was, with its network, and h3 has nothing of it.
still() {
  goes_on h1 "$pid"
  await "$1 runs on h1" \
    sh -c "'$lab' exec h1 -- runc state '$1' | jq -e '.status == \"running\" and .pid == $pid' >/dev/null"
  ! shows ferry_hold on h1 ip netns exec "$1" nft list ruleset || fail "the network of $1 is held still"
  nothing_left h3 "$1"
}

# The program goes on at the source, and the destination has nothing.
group_rollback() {
  local pid interfaces
  begin rb 4
  interfaces=$(on h1 ip -n rb -json link show | jq -r '.[] | "\(.ifname) \(.ifindex) \(.address)"')
  root_filesystem h3 rb
  # shellcheck disable=SC2016 # expanded by the scripts
  another_runc 4784 no-restore 'case "$*" in
    *" restore "*) echo "time=\"x\" level=error msg=\"no luck today\"" >&2; exit 1 ;;
    esac
    exec runc "$@"'
  fails "^ferry: 'rb' was not moved: .*cannot restore 'rb': " on h1 "$ferry" move --runc rb --to h3:4784
  still rb
  # Its runc is killed halfway: it has made cgroups, and mounted the root filesystem for CRIU.
  # shellcheck disable=SC2016
  script /tmp/killing-criu 'case "$*" in "swrk 3")
    until grep -q /rb /proc/self/cgroup; do sleep 0.01; done
    kill -9 $PPID
    exit 1 ;;
    esac
    exec criu "$@"'
  another h3 4789 --criu /tmp/killing-criu --runc-records /tmp/ferryd-4789/runc
  fails "^ferry: 'rb' was not moved: .*cannot restore 'rb': runc restore ended with status 137" on h1 "$ferry" move \
    --runc rb --to h3:4789
  still rb
  on h3 test -x /run/bundles/rb/rootfs/bin/bash || fail 'files of the root filesystem on h3 were deleted'
  # It is restored there, and refused: the decision cannot be written down.
  on h3 sh -c 'mkdir -p /tmp/ferryd-4786/state && mount -t tmpfs -o size=4k none /tmp/ferryd-4786/state'
  another h3 4786 --runc-records /tmp/ferryd-4786/runc
  on h3 sh -c 'head -c 4096 /dev/zero >/tmp/ferryd-4786/state/full'
  fails "^ferry: 'rb' was not moved: .*cannot make a record durable" on h1 "$ferry" move --runc rb --to h3:4786
  still rb
  # One that is about to restore it dies.
  # shellcheck disable=SC2016
  another_runc 4785 slow-restore 'case "$*" in *" restore "*) touch /tmp/restoring; sleep 600 ;; esac; exec runc "$@"'
  on h1 "$ferry" move --runc rb --to h3:4785 >"$work/dying" 2>&1 &
  local runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  # shellcheck disable=SC2016
  on h3 sh -c 'kill -9 $(cat /tmp/ferryd-4785/pid)'
  if wait "$runner"; then fail 'moved to a ferryd that died'; fi
  grep -q "'rb' was not moved: there is no ferryd on h3:4785" "$work/dying" ||
    fail "a dying destination: $(cat "$work/dying")"
  goes_on h1 "$pid"
  # Its next one takes away what it has made.
  on h3 rm /tmp/restoring
  # shellcheck disable=SC2016
  on h3 sh -c 'pkill -P $(cat /tmp/ferryd-4785/pid) 2>/dev/null; true'
  another_runc 4785 slow-restore 'exec runc "$@"'
  still rb
  comes rb h1 h3
  kill -INT "$pid"
  ends_well h3 rb stdio.log
  ok 'failed moves leave it running where it was'
}

# The ferryd of the source is killed while the destination restores.
group_killed() {
  local pid interfaces runner
  begin rk 5
  interfaces=$(on h1 ip -n rk -json link show | jq -r '.[] | "\(.ifname) \(.ifindex) \(.address)"')
  root_filesystem h3 rk
  # shellcheck disable=SC2016
  another_runc 4787 slow-restore 'case "$*" in
    *" restore "*) touch /tmp/restoring; while [ ! -e /tmp/go ]; do sleep 0.05; done ;;
    esac
    exec runc "$@"'
  on h1 "$ferry" move --runc rk --to h3:4787 >"$work/killed" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  ferryd_with h1
  if wait "$runner"; then fail 'moved by a ferryd that was killed'; fi
  on h3 touch /tmp/go
  still rk
  # The ferry command is interrupted: the move goes on.
  on h1 "$ferry" move --runc rk --to h3 >/dev/null 2>&1 &
  runner=$!
  await 'rk stops' shows moving on h1 "$ferry" ps
  end "$runner"
  wait "$runner" || true
  await 'rk is on h3' on h3 runc state rk >/dev/null
  pid=$(pid_of h3 rk)
  goes_on h3 "$pid"
  nothing_left h1 rk bundle
  # The ferryd that has restored it is not the one that sees its end.
  ferryd_with h3
  goes_on h3 "$pid"
  kill -INT "$pid"
  ends_well h3 rk stdio.log
  await 'its network has gone' on h3 test ! -e /run/netns/rk
  ok 'a ferryd that is killed, and a command that is interrupted'
}

# refuses PATTERN ID [OPTION...]: to move to h3; it runs on.
refuses() {
  fails "^ferry: $1\$" on h1 "$ferry" move --runc "$2" --to h3 "${@:3}"
}

group_refused() {
  local pid
  refuses "there is no container 'nobody' of runc's on h1; see: runc list" nobody
  begin rf 6
  local line="'rf' was not moved: h3: there is no root filesystem in /run/bundles/rf/rootfs; "
  line+="have it copied: --copy-rootfs"
  refuses "$line" rf
  root_filesystem h3 rf
  on h3 ip netns add rf
  refuses "'rf' was not moved: h3: there is a network namespace /run/netns/rf already" rf
  on h3 ip netns del rf
  on h3 mkdir -p /run/runc/rf
  refuses "'rf' was not moved: h3: there is a container 'rf' already" rf
  on h3 rmdir /run/runc/rf
  on h3 ip link set dev brm name other
  refuses "'rf' was not moved: h3: there is no bridge brm, which its network interface rdma0 is on" rf
  on h3 ip link set dev other name brm
  on h1 runc pause rf
  refuses "'rf' cannot move: it is paused; let it run: runc resume rf" rf
  on h1 runc resume rf
  on h1 sh -c 'cd /run/bundles/rf && cp config.json kept && jq ".mounts += [{type: \"bind\", source: \"/run/data\",
    destination: \"/data\"}] | .hooks.prestart = [{path: \"/run/hook\"}]" kept >config.json'
  refuses "'rf' was not moved: h3: there is no /run/data, which is mounted at /data" rf
  on h3 mkdir /run/data
  refuses "'rf' was not moved: h3: there is no /run/hook, a prestart hook" rf
  on h1 sh -c 'cd /run/bundles/rf && jq ".process.terminal = true" kept >config.json'
  refuses "'rf' cannot move: it has a terminal, which cannot move" rf
  on h1 sh -c 'cd /run/bundles/rf && mv kept config.json'
  fails "^ferry: 'rf' is not yours" on h1 setpriv --reuid 65534 --clear-groups "$ferry" move --runc rf --to h3
  on h1 ip -n rf link add link eth0 name odd type macvlan
  refuses "'rf' cannot move: its network interface odd is no veth, and cannot be made elsewhere" rf
  on h1 ip -n rf link del odd
  # shellcheck disable=SC2016 # expanded on the host
  on h1 sh -c 'ip netns exec rf sleep 600 >/dev/null 2>&1 & echo $! >/run/sleeper'
  # shellcheck disable=SC2016
  await 'a stranger is in its network' shows sleep on h1 sh -c 'cat "/proc/$(cat /run/sleeper)/comm"'
  refuses "'rf' cannot move: process [0-9]+ \\(sleep\\) shares its network namespace" rf
  kill "$(on h1 cat /run/sleeper)"
  another h3 4788 --runc /nowhere/runc --runc-records /tmp/ferryd-4788/runc
  fails "'rf' was not moved: h3:4788: runc is missing \\(/nowhere/runc\\): install it" on h1 "$ferry" move --runc rf \
    --to h3:4788
  bundle h1 out rf sleep 600
  on h1 touch /run/bundles/out/rootfs/run/out # another
  on h1 sh -c 'runc run --detach --bundle /run/bundles/out out </dev/null >/run/out 2>&1'
  refuses "'out' cannot move: its standard output is /run/out, which runc cannot restore; give it a pipe or /dev/null" \
    out
  on h1 runc delete --force out
  goes_on h1 "$pid"
  kill -INT "$pid"
  ends_well h1 rf
  refuses "'rf' does not run on h1: it is stopped" rf
  ok 'what cannot move is refused in one line, and runs on'
}

use_lab runcmv 3 runc jq mmdebstrap
on h1 mountpoint -q /sys/fs/cgroup || { echo 'skipped: no cgroups of version 1'; exit 77; }
need_rootfs
if (($# == 0)); then set -- move together host ahead rootfs rollback killed refused; fi
for group in "$@"; do "group_$group"; done
