#!/bin/sh
# A seed is one run of the world: twice the same output, whether it holds or breaks. And it can break: a store that
# acknowledges a commit and loses it is found.
set -eu
simulate=$1
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

for seed in 3 17; do
	"$simulate" --seed "$seed" --verbose >"$directory/first"
	"$simulate" --seed "$seed" --verbose >"$directory/second"
	cmp "$directory/first" "$directory/second"
done
for batch in 3 5 9; do
	for run in first second; do
		status=0
		"$simulate" --seed 4 --lose-batch "$batch" >"$directory/$run" || status=$?
		[ "$status" -eq 1 ] || { echo "a lost commit (batch $batch) was not found: exit $status"; exit 1; }
	done
	cmp "$directory/first" "$directory/second"
	grep -q '^seed 4: BROKEN' "$directory/first"
	grep -q '^again: reprised-simulate --seed 4$' "$directory/first"
done
echo "seeds repeat, lost commits are found"
