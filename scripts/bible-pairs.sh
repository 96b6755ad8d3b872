#!/usr/bin/env bash
# scripts/bible-pairs.sh FOLDER: writes the verses of the English and the Spanish Bible to bible.{train,valid,test}.{en,es} in
# a folder. Each line is a verse, and line N of one language translates line N of the other. The program `diatheke` reads the
# texts of the Debian packages sword-text-web (World English Bible) and sword-text-sparv (Reina-Valera of 1909). Titles and
# notes are removed. Verses of one text only are left out, and chapters whose numbers of verses differ, each with the next
# chapter, because their verses do not correspond. Of 40 chapters, one is for validation and one for tests, without the verses
# that training also has in one of the languages.
set -euo pipefail
export LC_ALL=C  # the expressions are of bytes

[[ $# -eq 1 ]] || { echo "usage: scripts/bible-pairs.sh FOLDER" >&2; exit 2; }
folder=$1
mkdir -p "$folder"
english=$(mktemp) spanish=$(mktemp)
trap 'rm -f "$english" "$spanish"' EXIT

# verses MODULE: prints lines "BOOK CHAPTER:VERSE<tab>TEXT".
verses() {
  # With the option f, notes are printed as empty elements. The modules lack some spaces after notes, quotations and
  # additions.
  if command -v diatheke >/dev/null; then diatheke -b "$1" -o f -f internal -k "Genesis 1:1-Revelation 22:21"; fi |
    sed -nE 's/<title/\x01/g; s/<\/title>/\x02/g; s/\x01[^\x02]*\x02//g; s/<\/(note|q|transChange)>/ /g
      s/<[^>]*>//g; s/[ \t]+/ /g; s/ ([,.;:?!)]|\xE2\x80[\x99\x9D])/\1/g; s/^ //; s/ $//
      s/^([A-Z][A-Za-z ]* [0-9]+:[0-9]+): *(.+)/\1\t\2/p'
}
verses engWEB2015eb > "$english"
verses spaRV1909eb > "$spanish"
if [[ ! -s $english || ! -s $spanish ]]; then
  echo "bible-pairs: a text is missing; install diatheke, sword-text-web and sword-text-sparv" >&2
  exit 1
fi

awk -F '\t' -v out="$folder/bible" '
  { chapter = $1; sub(/:.*/, "", chapter); lengths[FILENAME, chapter]++ }
  FILENAME == ARGV[1] { english[$1] = $2; next }
  $1 in english { verse[++count] = $1; spanish[$1] = $2; chapters[count] = chapter }
  END {
    for (i = 1; i <= count; ++i) {
      chapter = chapters[i]
      if (chapter != chapters[i - 1]) {
        after_differing = differing
        differing = lengths[ARGV[1], chapter] != lengths[ARGV[2], chapter]
        number = (number + 1) % 40
      }
      if (differing || after_differing) continue
      part[i] = number == 20 ? "valid" : number == 0 ? "test" : "train"
      if (part[i] == "train") trained[english[verse[i]]] = trained[spanish[verse[i]]] = 1
    }
    for (i = 1; i <= count; ++i) {
      en = english[verse[i]]; es = spanish[verse[i]]
      if (part[i] == "" || (part[i] != "train" && (en in trained || es in trained))) continue
      print en > (out "." part[i] ".en")
      print es > (out "." part[i] ".es")
    }
  }' "$english" "$spanish"
