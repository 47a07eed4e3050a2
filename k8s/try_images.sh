#!/usr/bin/env bash
# Builds the images of k8s/Dockerfile without Docker and a registry, and trains in them: the base is made of Debian's packages, and
# in the place of the first stage, which compiles everything, is the binary of a build.
#
#   k8s/try_images.sh BRAID_BINARY PYARROW_DIR
#
# Needs root, buildah and mmdebstrap (apt-get install), and about 3 GB in TMPDIR while it runs.
set -euo pipefail

binary=$(realpath "$1") arrow=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah=(buildah --root "$work/images" --runroot "$work/run")
trap 'rm -rf "$work"' EXIT

mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$work/base.tar"
base=$("${buildah[@]}" from scratch)
"${buildah[@]}" add --quiet "$base" "$work/base.tar" /
for tag in bookworm bookworm-slim; do
  "${buildah[@]}" commit --quiet "$base" "docker.io/library/debian:$tag"
done

mkdir -p "$work/build/out" "$work/build/src/build/release/cli"
cp "$arrow"/libarrow.so.* "$arrow"/libarrow_s3.so.* "$arrow"/libparquet.so.* "$work/build/out/"
strip -o "$work/build/src/build/release/cli/braid" "$binary"
for target in braid braid-mpi; do
  "${buildah[@]}" bud --quiet --pull-never --network host --build-context "build=$work/build" -f k8s/Dockerfile \
    --target "$target" -t "$target" .
done

run() { "${buildah[@]}" run --network host "$@"; }
container=$("${buildah[@]}" from --pull-never localhost/braid)
"${buildah[@]}" copy --quiet "$container" k8s/base/job.pbtxt /tmp/job.pbtxt
[[ $(run "$container" -- id -u) == 1000 ]]
run "$container" -- braid launch --workers 2 --ps 1 -- train --job /tmp/job.pbtxt \
  --data-dir /usr/share/datasets/fashion-mnist --set steps=60 --set epochs=0 2>&1 | tail -n 1
run "$container" -- sh -c 'printf "a,b\n1,x\n" > /tmp/r.csv && braid data convert /tmp/r.csv --out /tmp/r.parquet &&
  braid data show /tmp/r.parquet' | tail -n 1

container=$("${buildah[@]}" from --pull-never localhost/braid-mpi)
"${buildah[@]}" copy --quiet "$container" examples/jobs/wide_deep_generated.pbtxt /tmp/job.pbtxt
run "$container" -- mpirun -np 2 --oversubscribe braid train --job /tmp/job.pbtxt --set strategy.kind=ALLREDUCE \
  --set strategy.backend=MPI --set steps=60 --set epochs=0 2>&1 | tail -n 1
echo "images: both were built, and jobs trained in them"
