"""The VS Code extension as a .vsix file, which is a zip: its sources, a manifest, and our command line.

Owns the file's layout. Needs neither Node.js nor a network: the sources are plain JavaScript. Does not
install (`installing`).
"""

import json
import zipfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

from vivace import __version__
from vivace.errors import StartError

NAME = "vivace"
PUBLISHER = "vivace"
_HERE = Path(__file__).parent
# In a wheel the sources lie in this package; in a clone they are at its top.
_PLACES = (_HERE / "vscode", _HERE.parents[2] / "editors" / "vscode")
_TYPES = {"js": "application/javascript", "json": "application/json", "css": "text/css"}
_TYPES |= {"html": "text/html", "md": "text/markdown", "svg": "image/svg+xml", "txt": "text/plain"}
_TYPES |= {"png": "image/png", "vsixmanifest": "text/xml", "woff2": "font/woff2"}
_STAMP = (2026, 1, 1, 0, 0, 0)  # of every file: the same sources make the same bytes

_MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={name} Version={version} Publisher={publisher}/>
    <DisplayName>Vivace</DisplayName>
    <Description xml:space="preserve">Real-time coding on your own machine.</Description>
    <Categories>AI,Programming Languages,Machine Learning</Categories>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine}/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="workspace"/>
    </Properties>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def build_vsix(target: Path, command: list[str]) -> Path:
    """Write the extension to `target`. It runs `command` for `vivace` where the user's settings name none."""
    files = _sources() | _page()
    package = json.loads(files["package.json"]) | {"version": __version__}
    files["package.json"] = json.dumps(package, indent=2).encode()
    files["command.json"] = json.dumps(command).encode()
    words = {
        "name": NAME,
        "version": __version__,
        "publisher": PUBLISHER,
        "engine": package["engines"]["vscode"],
    }
    manifest = _MANIFEST.format(**{key: quoteattr(value) for key, value in words.items()})
    parts = {f"extension/{name}": files[name] for name in sorted(files)}
    parts = {"extension.vsixmanifest": manifest.encode(), "[Content_Types].xml": _types()} | parts
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _STAMP), content, zipfile.ZIP_DEFLATED)
    return target


def _sources() -> dict[str, bytes]:
    """Return what VS Code loads, by its path in the extension."""
    folder = next((place for place in _PLACES if (place / "package.json").exists()), None)
    if folder is None:
        raise StartError("The sources of the VS Code extension are not here.", "Install Vivace again.")
    files = [folder / "package.json", *(folder / "src").rglob("*"), *(folder / "media").rglob("*")]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files if file.is_file()}


def _page() -> dict[str, bytes]:
    """Return the browser app, which the side view shows."""
    folder = _HERE.parent / "web" / "static"
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {f"page/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in files}


def _types() -> bytes:
    rows = [f'<Default Extension=".{suffix}" ContentType="{kind}"/>' for suffix, kind in _TYPES.items()]
    space = "http://schemas.openxmlformats.org/package/2006/content-types"
    return f'<?xml version="1.0" encoding="utf-8"?>\n<Types xmlns="{space}">{"".join(rows)}</Types>'.encode()
