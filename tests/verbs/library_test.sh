#!/bin/bash
# What libferry.so may need and what it must export: it lives in strangers' processes.   library_test.sh LIBFERRY
set -u
library=$1
here=$(dirname "$0")
failures=0
same() { # what, expected, found
  [ "$2" = "$3" ] && return
  failures=$((failures + 1))
  echo "FAILED: $1"
  diff <(echo "$2") <(echo "$3") | sed 's/^</expected:/; s/^>/found:   /; /^[0-9]/d'
}
dynamic=$(readelf -dW "$library")
# The loader is glibc too: it has the call behind thread-local variables.
same "NEEDED" "$(printf 'ld-linux-x86-64.so.2\nlibc.so.6\nlibibverbs.so.1')" \
  "$(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort)"
same "SONAME" libferry.so "$(echo "$dynamic" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')"
echo "$dynamic" | grep -q 'FLAGS_1.*NOW' || { failures=$((failures + 1)); echo "FAILED: not bound at start (-z now)"; }
readelf -nW "$library" | grep -q 'Build ID' || { failures=$((failures + 1)); echo "FAILED: no build id"; }
newest=$(readelf -VW "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
same "no symbol newer than glibc 2.34" "$newest" "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | head -1)"
# later_symbols.txt: of versions of libibverbs that images may have, and this machine need not.
same "exported symbols" "$(sort "$here/exported_symbols.txt" "$here/later_symbols.txt")" \
  "$(nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" {print $3}' | sort)"
# Each ibv_* symbol of ours, with its version, must be one that the stock library has: else a program would not find
# ours.
stock=$(ldconfig -p | awk '/libibverbs.so.1 .*x86-64/ {print $NF; exit}')
stock=$(nm -D --defined-only --with-symbol-versions "$stock" | awk '{print $3}')
while read -r symbol; do
  echo "$stock" | grep -qxF "$symbol" || { failures=$((failures + 1)); echo "FAILED: libibverbs has no $symbol"; }
done < <(grep 'IBVERBS' "$here/exported_symbols.txt")
# Preloaded into a program that has nothing to do with RDMA.
same "a program without RDMA" hello "$(LD_PRELOAD=$(realpath "$library") /bin/sh -c 'echo hello' 2>&1)"
[ $failures = 0 ] && echo "libferry.so is as it should be"
exit $((failures != 0))
