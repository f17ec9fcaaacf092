#!/bin/sh
# find_python.sh 3.10   print the path of a Python of that version: from the PATH, or from pyenv; exit with 1 if there is none

probe='import platform, sys; print(sys.executable); sys.exit(not platform.python_version().startswith(sys.argv[1] + "."))'

for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python3 python3 python; do
    path=$("$candidate" -c "$probe" "$1" 2>/dev/null) && echo "$path" && exit 0
done
echo "No Python $1 found, neither on the PATH nor among pyenv's." >&2
exit 1
