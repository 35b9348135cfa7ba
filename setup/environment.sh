# Names this machine, and finds the environment that was made for it: sourced with `root` set.
# shellcheck shell=sh disable=SC2154
#
# Owns the two keys. `machine_key`: kernel, architecture, system release and CPU features, so that a folder
# shared by two kinds of machine holds one environment for each (native code of one may not run on the other).
# `stamp`: the files that decide what is installed, and where the clone is (the environment holds its full path);
# an environment with another stamp is brought up to date, which needs no network if only the place changed.
# Runs at every start, so it forks twice (uname, cksum: 1 ms each) and does the rest with what the shell has.

# → machine_key, stamp
name_machine() {
    machine=$(uname -sm)
    if [ -r "${VIVACE_CPUINFO:-/proc/cpuinfo}" ]; then
        while read -r word rest; do
            case $word in flags | Features | isa) machine="$machine $rest" && break ;; esac
        done <"${VIVACE_CPUINFO:-/proc/cpuinfo}"
        if [ -r /etc/os-release ]; then
            while read -r line; do
                case $line in ID=* | VERSION_ID=*) machine="$machine $line" ;; esac
            done </etc/os-release
        fi
    else
        machine="$machine $(sysctl -n machdep.cpu.brand_string hw.optional 2>/dev/null)"
    fi
    sums=$(
        cd "$root" && cksum pyproject.toml constraints.txt setup/llama.cmake setup/amx_tileconfig.h setup/native.py
        cksum <<EOF
$machine
EOF
    )
    machine_key=${sums##*
}
    stamp=
    for word in ${sums%
*} "$root" "${VIVACE_PYTHON:-}"; do
        stamp="$stamp $word"
    done
    kernel=${machine%% *}
    architecture=${machine#* }
    machine_key="$kernel-${architecture%% *}-${machine_key%% *}"
}

# $1: `ready` (to run) or `ready-dev` (to check) → environment; fails if there is none
find_environment() {
    name_machine
    for environment in "$root/.venvs/$machine_key"-py*; do
        if [ -x "$environment/bin/python" ] && [ -r "$environment/$1" ]; then
            IFS= read -r found <"$environment/$1"
            [ "$found" = "$stamp" ] && return 0
        fi
    done
    return 1
}

# $1 as above, then the command that is to run: makes or completes the environment; ends the script if it cannot
set_up() {
    mark=$1
    shift
    . "$root/setup/prerequisites.sh"
    require_prerequisites
    trap 'exit 130' INT
    "$python" -EsB "$root/setup/install.py" --root "$root" --machine-key "$machine_key" --stamp "$stamp" --mark "$mark" -- "$@" ||
        exit $?
    trap - INT
    tell_of_sandbox
    find_environment "$mark" && return
    echo "The set-up ended well, but $root/.venvs has no environment for this machine. Please report this." >&2
    exit 3
}
