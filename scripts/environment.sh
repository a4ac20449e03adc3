# Sourced by the other scripts: makes a virtual environment with the core and all plugins, and keeps it up to date.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
python=${PYTHON:-python3}
export RANKWISE_NATIVE_BUILD=required # what `compiled` names can be built, or something is wrong

# environment DIR PIP-ARGUMENT...: after this call DIR is a virtual environment with what the arguments install.
environment() {
    local dir=$1 wanted stamp
    shift
    stamp="$dir/installed"
    wanted="$(cat pyproject.toml plugins/*/pyproject.toml plugins/native/{setup.py,csrc/*} requirements/*.txt | cksum) $root $*"
    # Several scripts may share an environment; each line of the stamp is what one of them has installed.
    if [ -x "$dir/bin/python" ] && [ -f "$stamp" ] && grep -qxF -- "$wanted" "$stamp"; then
        return
    fi
    [ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
    echo "installing into $dir: $(named "$@") (${takes:-a minute or two}, once)" >&2
    local quiet=--quiet
    [ -t 2 ] && quiet= # pip shows its progress to who is there to see it
    # One call for everything: a plugin installed alone would look for the core in the package index.
    "$dir/bin/python" -m pip install $quiet --disable-pip-version-check "$@" >&2
    echo "installed in $SECONDS s" >&2
    echo "$wanted" >>"$stamp"
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
    printf '%s\n' -e . -e ./plugins/network -e ./plugins/stores -e ./plugins/launch -e ./plugins/watch -e ./plugins/gloo_tcp -e "./plugins/mpi[$1]" -e ./plugins/nccl -e ./plugins/arrays -e ./plugins/local -e ./plugins/testing -e ./plugins/tools
    compiled
}

# packages_for_torch: the distributions that rankwise-torch needs, and itself. Torch is large, so only its tests have it.
packages_for_torch() {
    printf '%s\n' -e . -e ./plugins/network -e ./plugins/stores -e ./plugins/launch -e ./plugins/watch -e ./plugins/gloo_tcp -e ./plugins/local -e ./plugins/arrays -e ./plugins/testing -e ./plugins/torch
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
