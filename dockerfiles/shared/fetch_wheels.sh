#!/bin/sh
# Downloads wheels into /wheels with an image's own Python, and the pip of its venv module.
#
#   fetch_wheels.sh PYTHON PIP-DOWNLOAD-ARGUMENT...
set -eu

python=$1
shift
PYTHONPATH=$(find /usr/share/python-wheels -name 'pip-*.whl')
export PYTHONPATH
exec "$python" -m pip download --disable-pip-version-check --no-cache-dir --only-binary :all: --dest /wheels "$@"
