# Sourced by tests of virtual machines that move between the hosts of a lab; bash only. Their disks, and all else that
# the hosts share, are in /srv, as on a SAN.
#
#   use_machines NAME HOSTS         makes the lab
#   boot_machine NAME HOST NUMBER   starts a machine there (ferry vm run); eth0 is 10.77.200.NUMBER on the lab's network
#                                   eth, eth1 10.78.200.NUMBER on rdma
#   set_up_machine NAME             waits for it, makes rxe0 on eth1, and starts ferryd there
#   in_machine NAME SCRIPT          runs a script there, as root
#   move_machine NAME FROM TO [OPTION...]  (ferry move --vm)
#   start_stream CLIENT SERVER [OPTION...]  stream_check between two machines counts what is lost and doubled; the
#                                   options are its client's; the server's TCP port is 18600 and the client's number
#   goes_on CLIENT                  packets arrive there that were sent after now: acknowledgements
#   end_stream CLIENT SERVER        it ends, and has lost nothing
#
# shellcheck shell=bash

# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../programs/lib.sh"

readonly vmlab=$repository/scripts/vmlab
declare -A numbers=()
image=          # the folder with the machines' image
guests_options= # of the ferryds in machines

show_hosts() {
  local host name
  for ((host = 1; host <= hosts; host++)); do
    printf -- '--- ferryd of h%d\n' "$host"
    on "h$host" tail -n 20 /run/ferry/ferryd.log || true
  done
  for name in "${!numbers[@]}"; do
    printf -- '--- machine %s\n' "$name"
    tail -n 5 "$work/$name.qemu" "$FERRY_LAB_SHARED/$name.console" || true
    in_machine "$name" 'tail -n 20 /run/ferryd.log; ip -br address; rdma link; tail -n 5 /tmp/*.log' || true
  done
}

use_machines() {
  local component
  shares=yes
  use_lab "$1" "$2" qemu-system-x86_64 qemu-img mke2fs
  image=$("$vmlab" image)
  # What a machine has of Ferry, and the program that checks, on a disk.
  for component in ferry ferryd; do
    cmake --install "${FERRY_BIN%/bin}" --prefix "$work/ferry" --strip --component "$component" >/dev/null
  done
  cp "$FERRY_BIN/stream_check" "$work/ferry/bin"
  strip "$work/ferry/bin/stream_check"
  mke2fs -q -t ext4 -m 0 -O ^has_journal -d "$work/ferry" "$FERRY_LAB_SHARED/ferry" 64M
  cat >"$FERRY_LAB_SHARED/ifup" <<'IFUP'
#!/bin/sh
case $1 in
  *-rdma) bridge=brm mtu=9000 ;;
  *) bridge=br0 mtu=1500 ;;
esac
exec ip link set dev "$1" mtu "$mtu" master "$bridge" up
IFUP
  chmod +x "$FERRY_LAB_SHARED/ifup"
}

in_machine() {
  on h1 ssh -q -i "$image/key" -o "UserKnownHostsFile=$image/known_hosts" -o HostKeyAlias=h1 -o BatchMode=yes \
    -o ConnectTimeout=5 -o ServerAliveInterval=10 -o ServerAliveCountMax=12 -o ControlMaster=auto \
    -o ControlPersist=yes -o "ControlPath=/srv/$1.ssh" "root@10.77.200.${numbers[$1]}" -- \
    "PATH=/opt/ferry-disk/bin:/opt/ferry-disk/sbin:\$PATH; $2"
}

# The QEMU command of a machine, into `qemu`. Its second NIC is hot-pluggable, on a port of its own.
qemu_command() { # NAME NUMBER
  local name=$1 number=$2 kernel nics=() index=0 net mtu
  kernel="root=/dev/vda rootfstype=ext4 console=ttyS0 quiet panic=-1 mitigations=off audit=0 no_timer_check"
  kernel+=" random.trust_cpu=on net.ifnames=0 systemd.show_status=0 systemd.unit=multi-user.target"
  kernel+=" systemd.hostname=$name ip=10.77.200.$number:::255.255.0.0:$name:eth0:none"
  for net in eth rdma; do
    if [[ $net == eth ]]; then mtu=1500; else mtu=9000; fi
    # Checksums are made in the machine: rdma_rxe's would be wrong otherwise.
    nics+=(-device "pcie-root-port,id=port$index,chassis=$((index + 1)),slot=$((index + 1))"
      -netdev "tap,id=$net,ifname=$name-$net,script=/srv/ifup,downscript=no,vnet_hdr=off"
      -device "virtio-net-pci,id=nic-$net,netdev=$net,bus=port$index,csum=off,guest_csum=off,host_mtu=$mtu,mac=$(
        printf '52:54:00:77:%02x:%02x' "$index" "$number")")
    index=$((index + 1))
  done
  qemu=(qemu-system-x86_64 -name "$name" -M q35 -accel "tcg,thread=multi" -cpu max -smp "1,maxcpus=2" -m 384
    -nodefaults -no-user-config -display none -kernel "$image/vmlinuz" -initrd "$image/initrd" -append "$kernel"
    -drive "id=disk,if=none,format=qcow2,cache=none,file=/srv/$name.disk" -device "virtio-blk-pci,drive=disk"
    -drive "id=ferry,if=none,format=raw,readonly=on,file=/srv/ferry" -device "virtio-blk-pci,drive=ferry"
    -device virtio-rng-pci -chardev "file,id=console,path=/srv/$name.console,append=on" -serial chardev:console
    "${nics[@]}")
}

boot_machine() { # NAME HOST NUMBER
  local qemu=()
  numbers[$1]=$3
  qemu-img create -q -f qcow2 -F raw -b "$image/disk" "$FERRY_LAB_SHARED/$1.disk"
  qemu_command "$1" "$3"
  on "$2" setsid "$ferry" vm run "$1" --nic nic-rdma -- "${qemu[@]}" </dev/null >"$work/$1.qemu" 2>&1 &
  disown
}

booted() {
  [[ ! -s $work/$1.qemu ]] || fail "$1 does not start: $(tail -n 1 "$work/$1.qemu")"
  in_machine "$1" true
}

# Its ferryd is one of those that the lab's CA has certified, and has a device of the kernel.
set_up_machine() { # NAME
  local number=${numbers[$1]}
  await "$1 boots" booted "$1"
  in_machine "$1" "mkdir -p /opt/ferry-disk; mount -o ro /dev/vdb /opt/ferry-disk
    ip address add 10.78.200.$number/16 dev eth1; ip link set dev eth1 mtu 9000 up
    modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth1; sysctl -qw net.core.rmem_max=16777216"
  "$ferry" host add "$1" --also "10.77.200.$number" --ca-dir "/run/ferry-lab/$FERRY_LAB/ca" --output - |
    in_machine "$1" 'ferry host join -' >/dev/null
  in_machine "$1" "setsid nohup ferryd $guests_options --listen 10.77.200.$number:4780 \
    --directory ferryd://10.77.200.1,10.77.200.2,10.77.200.3 >/run/ferryd.log 2>&1 </dev/null &"
  await "the ferryd of $1 serves" in_machine "$1" 'ferry ps >/dev/null 2>&1'
}

# It goes on there, and its QEMU here is gone. Sets `last_report`.
move_machine() { # NAME FROM TO [OPTION...]
  last_report=$(on "$2" "$ferry" move --vm "$1" --to "$3" --json "${@:4}") || fail "no move of $1 from $2 to $3"
  [[ " $(machines_on "$3") " == *" $1 "* ]] || fail "$1 is not on $3"
  [[ " $(machines_on "$2") " != *" $1 "* ]] || fail "$1 is on $2 still"
}

# The names of the machines that run there.
machines_on() { on "$1" "$ferry" vm ps --json | jq -r '[.[].name] | join(" ")'; }

start_stream() { # CLIENT SERVER [OPTION...]
  local client=$1 server=$2 port=$((18600 + numbers[$1])) before
  shift 2
  before=$(received "$client") || fail "$client does not say what it has received"
  in_machine "$server" "cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check --json --gid-index 1 \
    --timeout 18 --events --listen $port >/tmp/server.$port.log 2>&1 </dev/null & echo \$! >/tmp/server.$port.pid"
  await 'the server listens' in_machine "$server" "ss -Hltn 'sport = :$port' | grep -q ."
  in_machine "$client" "cd /tmp; setsid nohup ferry run --device rxe0 -- stream_check 10.77.200.${numbers[$server]} \
    --port $port --json --gid-index 1 --timeout 18 --events --size 4096 --seconds 0 ${*:---qps 2 --idle 5 --rate 40} \
    >/tmp/client.log 2>&1 </dev/null &"
  await 'the client sends' has_received "$client" "$before"
}

received() { in_machine "$1" 'cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts'; }
has_received() { # NAME [COUNT]: more than so many packets
  local now
  now=$(received "$1") && ((now > ${2:-0} + 20))
}
goes_on() {
  local before
  before=$(received "$1") || fail "$1 does not say what it has received"
  await 'packets arrive' has_received "$1" "$before"
}

end_stream() { # CLIENT SERVER
  in_machine "$1" 'pkill -INT -x stream_check; while pgrep -x stream_check >/dev/null; do sleep 0.1; done'
  in_machine "$1" 'cat /tmp/client.log' >"$work/client.log"
  jq -e '.result == "ok"' "$work/client.log" >/dev/null || fail "the client: $(<"$work/client.log")"
  in_machine "$2" "while kill -0 \$(cat /tmp/server.$((18600 + numbers[$1])).pid) 2>/dev/null; do sleep 0.1; done"
}
