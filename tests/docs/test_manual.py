"""The manual as a site, its Python, and the README's limits."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pcl
from tests.docs.pages import PAGES, Block, blocks
from tests.support.services import ROOT

LANGUAGES = {"bibtex", "console", "python", "text"}
PYTHON = blocks("python")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# What a browser fetches by itself for a page, with an address elsewhere.
_ELSEWHERE = r"""["']?(?:https?:)?//"""
_LOADED = "stylesheet|preconnect|preload|prefetch|dns-prefetch|icon|modulepreload"
REQUEST = re.compile(
    rf"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*\b(?:src|srcset|data)={_ELSEWHERE}[^>]*>"""
    rf"""|<link\b(?=[^>]*\brel=["']?(?:{_LOADED}))[^>]*\bhref={_ELSEWHERE}[^>]*>"""
    rf"""|@import\s+["'(]*(?:https?:)?//[^;]*|url\({_ELSEWHERE}[^)]*\)""",
    re.IGNORECASE,
)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_block_has_a_language() -> None:
    assert {block.language for block in blocks()} == LANGUAGES
    for path in PAGES:
        assert path.read_text().count("```") == 2 * len([block for block in blocks() if block.page == path.name])


def test_links_of_the_readme_lead_to_files() -> None:
    links = [link for link in LINK.findall((ROOT / "README.md").read_text()) if "://" not in link]
    assert len(links) > 15
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("block", PYTHON, ids=[f"{block.page}-{index}" for index, block in enumerate(PYTHON)])
def test_python_of_the_manual_names_what_is_there(block: Block) -> None:
    """Imports resolve, and calls of `pcl` have arguments that it takes; what trains is not run."""
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("pcl."):
            called = getattr(pcl, ast.unparse(node.func).removeprefix("pcl."), None)
            if called is not None:
                inspect.signature(called).bind(*node.args, **{str(word.arg): word.value for word in node.keywords})


def build(root: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does; not quietly, for then MkDocs counts no warnings."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(into)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    configured = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{configured}\nnav: [index.md]\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[a](index.md#nowhere) [b](nothing.md) [c](/c.md)\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode == 1
    assert "Aborted with 3 warnings" in built.stdout + built.stderr


def test_the_site_has_every_page(site: Path) -> None:
    names = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert names <= {path.name for path in site.glob("*.html")}
    assert (site / "search" / "search_index.js").is_file()  # for pages that are opened from a folder


def test_the_site_requests_nothing_from_elsewhere(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(files) > 15
    found = {str(path.relative_to(site)): asked for path in files if (asked := REQUEST.findall(path.read_text()))}
    assert found == {}
    pages = "".join(path.read_text() for path in files if path.suffix == ".html")
    assert "javascripts/iframe-worker.js" in pages
    # The theme's own script would ask GitHub about a repository, and load mermaid for a diagram.
    assert not re.search(r'class="mermaid"|data-md-component="source"', pages)


def test_a_request_to_elsewhere_is_found() -> None:
    for text in (
        '<script src="https://unpkg.com/iframe-worker/shim"></script>',
        '<link rel="preconnect" href="https://fonts.gstatic.com" crossorigin>',
        '<link href="//fonts.example/css" rel=stylesheet>',
        "src: url(https://fonts.example/a.woff2)",
        '<img alt="a" src="http://example.org/a.png">',
    ):
        assert REQUEST.search(text), text
    for text in (
        '<a href="https://example.org">',
        '<img src="pictures/a.png">',
        '<link rel="canonical" href="https://a.b">',
    ):
        assert not REQUEST.search(text), text
