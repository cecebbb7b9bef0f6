#!/bin/bash
# A machine that has next to nothing: no systemd, no CRIU, no ferryd, and a user without capabilities or a way to root,
# as in a container. `ferry run` works there; every other command says in one line what is missing and what to do, or
# works, too. Needs root, to take all that away.
#
#   bare_test.sh
#
# Prints one line per check; exits non-zero when one fails.
# shellcheck source=tests/programs/lib.sh
source "$(dirname "$0")/../programs/lib.sh"

readonly nobody=65534 home=/tmp/home
((EUID == 0)) || { echo 'skipped: needs root'; exit 77; }
for program in ibv_rc_pingpong ip jq setpriv ss tini unshare; do
  command -v $program >/dev/null || { echo "skipped: $program is not installed; run scripts/setup"; exit 77; }
done
if [[ ${FERRY_BARE:-} != inside ]]; then
  FERRY_BARE=inside exec unshare --mount --net --uts --ipc --pid --fork --kill-child "$0" "$@"
fi

# Nothing that a command writes here stays: /etc, and what lies on tmpfs.
mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmpfs /tmp
for folder in /run /opt /var/lib; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mkdir -p $home /tmp/etc/up /tmp/etc/work
chown $nobody $home
mount -t overlay -o lowerdir=/etc,upperdir=/tmp/etc/up,workdir=/tmp/etc/work overlay /etc
mapfile -t found < <(type -aP criu || true)
for file in "${found[@]}"; do mount --bind /dev/null "$file"; done
ip link set dev lo up
ip link add name eth0 type veth peer name far
ip address add 10.99.0.1/24 dev eth0
ip link set dev eth0 up
ip link set dev far up
cd $home
work=$home

# powerless USER CMD...: without capabilities, and without a way to get some.
powerless() {
  setpriv --reuid "$1" --regid "$1" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    --ambient-caps=-all env -i PATH="$FERRY_BIN:/usr/bin:/bin:/usr/sbin:/sbin" HOME=$home "${@:2}"
}
tried=()
# bare ARGS...: ferry, for such a user.
bare() { powerless $nobody "$ferry" "$@"; }
# says_no PATTERN ARGS...: ferry fails with one line on stderr that matches.
says_no() {
  tried+=("$2")
  fails "$1" bare "${@:2}"
}
# does ARGS...: ferry succeeds, and has nothing to say on stderr.
does() {
  tried+=("$1")
  bare "$@" >"$work/out" 2>"$work/err" || fail "ferry $* failed: $(<"$work/err")"
  [[ ! -s $work/err ]] || fail "ferry $* said: $(<"$work/err")"
}

# A server and a client that end well, and say how long it took.
runs_for() { # USER
  local server
  powerless "$1" "$ferry" run -- ibv_rc_pingpong -g 0 >"$work/server" 2>&1 &
  server=$!
  await 'the server listens' listens_here 18515
  powerless "$1" "$ferry" run -- ibv_rc_pingpong -g 0 10.99.0.1 >"$work/client" 2>&1 ||
    fail "the client of user $1: $(<"$work/client")"
  wait $server || fail "the server of user $1: $(<"$work/server")"
  grep -q '^8192000 bytes in .* seconds = ' "$work/client" || fail "the client of user $1 says: $(<"$work/client")"
  grep -q '^1000 iters in .* seconds = ' "$work/server" || fail "the server of user $1 says: $(<"$work/server")"
}
listens_here() { [[ -n $(ss -Hltn "sport = :$1") ]]; }

[[ ! -e /run/systemd ]] || fail 'systemd is there'
if powerless $nobody which criu >/dev/null; then fail 'CRIU is there'; fi
[[ $(powerless $nobody sed -n 's/^CapBnd:\s*//p' /proc/self/status) =~ ^0+$ ]] || fail 'there are capabilities'

tried+=(run)
runs_for $nobody
runs_for 0
ok 'ferry run works, for a user and for a root without capabilities'

says_no '^ferry: no ferry-piped runs on this host \(/run/ferry/pipe.sock.admin\); start it: systemctl' pipe ps
readonly no_ferryd='^ferry: no ferryd runs on this host \(/run/ferry/ferryd-api.sock\); start it: ferryd, as root$'
says_no "$no_ferryd" ps
says_no "$no_ferryd" ps --json
says_no "$no_ferryd" move program --to h2
says_no "$no_ferryd" move program --to h2 --dry-run
says_no "$no_ferryd" move program --abort
says_no "$no_ferryd" history
says_no "$no_ferryd" top --count 1
says_no "$no_ferryd" resolve 12 --abort
says_no "$no_ferryd" checkpoint program --to "$work"
says_no "$no_ferryd" restart "$work"
says_no "$no_ferryd" restart "$work" --wait
says_no "$no_ferryd" detach rxe0 -- true
says_no "$no_ferryd" move --vm machine --to h2
says_no '^ferry: ferry vm needs root; use sudo$' vm ps
fails '^ferryd: needs root, because it freezes and restores processes; use sudo$' powerless $nobody "$FERRY_BIN/ferryd"
ok 'what needs a ferryd says so'

says_no '^ferry: cannot make /etc/ferry/ca: needs root; use sudo$' ca init
says_no '^ferry: there is no CA in /etc/ferry/ca; make one \(ferry ca init\), or do this on ' ca scraper prometheus
says_no '^ferry: there is no CA in /etc/ferry/ca; make one \(ferry ca init\), or do this on ' host add h2
does ca init --name h1 --ca-dir ca --tls-dir tls
does ca scraper prometheus --ca-dir ca
does host add h2 --ca-dir ca
says_no '^ferry: cannot make /etc/ferry/tls: needs root; use sudo$' host join h2.ferry
does host join h2.ferry --tls-dir tls-of-h2
chmod 700 ca
chown 0 ca
says_no '^ferry: cannot read ca/ca.key: needs root; use sudo$' host add h3 --ca-dir ca
ok 'a CA is made in folders of the user, and elsewhere by root only'

says_no '^ferry: cannot make /var/lib/ferry-cdi: needs root; use sudo$' cdi generate
says_no '^ferry: cannot make /run/ferry/programs: needs root; use sudo$' cdi generate --library-dir libraries \
  --output ferry.json
mkdir bundle
echo '{}' >bundle/config.json
says_no '^ferry: cannot make /var/lib/ferry-cdi: needs root; use sudo$' cdi apply bundle
ok 'containers are given devices by root only'

for command in 'up 2' 'exec h1 -- true' 'run h1 p -- true' 'wait p' 'logs p' ps down; do
  # shellcheck disable=SC2086 # words
  says_no "^ferry lab: needs root to make namespaces; run: sudo ferry lab ${command%% *}\$" lab $command
done
fails '^ferry lab: this root may make no namespaces, as in a container; run it outside, or in a privileged container$' \
  powerless 0 "$ferry" lab up 2
[[ ! -e /run/ferry-lab ]] || fail "of a lab that cannot be made something is left: $(find /run/ferry-lab)"
fails '^get-criu: needs root to write to /opt/ferry; run: sudo ' powerless $nobody "$repository/scripts/get-criu"
ok 'the lab and CRIU need a root that may make namespaces'

mkdir store
does checkpoints store
says_no '^ferry: cannot read .*nowhere: No such file or directory' checkpoints nowhere

# A report, not an error.
tried+=(doctor)
if bare doctor --json >"$work/report" 2>"$work/err"; then fail 'ferry doctor finds no problem'; fi
[[ ! -s $work/err ]] || fail "ferry doctor said: $(<"$work/err")"
jq -e '.checks | map({key: .check, value: "\(.state) \(.found); \(.way_out)"}) | from_entries |
  (.ferryd | test("^problem no ferryd runs .*; start it: ferryd, as root$")) and
  (.CRIU | test("^problem CRIU is missing .*; run ferry-get-criu")) and (."libferry.so" | startswith("ok "))' \
  "$work/report" >/dev/null || fail "ferry doctor reports: $(<"$work/report")"
ok 'ferry doctor reports all of it'

"$ferry" --help | awk '/^[^ ]/ { within = /^Subcommands:/ } within && /^  [a-z]/ { print $1 }' | sort >"$work/commands"
printf '%s\n' "${tried[@]}" | sort -u | diff "$work/commands" - >"$work/untried" ||
  fail "commands that there are (<), and that were tried (>): $(<"$work/untried")"
