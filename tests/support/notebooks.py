"""The tutorial as a program: its code cells in one namespace, without Jupyter.

`python -m tests.support.notebooks` runs docs/tutorial.ipynb and writes the outputs into it.
"""

import ast
import base64
import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.services import ROOT

TUTORIAL = ROOT / "docs" / "tutorial.ipynb"


def cells(path: Path = TUTORIAL) -> list[dict[str, Any]]:
    """Return the code cells of a notebook."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def results(codes: list[str]) -> Iterator[tuple[str, object]]:
    """Run cells one after the other; yield what each prints, and the value of its last line where that has one."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in codes:
        tree, value = ast.parse(code), None
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as text:
            exec(compile(tree, "tutorial", "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "tutorial", "eval"), names)
        yield text.getvalue(), value


def _outputs(text: str, value: object, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if text:
        found.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": [str(value)]}
        if hasattr(value, "to_html"):
            data["text/html"] = value.to_html().splitlines(keepends=True)
        if hasattr(value, "savefig"):
            file = io.BytesIO()
            value.savefig(file, format="png", dpi=70, metadata={"Software": None})
            data["image/png"] = base64.b64encode(file.getvalue()).decode()
        found.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return found


def main() -> None:
    """Write the outputs into the tutorial."""
    import matplotlib  # noqa: PLC0415  before the cells choose a backend

    matplotlib.use("Agg")
    content = json.loads(TUTORIAL.read_text(encoding="utf-8"))
    found = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    codes = ["".join(cell["source"]) for cell in found]
    for number, (cell, (text, value)) in enumerate(zip(found, results(codes), strict=True), start=1):
        cell["outputs"], cell["execution_count"] = _outputs(text, value, number), number
    TUTORIAL.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
