#!/bin/sh
# Makes /opt/windows/python, a CPython for Windows, from the files beside this script, and wine's folder for it. Uses no
# index.
#
#   install_windows_python.sh MODULE...
#
# Compiles only the modules loaded by importing the named ones.
set -eu

here=$(dirname "$0")
python=/opt/windows/python
packages=$python/Lib/site-packages

# The source distribution is an archive in an archive, with one folder, cp313.
python3 - "$here"/python/*.tar.gz "$python" <<'PYTHON'
import io, sys, tarfile, zipfile
from pathlib import Path

sdist, to = sys.argv[1], Path(sys.argv[2])
with tarfile.open(sdist) as outer:
    data = next(each for each in outer if each.name.endswith("/data.zip"))
    inner = zipfile.ZipFile(io.BytesIO(outer.extractfile(data).read()))
[top] = {name.split("/")[0] for name in inner.namelist()}
inner.extractall(to.parent)
(to.parent / top).rename(to)
PYTHON
# The distribution's own packages are unpinned.
rm -rf "$packages"
mkdir "$packages"
# Python would ask Windows' management interface for the version, and end in wine's. Without it Python asks otherwise.
rm "$python/DLLs/_wmi.pyd"
version=$(basename "$python"/python3??.dll .dll)
pip=$(find /usr/share/python-wheels -name 'pip-*.whl')
# The wheels are for this Python and platform, not for the image's Python.
PYTHONPATH=$pip python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
    --disable-pip-version-check --only-binary :all: --platform win_amd64 --python-version "${version#python}" \
    --ignore-requires-python --target "$packages" "$here"/wheels/*.whl
# Windows' loader looks here first.
cp "$packages"/Scripts/*140*.dll "$python"

wine64 wineboot -i
# wine 8 presents itself as Windows 7, too old for CPython 3.9.
wine64 reg add 'HKCU\Software\Wine' /v Version /d win10 /f
# With this driver, for removable drives, wine asks another process for the drive of each file. That is half of the time
# of importing torch.
wine64 reg add 'HKLM\System\CurrentControlSet\Services\MountMgr' /v Start /t REG_DWORD /d 4 /f
wineserver -k
wineserver -w
windows-python -m pip check
for module; do windows-python -c "import $module"; done
# The server writes settings when it ends.
wineserver -k
wineserver -w
