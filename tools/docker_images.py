"""Images for the checks where none can be pulled: of one program alone, or of a small Debian.

`tools.compose_check` and `tools.node_check` call it. These images are for a check only.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.compose_docker import CheckError, Docker

_DEBIAN: Final = "bookworm"


def of_program(docker: Docker, name: str, program: Path, *, target: str = "/program") -> None:
    """Make an image that holds one static program, its entry point. Raises CheckError."""
    of_programs(docker, name, {target: program})


def of_programs(docker: Docker, name: str, programs: Mapping[str, Path]) -> None:
    """Make an image that holds static programs by their paths; the first is its entry point.

    Raises CheckError.
    """
    listed = ", ".join(map(str, programs.values()))
    print(f"making {name} of {listed}: for this check only", flush=True)
    with tempfile.TemporaryDirectory(prefix="pumice-image-") as folder:
        copies = []
        for number, (target, program) in enumerate(programs.items()):
            shutil.copy(program, Path(folder) / str(number))
            copies.append(f"COPY {number} {target}\n")
        (Path(folder) / "Dockerfile").write_text(
            f'FROM scratch\n{"".join(copies)}ENTRYPOINT ["{next(iter(programs))}"]\n'
        )
        if not docker.run("build", "--tag", name, folder, quiet=True):
            raise CheckError(f"{name} could not be made")


def of_debian(
    docker: Docker, name: str, packages: str, *, finish: Callable[[Path], None] = lambda _: None
) -> None:
    """Make an image of Debian and more packages by debootstrap. Raises CheckError.

    `finish` changes the file system below the folder that it gets.
    """
    program = shutil.which("debootstrap")
    if program is None:
        raise CheckError(
            f"there is no debootstrap to make {name} "
            "(on Debian and Ubuntu: apt-get install debootstrap)"
        )
    print(f"making {name} of Debian {_DEBIAN}, {packages}: for this check only", flush=True)
    with tempfile.TemporaryDirectory(prefix="pumice-debian-") as folder:
        root, archive = Path(folder) / "root", Path(folder) / "root.tar"
        subprocess.run(
            [program, "--variant=minbase", f"--include={packages}", _DEBIAN, str(root)],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        finish(root)
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        if not docker.run("import", str(archive), name, quiet=True):
            raise CheckError(f"{name} could not be imported")
