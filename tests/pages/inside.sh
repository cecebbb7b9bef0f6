#!/bin/bash
# Runs a command where commands of pages can do no harm: in namespaces of its own, in which what is written to the
# system and to the checkout is gone at the end, and what was started has ended. The build is build/release, as pages
# have it.
#
#   inside.sh BINARIES COMMAND...    BINARIES: the build's folder bin
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
readonly here repository=${here%/tests/pages}

readonly too_young=75
# `ferry lab up` binds mount namespaces to files, which Linux has in older mount namespaces only; and since 6.18 each
# processor gives ages to those that it makes. So this one has to be older than what any processor makes.
if [[ ${FERRY_PROCESSORS:-} == '' ]]; then
  FERRY_PROCESSORS=$(taskset -cp $$)
  export FERRY_PROCESSORS=${FERRY_PROCESSORS##*: }
  for ((processor = 0; processor < $(nproc --all); processor++)); do
    status=0
    taskset -c "$processor" true 2>/dev/null || continue
    taskset -c "$processor" unshare --mount --net --ipc --uts --pid --fork --kill-child --mount-proc -- "$0" "$@" ||
      status=$?
    ((status == too_young)) || exit "$status"
  done
  echo 'skipped: no mount namespace here is older than those that are made in it'
  exit 77
fi
taskset -cp "$FERRY_PROCESSORS" $$ >/dev/null
older_than_all() {
  local each
  for ((each = 0; each < $(nproc --all); each++)); do
    taskset -c "$each" true 2>/dev/null || continue
    taskset -c "$each" unshare --mount=/run/own/namespace true 2>/dev/null || return 1
    umount /run/own/namespace
  done
}
build=$(readlink -f "$1/..")
shift

# overlay FOLDER NAME: what is written there goes to memory.
overlay() {
  mkdir -p "/run/own/$2"/{new,work}
  mount -t overlay overlay -o "lowerdir=$1,upperdir=/run/own/$2/new,workdir=/run/own/$2/work" "${3:-$1}"
}

# What lies below the folders that are to be own ones would be hidden there, and hosts of the lab could not unmount it.
while read -r target; do
  printf -v target '%b' "$target"
  case $target in
    /run/* | /dev/shm/* | /tmp/* | /var/tmp/*)
      [[ $repository/ == "$target"/* || $build/ == "$target"/* ]] || umount -l "$target" 2>/dev/null || true
      ;;
  esac
done < <(findmnt -rn -o TARGET | sort -r)
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/own/{repository,build,bin}
touch /run/own/namespace
older_than_all || exit "$too_young"
unset FERRY_PROCESSORS
mount --bind "$repository" /run/own/repository
mount --bind "$build" /run/own/build
for folder in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
for folder in etc root srv opt var usr/local; do overlay "/$folder" "${folder//\//-}"; done
mkdir -p "$repository"
overlay /run/own/repository checkout "$repository"
mkdir -p "$repository/build/release"
mount --bind /run/own/build "$repository/build/release"

hostname page
ip link set lo up
ip link add eth0 mtu 9000 type veth peer name far mtu 9000
ip link set far up
ip address add 10.9.0.1/24 dev eth0
ip link set eth0 up

# Pages say sudo where a command needs root, who runs them here.
if ! command -v sudo >/dev/null; then
  # shellcheck disable=SC2016 # expanded by the script
  printf '#!/bin/sh\n[ "$1" = -s ] || exec "$@"\n' >/run/own/bin/sudo
  chmod 755 /run/own/bin/sudo
  PATH=$PATH:/run/own/bin
fi
unset FERRY_BIN # a reader has none
export FERRY_INSIDE=yes
cd "$repository"
status=0
"$@" || status=$? # not exec: this shell is process 1, and takes what has ended
"$repository/lab/lab" down || status=1
exit "$status"
