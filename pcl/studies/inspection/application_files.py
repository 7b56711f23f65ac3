"""Files about a folder of images: tables of kappa, near duplicates and outliers, a summary, a page.

Every file is written whole or not at all. Angles in tables are radians.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from torch import Tensor

from pcl.storage.files import clear_leftovers, replacing, write_text
from pcl.studies.inspection.application import Applied, Neighbourhood
from pcl.studies.inspection.application_page import Origin, page
from pcl.studies.inspection.images import rejection

_ROWS = 10_000  # written at once
SUMMARY = "summary.json"
UNREADABLE = "unreadable.txt"


def write_files(output: Path, origin: Origin, found: Applied, near: Neighbourhood | None) -> list[Path]:
    """Write all files to a folder, which is created if needed; return their paths, the page last."""
    output.mkdir(parents=True, exist_ok=True)
    clear_leftovers(output)
    plot = rejection(near.curve) if near is not None and near.curve is not None else None
    content = page(origin, found, near, plot)
    _write_csv(output / "kappa.csv", _heads(found), _lines(found))
    _write_parquet(output / "kappa.parquet", found)
    names = ["kappa.csv", "kappa.parquet"]
    if near is not None:
        _write_csv(output / "duplicates.csv", ("image", "other", "angle"), _pairs(found, near))
        _write_csv(output / "outliers.csv", ("image", "nearest", "angle", "credible_angle_95"), _outliers(found, near))
        names += ["duplicates.csv", "outliers.csv"]
    for name in {"duplicates.csv", "outliers.csv", UNREADABLE} - set(names):
        (output / name).unlink(missing_ok=True)  # left by an earlier call
    if found.unreadable:
        write_text(output / UNREADABLE, "".join(f"{found.folder.name_of(place)}\n" for place in found.unreadable))
        names.append(UNREADABLE)
    write_text(output / SUMMARY, json.dumps(_summary(origin, found, near), indent=1) + "\n")
    write_text(output / "index.html", content)
    return [output / name for name in (*names, SUMMARY, "index.html")]


def _heads(found: Applied) -> tuple[str, ...]:
    label = ("label",) if found.classes else ()
    return ("image", *label, "kappa", "credible_angle_95", *(f"mu_{axis}" for axis in range(found.mu.shape[1])))


def _lines(found: Applied) -> Iterator[list[str]]:
    for rows in found.by_ambiguity.split(_ROWS):
        columns = (rows, found.kappa[rows], found.credible_angle[rows], found.mu[rows])
        for image, kappa, angle, mu in zip(*(column.tolist() for column in columns), strict=True):
            label = [found.classes[image]] if found.classes else []
            yield [found.names[image], *label, *(f"{number:.9g}" for number in (kappa, angle, *mu))]


def _write_parquet(path: Path, found: Applied) -> None:
    """Write the rows of `kappa.csv`, with mu as one column of lists."""
    mu = pa.list_(pa.float32(), found.mu.shape[1])
    label = [("label", pa.string())] if found.classes else []
    schema = pa.schema(
        [("image", pa.string()), *label, ("kappa", pa.float32()), ("credible_angle_95", pa.float32()), ("mu", mu)]
    )
    angles = found.credible_angle
    with replacing(path) as unfinished, pyarrow.parquet.ParquetWriter(unfinished, schema) as writer:
        for rows in found.by_ambiguity.split(_ROWS):
            images = rows.tolist()
            columns: dict[str, Any] = {"image": [found.names[image] for image in images]}
            if found.classes:
                columns["label"] = [found.classes[image] for image in images]
            columns["kappa"] = found.kappa[rows].float().numpy()
            columns["credible_angle_95"] = angles[rows].float().numpy()
            columns["mu"] = pa.FixedSizeListArray.from_arrays(found.mu[rows].float().numpy().ravel(), type=mu)
            writer.write_table(pa.table(columns, schema=schema))


def _pairs(found: Applied, near: Neighbourhood) -> Iterator[list[str]]:
    angles = near.angle
    for first, second in near.duplicates.tolist():
        image = first if near.nearest[first] == second else second
        yield [found.names[first], found.names[second], f"{angles[image]:.6g}"]


def _outliers(found: Applied, near: Neighbourhood) -> Iterator[list[str]]:
    angles, caps = near.angle, found.credible_angle
    for image in near.outliers.tolist():
        yield [found.names[image], found.names[int(near.nearest[image])], f"{angles[image]:.6g}", f"{caps[image]:.6g}"]


def _summary(origin: Origin, found: Applied, near: Neighbourhood | None) -> dict[str, Any]:
    content: dict[str, Any] = {
        "model": origin.model, "images": origin.images, "folder": str(found.folder.path.resolve()),
        "n_images": len(found.places),
        "n_unreadable": len(found.unreadable), "kappa_median": _median(found.kappa),
    }  # fmt: skip
    if near is not None:
        content |= {"n_duplicates": len(near.duplicates), "n_outliers": len(near.outliers)}
        if near.curve is not None:
            content |= {"recall_at_1": float(near.curve.recall[-1]), "rejection_area": near.curve.area}
    return content


def _median(kappa: Tensor) -> float:
    return float(kappa.double().median())


def _write_csv(path: Path, heads: Iterable[str], rows: Iterable[list[str]]) -> None:
    with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows(rows)
