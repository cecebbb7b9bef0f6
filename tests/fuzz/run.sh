#!/usr/bin/env bash
# run.sh TARGET CORPUS: runs a fuzz target from its corpus for a minute (FERRY_FUZZ_SECONDS). What it finds on the way
# is kept beside the target, for the next run. An input that breaks something is named, and how to run it again.
set -u
target=$1 corpus=$2
name=$(basename "$target")
found=$(dirname "$target")/../fuzz-found/$name
mkdir -p "$found/corpus" "$found/broken"
found=$(cd "$found" && pwd)
log=$found/log

if "$target" -max_total_time="${FERRY_FUZZ_SECONDS:-60}" -max_len=4096 -timeout=60 -rss_limit_mb=2048 \
  -print_final_stats=1 \
  -artifact_prefix="$found/broken/" "$found/corpus" "$corpus" >"$log" 2>&1; then
  grep '^stat::number_of_executed_units' "$log"
  exit 0
fi
tail -n 60 "$log"
input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
echo "run.sh: $name: broken by ${input:-an input that was not kept}; all it said is in $log"
if [ -n "$input" ]; then echo "run.sh: to see it again: $target $input"; fi
exit 1
