# What a bare machine must bring: Python 3.11 to 3.13 with venv, and a C and C++ compiler; on Linux it should
# bring bubblewrap, too. Sourced before a set-up, with `kernel` set.
# shellcheck shell=sh disable=SC2154
#
# Owns finding them (→ python) and saying exactly what is missing and how to install it here; ends with exit
# code 3 then. Without bubblewrap it only says what is lost. Does not install anything on the system. cmake and
# ninja come through pip where they are missing.

missing=          # one line each, for people
missing_packages= # words for `package_names`

require_prerequisites() {
    find_python || note_python
    find_compiler || note_compiler
    [ -z "$missing" ] && return
    {
        printf 'Vivace cannot be set up yet. Missing on this machine:\n%s' "$missing"
        say_how_to_install
        printf 'Then run the same command again.\n'
    } >&2
    exit 3
}

# Vivace works without a sandbox, but what needs one does not: say so once, at the set-up, and never fail.
tell_of_sandbox() {
    [ "$kernel" = Linux ] || return 0
    if bwrap=$(command -v bwrap 2>/dev/null); then
        "$bwrap" --unshare-all --ro-bind / / --proc /proc true >/dev/null 2>&1 && return
        found="bubblewrap is here and could not build one (\`vivace doctor\` says why)"
    else
        found="bubblewrap, which makes it, is not here"
        missing_packages=bubblewrap
    fi
    {
        printf 'There is no sandbox on this machine: %s. Vivace works without it, but then\n' "$found"
        printf 'tests of edits (--test) do not run, and commands of tasks and workflows ask first.\n'
        [ -z "$missing_packages" ] || say_how_to_install
    } >&2
    missing_packages=
}

# The first Python that fits. `seen` remembers why others did not.
find_python() {
    seen=
    if [ -n "${VIVACE_PYTHON:-}" ]; then set -- "$VIVACE_PYTHON"; else set -- python3.13 python3.12 python3.11 python3; fi
    for candidate; do
        python=$(command -v "$candidate" 2>/dev/null) || continue
        answer=$("$python" -EsB -c '
import sys
print("%d.%d" % sys.version_info[:2])
if (3, 11) <= sys.version_info[:2] <= (3, 13):
    import ensurepip, venv
    print("fits")' 2>/dev/null)
        case $answer in
            *fits) return 0 ;;
            3.11 | 3.12 | 3.13) seen=$answer && without_venv=$answer ;;
            ?*) seen=$answer ;;
        esac
    done
    return 1
}

note_python() {
    if [ -n "${without_venv:-}" ]; then
        missing="$missing  - Python's venv and ensurepip (Python $without_venv is here without them)
"
        missing_packages="$missing_packages venv"
    else
        missing="$missing  - Python 3.11, 3.12 or 3.13${seen:+ (found only $seen)}
"
        missing_packages="$missing_packages python"
    fi
}

# A compiler counts when it compiles: on a Mac `cc` is there before the tools are, on Debian before the headers.
find_compiler() {
    for compiler in "${CXX:-c++}" g++ clang++; do
        command -v "${compiler%% *}" >/dev/null 2>&1 || continue
        # unquoted: CXX may hold options, as in "ccache g++"
        printf '#include <cstdio>\nint main() { return 0; }\n' | $compiler -x c++ -fsyntax-only - 2>/dev/null && break
        compiler=
    done
    command -v "${compiler%% *}" >/dev/null 2>&1 || return 1
    for compiler in "${CC:-cc}" gcc clang; do
        command -v "${compiler%% *}" >/dev/null 2>&1 && return 0
    done
    return 1
}

note_compiler() {
    missing="$missing  - a C and C++ compiler that works
"
    missing_packages="$missing_packages compiler"
}

say_how_to_install() {
    for manager in apt-get dnf zypper pacman apk brew; do
        command -v "$manager" >/dev/null 2>&1 || continue
        case $manager in
            pacman) install="sudo pacman -S" ;;
            apk) install="sudo apk add" ;;
            brew) install="brew install" ;;
            *) install="sudo $manager install" ;;
        esac
        say_command
        return
    done
    printf 'Install them with the package manager of your system.\n'
}

say_command() {
    packages=
    also=
    for need in $missing_packages; do
        case $manager-$need in
            apt-get-python) packages="$packages python3 python3-venv" ;;
            apt-get-venv) packages="$packages python$without_venv-venv" ;;
            apt-get-compiler) packages="$packages build-essential" ;;
            dnf-python | dnf-venv) packages="$packages python3.12" ;;
            zypper-python | zypper-venv) packages="$packages python312" ;;
            pacman-python | pacman-venv) packages="$packages python" ;;
            apk-python | apk-venv) packages="$packages python3" ;;
            brew-python | brew-venv) packages="$packages python@3.12" ;;
            dnf-compiler | zypper-compiler) packages="$packages gcc gcc-c++" ;;
            pacman-compiler) packages="$packages base-devel" ;;
            apk-compiler) packages="$packages build-base linux-headers" ;;
            *-bubblewrap) packages="$packages bubblewrap" ;;
            brew-compiler) also="xcode-select --install" ;;
        esac
    done
    printf 'Install with:\n'
    [ -z "$packages" ] || printf '  %s%s\n' "$install" "$packages"
    [ -z "$also" ] || printf '  %s\n' "$also"
    case $missing_packages in
        *python*) printf 'Is a fitting Python elsewhere on the machine? VIVACE_PYTHON=/path/to/python names it.\n' ;;
    esac
}
