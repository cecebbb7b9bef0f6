# Sourced by the tests of runc, which it gives networks and bundles, behind runtimes_lib.sh, which it sources.
# shellcheck shell=bash
# shellcheck source=tests/migrate/runtimes_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/runtimes_lib.sh"

# network HOST NAME NUMBER: a network namespace with addresses of its own on both networks of the hosts. no_network
# takes it away.
network() {
  on "$1" ip netns add "$2"
  on "$1" ip -batch - <<BATCH
link add name e$2 type veth peer name eth0 address 02:77:09:00:00:0$3 netns $2
link add name r$2 mtu 9000 type veth peer name rdma0 address 02:78:09:00:00:0$3 mtu 9000 netns $2
link set dev e$2 master br0
link set dev r$2 master brm
link set dev e$2 up
link set dev r$2 up
BATCH
  on "$1" ip -n "$2" -batch - <<BATCH
link set dev lo up
link set dev eth0 up
link set dev rdma0 up
address add 10.77.240.$3/16 dev eth0
address add 10.78.253.$3/16 dev rdma0
BATCH
}
no_network() {
  on "$1" ip link del dev "e$2"
  on "$1" ip link del dev "r$2"
  on "$1" ip netns del "$2"
}

# root_filesystem HOST NAME: of a bundle that has no config.json yet.
root_filesystem() {
  local folder=/run/bundles/$2
  on "$1" sh -c "mkdir -p $folder/rootfs $folder/up $folder/work &&
    mount -t overlay overlay -o lowerdir=$rootfs,upperdir=$folder/up,workdir=$folder/work $folder/rootfs"
}

# bundle HOST NAME NETWORK CMD...: for runc. NETWORK: a namespace's name, or host.
bundle() {
  local host=$1 name=$2 network=$3 folder=/run/bundles/$2
  shift 3
  root_filesystem "$host" "$name"
  on "$host" runc spec --bundle "$folder"
  # shellcheck disable=SC2016 # jq's own variables
  on "$host" jq --arg bin "$FERRY_BIN" --arg name "$name" --arg network "$network" '
    .linux.cgroupsPath = "/" + $name | .root.readonly = false |
    .process += {terminal: false, args: $ARGS.positional, rlimits: []} |
    .process.env += ["LD_PRELOAD=/opt/ferry/libferry.so",
      "FERRY_NETDEV=" + if $network == "host" then "rdma" else "rdma0" end] |
    .mounts |= map(select(.type != "cgroup")) |
    .mounts += [{destination: "/opt/ferry", source: $bin, type: "bind", options: ["rbind", "ro"]},
      {destination: "/run/ferry", source: "/run/ferry", type: "bind", options: ["rbind"]}] |
    if $network == "host" then del(.linux.namespaces[] | select(.type == "network"))
    else (.linux.namespaces[] | select(.type == "network")).path = "/run/netns/" + $network end' \
    "$folder/config.json" --args -- "$@" >"$work/config"
  on "$host" sh -c "cat >$folder/config.json" <"$work/config"
}

# runs HOST NAME runc ARGS...: with its output in a pipe, as a container engine does it; what was written is in the
# bundle's log.
runs() {
  # shellcheck disable=SC2016 # expanded on the host
  on "$1" bash \
    -c 'cd "/run/bundles/$1" && exec > >(exec setsid cat >>log 2>/dev/null) && shift && exec "$@" </dev/null 2>&1' \
    bash "${@:2}"
}

pid_of() { on "$1" runc state "$2" | jq .pid; }

# ends_well HOST NAME [LOG]: a stream_check, which has lost nothing.
ends_well() {
  await "$2 ends" sh -c "! '$lab' exec '$1' -- runc state '$2' 2>/dev/null | jq -e '.status == \"running\"' >/dev/null"
  on "$1" jq -e '.messages_lost == 0 and .messages_duplicated == 0 and .messages_corrupted == 0 and
    (.pages_corrupted // 0) == 0' \
    "/run/bundles/$2/${3:-log}" >/dev/null ||
    fail "$2: $(on "$1" tail -n 20 "/run/bundles/$2/${3:-log}")"
}
