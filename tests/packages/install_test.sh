#!/bin/bash
# What `cmake --install` installs: these files and no others, below its prefix, which work where they lie.
#   install_test.sh CMAKE BUILD VERSION
set -euo pipefail

readonly cmake=$1 build=$2 version=$3
here=$(dirname "$(readlink -f "$0")")
readonly here repository=${here%/tests/packages}
[[ $EUID -eq 0 ]] || { echo 'skipped: needs root'; exit 77; }
command -v help2man >/dev/null || { echo 'skipped: help2man is not installed; run scripts/setup'; exit 77; }

# Its own mounts, among them a /var/lib for the kept libraries.
if [[ ${FERRY_OWN_MOUNTS:-} != yes ]]; then FERRY_OWN_MOUNTS=yes exec unshare --mount "$0" "$@"; fi
mount -t tmpfs tmpfs /var/lib

work=$(mktemp -d /tmp/ferry-packages.XXXXXX)
readonly work root=$work/root
failures=0
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  failures=$((failures + 1))
}

# says PATTERN CMD...: the command succeeds, and what it prints matches.
says() {
  local pattern=$1 output
  shift
  output=$("$@" 2>&1) || fail "'$*' failed: $output"
  [[ $output =~ $pattern ]] || fail "'$*' printed '$output', which is not like '$pattern'"
}

# same WHAT FILE FILE
same() { diff "$2" "$3" >"$work/differences" || fail "$1: $(<"$work/differences")"; }

files() { (cd "$1" && find . ! -type d | cut -c 2- | sort); }

sort >"$work/expected" <<'FILES'
/usr/bin/ferry
/usr/include/ferry/pd.h
/usr/include/ferry/verbs_ext.h
/usr/lib/criu/ferry_plugin.so
/usr/lib/ferry/criu-plugins/ferry_plugin.so
/usr/lib/ferry/ferry-append
/usr/lib/ferry/ferry-device-trial
/usr/lib/ferry/ferry-client
/usr/lib/ferry/ferry-criu-action
/usr/lib/ferry/ferry-criu-dump.so
/usr/lib/ferry/ferry-library
/usr/lib/ferry/ferry-oci-hook
/usr/lib/ferry/ferry-placeholder.so
/usr/lib/ferry/ferry-pages
/usr/lib/ferry/ferry-rootfs
/usr/lib/ferry/libferry.so
/usr/lib/libferry-pipe.so
/usr/lib/libferry-pipe.so.1
/usr/lib/libferry-pipe.so.1.0.0
/usr/lib/pkgconfig/ferry-pipe.pc
/usr/lib/systemd/system/ferry-piped.service
/usr/lib/systemd/system/ferry-piped.socket
/usr/lib/systemd/system/ferryd.service
/usr/sbin/ferry-get-criu
/usr/sbin/ferry-piped
/usr/sbin/ferryd
/usr/share/bash-completion/completions/ferry
/usr/share/ferry/lab/bin/podman
/usr/share/ferry/lab/host-init
/usr/share/ferry/lab/lab
/usr/share/ferry/lab/network-hook
/usr/share/ferry/lab/supervise
/usr/share/man/man1/ferry-ca-init.1
/usr/share/man/man1/ferry-ca-scraper.1
/usr/share/man/man1/ferry-ca.1
/usr/share/man/man1/ferry-cdi-apply.1
/usr/share/man/man1/ferry-cdi-generate.1
/usr/share/man/man1/ferry-cdi.1
/usr/share/man/man1/ferry-checkpoint.1
/usr/share/man/man1/ferry-checkpoints-rm.1
/usr/share/man/man1/ferry-checkpoints-verify.1
/usr/share/man/man1/ferry-checkpoints.1
/usr/share/man/man1/ferry-history.1
/usr/share/man/man1/ferry-host-add.1
/usr/share/man/man1/ferry-host-join.1
/usr/share/man/man1/ferry-detach.1
/usr/share/man/man1/ferry-doctor.1
/usr/share/man/man1/ferry-host.1
/usr/share/man/man1/ferry-lab.1
/usr/share/man/man1/ferry-move.1
/usr/share/man/man1/ferry-pipe-allow.1
/usr/share/man/man1/ferry-pipe-deny.1
/usr/share/man/man1/ferry-pipe-forget.1
/usr/share/man/man1/ferry-pipe-limit.1
/usr/share/man/man1/ferry-pipe-ps.1
/usr/share/man/man1/ferry-pipe.1
/usr/share/man/man1/ferry-ps.1
/usr/share/man/man1/ferry-resolve.1
/usr/share/man/man1/ferry-restart.1
/usr/share/man/man1/ferry-run.1
/usr/share/man/man1/ferry-top.1
/usr/share/man/man1/ferry-vm-ps.1
/usr/share/man/man1/ferry-vm-run.1
/usr/share/man/man1/ferry-vm.1
/usr/share/man/man1/ferry.1
/usr/share/man/man3/libferry-pipe.3
/usr/share/man/man8/ferry-get-criu.8
/usr/share/man/man8/ferry-piped.8
/usr/share/man/man8/ferryd.8
/usr/share/pkgconfig/ferry.pc
/usr/share/zsh/vendor-completions/_ferry
FILES

install() {
  local folder=$1
  shift
  DESTDIR=$folder "$cmake" --install "$build" "$@" >"$work/log" || fail "cmake --install $* failed: $(<"$work/log")"
}

## files

install "$root" --prefix /usr
files "$root" >"$work/found"
same 'installed is not what was expected' "$work/expected" "$work/found"

for component in ferry ferryd ferry-dev ferry-lab ferry-pipe ferry-pipe-dev; do
  install "$work/parts" --prefix /usr --component "$component"
done
files "$work/parts" >"$work/found"
same 'the components are not all of it' "$work/expected" "$work/found"

# Without DESTDIR, into a prefix of its own: nothing else changes.
ls -lR --time-style=full-iso /usr/lib/criu /usr/lib/systemd/system >"$work/before" 2>/dev/null || true
install '' --prefix "$work/prefix"
ls -lR --time-style=full-iso /usr/lib/criu /usr/lib/systemd/system >"$work/after" 2>/dev/null || true
same 'something was installed outside of the prefix' "$work/before" "$work/after"
files "$work/prefix" | sed 's,^,/usr,' >"$work/found"
same 'another prefix has other files' "$work/expected" "$work/found"
grep -q "^ExecStart=$work/prefix/sbin/ferryd " "$work/prefix/lib/systemd/system/ferryd.service" ||
  fail 'the unit starts a ferryd of another prefix'

## what is installed works

readonly ferry=$root/usr/bin/ferry
says "^ferry $version \(build [0-9a-f]{40}\)$" "$ferry" --version
says "^ferryd $version \(build [0-9a-f]{40}\)$" "$root/usr/sbin/ferryd" --version
says '^Usage: ferry run' "$ferry" run --help
says 'Usage: ferry lab' "$ferry" lab --help
says 'Usage: ferry-get-criu' "$root/usr/sbin/ferry-get-criu" --help
# shellcheck disable=SC2016 # expanded by the program
says "^$root/usr/lib/ferry/libferry.so$" "$ferry" run -- sh -c 'echo $LD_PRELOAD'
says '^wrote ' "$ferry" cdi generate --library-dir "$work/cdi" --output "$work/cdi.json"
export PKG_CONFIG_PATH=$root/usr/share/pkgconfig:$root/usr/lib/pkgconfig
says '^-I.*/usr/share/pkgconfig/../../include' pkg-config --cflags ferry

# A program of a user's that hands its contexts on: compiled with what is installed, linked with nothing of Ferry's.
cat >"$work/user.c" <<'PROGRAM'
#include <ferry/verbs_ext.h>
#include <stdio.h>

#pragma weak ibv_dump_context

int main(void) {
  int count, number = 0;
  struct ibv_device** devices = ibv_get_device_list(&number);
  struct ibv_context* context = number > 0 ? ibv_open_device(devices[0]) : NULL;
  if (!ibv_dump_context) return puts("without Ferry"), 0;
  if (!context) return puts("no device"), 1;
  printf("%d bytes\n", ibv_dump_context(context, &count, NULL, 0));
  return 0;
}
PROGRAM
# shellcheck disable=SC2046 # flags are words
cc -Wall -Werror $(pkg-config --cflags ferry) -o "$work/user" "$work/user.c" $(pkg-config --libs ferry) ||
  fail 'a program with ferry/verbs_ext.h does not compile'
says '^without Ferry$' "$work/user"
says '^[1-9][0-9]* bytes$' "$ferry" run --netdev lo -- "$work/user"

# The program of docs/pipe.md, and a peer of the kernel's sockets, which it reaches by TCP.
awk '/^```c$/ { within = 1; next } /^```$/ { within = 0 } within' "$repository/docs/pipe.md" >"$work/pipe.c"
python3 -c 'import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
peer = server.accept()[0]
peer.sendall(peer.recv(5).upper())' >"$work/served" &
for ((i = 0; i < 1000; i++)); do
  if [[ -s $work/served ]]; then break; fi
  sleep 0.01
done
sed -i "s/10\.99\.0\.1/127.0.0.1/; s/htons(5000)/htons($(<"$work/served"))/" "$work/pipe.c"
# shellcheck disable=SC2046 # flags are words
cc -Wall -Werror $(pkg-config --cflags ferry-pipe) -o "$work/pipe" "$work/pipe.c" $(pkg-config --libs ferry-pipe) ||
  fail 'the program of docs/pipe.md does not compile'
says "^ferry-piped $version \(build [0-9a-f]{40}\)$" "$root/usr/sbin/ferry-piped" --version
export FERRY_PIPE_SOCKET=$work/pipe.sock LD_LIBRARY_PATH=$root/usr/lib
"$root/usr/sbin/ferry-piped" --socket "$FERRY_PIPE_SOCKET" 2>"$work/piped.log" &
piped=$!
for ((i = 0; i < 1000; i++)); do
  if [[ -S $FERRY_PIPE_SOCKET ]] || ! kill -0 $piped; then break; fi
  sleep 0.01
done
says '^HELLO$' "$work/pipe"
kill $piped
wait $piped || fail "ferry-piped ended with status $?"
unset LD_LIBRARY_PATH

for page in "$root"/usr/share/man/man?/*; do
  name=${page##*/}
  says "\"${name%.*} - " lexgrog "$page"
done

# ferryd finds what belongs to it: with a CRIU that is content with everything it has no warning.
printf '#!/bin/sh\necho Version: 4.2\n' >"$work/criu"
chmod 755 "$work/criu"
"$root/usr/sbin/ferryd" --criu "$work/criu" --socket "$work/socket" --api-socket "$work/api" --state-dir "$work/state" \
  --image-dir "$work/images" --containers "$work/containers" --tls-dir "$work/tls" 2>"$work/ferryd.log" &
ferryd=$!
for ((i = 0; i < 1000; i++)); do
  if [[ -S $work/api ]] || ! kill -0 $ferryd; then break; fi
  sleep 0.01
done
says 'nothing on .* uses an RDMA device' \
  env FERRYD_SOCKET="$work/socket" FERRYD_API_SOCKET="$work/api" "$ferry" ps
kill $ferryd
wait $ferryd || fail "ferryd ended with status $?"
! grep 'missing' "$work/ferryd.log" || fail 'ferryd misses something, see above'

## libraries that upgrades leave alone

readonly kept=/var/lib/ferry-library library=$root/usr/lib/ferry/libferry.so
id=$(readelf -n "$library" | sed -n 's/.*Build ID: //p')
readonly keep=("$root/usr/lib/ferry/ferry-library" keep "$library") clean=("$root/usr/lib/ferry/ferry-library" clean)
"${keep[@]}" "$id"
# shellcheck disable=SC2016 # expanded by the program
says "^$kept/$id/libferry.so$" "$ferry" run -- sh -c 'echo $LD_PRELOAD'
says '^755 root 644 root$' sh -c "echo \$(stat -c '%a %U' $kept/$id $kept/$id/libferry.so)"
"$ferry" run -- sleep 1000 &
for ((i = 0; i < 1000; i++)); do
  if grep -qs "$kept/$id/" "/proc/$!/maps"; then break; fi
  sleep 0.01
done
touch -d '3 minutes ago' "$kept/$id"
for other in 01 02; do "${keep[@]}" $other; done
touch -d '2 minutes ago' "$kept/01"
"${clean[@]}" 1
says "^02 $id $" sh -c "ls $kept | tr '\\n' ' '"
"${keep[@]}" 03
"${clean[@]}" 0
says "^$id$" ls $kept
kill $!
wait $! || true
"${clean[@]}" 0
[[ ! -e $kept ]] || fail "$kept is still there"
"${keep[@]}" "$id"
chmod 775 "$kept"
# shellcheck disable=SC2016 # expanded by the program
says "^$library$" "$ferry" run -- sh -c 'echo $LD_PRELOAD'

## completion, by what --help says

# completes EXPECTED WORD...: the completions of the last word.
completes() {
  local expected=$1
  shift
  # shellcheck disable=SC2016 # expanded by the shell with the completion
  says "^$expected\$" env PATH="$root/usr/bin:$PATH" bash -c '
    _init_completion() { words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${words[-1]} prev=${words[-2]}; }
    _command_offset() { COMPREPLY=("command from $1"); }
    . "$0"
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _ferry
    echo "${COMPREPLY[@]}"' "$root/usr/share/bash-completion/completions/ferry" ferry "$@"
}
completes 'run lab move ps history top resolve ca host checkpoint checkpoints restart doctor detach vm cdi pipe' ''
completes 'move' mo
completes '--copy-rootfs --copy-ahead' move --copy
completes '' move --to ''
completes 'add join' host ''
completes 'init scraper' ca ''
completes '--replace' host join --re
completes '--netdev' run --n
completes 'command from 2' run ib_send
completes 'command from 4' run --netdev eth0 ib_send
completes 'command from 3' run -- ib_send
completes 'up exec run wait logs ps down' lab ''

## the Debian package

[[ $(head -n 1 "$repository/debian/changelog") == "ferry ($version) "* ]] ||
  fail "debian/changelog begins with another version than $version, that of CMakeLists.txt"

((failures == 0)) || { echo "$failures failed" >&2; exit 1; }
echo 'all passed'
