#!/usr/bin/env bash
# scripts/kjv-text.sh: prints the King James Bible, one verse per line, 4.1 MB of ASCII. Removes the verse names that the
# program `bible` (Debian: bible-kjv) prints before the verses.
set -euo pipefail

if ! command -v bible >/dev/null; then
  printf '%s\n' "kjv-text: the program \"bible\" is missing; install bible-kjv and bible-kjv-text" >&2
  exit 1
fi
bible -f "gen1:1-rev22:21" | sed -E 's/^[^ ]+ //'
