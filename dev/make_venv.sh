#!/bin/sh
# make_venv.sh DIRECTORY           make a virtual environment there, unless a right one is there already
# make_venv.sh --check DIRECTORY   exit with 0 if a right one is there
#
# Right is one that runs and, if PYTHON is set, is of that Python. Without PYTHON the newest supported Python on the PATH is
# taken. Candidates are run, not only looked up: the shims of version managers exist for Pythons that then refuse to start.

supported='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
identity='import sys; print(sys.base_prefix, sys.version)'

is_right() {
    have=$("$1/bin/python" -c "$identity" 2>/dev/null) || return 1
    [ -z "$PYTHON" ] || [ "$have" = "$("$PYTHON" -c "$identity" 2>/dev/null)" ]
}

find_python() {
    without_venv=
    seen=
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3.10 python3 python}; do
        version=$("$candidate" -c 'import platform; print(platform.python_version())' 2>/dev/null) || continue
        seen="$seen $candidate ($version)"
        "$candidate" -c "$supported" 2>/dev/null || continue
        "$candidate" -c 'import ensurepip, venv' 2>/dev/null && return 0
        without_venv=$candidate
    done
    if [ -n "$without_venv" ]; then
        short=$("$without_venv" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        echo "$without_venv cannot make virtual environments: its modules venv and ensurepip are missing." >&2
        echo "On Debian and Ubuntu: apt-get install $short-venv. Or name another Python: make PYTHON=/path/to/python3 ..." >&2
    else
        echo "No Python 3.10, 3.11, 3.12 or 3.13 found${seen:+; found:$seen}." >&2
        echo "Install one, or name one that is not on the PATH: make PYTHON=/path/to/python3 ..." >&2
    fi
    return 1
}

if [ "$1" = --check ]; then
    is_right "$2"
    exit
fi
is_right "$1" && exit 0
find_python || exit 1
echo "$("$candidate" --version) ($("$candidate" -c 'import sys; print(sys.executable)')) -> $1"
"$candidate" -m venv --clear "$1"
