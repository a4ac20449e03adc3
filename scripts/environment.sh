# Sourced by the other scripts: makes a virtual environment with the core and all plugins, and keeps it up to date.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
python=${PYTHON:-python3}
export RANKWISE_NATIVE_BUILD=required # what `compiled` names can be built, or something is wrong

# environment DIR PIP-ARGUMENT...: after this call DIR is a virtual environment with what the arguments install.
environment() {
    local dir=$1 wanted stamp begin=$SECONDS
    shift
    stamp="$dir/installed"
    wanted="$(cat pyproject.toml plugins/*/pyproject.toml plugins/native/{setup.py,csrc/*} requirements/*.txt | cksum) $root $*"
    # Several scripts may share an environment; each line of the stamp is what one of them has installed.
    if [ -x "$dir/bin/python" ] && [ -f "$stamp" ] && grep -qxF -- "$wanted" "$stamp"; then
        return
    fi
    [ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
    echo "installing into $dir: $(named "$@") (${takes:-a minute or two}, once)" >&2
    # One call for everything: a plugin installed alone would look for the core in the package index.
    local pip=("$dir/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@")
    if ! following "$dir/pip.log" "${pip[@]}"; then
        tail -n 20 "$dir/pip.log" >&2
        echo "pip could not install this; all that it said is in $dir/pip.log" >&2
        return 1
    fi
    echo "installed in $((SECONDS - begin)) s" >&2
    echo "$wanted" >>"$stamp"
}

# following LOG COMMAND...: run a command whose output goes to a file, and show its newest line to who is there to see it.
following() {
    local log=$1 status=0 shows=
    shift
    : >"$log"
    if [ -t 2 ]; then
        while kill -0 $$ 2>/dev/null; do
            printf '\r\033[K%.78s' "$(tail -n 1 "$log")" >&2
            sleep 0.2
        done &
        shows=$!
    fi
    "$@" >"$log" 2>&1 || status=$?
    if [ -n "$shows" ]; then
        kill "$shows"
        printf '\r\033[K' >&2
    fi
    return "$status"
}

# named PIP-ARGUMENT...: what the arguments install, in words.
named() {
    local words=() word
    for word in "$@"; do
        case "$word" in
        -*) continue ;;
        requirements/*) word="what $word lists" ;;
        .*) word=${word/#.\/plugins\//rankwise-} word=${word/#./rankwise} word=${word//_/-} ;;
        esac
        words+=("$word")
    done
    printf '%s' "${words[0]}" "${words[@]/#/, }" | sed "s/^\(.*\), \1/\1/"
}

# packages MPI: the distributions under test as arguments for pip, the core and all plugins, with this MPI library.
packages() {
    printf '%s\n' -e . -e ./plugins/network -e ./plugins/stores -e ./plugins/launch -e ./plugins/watch -e ./plugins/gloo_tcp -e "./plugins/mpi[$1]" -e ./plugins/nccl -e ./plugins/arrays -e ./plugins/elastic -e ./plugins/local -e ./plugins/testing -e ./plugins/tools
    compiled
}

# packages_for_torch: the distributions that rankwise-torch needs, and itself. Torch is large, so only its tests have it.
packages_for_torch() {
    printf '%s\n' -e . -e ./plugins/network -e ./plugins/stores -e ./plugins/launch -e ./plugins/watch -e ./plugins/gloo_tcp -e ./plugins/local -e ./plugins/arrays -e ./plugins/elastic -e ./plugins/testing -e ./plugins/torch
    compiled
}

# packages_for_ray: likewise for rankwise-ray.
packages_for_ray() {
    printf '%s\n' -e . -e ./plugins/network -e ./plugins/stores -e ./plugins/launch -e ./plugins/watch -e ./plugins/gloo_tcp -e ./plugins/nccl -e ./plugins/local -e ./plugins/testing -e ./plugins/ray
    compiled
}

# packages_for_dask: the distributions that rankwise-dask needs, and itself.
packages_for_dask() {
    printf '%s\n' -e . -e ./plugins/network -e ./plugins/stores -e ./plugins/launch -e ./plugins/watch -e ./plugins/gloo_tcp -e ./plugins/dask
    compiled
}

# compiled: the compiled parts as arguments for pip, where they can be built; everything else goes on without them.
compiled() {
    local header='import os, sysconfig; print(os.path.join(sysconfig.get_path("include"), "Python.h"))'
    if command -v "${CC:-cc}" >/dev/null && [ -f "$("$python" -c "$header")" ]; then
        printf '%s\n' -e ./plugins/native
    else
        echo "no C compiler, or no headers of Python: going on without rankwise-native" >&2
    fi
}
