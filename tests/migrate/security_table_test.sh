#!/bin/bash
# Every test that docs/security.md names exists, every row of its lists names one, and none is named that is switched
# off.
#   security_table_test.sh DOCS/security.md TESTS
#
# A test is `Suite.Name` of a C++ test, or `script.sh group`.
set -u
page=$1 tests=$2
failures=0 count=0
say() {
  failures=$((failures + 1))
  echo "FAILED: $*"
}

exists() {
  local suite name script group
  if [[ $1 =~ ^([a-z_]+\.sh)\ ([a-z]+)$ ]]; then
    script=${BASH_REMATCH[1]} group=${BASH_REMATCH[2]}
    grep -rqE "^group_$group\(\)" --include="$script" "$tests"
  elif [[ $1 =~ ^([A-Za-z]+)\.([A-Za-z0-9]+)$ ]]; then
    suite=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]}
    # A name may have been wrapped to the next line.
    grep -rhzqE "TEST(_F|_P)?\($suite,[[:space:]]+$name\)" --include='*_test.cc' "$tests"
  else
    return 1
  fi
}

# A row is an item of a list, in one line, in a section of the third level: who it is that tries.
rows() {
  awk 'function flush() { if (row != "") print row; row = "" }
    /^#/ { flush(); within = /^### /; next }
    !within { next }
    /^\* / { flush(); row = $0; next }
    /^$/ { flush(); next }
    row != "" { sub(/^ +/, " "); row = row $0; next }
    END { flush() }' "$page"
}

number=0
while IFS= read -r row; do
  number=$((number + 1))
  [[ $row == '* It tries to **'*'**: '*' Shown by '* ]] || say "not what it tries, what stops it, Shown by: $row"
  shown=$(grep -oE "\`[^\`]+\`" <<<"${row##* Shown by }" | tr -d "\`")
  [[ -n $shown ]] || say "no test in the row: $row"
  while IFS= read -r test; do
    [[ -n $test ]] || continue
    count=$((count + 1))
    exists "$test" || say "there is no test '$test'"
  done <<<"$shown"
done < <(rows)

((number >= 50)) || say "only $number rows are there"
if grep -q '^|' "$page"; then say 'a table is in the page: its rows are not looked at; make them items of a list'; fi
((count >= 30)) || say "only $count tests are named"
if exists 'Security.NoSuchTest' || exists 'security_test.sh nosuchgroup'; then say 'it finds what is not there'; fi
((failures == 0)) && echo "docs/security.md: all $count tests exist"
exit $((failures != 0))
