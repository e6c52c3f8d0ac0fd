#!/bin/sh
# Prints the path of a Python of version 3.12 or newer that can make virtual environments.
# Looks at $PYTHON, then the PATH, then where pyenv, uv and Homebrew keep theirs.
set -u

fit='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))'
new='import sys; sys.exit(sys.version_info < (3, 12))'
bare=

candidates() {
    [ -n "${PYTHON:-}" ] && echo "$PYTHON"
    printf '%s\n' python3.13 python3.12 python3.14 python3.15 python3 python
    for path in \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3 \
        "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/cpython-3.1[2-9]*/bin/python3 \
        /opt/homebrew/bin/python3.1[2-9] /usr/local/bin/python3.1[2-9]; do
        [ -x "$path" ] && echo "$path"
    done
}

IFS='
'
for candidate in $(candidates); do
    path=$(command -v "$candidate" 2>/dev/null) || continue
    if "$path" -c "$fit" >/dev/null 2>&1; then
        echo "$path"
        exit 0
    fi
    if [ -z "$bare" ] && "$path" -c "$new" >/dev/null 2>&1; then
        bare=$path
    fi
done

{
    if [ -n "$bare" ]; then
        echo "error: $bare is new enough, but lacks its venv module."
        echo "On Debian and Ubuntu: sudo apt install python3-venv"
    else
        echo "error: no Python 3.12 or newer was found, and the treadstone CLI needs one."
        echo "Install it (apt install python3.12 python3.12-venv, brew install python@3.13,"
        echo "pyenv install 3.13), or name it: make PYTHON=/path/to/python3.13"
    fi
} >&2
exit 1
