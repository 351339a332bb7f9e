#!/bin/sh
# Make /opt/windows/python, a CPython for Windows with what lies beside this script, and wine's folder for it; without
# any index.
#
#   install_windows_python.sh MODULE...
#
# Only what importing the named modules loads is compiled.
set -eu

here=$(dirname "$0")
python=/opt/windows/python
packages=$python/Lib/site-packages

# The source distribution is an archive in an archive, with one folder: cp313.
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
# What the distribution brings is not pinned by the list.
rm -rf "$packages"
mkdir "$packages"
# Asking Windows' management interface for the version ends in wine's; without it Python asks otherwise.
rm "$python/DLLs/_wmi.pyd"
version=$(basename "$python"/python3??.dll .dll)
pip=$(find /usr/share/python-wheels -name 'pip-*.whl')
# The wheels are of the list that was made for this Python and platform; the image's own Python is another one.
PYTHONPATH=$pip python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
    --disable-pip-version-check --only-binary :all: --platform win_amd64 --python-version "${version#python}" \
    --ignore-requires-python --target "$packages" "$here"/wheels/*.whl
# Where Windows' loader looks first.
cp "$packages"/Scripts/*140*.dll "$python"

wine64 wineboot -i
# wine 8 says that it is Windows 7, on which no CPython from 3.9 on runs.
wine64 reg add 'HKCU\Software\Wine' /v Version /d win10 /f
# With this driver wine asks another process for the drive of each file that is opened or looked at, half of the time
# that importing torch takes.  It is for drives that come and go; those in wine's folder are there without it.
wine64 reg add 'HKLM\System\CurrentControlSet\Services\MountMgr' /v Start /t REG_DWORD /d 4 /f
wineserver -k
wineserver -w
windows-python -m pip check
for module; do windows-python -c "import $module"; done
# Settings are written when the server ends.
wineserver -k
wineserver -w
