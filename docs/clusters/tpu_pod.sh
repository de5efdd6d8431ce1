#!/bin/bash
# A Cloud TPU slice of several hosts, by the gcloud command line, from your own machine:
#
#   export TPU_NAME=bench ZONE=europe-west4-b REPOSITORY=https://github.com/YOU/accel-bench
#   docs/clusters/tpu_pod.sh create    costs money from here on
#   docs/clusters/tpu_pod.sh install   the suite on every host
#   docs/clusters/tpu_pod.sh run       the same command on every host
#   docs/clusters/tpu_pod.sh resume    again, what is missing
#   docs/clusters/tpu_pod.sh fetch     what the first host wrote, into runs/
#   docs/clusters/tpu_pod.sh delete    until here
#
# v5litepod-16 is a v5e slice of 4x4 chips on four hosts. For another slice set ACCELERATOR_TYPE,
# RUNTIME_VERSION and CHIPS; the types, versions and zones are in the Cloud TPU documentation.
set -euo pipefail

: "${TPU_NAME:?name the slice}" "${ZONE:?name the zone}"
ACCELERATOR_TYPE=${ACCELERATOR_TYPE:-v5litepod-16}
RUNTIME_VERSION=${RUNTIME_VERSION:-v2-alpha-tpuv5-lite}
CHIPS=${CHIPS:-16}

tpu() {
  gcloud compute tpus tpu-vm "$1" "${@:2}" --zone="$ZONE"
}

on_every_host() {
  tpu ssh "$TPU_NAME" --worker=all --command="$1"
}

bench() {
  on_every_host "cd accel-bench && venv/bin/python main.py run --device=tpu --mesh=data:$CHIPS \
    --config=configs/collectives.py --workdir=runs/$TPU_NAME $1"
}

case "${1:-}" in
  create)
    tpu create "$TPU_NAME" --accelerator-type="$ACCELERATOR_TYPE" --version="$RUNTIME_VERSION"
    ;;
  install) # uv brings a Python that is new enough; the images' own is 3.10
    on_every_host "set -e
      python3 -m pip install --quiet --user uv
      test -d accel-bench || git clone ${REPOSITORY:?where to clone the suite from} accel-bench
      cd accel-bench
      ~/.local/bin/uv venv --clear --python=3.12 venv
      ~/.local/bin/uv pip install --python=venv/bin/python -e '.[tpu]'"
    ;;
  run)
    bench ""
    ;;
  resume) # the hosts share no disk, so that the others need the whole command too
    bench --resume
    ;;
  fetch)
    mkdir -p runs
    tpu scp --recurse --worker=0 "$TPU_NAME:accel-bench/runs/$TPU_NAME" runs/
    ;;
  delete)
    tpu delete "$TPU_NAME" --quiet
    ;;
  *)
    echo "write one of: create install run resume fetch delete" >&2
    exit 2
    ;;
esac
