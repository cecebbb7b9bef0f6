#!/bin/bash
# `ferry pipe` and real programs in network namespaces: who is denied, allowed and held back while all run; limits of
# memory; what ferry pipe ps shows; and what only root may ask.
#   FERRY_BIN    the binaries
#   FERRY_LAB    begins the names of namespaces and bridges
set -euo pipefail

readonly bin=$FERRY_BIN lab=q$FERRY_LAB
[[ $EUID -eq 0 ]] || { echo 'skipped: needs root'; exit 77; }
command -v jq >/dev/null || { echo 'skipped: jq is not installed; run scripts/setup'; exit 77; }
repository=$(realpath "${BASH_SOURCE[0]%/*}/../..")
readonly repository ferry=$bin/ferry

# shellcheck source=tests/pipe/spaces.sh
. "${BASH_SOURCE[0]%/*}/spaces.sh"

# serve ADDRESS:PORT [OPTION...]: pd_perf in a, for one client; its log is $work/served.log.
serve() {
  ip netns exec "$lab-a" "$bin/pd_perf" serve --at "$@" >"$work/served.log" 2>&1 &
  served=$!
  started+=("$served")
  await "a server listens at $1" listens "$1"
}
listens() { shows ".programs[].listening[] | select(. == \"$1\")"; }

# reach NAME ADDRESS:PORT [OPTION...]
reach() {
  timeout 60 ip netns exec "$lab-$1" "$bin/pd_perf" "${@:3}" --at "$2" >"$work/reach.log" 2>&1
}
# refused NAME ADDRESS:PORT: one is not let in.
refused() {
  if reach "$1" "$2" latency --count 10; then fail "$1 was let in"; fi
  grep -q 'Connection refused' "$work/reach.log" || fail "$1 was not refused: $(<"$work/reach.log")"
}

# pipe WORD...: ferry pipe.
pipe() { "$ferry" pipe "$@" >"$work/out" 2>"$work/err" || fail "ferry pipe $*: $(<"$work/err")"; }
# says_no PATTERN WORD...: ferry pipe fails, with one line that matches.
says_no() {
  if "$ferry" pipe "${@:2}" >"$work/out" 2>"$work/err"; then fail "ferry pipe ${*:2} was done"; fi
  [[ $(wc -l <"$work/err") -eq 1 ]] || fail "ferry pipe ${*:2} has more to say than a line: $(<"$work/err")"
  grep -qE "$1" "$work/err" || fail "ferry pipe ${*:2} says: $(<"$work/err")"
}
# shows FILTER: jq of ferry pipe ps --json gives something.
shows() {
  pipe ps --json
  jq -e "$1" "$work/out" >/dev/null
}
ended() { ! kill -0 "$1" 2>/dev/null; }

says_no 'no ferry-piped runs on this host' ps
start_piped
bridge one
space a one 10.99.0.1
space b one 10.99.0.2
space c one 10.99.0.3

pipe deny 10.99.0.2 10.99.0.1:7000
serve 10.99.0.1:7000
refused b 10.99.0.1:7000
reach c 10.99.0.1:7000 latency --count 10 || fail "who is not denied was not let in: $(<"$work/reach.log")"
wait "$served"
serve 10.99.0.1:7001
reach b 10.99.0.1:7001 latency --count 10 || fail "who is denied one port had no other: $(<"$work/reach.log")"
wait "$served"
pipe allow 10.99.0.0/30 any --before 1
shows '[.rules[] | [.number, .action, .from, .to, .port]] ==
  [[2, "allow", "10.99.0.0/30", "any", 0], [1, "deny", "10.99.0.2", "10.99.0.1", 7000]]' || fail 'rules out of order'
serve 10.99.0.1:7000
reach b 10.99.0.1:7000 latency --count 10 || fail "an earlier rule did not decide: $(<"$work/reach.log")"
wait "$served"
pipe forget 2
serve 10.99.0.1:7000
refused b 10.99.0.1:7000
pipe forget 1
reach b 10.99.0.1:7000 latency --count 10 || fail "a rule that is deleted denies: $(<"$work/reach.log")"
wait "$served"
echo 'ok - programs are denied and allowed'

# Slow, so that there is something to see for as long as it is looked at.
pipe limit 10.99.0.2 --rate 64K --connection-rate 1M --memory 512M
serve 10.99.0.1:7000
reach b 10.99.0.1:7000 bandwidth --seconds 600 &
client=$!
started+=("$client")
await 'bytes arrive' shows '.connections[] | select(.to == "10.99.0.1:7000" and .sent_bytes > 65536 and .to_pid != 0)'
shows '.containers[] | select([.rate_limit, .connection_rate_limit, .memory_limit] == [65536, 1048576, 536870912])' ||
  fail 'the limits of a container are not shown'
pipe deny 10.99.0.9 any
pipe ps --json
"$repository/tests/cli/json_fields.py" "$repository/docs/json.md" 'ferry pipe ps --json' <"$work/out" ||
  fail 'docs/json.md does not have what ferry pipe ps --json prints'
pipe deny 10.99.0.2 any
pipe ps
grep -qE '^ *4 +deny +10\.99\.0\.2 +any' "$work/out" || fail "ferry pipe ps prints no rule: $(<"$work/out")"
await 'who is denied has no connection any more' ended "$client"
if wait "$client"; then fail 'a connection that is denied ended well'; fi
wait "$served" && fail 'the server of a connection that is denied ended well'
pipe forget 4
echo 'ok - a connection that a new rule denies'

# An upper bound: bytes that have arrived, and the time from before the first until they were counted.
pipe limit 10.99.0.2 --rate 1M --connection-rate none
serve 10.99.0.1:7000
before=$(date +%s%N)
reach b 10.99.0.1:7000 bandwidth --connections 3 --ring 2097152 --seconds 2 &
client=$!
started+=("$client")
for ((look = 1; look <= 10; look++)); do
  pipe ps --json
  bytes=$(jq '[.connections[].sent_bytes] | add // 0' "$work/out") elapsed=$(($(date +%s%N) - before))
  ((bytes <= elapsed * 1048576 / 1000000000 + 131072)) || fail "$bytes bytes in $elapsed ns are more than 1 MiB/s"
  sleep 0.1
done
pipe limit 10.99.0.2 --rate none
wait "$client" || fail "a client that was limited: $(<"$work/reach.log")"
wait "$served" || fail "the server of one that was limited: $(<"$work/served.log")"
[[ $(jq .bytes "$work/served.log") -eq $(jq .bytes "$work/reach.log") ]] || fail 'not all has arrived'
echo 'ok - a rate that is limited, and no more'

# 4 KiB at a time, of which each takes 4 s: with that limit 1 MiB would take 17 minutes.
pipe limit any --connection-rate 1K
serve 10.99.0.1:7000 --size 1048576
reach b 10.99.0.1:7000 latency --count 2 --size 1048576 &
client=$!
started+=("$client")
await 'bytes arrive' shows '.connections[] | select(.sent_bytes > 4096)'
pipe limit any --connection-rate none
wait "$client" || fail "a client whose limit is gone: $(<"$work/reach.log")"
wait "$served"
echo 'ok - a limit that is taken away while bytes wait'

pipe limit 10.99.0.2 --memory 4M
serve 10.99.0.1:7000
if reach b 10.99.0.1:7000 latency --count 10; then fail 'a container has more memory than its limit'; fi
grep -q 'No buffer space available' "$work/reach.log" || fail "of its memory limit one hears: $(<"$work/reach.log")"
pipe limit 10.99.0.2 --memory none
# The kernel lists the addresses of the network that a program is in.
pipe limit 10.99.0.2/31 --memory 4M
if reach b 10.99.0.1:7000 latency --count 10; then fail 'a container has more memory than the limit of its prefix'; fi
grep -q 'No buffer space available' "$work/reach.log" || fail "of a prefix's limit one hears: $(<"$work/reach.log")"
shows '.limits | map(.address) == ["10.99.0.2/31"]' || fail 'a limit of a prefix is not shown'
pipe limit 10.99.0.2/31 --memory none
shows '.limits == []' || fail 'a limit that is none is left'
reach b 10.99.0.1:7000 latency --count 10 || fail "a limit that is gone: $(<"$work/reach.log")"
wait "$served"
echo 'ok - a limit of memory'

says_no "^ferry: 'nonsense' is no address" deny nonsense any
says_no 'has no port from 1 to 65535' deny any 10.99.0.1:0
says_no '^ferry: there is no rule 99; see: ferry pipe ps$' forget 99
says_no "^ferry: '10.99.0.2/24' is no address" limit 10.99.0.2/24 --rate 1M
says_no '^ferry: --rate is none, or from 1024 ' limit any --rate 12
chmod 755 "$work"
if setpriv --reuid 65534 --regid 65534 --clear-groups "$ferry" pipe ps >"$work/out" 2>&1; then fail 'others see all'; fi
grep -q '^ferry: cannot ask ferry-piped at .*: needs root; use sudo$' "$work/out" ||
  fail "others than root hear: $(<"$work/out")"
printf '# one that is wrong\ndeny 10.99.0.2 any\nlimit any\n' >"$work/rules"
if "$bin/ferry-piped" --socket "$work/other.sock" --rules "$work/rules" >"$work/out" 2>&1; then fail 'bad rules'; fi
grep -q "^ferry-piped: $work/rules, line 3: it is limit ADDRESS\[/BITS\]|any with --rate" "$work/out" ||
  fail "of bad rules ferry-piped says: $(<"$work/out")"
echo 'ok - what cannot be done'

serve 10.99.0.1:7000
kill "$piped"
wait "$piped" || fail "ferry-piped ends badly while a program uses it: $?"
echo 'ok - the end of ferry-piped'
