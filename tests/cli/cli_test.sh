#!/bin/bash
# The ferry command without a ferryd: what it says to wrong input, and how `ferry run` starts programs.
#   cli_test.sh FERRY
set -euo pipefail

readonly ferry=$1
here=$(dirname "$(readlink -f "$0")")
readonly here repository=${here%/tests/cli}
failures=0
export FERRYD_API_SOCKET=/nonexistent/ferryd-api.sock FERRYD_SOCKET=/nonexistent/ferryd.sock

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  failures=$((failures + 1))
}

# fails PATTERN ARGS...: ferry has to fail with one line on stderr that matches.
fails() {
  local pattern=$1 output
  shift
  if output=$("$ferry" "$@" 2>&1 >/dev/null); then fail "this should have failed: ferry $*"; fi
  [[ $output =~ $pattern && $output != *$'\n'* ]] || fail "'ferry $*' said '$output', not one line like '$pattern'"
}

# is EXPECTED CMD...
is() {
  local expected=$1 output
  shift
  output=$("$@") || fail "failed: $*"
  [[ $output == "$expected" ]] || fail "'$*' printed '$output', not '$expected'"
}

[[ $("$ferry" --version) =~ ^ferry\ [0-9]+\.[0-9]+\.[0-9]+\ \(build\ [0-9a-f]{40}\)$ ]] || fail 'no version'
fails 'no ferryd runs on this host' ps
fails 'no ferryd runs on this host' move program --to host
fails 'no ferryd runs on this host' history
fails "'0' .*--limit|Value 0 not in range|see: ferry history --help" history --limit 0
fails 'no ferryd runs on this host' top --count 1
fails 'see: ferry top --help' top --interval 0
fails 'there is no program of such a name' history $'\xff'
fails 'is no move id' resolve nonsense --commit
fails 'resolve needs --commit or --abort; see: ferry resolve --help' resolve 12
fails 'excludes' resolve 12 --commit --abort
fails 'MOVE is required; see: ferry resolve --help' resolve
fails 'DEVICE is required; see: ferry detach --help' detach
fails 'COMMAND is required; see: ferry detach --help' detach rxe0
fails 'see: ferry detach --help' detach rxe0 --limit 0s -- true
fails 'NAME is required; see: ferry vm --help' vm run
fails 'QEMU is required; see: ferry vm --help' vm run machine
fails "'a/b' is no name for a machine" vm run a/b -- qemu
fails 'has no -device with id=x, which --nic names' vm run machine --nic x -- qemu
fails 'excludes' move machine --vm --runc --to host
fails 'PROGRAM or --job is required; see: ferry move --help' move
fails '\-\-to is required; see: ferry move --help' move program
fails "'-3' is no number of milliseconds above 0; see: ferry move --help" move program --to host --max-blackout -3
for number in nan inf 12x 0 ''; do
  fails "'$number' is no number of milliseconds above 0" move program --to host --max-blackout "$number"
done
for number in -1 0 0.9 nan 5MB 1e7; do
  fails "'$number' is no number of megabytes a second from 1 to 1000000" move program --to host --ahead-rate "$number"
done
fails 'excludes' move program --to host --ahead-rate 5 --no-copy-ahead
fails 'no ferryd runs on this host' move program --to host --max-blackout 12.5 --ahead-rate 1
fails 'not expected: --frob; see: ferry move --help' move a b --frob --to host
fails "unknown command 'mvoe'; see: ferry --help" mvoe
fails "give the program's pid" move $'\xff' --to host
fails 'is no name of a host' move program --to $'\xff'
[[ $("$ferry") == "$("$ferry" --help)" ]] || fail 'ferry alone does not show its help'
# Each library that ferry opens costs time at every `ferry run`.
libraries=$(readelf -d "$ferry" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' | tr '\n' ' ')
[[ $libraries =~ ^((ld-linux-x86-64|libc|libm)\.so\.[0-9]+\ )+$ ]] ||
  fail "ferry needs these libraries to start a program, not libc and libm alone: $libraries"
fails 'run needs a program' run
fails 'run needs a program' run --
fails "unknown option '--nothing'" run --nothing true
fails '\-\-netdev needs the name of a network interface' run --netdev
fails "no network interface 'nodev0' here" run --netdev lo,nodev0 true
fails "no network interface '' here" run --netdev= true
fails '\-\-device needs the name of an RDMA device' run --device
fails "no RDMA device 'rxe99' here" run --device ferry0,rxe99 true
fails "no RDMA device 'ferryx' here" run --device ferryx true
fails "no RDMA device '\.\.' here" run --device .. true
fails "no RDMA device 'auto' here" run --device auto,ferry0 true
fails "no program 'no-such-program' in PATH" run no-such-program
fails 'cannot run /nonexistent: No such file' run -- /nonexistent
fails 'it is a folder' run -- /tmp
if [[ -x /sbin/ldconfig ]]; then fails 'statically linked' run -- /sbin/ldconfig; fi

# Without a ferryd `ferry doctor` says all the same what works.
doctor=$("$ferry" doctor --json) && fail 'ferry doctor finds no problem without a ferryd'
jq -e '[.checks[] | keys == ["check", "found", "group", "host", "state", "way_out"]] | all' <<<"$doctor" >/dev/null ||
  fail "ferry doctor --json printed: $doctor"
jq -e '.checks[] | select(.check == "ferryd") | .state == "problem" and .group == "ferryd" and
  (.found | startswith("no ferryd runs")) and (.way_out | startswith("start it"))' <<<"$doctor" >/dev/null ||
  fail "ferry doctor does not see that there is no ferryd: $doctor"
[[ $("$ferry" doctor some-host || true) == *"some-host, reachable: cannot be asked: no ferryd runs"* ]] ||
  fail 'ferry doctor HOST without a ferryd'
fails 'not expected: --frob; see: ferry doctor --help' doctor --frob

# Checkpoints are files, for which no ferryd is needed.
readonly golden=$repository/tests/store/golden/1 checkpoint=0123456789abcdef
checkpoints=$(mktemp -d)
cp -r "$golden/$checkpoint" "$checkpoints"
[[ $("$ferry" checkpoints "$checkpoints") =~ $checkpoint\ .*\ p0,\ p1\ .*\ complete$ ]] || fail 'no list of checkpoints'
"$ferry" checkpoints "$checkpoints" --json |
  "$repository/tests/cli/json_fields.py" "$repository/docs/json.md" 'ferry checkpoints --json' ||
  fail 'the JSON of checkpoints is not as documented'
is "$checkpoint: all of 97 B is as it was written" "$ferry" checkpoints "$checkpoints" verify
is "$checkpoint: all of 97 B is as it was written" "$ferry" checkpoints "$checkpoints" verify "$checkpoint"
fails 'DIR is required; see: ferry checkpoints --help' checkpoints
fails 'DIR is required; see: ferry checkpoints --help' checkpoints verify
fails 'ID is required; see: ferry checkpoints --help' checkpoints "$checkpoints" rm
fails 'cannot read /nonexistent: No such file' checkpoints /nonexistent
fails "has no complete checkpoint '../x'; see: ferry checkpoints" checkpoints "$checkpoints" verify ../x
fails "has no checkpoint '..'; see: ferry checkpoints" checkpoints "$checkpoints" rm ..
echo >>"$checkpoints/$checkpoint/0001-000000.zst"
fails '/0001-000000.zst is damaged: it has 36 bytes in place of 35$' checkpoints "$checkpoints" verify "$checkpoint"
verified=$("$ferry" checkpoints "$checkpoints" verify 2>&1 || true)
[[ $verified =~ 0001-000000.zst\ is\ damaged.*1\ of\ 1\ checkpoints ]] ||
  fail 'all checkpoints are verified, and none is damaged'
"$ferry" checkpoints "$checkpoints" rm "$checkpoint"
is "no checkpoints in $checkpoints yet" "$ferry" checkpoints "$checkpoints"
fails 'no checkpoints in ' checkpoints "$checkpoints" verify

# One that is encrypted, and keys.
key=$golden/../2/key.pem
cp -r "$golden/../2/$checkpoint" "$checkpoints"
[[ $("$ferry" checkpoints "$checkpoints") =~ complete,\ encrypted$ ]] || fail 'it is not said to be encrypted'
"$ferry" checkpoints "$checkpoints" --json | jq -e '.checkpoints[0].encrypted' >/dev/null ||
  fail 'it is not said to be encrypted in JSON'
is "$checkpoint: all of 337 B is as it was written, by who had its content key" \
  "$ferry" checkpoints "$checkpoints" verify --key "$key"
is "$checkpoint: all of 337 B is as it was written by its digests alone; what is encrypted needs --key" \
  "$ferry" checkpoints "$checkpoints" verify
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=keeper -keyout "$checkpoints/key.pem" \
  -out "$checkpoints/keeper.pem" 2>/dev/null
wrong="$checkpoints/key.pem does not open $checkpoints/$checkpoint/key.cms: the checkpoint is encrypted for others"
fails "$wrong" checkpoints "$checkpoints" verify "$checkpoint" --key "$checkpoints/key.pem"
fails "$wrong" restart "$checkpoints" --key "$checkpoints/key.pem"
verified=$("$ferry" checkpoints "$checkpoints" verify --key "$checkpoints/key.pem" 2>&1 || true)
[[ $verified =~ "$wrong".*1\ of\ 1\ checkpoints\ in\ .*\ are\ encrypted\ for\ others\ than ]] ||
  fail "with a key of another one's: $verified"
fails 'no ferryd runs on this host' restart "$checkpoints" --key "$key"
fails 'no ferryd runs on this host' restart "$checkpoints" --key "$key" --wait
fails 'excludes' restart "$checkpoints" --wait --json
fails '/nonexistent: No such file' restart "$checkpoints" --key /nonexistent
fails 'keeper.pem is no private key in PEM' restart "$checkpoints" --key "$checkpoints/keeper.pem"
openssl pkey -in "$key" -aes256 -passout pass:open -out "$checkpoints/closed.pem"
fails 'closed.pem has a passphrase' restart "$checkpoints" --key "$checkpoints/closed.pem"
fails 'no ferryd runs on this host' checkpoint program --to "$checkpoints" --encrypt-to "$checkpoints/keeper.pem"
fails 'key.pem is no certificate in PEM' checkpoint program --to "$checkpoints" --encrypt-to "$checkpoints/keeper.pem" \
  --encrypt-to "$key"
fails '/nonexistent: No such file' checkpoint program --to "$checkpoints" --encrypt-to /nonexistent
openssl req -new -key "$key" -subj /CN=former 2>/dev/null |
  openssl x509 -req -signkey "$key" -days -1 -out "$checkpoints/former.pem" 2>/dev/null
fails 'former.pem has expired' checkpoint program --to "$checkpoints" --encrypt-to "$checkpoints/former.pem"
printf x | dd of="$checkpoints/$checkpoint/0000-000001.zst.enc" bs=1 seek=50 conv=notrunc status=none
for option in "" "--key $key"; do
  # shellcheck disable=SC2086 # none or two words
  fails '/0000-000001.zst.enc is damaged' checkpoints "$checkpoints" verify "$checkpoint" $option
done
cp -rT "$golden/$checkpoint" "$checkpoints/$checkpoint"
rm "$checkpoints/$checkpoint"/*.enc "$checkpoints/$checkpoint/key.cms"
verified=$("$ferry" checkpoints "$checkpoints" verify --key "$key" 2>&1 || true)
[[ $verified =~ $checkpoint\ is\ not\ encrypted.*1\ of\ 1\ checkpoints\ in\ .*\ are\ not\ encrypted ]] ||
  fail "what is not encrypted, with a key: $verified"
fails 'is not encrypted, but a key was given' checkpoints "$checkpoints" verify "$checkpoint" --key "$key"
fails 'is not encrypted, but a key was given' restart "$checkpoints" --key "$key"
rm -r "$checkpoints"

fails 'A subcommand is required' cdi
fails 'excludes' cdi generate --json --output /nonexistent/file
fails 'cannot make /proc/ferry-cdi' cdi generate --library-dir /proc/ferry-cdi --json
fails 'BUNDLE is required; see: ferry cdi --help' cdi apply
fails 'cannot read /nonexistent/config.json: No such file' cdi apply /nonexistent

library=$(dirname "$(readlink -f "$ferry")")/libferry.so
if [[ -e $library ]]; then
  # shellcheck disable=SC2016 # expanded by the program
  is "$library" "$ferry" run -- sh -c 'echo "$LD_PRELOAD"'
  # shellcheck disable=SC2016
  is "lo a b" "$ferry" run --netdev lo -- sh -c 'echo "$FERRY_NETDEV $1 $2"' sh a b
  # shellcheck disable=SC2016
  FERRY_DEVICE=ferry1 is "lo, " "$ferry" run --netdev lo -- sh -c 'echo "$FERRY_NETDEV, $FERRY_DEVICE"'
  # shellcheck disable=SC2016
  FERRY_DEVICE=ferry1 is ferry1 "$ferry" run -- sh -c 'echo "$FERRY_DEVICE"'
  # shellcheck disable=SC2016
  is ferry1 "$ferry" run --device ferry1 -- "$ferry" run -- sh -c 'echo "$FERRY_DEVICE"'
  # shellcheck disable=SC2016
  is "ferry1,ferry0 on" "$ferry" run --verbose --device ferry1,ferry0 sh -c 'echo "$FERRY_DEVICE $FERRY_VERBOSE"'
  other=$(ldconfig -p | sed -n 's/.*libibverbs\.so\.1 .*=> //p' | head -n 1)
  # shellcheck disable=SC2016
  LD_PRELOAD=$other is "$library:$other" "$ferry" run -- sh -c 'echo "$LD_PRELOAD"'
  status=0
  "$ferry" run -- sh -c 'exit 7' || status=$?
  [[ $status == 7 ]] || fail "the program's exit status 7 became $status"
fi

# What containers mount; the socket's folder is beside $FERRYD_SOCKET.
folder=$(mktemp -d)
export FERRYD_SOCKET=$folder/run/ferryd.sock
"$ferry" cdi generate --library-dir "$folder/libraries" --output "$folder/cdi/ferry.json" >/dev/null ||
  fail 'no specification'
"$ferry" cdi generate --library-dir "$folder/libraries" --json | cmp - "$folder/cdi/ferry.json" ||
  fail 'made again, it differs'
[[ $(ls "$folder/libraries") =~ ^[0-9a-f]{16}$ ]] || fail "in $folder/libraries: $(ls "$folder/libraries")"
of_kernel=$(find /sys/class/ -path '*/infiniband_verbs/uverbs*' | wc -l) # RDMA devices of this machine's kernel
jq -e --arg run "$folder/run/programs" --arg libraries "$folder/libraries/" --argjson of_kernel "$of_kernel" '
  .kind == "ferry.dev/rnic" and .cdiVersion == "0.5.0" and
  (.devices | length) == 1 + $of_kernel and .devices[0].name == "all" and (.devices[0].containerEdits |
  all(.mounts[]; (.hostPath | startswith($libraries) or . == $run) and (.options | index("ro"))) and
  ([.hooks[].hookName] == ["createContainer", "startContainer"]))' "$folder/cdi/ferry.json" >/dev/null ||
  fail "the specification: $(<"$folder/cdi/ferry.json")"
jq -r '.devices[0].containerEdits | .mounts[].hostPath, .hooks[0].path' "$folder/cdi/ferry.json" |
  while read -r path; do
    [[ -e $path ]] || echo "$path"
  done >"$folder/missing"
[[ ! -s $folder/missing ]] || fail "the specification names what is not there: $(<"$folder/missing")"
[[ $(cd "$folder"/libraries/*/host && echo *) == $(cd "$folder"/libraries/*/ferry/host && echo *) ]] ||
  fail 'the placeholders'
echo nonsense >"$folder/config.json"
fails 'is no JSON object' cdi apply "$folder" --library-dir "$folder/libraries"
echo '{"mounts": 1}' >"$folder/config.json"
fails 'is no configuration of a container' cdi apply "$folder" --library-dir "$folder/libraries"
fails "^ferry: this host's kernel has no RDMA device mlx7; it has .+" cdi apply "$folder" --device mlx7 \
  --library-dir "$folder/libraries"
[[ $(<"$folder/config.json") == '{"mounts": 1}' ]] || fail 'a configuration that is none was written'
echo '{"hooks": {"createContainer": [{"path": "/other"}, {"path": "/old/ferry-oci-hook"}]}, "process": {}}' \
  >"$folder/config.json"
"$ferry" cdi apply "$folder" --library-dir "$folder/libraries" || fail 'ferry cdi apply'
jq -e '(.mounts | length) == 4 and has("process") and
  ([.hooks.createContainer[].path] | length == 2 and .[0] == "/other")' \
  "$folder/config.json" >/dev/null || fail "the bundle: $(<"$folder/config.json")"
rm -rf "$folder"
[[ $("$ferry" lab --help) =~ 'Usage: ferry lab' ]] || fail 'ferry lab --help shows no usage'
[[ $failures == 0 ]] && echo 'all passed'
exit "$((failures > 0))"
