#!/usr/bin/env bash
# Makes a Debian package of this checkout's build, and prints its path: packaging/debian.sh [FOLDER]; default build.
#
# It holds the engines, the Python modules, the manual page and the completions. Its Python packages are those of
# packaging/constraints.txt, in an environment of its own in /usr/lib/assay: Debian 12 has no msgspec, and older
# numpy, scipy, optuna, rich and ClusterShell than those that the tests run with. So it needs Debian 12's Python 3.11.
# The engines of Open MPI and MPICH need both libraries, which it depends on; those of SimGrid, of LLVM's pass and of
# QEMU run where these are installed. Three minutes.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
umask 022

target=$(readlink -f "${1:-build}")
stage=build/debian
library=$stage/usr/lib/assay
site=$library/lib/python3.11/site-packages
architecture=$(dpkg --print-architecture)

say() { printf 'debian: %s\n' "$*" >&2; }
refuse() {
    say "$1; fix: $2"
    exit 2
}

build/bin/assay-probe --describe >/dev/null 2>&1 || refuse "no engines in build/bin" "make setup"
[ -f web/dist/report.html ] || refuse "the report's page is not built" "make setup"
[ "$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = 3.11 ] ||
    refuse "/usr/bin/python3 is not Python 3.11" "build it on Debian 12"
command -v dpkg-shlibdeps >/dev/null || refuse "no dpkg-shlibdeps" "apt-get install dpkg-dev"
version=$(PYTHONPATH=python .venv/bin/python -c 'import assay; print(assay.__version__)')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH

# An environment without pip: Debian's Python finds pyvenv.cfg and takes its packages from here alone.
make_environment() {
    mkdir -p "$library/bin" "$site"
    printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11\n' >"$library/pyvenv.cfg"
    ln -s /usr/bin/python3.11 "$library/bin/python"
    PYTHONPATH=python .venv/bin/python -c \
        'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
        >build/debian-requirements.txt
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --target "$site" \
        -c packaging/constraints.txt -r build/debian-requirements.txt
    rm -rf "$site/bin" "$site/share"
}

# The modules of the checkout, and beside them what cmake installs: engines, specifications, the report's page.
add_assay() {
    (cd python && find assay -type f -not -name '*.pyc' -print0 | tar -c --null -T -) | tar -x --no-same-owner -C "$site"
    cmake --install build --prefix "$site" --strip >/dev/null
    rm -f "$site"/assay/bin/*-mpich-wheel* # they need the checkout's environment
    PYTHONPATH=python .venv/bin/python -c 'from assay.version import commit; print(commit())' >"$site/assay/commit.txt"
    "$library/bin/python" -m compileall -q --invalidation-mode unchecked-hash -s "$stage" -p / "$site" >/dev/null || true
}

add_commands() {
    local share=$stage/usr/share
    mkdir -p "$stage/usr/bin" "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/vendor-completions" \
        "$share/fish/vendor_completions.d" "$share/doc/assay"
    cat >"$stage/usr/bin/assay" <<'END'
#!/bin/sh
# Ctrl-C waits until Assay handles it: Python would print a traceback while it starts.
[ "$(basename "$0")" = run_netsan.sh ] && set -- net "$@"
exec env --block-signal=INT,TERM /usr/lib/assay/bin/python -E -P -m assay "$@"
END
    chmod 755 "$stage/usr/bin/assay"
    ln -s assay "$stage/usr/bin/run_netsan.sh"
    local assay=("$library/bin/python" -m assay completion)
    "${assay[@]}" man | gzip -9n >"$share/man/man1/assay.1.gz"
    "${assay[@]}" bash >"$share/bash-completion/completions/assay"
    "${assay[@]}" zsh >"$share/zsh/vendor-completions/_assay"
    "${assay[@]}" fish >"$share/fish/vendor_completions.d/assay.fish"
    gzip -9n <CHANGELOG.md >"$share/doc/assay/changelog.gz"
    printf 'Copyright: the Assay developers\nLicense: Apache-2.0 (/usr/share/common-licenses/Apache-2.0)\n%s\n' \
        'License of assay-numa-qemu.so: GPL-2.0-or-later (/usr/share/common-licenses/GPL-2)' >"$share/doc/assay/copyright"
}

# The Debian packages of the libraries that the engines link, but for those of SimGrid, LLVM and QEMU.
libraries() {
    local common=() file
    for file in "$site"/assay/bin/*; do
        case ${file##*/} in
        *-smpi | *-pass.so | *-qemu.so | *.s) ;;
        *) common+=("${file#"$stage"/}") ;;
        esac
    done
    mkdir -p "$stage/debian"
    printf 'Source: assay\n\nPackage: assay\nArchitecture: any\n' >"$stage/debian/control"
    (cd "$stage" && dpkg-shlibdeps -O "${common[@]}" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
    rm -r "$stage/debian"
}

write_control() {
    local depends
    depends=$(libraries)
    mkdir -p "$stage/DEBIAN"
    cat >"$stage/DEBIAN/control" <<END
Package: assay
Version: $version
Architecture: $architecture
Maintainer: The Assay developers <assay@localhost>
Installed-Size: $(du -sk --apparent-size "$stage/usr" | cut -f1)
Depends: python3 (>= 3.11), python3 (<< 3.12), ${depends:?none were found}
Recommends: openssh-client, openmpi-bin
Suggests: mpich, libsimgrid-dev, slurm-client, iproute2, nftables, infiniband-diags, qemu-system-x86
Section: science
Priority: optional
Description: qualifies HPC and data-acquisition clusters
 Assay tells whether a cluster is fit for its purpose and, if it is not, why.
 It measures nodes, networks and storage, judges the figures against a
 specification, and names the culprit with the evidence.
END
}

rm -rf "$stage"
make_environment
add_assay
add_commands
write_control
package=$target/assay_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zzstd --build "$stage" "$package" >/dev/null
rm -rf "$stage"
say "$(du -h "$package" | cut -f1), of commit $(PYTHONPATH=python .venv/bin/python -c 'from assay.version import commit; print(commit())')"
echo "$package"
