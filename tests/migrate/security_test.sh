#!/bin/bash
# Who may do what, on the hosts of a lab (docs/security.md): users of a host, hosts without or with wrong certificates,
# and where secrets lie. Needs root.
#
#   security_test.sh [GROUP...]     groups: users hosts rest commands (default: all)
#
# Prints one line per check; exits non-zero when one fails.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly nobody=65534

# as_nobody HOST CMD...
as_nobody() { on "$1" setpriv --reuid $nobody --regid $nobody --clear-groups "${@:2}"; }

# certify HOST NAME FOLDER OPTION...: a certificate of the lab's CA, in a folder of a host.
certify() {
  "$ferry" host add "$2" "${@:4}" --ca-dir "/run/ferry-lab/$FERRY_LAB/ca" --output - |
    on "$1" "$ferry" host join - --tls-dir "$3" >/dev/null
}

pid_of() { on "$1" "$ferry" ps --json | jq --arg name "$2" '.programs[] | select(.container == $name) | .pid'; }

# Root moves everything; others see and move what is theirs only.
group_users() {
  local mine i
  start h1 sus ib_send_bw -F -D 300
  "$lab" run h1 sum -d -- setpriv --reuid $nobody --regid $nobody --clear-groups "$ferry" run \
    --netdev rdma0 -- ib_send_bw -F -D 300
  await_listen h1 sus
  await_listen h1 sum
  # Not in a container: all of it belongs to nobody.
  # shellcheck disable=SC2016 # expanded on the host
  as_nobody h1 sh -c 'setsid "$@" >/dev/null 2>&1 & echo $!' sh "$ferry" run --netdev rdma -- ib_send_bw -F -D 300 \
    -p 18600 >"$work/own"
  for ((i = 0; i < 600; i++)); do
    if [[ -n $(on h1 ss -Hltn 'sport = :18600') ]]; then break; fi
    sleep 0.1
  done
  fails "'sus' is not yours: only root, or the owner" as_nobody h1 "$ferry" move sus --to h2
  fails "is not yours" as_nobody h1 "$ferry" move "$(pid_of h1 sus)" --to h2
  fails "only root may resolve|in doubt" as_nobody h1 "$ferry" resolve 12 --abort
  mine=$(as_nobody h1 "$ferry" ps --json)
  jq -e --argjson pid "$(pid_of h1 sus)" '.programs[] | select(.pid == $pid) |
    .state == "another user'"'"'s" and .devices == [] and .container == ""' >/dev/null <<<"$mine" ||
    fail "another user sees: $mine"
  # The program belongs to nobody, and so does all of its container but the init, which is root's: not his to move.
  fails "'sum' is not yours" as_nobody h1 "$ferry" move sum --to h2
  jq -e --argjson pid "$(pid_of h1 sum)" '.programs[] | select(.pid == $pid) | .devices | length > 0' >/dev/null \
    <<<"$mine" ||
    fail "the owner sees: $mine"
  # What is his is his to move: that goes on to the next check.
  fails "unknown host 'h9'" as_nobody h1 "$ferry" move "$(<"$work/own")" --to h9
  kill "$(<"$work/own")"
  ok 'another user of the host sees and moves nothing of root'"'"'s'
  interrupt h1 sus
  interrupt h1 sum
}

# Hosts that do not belong here get one line, and the ferryd that refused them has one in its log.
group_hosts() {
  start h1 shp ib_send_bw -F -D 300
  await_listen h1 shp
  # Of another CA.
  on h3 "$ferry" ca init --name h3 --also 10.77.0.3 --also h3 --ca-dir /tmp/other-ca --tls-dir /tmp/other-tls >/dev/null
  launch h3 stranger --tls-dir /tmp/other-tls --listen 10.77.0.3:4791
  fails "'shp' was not moved: refused: the certificate of h3 is not of this host's CA" on h1 "$ferry" move shp \
    --to h3:4791
  # Of our CA, for another host.
  certify h3 h9 /tmp/wrong-tls --also 10.77.0.9
  launch h3 wrong --tls-dir /tmp/wrong-tls --listen 10.77.0.3:4792
  fails "refused: h3 shows the certificate of h9, which is not for 'h3'" on h1 "$ferry" move shp --to h3:4792
  # Without any.
  launch h3 insecure --insecure --host h3-insecure --listen 10.77.0.3:4793
  fails "h3 does not speak TLS; was its ferryd started with --insecure" on h1 "$ferry" move shp --to h3:4793
  interrupt h1 shp
  # The other way: they call, and are refused; both have one line.
  "$lab" run h3 shq -d -- env FERRYD_SOCKET=/tmp/stranger/sock nice "$ferry" run --netdev rdma0 -- ib_send_bw -F -D 300
  "$lab" run h3 shr -d -- env FERRYD_SOCKET=/tmp/wrong/sock nice "$ferry" run --netdev rdma0 -- ib_send_bw -F -D 300
  "$lab" run h3 shs -d -- env FERRYD_SOCKET=/tmp/insecure/sock nice "$ferry" run --netdev rdma0 -- ib_send_bw -F -D 300
  await_listen h3 shq
  await_listen h3 shr
  await_listen h3 shs
  refuses shq stranger 'h1 is not of this host.s CA' 'refused a connection with another host: '
  refuses shr wrong 'the certificate of h9 is not for 10.77.0.3, from where it calls' \
    'a call from ipv4:10.77.0.3:[0-9]*: refused: the certificate of h9'
  refuses shs insecure 'the ferryd of h1 .* takes no calls without certificates' \
    'refused a connection with another host: wrong version number|refused a connection with another host: '
  interrupt h3 shq
  interrupt h3 shr
  interrupt h3 shs
  ok 'unknown hosts are refused with one line on both sides'
}

# refuses PROGRAM FERRYD THERE HERE: a program cannot be moved by that ferryd of h3 to h1; what each of the two says.
refuses() {
  local i
  fails "$3" on h3 env "FERRYD_SOCKET=/tmp/$2/sock" "FERRYD_API_SOCKET=/tmp/$2/api" "$ferry" move "$1" --to h1
  for ((i = 0; i < 100; i++)); do
    if on h1 grep -Eq "$4" /run/ferry/ferryd.log; then return 0; fi
    sleep 0.1
  done
  fail "the ferryd of h1 does not say '$4': $(on h1 tail -n 5 /run/ferry/ferryd.log)"
}

# Where keys and images lie, only root reads. An image is looked at while its program is frozen in a move (which then
# fails: a restored program asks its host's first ferryd).
group_rest() {
  local bad i runner
  # shellcheck disable=SC2016 # expanded by the script
  printf '%s\n' '#!/bin/sh' '[ "$1" = restore ] || exec /opt/ferry/bin/criu "$@"' 'touch /tmp/restoring' \
    'while [ ! -e /tmp/looked ]; do sleep 0.05; done' 'exit 1' |
    on h3 sh -c 'cat >/tmp/slow-criu && chmod 755 /tmp/slow-criu'
  certify h3 h3-slow /tmp/slow-tls --also h3 --also 10.77.0.3
  launch h3 slow --tls-dir /tmp/slow-tls --listen 10.77.0.3:4794 --criu /tmp/slow-criu
  start h1 sip ib_send_bw -F -D 300
  await_listen h1 sip
  on h1 "$ferry" move sip --to h3:4794 >"$work/slow" 2>&1 &
  runner=$!
  for ((i = 0; i < 600; i++)); do
    if on h3 test -e /tmp/restoring; then break; fi
    sleep 0.1
  done
  for where in 'h1 /run/ferry/images' 'h3 /tmp/slow/images'; do
    read -r host folder <<<"$where"
    [[ -n $(on "$host" find "$folder" -name 'pages-*.img') ]] || fail "no image on $host"
    [[ $(on "$host" stat -c '%a %u' "$folder") == '700 0' ]] ||
      fail "$folder on $host is open: $(on "$host" ls -ld "$folder")"
    bad=$(on "$host" find "$folder" -name '*.img' -perm /077)
    [[ -z $bad ]] || fail "others may read on $host: $bad"
    if as_nobody "$host" sh -c "ls $folder" >/dev/null 2>&1; then fail "nobody may list $folder on $host"; fi
  done
  on h3 touch /tmp/looked
  if wait "$runner"; then fail 'moved although CRIU failed'; fi
  bad=$(on h1 find /run/ferry/tls /var/tmp/ferry -type f -perm /077)
  [[ -z $bad ]] || fail "others may read: $bad"
  bad=$(find "/run/ferry-lab/$FERRY_LAB/ca" -perm /077)
  [[ -z $bad ]] || fail "others may read: $bad"
  [[ $(on h1 stat -c %a /run/ferry) == 755 ]] || fail "/run/ferry is writable by others: $(on h1 ls -ld /run/ferry)"
  if as_nobody h1 touch /run/ferry/x 2>/dev/null; then fail 'nobody may write to /run/ferry'; fi
  interrupt h1 sip
  ok 'images and keys are readable by root only'
}

# What a user does to make hosts belong together, and what goes wrong with it.
group_commands() {
  local ca=$work/ca tls=$work/tls
  fails 'there is no CA in' "$ferry" host add h2 --ca-dir "$ca"
  "$ferry" ca init --name h1 --ca-dir "$ca" --tls-dir "$tls" >/dev/null
  fails 'there is a CA in .* already' "$ferry" ca init --name h1 --ca-dir "$ca" --tls-dir "$tls"
  [[ $(stat -c %a "$ca" "$ca/ca.key" "$tls" "$tls/host.key" | tr '\n' ' ') == '700 600 700 600 ' ]] ||
    fail 'a key lies open'
  (cd "$work" && "$ferry" host add h2 --ca-dir "$ca" >/dev/null)
  [[ $(stat -c %a "$work/h2.ferry") == 600 ]] || fail 'h2.ferry lies open'
  (cd "$work" && fails 'h2.ferry exists' "$ferry" host add h2 --ca-dir "$ca")
  "$ferry" host join "$work/h2.ferry" --tls-dir "$work/h2" >/dev/null
  "$ferry" host join "$work/h2.ferry" --tls-dir "$work/h2" >/dev/null # again: a renewal
  openssl verify -CAfile "$ca/ca.pem" "$work/h2/host.pem" >/dev/null ||
    fail 'openssl does not believe the certificate of h2'
  "$ferry" ca init --name x --ca-dir "$work/other" --tls-dir "$work/other-tls" >/dev/null
  "$ferry" host add h2 --ca-dir "$work/other" --output "$work/other.ferry" >/dev/null
  fails 'has certificates of another CA' "$ferry" host join "$work/other.ferry" --tls-dir "$work/h2"
  "$ferry" host join "$work/other.ferry" --replace --tls-dir "$work/h2" >/dev/null
  head -n 8 "$work/h2.ferry" >"$work/half"
  fails 'no file from ferry host add' "$ferry" host join "$work/half" --tls-dir "$work/h4"
  [[ ! -e $work/h4 ]] || fail 'a broken file left something behind'
  fails 'is no name of a host' "$ferry" host add 'h2,DNS:h3' --ca-dir "$ca" --output -
  # Over ssh: the same, through the stdin of a `ferry host join -` there.
  mkdir "$work/bin"
  # shellcheck disable=SC2016 # expanded by the script
  printf '%s\n' '#!/bin/sh' '[ "$1 $2" = "-- root@h7" ] || exit 9' '[ "$3" = "ferry host join -" ] || exit 8' \
    "exec $ferry host join - --tls-dir $work/h7" >"$work/bin/ssh"
  chmod 755 "$work/bin/ssh"
  PATH=$work/bin:$PATH "$ferry" host add root@h7 --ca-dir "$ca" >/dev/null
  openssl verify -CAfile "$ca/ca.pem" "$work/h7/host.pem" >/dev/null || fail 'h7 has not joined'
  if PATH=$work/bin:$PATH "$ferry" host add root@h8 --ca-dir "$ca" 2>"$work/err"; then
    fail 'a broken ssh was believed'
  fi
  grep -q 'could not join root@h8 over ssh' "$work/err" || fail "ssh: $(cat "$work/err")"
  # ferryd: no certificates, no port; wrong names; an open key.
  local run=("$FERRY_BIN/ferryd" --socket "$work/s" --api-socket "$work/a" --state-dir "$work/state"
    --image-dir "$work/images")
  fails 'no certificates in .*ferry ca init' on h1 "${run[@]}" --tls-dir /nonexistent --listen 10.77.0.1:4795
  on h1 sh -c 'cp -r /run/ferry/tls /tmp/open && chmod 644 /tmp/open/host.key'
  fails 'can be read by others' on h1 "${run[@]}" --tls-dir /tmp/open
  fails 'is of h1, not of h5' on h1 "${run[@]}" --tls-dir /run/ferry/tls --host h5
  launch h1 alone --tls-dir /nonexistent --host alone
  [[ $(on h1 ss -Hltnp | grep -c "pid=$(on h1 cat /tmp/alone/pid)," || true) == 0 ]] ||
    fail 'a ferryd without certificates listens'
  fails 'serves this host only' on h1 env FERRYD_SOCKET=/tmp/alone/sock FERRYD_API_SOCKET=/tmp/alone/api \
    "$ferry" move x --to h2
  ok 'hosts are added by one command each, and nothing is open by default'
}

use_lab secur 3
if (($# == 0)); then set -- users hosts rest commands; fi
for group in "$@"; do "group_$group"; done
