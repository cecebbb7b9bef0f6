# Sourced by programs/lib.sh and machines/lib.sh; bash only. Who sources it sets
#
#   patience       seconds that anything may take that is waited for
#   show_hosts     a function that prints the ends of the hosts' logs
#   group          the part of the test that is under way, if it has parts
#
# The first failure ends a test.
# shellcheck shell=bash

# show_machine NAME: whether a machine of scripts/vmlab runs, and the end of its console: its kernel's errors.
show_machine() {
  printf -- '--- machine %s: %s\n' "$1" "$("${vmlab:?}" monitor "$1" query-status 2>&1 | tr -d '{}\n')"
  "$vmlab" console "$1" | tail -n 20 || true
}

ok() { printf 'ok - %s\n' "$*"; }

fail() {
  printf 'FAILED: %s\n' "$*${group:+ (group $group)}" >&2
  show_hosts >&2
  exit 1
}

# await WHAT CMD...: until CMD succeeds. WHAT is said if it never does. Who waits long asks less often, and leaves the
# processor to whom it waits for.
await() {
  local what=$1 deadline=$((SECONDS + ${patience:?})) pause=20
  shift
  until "$@"; do
    ((SECONDS < deadline)) || fail "not within $patience s: $what"
    sleep "${pause}e-3"
    pause=$((pause < 200 ? pause * 2 : 200))
  done
}
