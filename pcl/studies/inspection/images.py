"""Application of a trained encoder to images, with a page and pictures in a folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl.config.run_config import Plain
from pcl.data.images import ImageSet
from pcl.metrics.retrieval import RejectionCurve
from pcl.metrics.undefined import told
from pcl.prediction.posteriors import LEVEL
from pcl.storage.files import replacing
from pcl.storage.mirror import UNMIRRORED, Mirror
from pcl.storage.object_stores import is_address
from pcl.studies.inspection import figures
from pcl.studies.inspection.figures import DARK, LIGHT, Row, Tile
from pcl.studies.inspection.findings import Findings, Pictures, all_pictures, look
from pcl.studies.inspection.page import Caption, Plot, page
from pcl.studies.ledger.folders import StudyFolder, TrialFolder
from pcl.studies.ledger.opened_study import resuming
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage, study_at
from pcl.studies.ledger.typed_json import parsed, table
from pcl.studies.results.trained_winner import trained_winner
from pcl.tasks import CifarTask
from pcl.training.trained_encoder import TrainedEncoder

FOLDER = "look"  # next to a checkpoint or in a study's folder


@dataclass(frozen=True)
class Source:
    """The origin of an encoder."""

    checkpoint: Path
    name: str  # for the page's title
    output: Path  # where pages go by default
    varied: Mapping[str, Plain] = field(default_factory=dict)  # what the study varied, with the encoder's values
    data: str = ""  # name and fingerprint of the images it was trained on, where they are known
    mirror: Mirror = UNMIRRORED  # where `output` is mirrored

    def has_seen(self, data: ImageSet) -> bool:
        """Return whether these are known to be the images of its training."""
        return self.data.endswith(data.fingerprint)


def source_of(text: str, storage: Storage) -> Source:
    """Find the encoder of a study of `storage`, a study's address, a study's or trial's folder, or a checkpoint.

    Raises:
        ValueError: If it is none of these, or a study without a winner.
    """
    if is_address(text):
        return of_study(study_at(text))
    path = Path(os.path.expanduser(text))
    if storage.is_store and not path.exists():
        storage.check_readable()
        return of_study(storage.study(text))
    for place in (path, storage.path / path):
        if (place / "study.json").is_file():
            return of_study(StudyFolder(place.absolute()))
    if (path / "trial.json").is_file():
        path = TrialFolder(path).checkpoint
    if path.is_dir():
        raise ValueError(f"{path} is neither the folder of a study nor that of a trial.")
    storage.require_source(text)
    trial = TrialFolder(path.absolute().parent)
    if (trial.path / "trial.json").is_file():
        content = trial.trial()
        return Source(path, f"trial {trial.key}", trial.path / FOLDER, content.varied, content.data)
    return Source(path, path.name, path.parent / FOLDER)


def of_study(study: StudyFolder) -> Source:
    """Find the winner of a study by its summary."""
    spec = StudySpec.read(study)
    study.pull()
    try:
        key = parsed(study.path / "summary.json", _best_of)
    except FileNotFoundError:
        key = None
    except ValueError:
        raise ValueError(f"{study.path / 'summary.json'} is not readable; it was left as it is.") from None
    if key is None:
        raise ValueError(f"The study {study.name!r} has no winner yet; `{resuming(study, spec)}` continues it.")
    return of_winner(study, key)


def _best_of(summary: Any) -> str | None:
    """Return the winner's key, if there is a winner."""
    best = summary["best"]
    return None if best is None else str(table(best)["key"])


def of_winner(study: StudyFolder, key: str) -> Source:
    """Find the encoder of a study's winner; see `trained_winner` for which of its trainings is used."""
    folder, checkpoint = trained_winner(study, key)
    if not checkpoint.is_file():
        raise ValueError(f"The winner of the study {study.name!r} has no checkpoint {checkpoint}.")
    trial = folder.trial()
    mirror = study.mirror.inside(FOLDER)
    return Source(checkpoint, study.name, study.path / FOLDER, trial.varied, trial.data, mirror)


def write_look(source: Source, trained: TrainedEncoder, data: ImageSet, is_other: bool, output: Path) -> list[Path]:
    """Write the page and its pictures to a folder, which is created if needed; the same input gives the same bytes.

    Of the run's own image set, only the test images are shown; `is_other` marks another set.
    """
    if is_other:
        pictures, split, which = all_pictures(data), "these images", "a set that the run did not train on"
        if len(pictures.images) < len(data.images):
            which = f"drawn from the {len(data.images):,} of {which}"
    else:
        if source.data and not source.has_seen(data):
            raise ValueError(
                f"The images {trained.task.data} have changed since the training, which may have seen images that are "
                f"test images now; restore them, or name a copy of the folder with `--data`."
            )
        pictures, split = Pictures(*CifarTask(trained.task, data, [trained.seed]).folds[0].test), "test"
        which = f"the test images of fold {trained.task.fold_of(trained.seed)}"
    findings = look(trained.encode(pictures.images), trained.encode(pictures.crops).kappa, pictures)
    caption = Caption(
        source.name, data.name, which, split, data.classes, trained.config.flat(), source.varied, trained.seed,
        trained.best_batch, trained.validation,
    )  # fmt: skip
    plots = _plots(findings)
    files = {f"{name}.png": plot.light for name, plot in plots.items()}
    files["certain.png"] = figures.sheet(pictures.images, _certain_rows(findings, data))
    files["credible.png"] = figures.sheet(pictures.images, _credible_rows(findings, data))
    files["index.html"] = page(findings, caption, list(plots.values())).encode()
    output.mkdir(parents=True, exist_ok=True)
    if "entropy.png" not in files:
        (output / "entropy.png").unlink(missing_ok=True)  # left from other images
    for name, content in files.items():
        with replacing(output / name) as unfinished:
            unfinished.write_bytes(content)
    return [output / name for name in files]


def rejection(curve: RejectionCurve) -> Plot:
    """Plot Recall@1 as the least certain images are rejected."""
    words = (
        f"Recall@1 as the least certain images are rejected: {told(float(curve.recall[-1]))} with none rejected; the "
        f"area under the curve is {told(curve.area)}"
    )
    return Plot(figures.rejection_plot(curve, LIGHT), figures.rejection_plot(curve, DARK), words)


def _plots(findings: Findings) -> dict[str, Plot]:
    drawn = {
        "entropy": (
            figures.entropy_plot,
            f"Kappa against the annotators' entropy, rank correlation {told(findings.entropy_rank_corr)}",
        ),
        "crops": (
            figures.crop_plot,
            f"Kappa against the side kept by a crop, rank correlation {told(findings.crop_rank_corr)}",
        ),
    }
    if not findings.has_entropy:
        del drawn["entropy"]
    plots = {name: Plot(draw(findings, LIGHT), draw(findings, DARK), words) for name, (draw, words) in drawn.items()}
    return {"rejection": rejection(findings.curve), **plots}


def _certain_rows(findings: Findings, data: ImageSet) -> list[Row]:
    return [
        Row((data.classes[found.label], f"{side} certain"), [Tile(i, f"{findings.kappa[i]:.3g}") for i in members])
        for found in findings.extremes
        for side, members in (("least", found.least), ("most", found.most))
    ]


def _credible_rows(findings: Findings, data: ImageSet) -> list[Row]:
    labels = findings.pictures.labels
    rows = []
    for query in findings.queries:
        others = [
            Tile(image, f"{cosine:.3f}", is_marked=bool(labels[image] != labels[query.image]))
            for image, cosine in zip(query.shown, query.cosines, strict=True)
        ]
        name, kappa = data.classes[int(labels[query.image])], f"{findings.kappa[query.image]:.3g}"
        title = (name, f"kappa {kappa}", f"{query.n_inside:,} in its {LEVEL:.0%}")
        rows.append(Row(title, [Tile(query.image, "query"), *others]))
    return rows
