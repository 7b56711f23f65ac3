"""A self-contained HTML page of the findings on images, which are inlined."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcl.config.run_config import Plain
from pcl.metrics.undefined import told
from pcl.prediction.posteriors import LEVEL
from pcl.presentation.markup import Child, Html, document, join, lines, tag
from pcl.studies.inspection.figures import png_of_image
from pcl.studies.inspection.findings import Findings, Query

_METRICS = {
    "crop_rank_corr": "rank correlation of 1/kappa with the share cropped away",
    "entropy_rank_corr": "rank correlation of 1/kappa with the annotators' entropy",
    "recall_at_1": "Recall@1",
}
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2430; --soft: #5a6474; --line: #d8dce4; --other: #b4570b; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #171b22; --ink: #dfe4ec; --soft: #9aa5b5; --line: #343c49; --other: #f0a35c; }
}
@media print { :root { color-scheme: light; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 66rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .25rem; }
p { margin: .25rem 0 .75rem; color: var(--soft); max-width: 48rem; }
table { border-collapse: collapse; margin: .5rem 0; }
td, th { padding: .2rem .75rem .2rem 0; text-align: left; vertical-align: top; font-weight: normal; }
thead th, .settings th { color: var(--soft); } thead th { white-space: nowrap; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.row { display: flex; gap: .75rem; padding: .5rem 0; border-top: 1px solid var(--line); break-inside: avoid; }
.row > .name { flex: 0 0 9rem; } .row small { display: block; color: var(--soft); line-height: 1.35; }
.tiles { display: flex; flex-wrap: wrap; gap: .4rem; align-content: flex-start; } .tiles.least { flex: 0 0 26.5rem; }
figure { margin: 0; width: 4.75rem; text-align: center; font-size: .72rem; line-height: 1.25; color: var(--soft);
  font-variant-numeric: tabular-nums; }
figure img { display: block; margin: 0 auto; width: 4.25rem; height: 4.25rem; image-rendering: pixelated;
  border-radius: 3px; }
figure.other img { outline: 3px dashed var(--other); outline-offset: -3px; } figure.other span { color: var(--other); }
.name > figure { margin-left: -.25rem; }
b { font-weight: 600; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; } .plots img { width: 29rem; max-width: 100%; height: auto; }
.plots picture { break-inside: avoid; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--soft); }
@media screen and (max-width: 60rem) { .row { flex-wrap: wrap; } .row > .name { flex-basis: 100%; }
  .tiles.least { flex: 0 1 auto; } }
@media print { body { padding: 0; max-width: none; font-size: 11px; } details { display: none; }
  .row { gap: .5rem; } .row > .name { flex-basis: 5.5rem; } .row small { font-size: 8px; }
  .tiles { gap: .15rem; } .tiles.least { flex-basis: 18rem; }
  figure { width: 3.4rem; font-size: 8px; } figure img { width: 3.1rem; height: 3.1rem; }
  .plots picture { width: 48%; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


@dataclass(frozen=True)
class Caption:
    """The origin of a page's images and encoder."""

    name: str  # of the study or the checkpoint
    data: str  # name of the image set
    which: str  # which of its images, in words
    split: str  # short form of `which`, the heading of their metrics
    classes: Sequence[str]
    config: Mapping[str, Plain]  # every setting by its dotted path
    varied: Mapping[str, Plain]  # what the study varied, with the winner's values
    seed: int  # of the run
    best_batch: int  # batch of the evaluation that the run kept
    validation: Mapping[str, float]  # metrics of that evaluation


@dataclass(frozen=True)
class Plot:
    """A plot for both themes, with a description in words."""

    light: bytes
    dark: bytes
    words: str


def page(findings: Findings, caption: Caption, plots: Sequence[Plot]) -> str:
    """Return the page's HTML."""
    title = f"Looking at {caption.name}"
    parts = [
        tag("h1", title), _head(findings, caption), _certain(findings, caption), _credible(findings, caption),
        _drawn(findings, plots), _settings(caption.config),
    ]  # fmt: skip
    policy = tag("meta", http_equiv="Content-Security-Policy", content=POLICY)
    return document(title, lines(*parts), policy, tag("style", Html(STYLE)))


def _head(findings: Findings, caption: Caption) -> Html:
    found = {
        "crop_rank_corr": findings.crop_rank_corr, "entropy_rank_corr": findings.entropy_rank_corr,
        "recall_at_1": findings.recall_at_1,
    }  # fmt: skip
    n_batches = int(caption.config["training.n_batches"])
    both = {key: (found[key], caption.validation.get(f"val/{key}")) for key in _METRICS}
    if not any(value is not None and math.isfinite(value) for value in both["entropy_rank_corr"]):
        del both["entropy_rank_corr"]  # images without annotators have none
    rows = [_metric(_METRICS[key], *values) for key, values in both.items()]
    rows.append(_metric("area under Recall@1 by rejection", findings.curve.area, None))
    kappa = findings.kappa.median().item(), caption.validation.get("val/kappa_median")
    rows.append(_metric("median kappa", *kappa))
    chosen = [
        join(", " if place else "", tag("b", f"{path} = {_shown(value)}"))
        for place, (path, value) in enumerate(caption.varied.items())
    ]
    keys = (
        "loss_name", "profile", "scale", "task.labels", "encoder.dim", "encoder.width", "encoder.weights",
        "loss.kappa_pos", "loss.n_samples", "training.n_negatives", "training.phases",
    )  # fmt: skip
    settings = [f"{key} = {_shown(caption.config[key])}" for key in keys if caption.config.get(key, "") != ""]
    head = tag("thead", tag("tr", tag("th"), tag("th", caption.split), tag("th", "validation")))
    kept = caption.config.get("training.keep", "best")
    return lines(
        tag("p", f"{len(findings.kappa):,} images of ", tag("b", caption.data), f": {caption.which}. The encoder is "
            f"that of the run's {kept} evaluation, at batch {caption.best_batch:,} of {n_batches:,}, seed "
            f"{caption.seed}."),
        tag("p", "The study's winner: ", chosen) if chosen else None,
        tag("p", ", ".join(settings)),
        tag("table", head, tag("tbody", rows)),
    )  # fmt: skip


def _certain(findings: Findings, caption: Caption) -> Html:
    rows = []
    for found in findings.extremes:
        name = caption.classes[found.label]
        sides = []
        for side, members in (("least", found.least), ("most", found.most)):
            tiles = [
                _tile(findings, image, f"kappa {_kappa(findings, image)}", f"{name}, among the {side} certain")
                for image in members
            ]
            sides.append(tag("div", tiles, class_=f"tiles {side}"))
        count = tag("small", f"{found.n_images:,} image{'s' if found.n_images > 1 else ''}")
        rows.append(tag("div", tag("div", tag("b", name), count, class_="name"), sides, class_="row"))
    return lines(
        tag("h2", "Least and most certain images of each class"),
        tag("p", "Each row has the images with the smallest kappa first, from the smallest up, then those with the "
            "largest, from the largest down."),
        *rows,
    )  # fmt: skip


def _credible(findings: Findings, caption: Caption) -> Html:
    return lines(
        tag("h2", f"Queries with the images in their {LEVEL:.0%} credible interval"),
        tag("p", f"From the most certain image to the least. A query's interval is the cap around its mu that holds "
            f"{LEVEL:.0%} of its posterior; an image is in it if its mu is. Images are sorted by falling cosine; of "
            "many, evenly spaced ones are shown, from the nearest to the farthest. A dashed frame and ≠ mark images of "
            "another class than the query's."),
        *(_query(findings, caption, query) for query in findings.queries),
    )  # fmt: skip


def _query(findings: Findings, caption: Caption, query: Query) -> Html:
    labels = findings.pictures.labels
    own = int(labels[query.image])
    name = caption.classes[own]
    share = f"{query.n_same / query.n_inside:.0%} of them {name}" if query.n_inside else "none is as near"
    tiles = []
    for image, cosine in zip(query.shown, query.cosines, strict=True):
        label = int(labels[image])
        theirs, is_same = caption.classes[label], label == own
        told = [f"{cosine:.3f}", tag("br"), theirs if is_same else tag("span", f"≠ {theirs}")]
        words = f"{theirs}, {'the same class' if is_same else 'another class'}, cosine {cosine:.3f}"
        tiles.append(_tile(findings, image, told, words, None if is_same else "other"))
    query_tile = _tile(findings, query.image, f"kappa {_kappa(findings, query.image)}", f"Query: {name}")
    count = f"{query.n_inside:,} of {len(labels) - 1:,} others inside (cosine ≥ {query.threshold:.3f}), {share}"
    side = tag("div", query_tile, tag("b", name), tag("small", count), class_="name")
    return tag("div", side, tag("div", tiles, class_="tiles"), class_="row")


def drawn(plot: Plot) -> Html:
    """Return a plot as a picture in the reader's theme."""
    dark = tag("source", media="screen and (prefers-color-scheme: dark)", srcset=inline(plot.dark))
    return tag("picture", dark, tag("img", src=inline(plot.light), alt=plot.words))


def _drawn(findings: Findings, plots: Sequence[Plot]) -> Html:
    lacks = (
        "" if findings.has_entropy else " There is no plot of the annotators' entropy: it is the same for all images."
    )
    return lines(
        tag("h2", "What kappa knows"),
        tag("p", "Recall@1 as the least certain images are rejected, compared with rejecting at random and rejecting "
            "the misses first; kappa against the annotators' entropy and against the side that a centre crop keeps."
            f"{lacks} Rank correlations are of 1/kappa with ambiguity: positive is good."),
        tag("div", [drawn(plot) for plot in plots], class_="plots"),
    )  # fmt: skip


def _settings(config: Mapping[str, Plain]) -> Html:
    rows = [tag("tr", tag("th", path), tag("td", _shown(value))) for path, value in config.items()]
    return tag("details", tag("summary", "All settings"), tag("table", rows, class_="settings"))


def _tile(findings: Findings, image: int, told: Child, words: str, kind: str | None = None) -> Html:
    """Return an image with a caption."""
    address = inline(png_of_image(findings.pictures.images[image]))
    alt = f"{words}, kappa {_kappa(findings, image)}"
    picture = tag("img", src=address, alt=alt, width="68", height="68")
    return tag("figure", picture, tag("figcaption", told), class_=kind)


def _metric(words: str, found: float, at_validation: float | None) -> Html:
    values = [tag("td", _number(value), class_="number") for value in (found, at_validation)]
    return tag("tr", tag("th", words), values)


def _number(value: float | None) -> str:
    return "-" if value is None else told(value)


def _kappa(findings: Findings, image: int) -> str:
    return f"{findings.kappa[image].item():.3g}"


def _shown(value: Plain) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def inline(png: bytes) -> str:
    """Return a picture as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
