#!/bin/sh
# Makes /opt/venv for an image's own Python from the wheels beside this script, without an index.
#
#   install_venv.sh PYTHON MODULE...
#
# Compiles only the modules loaded by importing the named ones: a third of all files.
set -eu

python=$1
shift
here=$(dirname "$0")
"$python" -m venv --without-pip /opt/venv
pip=$(find /usr/share/python-wheels -name 'pip-*.whl')
PYTHONPATH=$pip /opt/venv/bin/python -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
    --disable-pip-version-check --root-user-action ignore "$here"/wheels/*.whl
/opt/venv/bin/python -m pip check
for module; do /opt/venv/bin/python -c "import $module"; done
