# Sourced by the tests that run Ferry from its packages on virtual machines; bash only. What they do to the machines is
# what a user would type there.
#
#   use_machines NAME COUNT     boots them; they are removed however the test ends
#   vm HOST SCRIPT              runs a script there, as root
#   await WHAT CMD...           until CMD succeeds
#
# Nothing here depends on how fast the machines are.
# shellcheck shell=bash
set -euo pipefail

repository=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
readonly repository vmlab=$repository/scripts/vmlab
readonly patience=600
# shellcheck source=tests/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
work=
machines=()

# First what is short: scripts/test shows the first lines alone.
show_hosts() {
  local host
  for host in "${machines[@]}"; do
    vm "$host" 'hostname; journalctl -u ferryd -o cat --no-pager -n 1' || true
  done
  for host in "${machines[@]}"; do
    printf -- '--- %s\n' "$host"
    vm "$host" 'journalctl -u ferryd -o cat --no-pager | tail -n 25; ip -s link show dev eth0' || true
    show_machine "$host"
  done
}

remove_machines() {
  local status=$?
  "$vmlab" down || status=1
  rm -rf "$work"
  exit "$status"
}

use_machines() {
  local program number
  ((EUID == 0)) || { echo 'skipped: machines need root'; exit 77; }
  for program in qemu-system-x86_64 qemu-img mmdebstrap dpkg-buildpackage; do
    command -v "$program" >/dev/null || { echo "skipped: $program is not installed; run scripts/setup"; exit 77; }
  done
  export FERRY_VMLAB=${FERRY_LAB:-$1}
  for ((number = 1; number <= $2; number++)); do machines+=("h$number"); done
  work=$(mktemp -d)
  trap remove_machines EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  "$vmlab" down
  "$vmlab" up "$2"
}

vm() { "$vmlab" exec "$1" -- bash --norc -euo pipefail -c "$2"; }

# on_all SCRIPT: the same on each machine, at the same time.
on_all() {
  local host job jobs=()
  for host in "${machines[@]}"; do
    vm "$host" "$1" >"$work/$host" 2>&1 &
    jobs+=($!)
  done
  for job in "${!jobs[@]}"; do
    wait "${jobs[job]}" || fail "$1 on ${machines[job]}: $(tail -n 5 "$work/${machines[job]}")"
  done
}

# fails PATTERN HOST SCRIPT: the script fails there, and its last line is like PATTERN.
fails() {
  local output
  if output=$(vm "$2" "$3" 2>&1); then fail "this should have failed on $2: $3"; fi
  [[ ${output##*$'\n'} =~ $1 ]] || fail "'$3' on $2 said '$output', not '$1'"
}
