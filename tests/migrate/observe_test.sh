#!/bin/bash
# What ferryd tells of its moves: history, metrics, log. Needs root.
#
#   observe_test.sh [GROUP...]     groups: history timeline metrics top json (default: all)
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly nobody=65534

# past HOST FILTER [PROGRAM...]: the history of a host, through jq.
past() { on "$1" "$ferry" history --json "${@:3}" | jq -c "$2"; }

# of_another HOST PORT CMD...: a command for one more ferryd of a host.
of_another() {
  on "$1" env FERRYD_SOCKET="/tmp/ferryd-$2/sock" FERRYD_API_SOCKET="/tmp/ferryd-$2/api" "${@:3}"
}

# has HOST CONDITION: the history of a host has a move like this.
has() { past "$1" '.moves[]' | jq -es "any(.[]; $2)" >/dev/null; }

# unlucky_ferryd: one more on h3, port 4790, where nothing can be restored.
unlucky_ferryd() {
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/unlucky-restore 'criu=/opt/ferry/bin/criu
    [ "$1" = restore ] || exec $criu "$@"
    while [ "$1" != --images-dir ]; do shift; done
    echo "(00.000001) Error (criu/x.c:1): no luck today" >"$2/restore.log"; exit 1'
  another h3 4790 --criu /tmp/unlucky-restore
}

group_history() {
  local runner
  serves h2 hs
  asks h1 hc hs h2
  shows '^no moves on h1 yet$' on h1 "$ferry" history || fail 'h1 has a history already'
  move hc h1 h3
  # Of one move both hosts tell the same.
  past h1 '.moves[0]' >"$work/out"
  await 'h3 knows that hc goes on' has h3 '.outcome == "moved"'
  past h3 '.moves[0]' >"$work/in"
  jq -e --argjson report "$last_report" '.direction == "out" and .program == "hc" and .from == "h1" and .to == "h3" and
    .outcome == "moved" and .step == "" and .reason == "" and .group == "" and (.move_id | test("^[0-9a-f]{16}$")) and
    .began < .ended and .parts.check_ms > 0 and .parts.prepare_ms > 0 and
    .parts.blackout_ms == $report.blackout_ms and .parts.image_bytes == $report.image_bytes' "$work/out" >/dev/null ||
    fail "the history of h1: $(<"$work/out"), after $last_report"
  jq -e --slurpfile left "$work/out" '.direction == "in" and .outcome == "moved" and .from == "h1" and .to == "h3" and
    .program == "hc" and .move_id == $left[0].move_id and .parts.image_bytes == $left[0].parts.image_bytes and
    .parts.restore_ms > 0' "$work/in" >/dev/null || fail "the history of h3: $(<"$work/in")"
  # What fails, there and here, has its step and the reason.
  unlucky_ferryd
  move hc h3 h1
  fails 'no luck today' on h1 "$ferry" move hc --to h3:4790
  past h1 '.moves[-1]' >"$work/out"
  jq -e '.direction == "out" and .outcome == "failed" and .step == "restore" and (.reason | test("no luck today")) and
    .to == "h3-4790" and .parts.blackout_ms > .parts.stop_ms and .parts.restore_ms == 0' "$work/out" >/dev/null ||
    fail "the history of h1: $(<"$work/out")"
  of_another h3 4790 "$ferry" history --json | jq -c '.moves[]' >"$work/in"
  jq -es --slurpfile left "$work/out" 'length == 1 and (.[0] | .direction == "in" and .outcome == "failed" and
    .step == "restore" and (.reason | test("no luck today")) and .move_id == $left[0].move_id)' "$work/in" >/dev/null ||
    fail "the history of the other ferryd of h3: $(<"$work/in")"
  fails 'has no network interface|no ferryd|there is no' on h1 "$ferry" move hc --to h3:4799
  past h1 '.moves[-1]' >"$work/out"
  jq -e '.outcome == "failed" and .step == "check"' "$work/out" >/dev/null || fail "the history of h1: $(<"$work/out")"
  # A ferryd that is killed in the middle of a move: the next one tells.
  # shellcheck disable=SC2016 # expanded by the script
  script /tmp/slow-restore '[ "$1" != restore ] || { touch /tmp/restoring; sleep 600; }; exec /opt/ferry/bin/criu "$@"'
  another h3 4791 --criu /tmp/slow-restore
  on h1 "$ferry" move hc --to h3:4791 >"$work/dying" 2>&1 &
  runner=$!
  await 'h3 restores' on h3 test -e /tmp/restoring
  has h1 '.outcome == "under way"' || fail "no move is under way: $(past h1 .)"
  restart_ferryd h1
  if wait "$runner"; then fail 'a ferryd that died told of a move'; fi
  await 'h1 answers' answers h1
  await 'the move has failed' has h1 '.outcome == "failed" and (.reason | test("ferryd that led it ended"))'
  # What was before is still there, and told by name and number.
  past h1 '[.moves[] | "\(.direction) \(.outcome)"] | join(",")' >"$work/all"
  [[ $(<"$work/all") == '"out moved,in moved,out failed,out failed,out failed"' ]] || fail "h1: $(<"$work/all")"
  [[ $(past h1 '.moves | length' hc) == 5 && $(past h1 '.moves | length' --limit 2) == 2 &&
    $(past h1 '.moves | length' other) == 0 ]] || fail 'by name and number'
  shows '^no moves of such a program on h1 yet$' on h1 "$ferry" history other || fail 'by a name of nobody'
  shows '^ *BEGAN +PROGRAM +FROM +TO +OUTCOME +BLACKOUT-MS ' on h1 "$ferry" history || fail 'no header'
  shows '^[-0-9]+ [0-9:]+ +hc +h1 +h3-4790 +failed .* restore: .*no luck today' on h1 "$ferry" history hc ||
    fail "the table: $(on h1 "$ferry" history)"
  # Root's program is nothing to others.
  shows '^no moves on h1 yet$' on h1 setpriv --reuid $nobody --regid $nobody --clear-groups "$ferry" history ||
    fail "another user sees root's moves"
  # A damaged file is no hindrance.
  on h1 sh -c 'printf "torn {" >>/var/tmp/ferry/history'
  ferryd_with h1
  [[ $(past h1 '.moves | length') == 5 ]] || fail "after a torn line: $(past h1 .)"
  await_traffic h1 hc # which the ferryd that was started may not know yet
  hit INT hc
  finishes hc
  lost_nothing hc
  ok 'both hosts tell of a move, of its failure with step and reason, and after a restart'
}

# metrics HOST [FOLDER]: those of the ferryd in that folder; they have the form of Prometheus' text.
metrics() {
  on "$1" curl -sS --fail --unix-socket "${2:-/run/ferry}/metrics.sock" http://localhost/metrics >"$work/metrics" ||
    fail "no metrics of $1"
  python3 - "$work/metrics" <<'PYTHON' || fail "the metrics of $1: $(<"$work/metrics")"
import re, sys
name = r"[a-z_][a-z0-9_]*"
label = name + r'="(?:[^"\\\n]|\\[\\"n])*"'
sample = re.compile(rf"({name})(?:\{{{label}(?:,{label})*\}})? -?[0-9.e+-]+")
families, kinds, seen = {}, {}, set()
text = open(sys.argv[1], encoding="utf-8").read()
assert text.endswith("\n")
for line in text.splitlines():
    if line.startswith("# HELP "):
        family = line.split()[2]
        assert family not in families and line.endswith("."), line
        families[family] = line
    elif line.startswith("# TYPE "):
        _, _, of, kind = line.split()
        assert of == family and kind in ("counter", "gauge", "histogram"), line
        assert (kind == "counter") == of.endswith("_total") and of.startswith("ferry_"), line
        kinds[of] = kind
    else:
        match = sample.fullmatch(line)
        assert match, line
        of = re.sub("_(bucket|sum|count)$", "", match[1]) if kinds[family] == "histogram" else match[1]
        assert of == family, line
        key = line.rsplit(" ", 1)[0]
        assert key not in seen, line
        seen.add(key)
PYTHON
  if command -v promtool >/dev/null; then promtool check metrics <"$work/metrics" || fail 'promtool objects'; fi
}

# says_metric LINE: the metrics that were read last have this line.
says_metric() { grep -qxE -- "$1" "$work/metrics" || fail "no metric like '$1' in: $(grep -v '^#' "$work/metrics")"; }

# refuses_scraper PORT LINE: h1 refuses the scraper of h2 on this port, and its log has one more line, like this.
refuses_scraper() {
  local log=/run/ferry/ferryd.log before
  before=$(on h1 sh -c "wc -l <$log")
  # gRPC and images have protocols of their own, but the handshake comes first.
  if on h2 curl -sS --http2-prior-knowledge --cacert /tmp/prometheus/ca.pem --cert /tmp/prometheus/scraper.pem \
    --key /tmp/prometheus/scraper.key "https://10.77.0.1:$1/" >"$work/scraper" 2>&1; then
    fail "a scraper is let in at port $1: $(<"$work/scraper")"
  fi
  await "h1 tells of the scraper at port $1" has_lines h1 "$log" $((before + 1))
  on h1 tail -n +$((before + 1)) "$log" >"$work/scraper"
  [[ $(<"$work/scraper") =~ ^[^$'\n']*$2[^$'\n']*$ ]] ||
    fail "of a scraper at port $1 the log says: $(<"$work/scraper")"
}
has_lines() { (($(on "$1" sh -c "wc -l <$2") >= $3)); }

# A certificate that reads metrics, and does nothing else.
scraper() {
  local ca=/run/ferry-lab/$FERRY_LAB/ca
  (cd "$work" && "$ferry" ca scraper prometheus --ca-dir "$ca" >/dev/null)
  [[ $(stat -c %a "$work/prometheus" "$work"/prometheus/* | sort | uniq -c | xargs) == '3 600 1 700' ]] ||
    fail "the scraper's files: $(ls -l "$work/prometheus")"
  (cd "$work" && fails '^ferry: prometheus exists; remove it' "$ferry" ca scraper prometheus --ca-dir "$ca")
  fails "^ferry: 'h2,DNS:h3' is no name" "$ferry" ca scraper h2,DNS:h3 --ca-dir "$ca" --output "$work/odd"
  [[ ! -e $work/odd ]] || fail 'a wrong name leaves something behind'
  tar -c -C "$work" prometheus | on h2 tar -x -C /tmp
  on h2 curl -sS --fail --cacert /tmp/prometheus/ca.pem --cert /tmp/prometheus/scraper.pem \
    --key /tmp/prometheus/scraper.key "$url" >"$work/metrics" || fail 'a scraper gets no metrics'
  says_metric 'ferry_moves_begun_total\{direction="out"\} 0'
  refuses_scraper 4780 ' refused a connection with another host: its certificate is not a host.s of this CA, .* scraper'
  refuses_scraper 4781 ' refused 10\.77\.0\.2.*, which would send an image: it shows the certificate of a scraper'
  # No host can be made of it.
  cat "$work"/prometheus/scraper.{key,pem} "$work/prometheus/ca.pem" >"$work/as-host"
  fails '^ferry: the certificate of prometheus is a scraper' "$ferry" host join "$work/as-host" --tls-dir "$work/odd"
}

group_timeline() {
  serves h2 ts
  asks h1 tc ts h2
  fails 'cannot write into /none' on h1 "$ferry" move tc --to h3 --timeline /none/trace
  on h1 "$ferry" move tc --to h3 --timeline /tmp/trace.json --json >"$work/report" || fail 'cannot move tc'
  on h1 cat /tmp/trace.json >"$work/trace"
  # Both hosts, all steps, CRIU and its log, on both.
  jq -e --slurpfile report "$work/report" '[.traceEvents[] | select(.ph == "M") | .args.name] as $names |
    [.traceEvents[] | select(.ph == "X")] as $spans |
    (["h1", "h3", "steps", "CRIU", "ferryd"] - $names == []) and
    ([$names[] | select(. == "CRIU\u0027s log")] | length == 2) and
    (["check", "prepare", "stop", "dump", "transfer", "restore", "commit", "resume", "criu dump", "criu restore",
      "post-dump", "post-restore", "Restore", "RDMA goes on"] - [$spans[].name] == []) and
    all($spans[]; .ts >= 0 and .dur >= 0) and
    (([$spans[] | select(.name == "stop" or .name == "dump" or .name == "transfer" or .name == "restore" or
      .name == "commit" or .name == "resume") | .dur] | add) / 1000 - $report[0].blackout_ms | fabs < 1)' \
    "$work/trace" >/dev/null || fail "the timeline is not as it should be: $(head -c 3000 "$work/trace")"
  ok 'the timeline of a move has the steps of both hosts'
}

group_metrics() {
  local tls=/run/ferry/tls url=https://10.77.0.1:4789/metrics certified
  metrics h1
  says_metric 'ferry_build_info\{version="[0-9.]+",build_id="[0-9a-f]{40}"\} 1'
  says_metric 'ferry_moves_begun_total\{direction="out"\} 0'
  says_metric 'ferry_move_blackout_seconds_count 0'
  says_metric 'ferry_programs 0'
  serves h2 ms
  asks h1 mc ms h2
  unlucky_ferryd
  fails 'no luck today' on h1 "$ferry" move mc --to h3:4790
  move mc h1 h3
  metrics h1
  says_metric 'ferry_moves_begun_total\{direction="out"\} 2'
  says_metric 'ferry_moves_begun_total\{direction="in"\} 0'
  says_metric 'ferry_moves_ended_total\{direction="out",outcome="moved"\} 1'
  says_metric 'ferry_moves_ended_total\{direction="out",outcome="failed"\} 1'
  says_metric 'ferry_move_failures_total\{direction="out",step="restore"\} 1'
  says_metric 'ferry_moves_under_way\{direction="out"\} 0'
  says_metric 'ferry_move_blackout_seconds_bucket\{le="\+Inf"\} 1'
  says_metric 'ferry_move_blackout_seconds_count 1'
  says_metric 'ferry_image_sent_bytes_total [1-9][0-9.e+]*'
  says_metric 'ferry_stand_ins [1-9]'
  metrics h3 /tmp/ferryd-4790
  says_metric 'ferry_move_failures_total\{direction="in",step="restore"\} 1'
  await_traffic h3 mc
  metrics h3
  says_metric 'ferry_moves_ended_total\{direction="in",outcome="moved"\} 1'
  says_metric 'ferry_image_received_bytes_total [1-9][0-9.e+]*'
  says_metric 'ferry_programs 1'
  says_metric 'ferry_queue_pairs 2'
  # Other pages, other users.
  [[ $(on h1 curl -sS -o /dev/null -w '%{http_code} %{content_type}' --unix-socket /run/ferry/metrics.sock \
    http://localhost/) == '404 text/plain; charset=utf-8' ]] || fail 'there is another page'
  [[ $(on h1 curl -sS -o /dev/null -w '%{http_code} %{content_type}' --unix-socket /run/ferry/metrics.sock \
    http://localhost/metrics) == '200 text/plain; version=0.0.4; charset=utf-8' ]] || fail 'the type of the page'
  if on h1 setpriv --reuid $nobody --regid $nobody --clear-groups curl -sS --unix-socket /run/ferry/metrics.sock \
    http://localhost/metrics >"$work/stranger" 2>&1; then fail "another user reads metrics: $(<"$work/stranger")"; fi
  # Over TLS: hosts of the CA, and nobody else.
  ferryd_with h1 --metrics-port 4789
  certified=(--cacert "$tls/ca.pem" --cert "$tls/host.pem" --key "$tls/host.key")
  on h2 curl -sS --fail "${certified[@]}" "$url" >"$work/metrics" || fail 'a host of the CA gets no metrics'
  says_metric 'ferry_moves_begun_total\{direction="out"\} 0'
  if on h2 curl -sS --cacert $tls/ca.pem "$url" >"$work/stranger" 2>&1; then fail 'metrics without a certificate'; fi
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=h2 -days 1 -keyout "$work/key" \
    -out "$work/certificate" 2>/dev/null
  if on h2 curl -sS --cacert $tls/ca.pem --cert <(cat "$work/certificate") --key <(cat "$work/key") "$url" \
    >"$work/stranger" 2>&1; then fail 'metrics for a certificate of another CA'; fi
  if grep -q '^ferry_' "$work/stranger"; then fail 'a stranger has read metrics'; fi
  if on h2 curl -sS http://10.77.0.1:4789/metrics >"$work/stranger" 2>&1; then fail 'metrics without TLS'; fi
  on h2 curl -sS --fail "${certified[@]}" "$url" >/dev/null || fail 'after strangers a host gets no metrics'
  scraper
  # The log has the same, for scripts.
  on h1 grep -E " info: 'mc' moved to h3: .* move=[0-9a-f]{16} .*program=mc from=h1 to=h3 result=moved blackout_ms=" \
    /run/ferry/ferryd.log >/dev/null || fail 'the log of the move'
  on h1 grep -E " move=[0-9a-f]{16} .* step=restore result=failed .*reason=\".*no luck today\"$" \
    /run/ferry/ferryd.log >/dev/null || fail 'the log of the failure'
  hit INT mc
  finishes mc
  lost_nothing mc
  ok 'what ferryd counts is read on its host, by hosts of the CA and by scrapers, which may do nothing else'
}

# in_terminal KEYS: `ferry top` on h1 in a terminal of its own, with what is typed once it shows the program; prints
# what the terminal shows, and whether its settings are as before.
in_terminal() {
  on h1 python3 - "$ferry" "$1" "$patience" <<'PYTHON'
import os, pty, select, sys, termios, time
ferry, keys, patience = sys.argv[1], sys.argv[2].encode().decode("unicode_escape").encode(), int(sys.argv[3])
master, slave = pty.openpty()
before = termios.tcgetattr(slave)
child = os.fork()
if child == 0:
    os.close(master)
    os.login_tty(slave) if hasattr(os, "login_tty") else (os.setsid(), [os.dup2(slave, fd) for fd in range(3)],
        __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
    os.execv(ferry, [ferry, "top", "--interval", "0.2"])
shown, typed, until = b"", False, time.monotonic() + patience
while time.monotonic() < until and os.waitpid(child, os.WNOHANG) == (0, 0):
    if select.select([master], [], [], 0.1)[0]:
        shown += os.read(master, 65536)
    if not typed and b"PACKETS-OUT" in shown:
        typed = True
        os.write(master, keys)
else:
    assert typed and time.monotonic() < until, shown
while select.select([master], [], [], 0.2)[0]:
    shown += os.read(master, 65536)
assert b"\033[?1049h" in shown and shown.rstrip().endswith(b"\033[?1049l"), shown[-200:]
assert termios.tcgetattr(slave) == before, "the terminal is not as it was"
PYTHON
}

group_top() {
  shows '^h1: programs: 0, QPs: 0' on h1 "$ferry" top --count 1 --interval 0.1 || fail 'no line without programs'
  serves h2 ts
  asks h1 tc ts h2
  on h1 "$ferry" top --count 2 --interval 0.5 --json >"$work/top"
  jq -es 'length == 2 and all(.[]; .host == "h1" and .seconds >= 0.5 and (.programs | length) == 1 and
    (.programs[0] | .container == "tc" and (.qps | length) == 2 and .per_second.sent_packets > 0 and
    .per_second.sent_bytes > 0))' "$work/top" >/dev/null || fail "the rates: $(<"$work/top")"
  shows '^PROGRAM +PID +CONTAINER +QPS +SENT/S' on h1 "$ferry" top --count 1 --interval 0.2 || fail 'no table'
  in_terminal q || fail 'q does not end ferry top well'
  in_terminal '\x03' || fail 'Ctrl-C does not end ferry top well'
  hit INT tc
  finishes tc
  ok 'rates are shown, and the terminal is left as it was'
}

# as_documented HEADING CMD...: what a command prints on h1 is as docs/json.md says.
as_documented() {
  local heading=$1
  shift
  on h1 "$@" >"$work/json" || fail "this failed: $*"
  "$repository/tests/cli/json_fields.py" "$repository/docs/json.md" "$heading" <"$work/json" >"$work/differences" ||
    fail "$heading: $(<"$work/differences")"
}

# tells_events PHASE OPTION...: the events of a move of ja and jb from h1, with these options, are as documented, and
# the last one tells of this phase.
tells_events() {
  # shellcheck disable=SC2016 # expanded on the host
  as_documented 'ferry move --events' sh -c '"$@" 2>&1 >/dev/null | grep "^{"' sh "$ferry" move ja jb --events "${@:2}"
  jq -es --arg phase "$1" '(.[-1] | .phase == $phase and .program == "" and .move_id == "" and
    (.failure == "") == ($phase != "failed")) and
    all(.[:-1][]; (.program | IN("ja", "jb")) and (.move_id | test("^[0-9a-f]{16}$")) and .failure == "") and
    (length > 1) == ($phase == "moved")' "$work/json" >/dev/null || fail "the events: $(<"$work/json")"
}

group_json() {
  serves h2 js
  asks h1 jc js h2
  as_documented 'ferry ps --json' "$ferry" ps --json
  as_documented 'ferry top --json' "$ferry" top --count 1 --interval 0.1 --json
  as_documented 'ferry doctor --json' "$ferry" doctor --json
  as_documented 'ferry move --dry-run --json' "$ferry" move jc --to h3 --dry-run --json
  as_documented 'ferry move --json' "$ferry" move jc --to h3 --json
  serves h1 ja
  asks h1 jb ja h1
  as_documented 'ferry move A B --dry-run --json' "$ferry" move ja jb --to h3 --dry-run --json
  # Every line of events: of a move that is refused, of one that only looks, and of one that copies ahead.
  tells_events failed --to h4
  tells_events checked --to h3 --dry-run
  tells_events moved --to h3 --copy-ahead
  move_group h3 h1 ja jb
  as_documented 'ferry move A B --json' "$ferry" move ja jb --to h3 --json
  as_documented 'ferry history --json' "$ferry" history --json
  # The comparison sees what is wrong.
  if "$repository/tests/cli/json_fields.py" "$repository/docs/json.md" 'ferry ps --json' <"$work/json" >/dev/null; then
    fail 'a history passes for a list of programs'
  fi
  hit INT jc jb
  finishes jc
  finishes jb
  ok 'JSON is as documented'
}

use_lab observe 3 jq curl openssl python3
if (($# == 0)); then set -- history timeline metrics top json; fi
for group in "$@"; do
  if [[ $group != "$1" ]]; then # each begins without a history
    "$lab" down
    "$lab" up "$hosts"
  fi
  "group_$group"
done
