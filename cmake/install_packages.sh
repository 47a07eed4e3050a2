#!/usr/bin/env bash
# install_packages.sh NAME|FILE...: installs the Debian packages that are not there yet, and says which. A FILE has a
# package a line; '#' begins a comment. Does nothing, quickly, when all are there.
set -euo pipefail

wanted=()
for argument in "$@"; do
  if [[ -f $argument ]]; then
    mapfile -t -O "${#wanted[@]}" wanted < <(sed 's/#.*//' "$argument" | tr -s ' \t' '\n' | grep .)
  else
    wanted+=("$argument")
  fi
done

if ! command -v dpkg-query >/dev/null; then
  echo "This is not a Debian system. Install these packages, or their counterparts: ${wanted[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2>/dev/null | awk '$1 == "ii" {print $2}' || true)
missing=$(comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) <(sort -u <<<"$installed"))
[[ -n $missing ]] || exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "Packages are missing, and there is neither root nor sudo. As root: apt-get install" $missing >&2
    exit 2
  fi
  as_root=(sudo)
fi
echo "Installing from Debian:" $missing
"${as_root[@]}" apt-get update -qq
# shellcheck disable=SC2086  # one word a package
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 $missing >/dev/null
