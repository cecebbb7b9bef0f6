# Sourced by tests that run containers; bash only. Root filesystems of Debian and of musl, made with mmdebstrap once and
# kept in $FERRY_IMAGES (/var/cache/ferry/images): make_images NAME... makes what is missing.
#
#   image_root NAME     the folder of its root filesystem: lower layers only, never written
#   image_store         a storage for podman (additionalimagestore) that has each as localhost/NAME
#
# bookworm trixie forky   Debian 12, 13 and the next, with libibverbs, ibv_devinfo, ibv_rc_pingpong, perftest
# bullseye                Debian 11, with libibverbs and ibv_devinfo: glibc 2.31
# plain                   Debian 12 without libibverbs
# musl                    musl, and busybox
# shellcheck shell=bash

# Named after the recipe.
image_cache() {
  local recipe
  recipe=$(declare -f extract_packages make_root | sha256sum)
  printf '%s/%s\n' "${FERRY_IMAGES:-/var/cache/ferry/images}" "${recipe:0:12}"
}
image_root() { printf '%s/%s\n' "$(image_cache)" "$1"; }
image_store() { printf '%s/store\n' "$(image_cache)"; }

image_podman() {
  local cache
  cache=$(image_cache)
  CONTAINERS_CONF=<(printf '%s\n' '[network]' 'network_backend = "netavark"') \
    podman --root "$cache/store" --runroot "$cache/run" --tmpdir "$cache/tmp" --storage-driver overlay "$@"
}

# The files of packages, without their scripts: what runs in the tests needs no more.
extract_packages() { # SUITE FOLDER PACKAGE...
  local IFS=,
  mmdebstrap --quiet --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' \
    --include="${*:3}" "$1" "$2" \
    "$("$here/../../scripts/get-criu" --mirror)"
}

make_root() { # NAME FOLDER
  case $1 in
    bookworm | trixie | forky)
      extract_packages "$1" "$2" libc6 libc-bin dash coreutils ibverbs-utils ibverbs-providers perftest
      ;;
    bullseye) extract_packages "$1" "$2" libc6 libc-bin dash coreutils ibverbs-utils ;;
    plain) extract_packages bookworm "$2" libc6 libc-bin dash coreutils ;;
    musl) extract_packages bookworm "$2" musl busybox-static ;;
  esac || return
  local folder
  for folder in bin sbin lib lib64; do # what base-files brings, since Debian 13
    [[ -e $2/$folder || ! -e $2/usr/$folder ]] || ln -s "usr/$folder" "$2/$folder"
  done
  rm -rf "$2"/var/{cache,lib}/apt "$2"/var/log "$2"/usr/share/{doc,info,locale,man}
  [[ -e $2/etc/ld.so.conf ]] && ldconfig -r "$2"
  [[ -e $2/bin/sh || -L $2/bin/sh ]] ||
    ln -s "$(if [[ $1 == musl ]]; then echo busybox; else echo dash; fi)" "$2/bin/sh"
}

make_image() (
  local name=$1 folder
  folder=$(image_root "$name")
  [[ ! -e $folder ]] || exit 0
  rm -rf "$folder.new"
  make_root "$name" "$folder.new" >"$folder.log" 2>&1 </dev/null || {
    echo "cannot make the image $name: $(tail -n 5 "$folder.log")" >&2
    exit 1
  }
  mv "$folder.new" "$folder"
)

make_images() {
  local cache name jobs=() pid
  cache=$(image_cache)
  mkdir -p "$cache"
  # Two test scripts at a time must not make the same one.
  exec 9>"$cache/lock"
  flock 9
  for name in "$@"; do
    make_image "$name" &
    jobs+=($!)
  done
  for pid in "${jobs[@]}"; do wait "$pid" || return 1; done
  for name in "$@"; do
    if ! image_podman image exists "localhost/$name"; then
      tar -C "$(image_root "$name")" -c . | image_podman import -q - "localhost/$name:latest" >/dev/null || return 1
    fi
  done
  exec 9>&-
}
