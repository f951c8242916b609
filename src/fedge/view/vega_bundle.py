"""The JavaScript that draws charts: Vega, Vega-Lite and Vega-Embed, included in vl-convert.

Bundling takes seconds, so the result is stored in the user's cache for each version of vl-convert. It runs in another
process, because vl-convert would block all threads of this one.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock

from fedge.core.errors import FedgeError
from fedge.core.storage import user_cache, write_atomic
from fedge.report.style import need

_MAKE = "import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle(sys.argv[1]).encode())"
_SNIPPET = "window.vega = vega; window.vegaLite = vegaLite; window.vegaEmbed = vegaEmbed;"


class VegaBundle:
    """The bundle, made on first use. Thread-safe."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or user_cache() / "view"
        self._lock = Lock()
        self._text: bytes | None = None

    @property
    def file_name(self) -> str:
        """The file name, which includes the version, so that browsers may cache the file forever."""
        try:
            return f"vega-{version('vl-convert-python')}.js"
        except PackageNotFoundError:  # the pages work without charts; each chart states what to install
            return "vega.js"

    def read(self) -> bytes:
        """Return the JavaScript; without a usable cache, it only takes longer. Raises FedgeError without vl-convert."""
        with self._lock:
            if self._text is None:
                file = self._folder / self.file_name
                with suppress(OSError):
                    self._text = file.read_bytes()
                if not self._text:
                    self._text = _make()
                    with suppress(OSError):
                        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                        write_atomic(file, self._text)
            return self._text


def _make() -> bytes:
    need("vl_convert")
    done = subprocess.run([sys.executable, "-c", _MAKE, _SNIPPET], capture_output=True)
    if done.returncode:
        raise FedgeError(f"vl-convert could not bundle its JavaScript: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout
