#!/bin/sh
# Download wheels into /wheels with an image's own Python, and the pip that its venv module would install.
#
#   fetch_wheels.sh PYTHON PIP-DOWNLOAD-ARGUMENT...
set -eu

python=$1
shift
PYTHONPATH=$(find /usr/share/python-wheels -name 'pip-*.whl')
export PYTHONPATH
exec "$python" -m pip download --disable-pip-version-check --no-cache-dir --only-binary :all: --dest /wheels "$@"
