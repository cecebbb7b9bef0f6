#!/usr/bin/env bash
# replay.sh TARGET CORPUS FINDINGS: a fuzz target gets every file of both folders, once each. When one breaks it, the
# script names the file and the command that shows it again.
set -u
target=$1 corpus=$2 findings=$3
name=$(basename "$target")

shopt -s nullglob
seeds=("$corpus"/*) found=("$findings"/*)
if [ ${#seeds[@]} = 0 ]; then
  echo "replay.sh: error: the corpus $corpus has no files; make_corpus writes it (tests/fuzz/README.md)"
  exit 1
fi
inputs=("${seeds[@]}" "${found[@]}")

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$target" -timeout=60 "${inputs[@]}" >"$log" 2>&1 || status=$?
executed=$(grep -c '^Executed ' "$log")
if [ $status = 0 ] && [ "$executed" = ${#inputs[@]} ]; then
  echo "none of ${#seeds[@]} inputs of the corpus and ${#found[@]} findings breaks $name"
  exit 0
fi

input=$(sed -n 's/^Running: //p' "$log" | tail -n 1)
if [ -z "$input" ]; then
  said="$name does not start" again=$target
elif [ "$executed" = ${#inputs[@]} ]; then
  said="$name ends with status $status after all of its inputs" again="$target -timeout=60 ${inputs[*]}"
else
  said="$name is broken by $input" again="$target -timeout=60 $input"
fi
reason=$(grep -m 1 -o -E 'does not hold: .*|runtime error: .*|ERROR: .*' "$log")
echo "replay.sh: error: $said${reason:+ ($reason)}"
echo "replay.sh: to see it again: $again"
if [ -n "$input" ]; then
  sed -n "$(grep -n '^Running: ' "$log" | tail -n 1 | cut -d : -f 1),\$p" "$log" | head -n 60
else
  tail -n 20 "$log"
fi
exit 1
