# UNTESTED: no Spack was at hand. It installs the wheel of packaging/wheel.sh, whose engines use the MPI that is loaded.
#
#   spack repo create site && mkdir -p site/packages/assay && cp package.py site/packages/assay/
#   cp assay-0.1.0-py3-none-manylinux_2_28_x86_64.whl site/packages/assay/
#   spack repo add site && spack install assay
# ruff: noqa: F403, F405

import os

from spack.package import *


class Assay(Package):
    """Tells whether a cluster is fit for its purpose and, if it is not, why."""

    license("Apache-2.0")
    version(
        "0.1.0",
        expand=False,
        url=f"file://{os.path.dirname(__file__)}/assay-0.1.0-py3-none-manylinux_2_28_x86_64.whl",
    )

    depends_on("python@3.11:", type=("build", "run"))
    # No dependency on an MPI: one installation serves all MPIs of the site.

    def install(self, spec, prefix):
        spec["python"].command("-m", "venv", prefix)
        Executable(prefix.bin.pip)("install", self.stage.archive_file)
        mkdirp(prefix.share.man.man1)
        with open(prefix.share.man.man1.join("assay.1"), "w") as page:
            Executable(prefix.bin.assay)("completion", "man", output=page)
