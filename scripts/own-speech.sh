#!/usr/bin/env bash
# scripts/own-speech.sh [-m] [-n VERSES] OUT: makes a corpus like somebody's own recordings, to measure
# configs/speech/own.toml: OUT/recordings with transcripts.tsv. espeak-ng reads VERSES verses of the King James Bible at
# 22,050 Hz (142 by default, twenty minutes). Rate, pitch, level, reverberation and noise differ between the recordings;
# with -m also the voice, of six, and the noise is 12 dB louder. Needs espeak-ng, sox, bible-kjv and CMUdict in TAPEFORMER_DATA.
# The same arguments give the same corpus.
set -euo pipefail
scripts=$(dirname "${BASH_SOURCE[0]}")

voices=(en-us) noise=0.015 count=142
while getopts mn: option; do
  case $option in
    m) voices=(en-us en-us+f2 en-us+m3 en-us+f4 en-us+m7 en-us+croak) noise=0.06 ;;
    n) count=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
out=${1:?own-speech: expected the folder OUT}/recordings
dictionary=${TAPEFORMER_DATA:?own-speech: set TAPEFORMER_DATA to the folder with cmudict}/cmudict/cmudict.dict
for program in espeak-ng sox; do
  command -v "$program" >/dev/null || { printf '%s\n' "own-speech: install $program" >&2; exit 1; }
done
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

between() { number=$(($1 + RANDOM % ($2 - $1 + 1))); }  # sets `number`; a subshell would repeat the same number

# Verses of 15 to 38 words that all are in CMUdict, in a random order.
"$scripts/kjv-text.sh" | awk -v dictionary="$dictionary" '
  BEGIN { while ((getline line < dictionary) > 0) { split(line, fields, " "); known[fields[1]] = 1 } }
  { text = tolower($0); gsub(/[^a-z'"'"' -]/, "", text); count = split(text, words, " ")
    if (count < 15 || count > 38) next
    for (i = 1; i <= count; ++i) if (!(words[i] in known)) next
    print }' | shuf --random-source=<(yes) | sed -n "1,${count}p" >"$work/verses"

RANDOM=1 index=0
printf 'file\ttext\n' >"$out/transcripts.tsv"
while read -r text; do
  index=$((index + 1))
  printf -v name 'verse-%04d.wav' "$index"
  between 0 $((${#voices[@]} - 1)); voice=${voices[number]}
  between 140 175; rate=$number
  between 44 56; pitch=$number
  between 10 40; reverb=$number
  between 90 99; tempo=0.$number
  between 30 90; level=0.$number
  between 0 30; start=$number
  espeak-ng -v "$voice" -s "$rate" -p "$pitch" -w "$work/spoken.wav" -- "$text"
  sox -R "$work/spoken.wav" "$work/room.wav" gain -6 reverb "$reverb" tempo -s "$tempo"
  sox -R -m -v "$level" "$work/room.wav" "|sox -R -n -r 22050 -c 1 -p synth 60 pinknoise vol $noise trim $start" \
    -b 16 "$out/$name" trim 0 "$(soxi -D "$work/room.wav")"
  printf '%s\t%s\n' "$name" "$text" >>"$out/transcripts.tsv"
done <"$work/verses"
