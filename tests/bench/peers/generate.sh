#!/usr/bin/env bash
# generate.sh DIR OUT mnist|cifar10 [PREFIX]: runs the cases of generate.py whose names begin with PREFIX, with the Python of the
# virtual environment DIR (setup.sh), for the models of `tapeformer reproduce mnist-speed|cifar10-speed`. A case has one file
# OUT/NAME.json, and cases with a file are not repeated. `scripts/results.py --peers SET-speed OUT/*.json` writes them to the page.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: generate.sh DIR OUT mnist|cifar10 [PREFIX]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
python=$1/bin/python out=$2 prefix=${4:-}
read -ra sizes <<<"${SIZES:-}"  # further options, such as --layers 1
case $3 in
  mnist) sizes=(--length 784 --chunk 29 --layers 8 "${sizes[@]}") ;;
  cifar10) sizes=(--length 3072 --chunk 37 --layers 16 "${sizes[@]}") ;;
  *) echo "generate.sh: no set $3" >&2; exit 2 ;;
esac
mkdir -p "$out"
export OMP_PROC_BIND=true

# measure NAME BATCH THREADS OPTIONS…: measures in both precisions.
measure() {
  local name=$1-batch-$2 batch=$2 threads=$3 precision file
  shift 3
  for precision in float32 bfloat16; do
    file=$out/$name-$precision.json
    [[ $name-$precision == "$prefix"* && ! -e $file ]] || continue
    echo "$name-$precision" >&2
    "$python" "$here/generate.py" "$@" "${sizes[@]}" --batch "$batch" --threads "$threads" --precision "$precision" >"$file.part"
    mv "$file.part" "$file"
  done
}

cores=$(nproc)
for compile in none step; do
  measure "linear-$compile" 1 1 --kind linear --positions 100 --compile $compile
  measure "cached-$compile" 1 1 --kind softmax --positions 100 --compile $compile
  measure "cached-$compile" 8 "$cores" --kind softmax --positions 100 --repeats 1 --compile $compile
done
for batch in 64 256; do
  measure linear-step $batch "$cores" --kind linear --positions 100 --repeats 1
done
for cases in "1 1" "4 $cores"; do
  read -r batch threads <<<"$cases"
  measure recomputed "$batch" "$threads" --kind softmax --form recomputed --positions 16 --repeats 1
  for rounds in 1 4; do
    measure lsh-$rounds "$batch" "$threads" --kind lsh --rounds $rounds --positions 16 --repeats 1
  done
done
