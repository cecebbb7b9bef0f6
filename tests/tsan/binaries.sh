#!/bin/bash
# Puts the binaries for moves by a ferryd under the thread sanitizer into a folder: that ferryd, and everything else
# from a plain build, for a sanitizer's runtime cannot be loaded into programs and a CRIU that are built without it.
#
#   binaries.sh PLAIN SANITIZED FOLDER     the plain build's binaries, the sanitizer's, and the folder to make
set -euo pipefail
plain=$1 sanitized=$2 folder=$3

[[ -x $plain/ferryd ]] || { echo "FAILED: there is no $plain/ferryd: build the preset release first"; exit 1; }
rm -rf "$folder"
mkdir -p "$folder"
find "$plain" -mindepth 1 -maxdepth 1 ! -name '*_test' ! -name '*_bench' ! -name ferryd -exec cp -al -t "$folder" {} +
ln "$sanitized/ferryd" "$folder/ferryd"
