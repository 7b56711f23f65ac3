"""The page of a study's winner: what it reached, its figures, and how to load it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from dashboards.board.html.frame import PageContext, cells_words, facts, note, page_of_study, section
from dashboards.board.html.names import BEST_CONSTANT, recorded_constant_kappa_mae, shown_metrics
from dashboards.board.html.tables import Cell, Column, TableRow, table
from dashboards.board.store.artifacts import Figure
from dashboards.board.store.records import Study, Trial, differing
from pcl.metrics.names import metric_name
from pcl.presentation.markup import Child, Html, join, tag
from pcl.presentation.numbers import number, plus_minus
from pcl.storage.installation import command
from pcl.studies.paper.comparison import PAPER_DATA
from pcl.studies.paper.published import Row, published_tables
from pcl.studies.results.statistics import estimate
from pcl.studies.tracking.tags import Tag

_HIDDEN = ("objective", "objective_se")  # other names of metrics that are shown already
_WORDS = {
    "kappa.png": "Predicted against true κ, of the first seed",
    "mu.png": "Predicted against true μᵢ·μⱼ of pairs, of the first seed",
    "coverage.png": "Share of true latents in credible caps against the caps' level, of the first seed",
    "pareto.png": "The Pareto front of the study's objectives",
    "rejection.png": "Recall@1 as the least certain images are rejected",
    "entropy.png": "κ against the annotators' entropy",
    "crops.png": "κ against the side that a centre crop keeps",
    "certain.png": "The least and the most certain images of each class",
    "credible.png": "Queries with the images in their 95% credible interval",
}
_BENCHMARKS = {"toy": "tab:bench_results", "images": "tab:bench_cifar"}  # the paper's table of losses, by task
_SIZES = ("task.data", "task.n_eval", "task.max_draws")  # settings in which equal tasks may differ
_SHEETS = ("certain.png", "credible.png")  # of many images each


def winner_page(study: Study, figures: Sequence[Figure], around: PageContext) -> str:
    """Return the page."""
    heading = f"{'Winner' if study.selects else 'Best trial'} of {study.run.name}"
    if study.is_reproduction:
        heading, body = study.run.name, note(cells_words())
    elif (winner := study.winner) is None:
        body = note("No trial has finished yet.")
    else:
        is_narrow = figures and len(winner.by_seed(study.objective)) <= 1  # without columns of seeds
        body = join(
            _facts(study, winner, around),
            tag("div", _results(study, winner), _figures(study, figures), class_="columns" if is_narrow else None),
            tag("div", _loading(study, winner, around), _config(study, winner), class_="columns"),
        )  # fmt: skip
    return page_of_study(study, "winner", f"{study.run.name}, winner", heading, body, around)


def _facts(study: Study, winner: Trial, around: PageContext) -> Html:
    reused = winner.run.tags.get(Tag.REUSED_FROM)
    pairs: list[tuple[str, Child]] = [
        ("trial", winner.run.name), (metric_name(study.objective), plus_minus(winner.objective, winner.error)),
        ("seeds", winner.run.params.get("seeds", "").replace(",", ", ")), ("scale", study.run.tags.get(Tag.SCALE)),
        ("fidelity", study.run.tags.get(Tag.FIDELITY)), ("hardware", winner.run.tags.get(Tag.HARDWARE)),
        ("result of", reused), ("key", tag("code", winner.run.tags.get(Tag.TRIAL, ""))),
        ("record", around.run_link(winner.run)), ("model", _model(study, winner, around)),
    ]  # fmt: skip
    early = note("The study has not ended: this is its best so far.") if study.is_running else None
    return tag("div", facts(pairs), early)


def _model(study: Study, winner: Trial, around: PageContext) -> Child:
    """Return a link to the registered model, if there is one; it may be of an earlier winner."""
    tags = study.run.tags
    if not (model := tags.get(Tag.MODEL)):
        return None
    is_of_winner = tags.get(Tag.MODEL_TRIAL) == winner.run.tags.get(Tag.TRIAL)
    return join(around.model_link(model), None if is_of_winner else " (of an earlier winner)")


def reported(study: Study, winner: Trial) -> Trial | None:
    """Return the trial of the same configuration on the report seeds."""
    same = (trial for trial in study.reports if differing([trial.run.params, winner.run.params]) <= {"seeds"})
    return next(same, None)


def _results(study: Study, winner: Trial) -> Html:
    report = reported(study, winner)
    found = [
        ("tuning seeds" if study.selects else "report seeds", winner),
        *([("report seeds", report)] if report else []),
    ]
    metrics = [m for m in _ordered(study.objective, [trial for _, trial in found]) if m not in _HIDDEN]
    published = published_row(winner.run.params)
    columns = [Column("metric"), *(Column(f"{text}, mean ± s.e.", is_number=True) for text, _ in found)]
    columns += [Column("published", is_number=True)] if published else []
    seeds = [(seed, trial) for _, trial in found for seed in sorted(trial.by_seed(study.objective), key=int)]
    has_seeds = len(seeds) > len(found)
    columns += [Column(f"seed {seed}", is_number=True, where="wide") for seed, _ in seeds] if has_seeds else []
    rows = []
    for metric in metrics:
        means = [_mean(trial, metric) for _, trial in found]
        printed = [_printed(published, metric)] if published else []
        singles = [number(t.recorded(metric).get(seed)) for seed, t in seeds] if has_seeds else []
        rows.append(TableRow((Cell(_titled(metric), metric), *means, *printed, *singles)))
        if (constant := recorded_constant_kappa_mae(study, metric)) is not None:
            others = [""] * (len(columns) - 2)
            rows.append(TableRow((f"{metric_name(metric)} of the {BEST_CONSTANT}", number(constant), *others)))
    words = None
    if published:
        scale = study.run.tags.get(Tag.SCALE, "")
        shorter = (
            "" if scale == "paper" else f" This study has the scale {scale}: it is shorter than what was published."
        )
        words = f"Published is the paper's {published.name} ({_BENCHMARKS[published.task]}), over five seeds.{shorter}"
    return section("What it reached", table("metrics", "Metrics of the winner", columns, rows), words=words)


def _ordered(objective: str, trials: Sequence[Trial]) -> list[str]:
    """Return the metrics of trials: the objective, those of tables, then all others by name."""
    recorded = {metric for trial in trials for metric in trial.run.metrics}
    first = shown_metrics(objective, trials)
    return [*(metric for metric in first if metric in recorded), *sorted(recorded - set(first))]


def _titled(metric: str) -> Html:
    name = metric_name(metric)
    return join(name, tag("small", tag("code", metric))) if name != metric else tag("code", metric)


def published_row(params: Mapping[str, str]) -> Row | None:
    """Return the paper's row of the same loss on the same task; None for others' images or another task."""
    table_name = _BENCHMARKS.get(params.get("task_name", ""), "")
    if params.get("task.data", "toy") not in PAPER_DATA or not table_name:
        return None
    (of_paper,) = (table for table in published_tables() if table.name == table_name)
    row = next((row for row in of_paper.rows if row.loss == params.get("loss_name")), None)
    try:
        config = row.config(params.get("profile", ""), params.get("scale", "")) if row else {}
    except ValueError:  # the profile does not have this row
        return None
    task = {path: str(value) for path, value in config.items() if path.startswith("task.") and path not in _SIZES}
    return row if row and all(params.get(path) == value for path, value in task.items()) else None


def _printed(row: Row, metric: str) -> Child:
    published = row.published.get(metric)
    return published.text.partition(" (")[0].replace("±", " ± ") if published else ""


def _mean(trial: Trial, metric: str) -> str:
    values = list(trial.recorded(metric).values())
    if not values or not all(map(math.isfinite, values)):
        return number(trial.run.metrics.get(metric))
    found = estimate(values)
    return plus_minus(found.mean, found.error)


def in_order(figures: Sequence[Figure]) -> list[Figure]:
    """Return figures in the page's order: those that are known by name first."""
    order = {name: place for place, name in enumerate(_WORDS)}
    return sorted(figures, key=lambda figure: order.get(PurePosixPath(figure.path).name, len(order)))


def _figures(study: Study, figures: Sequence[Figure]) -> Html:
    if not figures:
        why = "" if study.selects else ": none is drawn where nothing is chosen"
        why = ": they are drawn when the study ends" if study.is_running and study.selects else why
        return section("Figures", note(f"No figures are recorded{why}."))
    named = [(PurePosixPath(figure.path).name, figure) for figure in in_order(figures)]
    made = []
    for name, figure in named:
        words = _WORDS.get(name, figure.path)
        picture = tag("a", tag("img", src=figure.address, alt=words, loading="lazy"), href=figure.address)
        made.append(tag("figure", picture, tag("figcaption", words), class_="sheet" if name in _SHEETS else None))
    return section("Figures", tag("div", made, class_="figures"), words="As they were recorded.")


def _loading(study: Study, winner: Trial, around: PageContext) -> Html:
    name, key = study.run.tags.get(Tag.STUDY, study.run.name), winner.run.tags.get(Tag.TRIAL, "")
    owner = winner.run.tags.get(Tag.REUSED_FROM) or name
    place = f"runs/{owner}/trials/{key}/checkpoint.pt"
    is_kept = study.selects and owner == name  # the winner's checkpoint is the only one that goes to MLflow
    fetch = _code(_download(study.run.id, "checkpoint.pt", around)) if is_kept else None
    config = f"{command('train')} --config runs/{name}/best.yaml"
    if not study.selects:
        config = f"{_download(winner.run.id, 'config.yaml', around)}\n{command('train')} --config config.yaml"
    n_features = winner.run.params.get("task.n_features", "")
    has_images = bool(winner.run.params.get("task.data")) and not n_features
    side = winner.run.params.get("task.side", "32")
    inputs = (
        f"(N, 3, {side}, {side}), numbers from 0 to 255"
        if has_images
        else f"(N, {n_features or winner.run.params.get('task.dim_x', 'D')})"
    )
    load = (
        'import pcl\n\nencoder = pcl.load_encoder("checkpoint.pt")\n'
        f"posterior = encoder(x)  # {inputs}\n"
        "posterior.mu, posterior.kappa, posterior.credible_threshold(0.95)"
    )
    words = f"On the study's machine it is {place}; runs stands for the folder given by --storage."
    again_title, again = "Train it again", config
    if has_images:
        again_title = "Look at it, or train it again"
        again = f"{command('look')} {name if study.selects else place}\n{config}"
    model = _as_model(study.run.tags.get(Tag.MODEL, ""), name, around)
    return section(
        "How to load it", tag("h3", "As a model"), _code(model), tag("h3", "The checkpoint"), tag("p", words), fetch,
        tag("h3", "In Python"), _code(load), tag("h3", again_title), _code(again), name="load",
    )  # fmt: skip


def _as_model(model: str, study: str, around: PageContext) -> str:
    """Return the command that serves the registered model; without one, the command that registers it."""
    if not model:
        return f"{command('champion')} {study}"
    serve = f"mlflow models serve -m models:/{model} --env-manager local"
    return f"MLFLOW_TRACKING_URI={around.mlflow or 'sqlite:///runs/mlflow.db'} {serve}"


def _download(run_id: str, name: str, around: PageContext) -> str:
    """Return a command that fetches an artifact, by default from where `launch/board.py` would look."""
    download = f"mlflow artifacts download --run-id {run_id} --artifact-path {name} --dst-path ."
    return f"MLFLOW_TRACKING_URI={around.mlflow or 'sqlite:///runs/mlflow.db'} {download}"


def _code(text: str) -> Html:
    copy = tag("button", "Copy", type="button", class_="copy", hidden=True)
    return tag("div", tag("pre", tag("code", text)), copy, class_="code")


def _config(study: Study, winner: Trial) -> Html:
    others = [trial.run.params for trial in study.ranked if trial.run.params]
    settings = [(path, value) for path, value in winner.run.params.items() if path != "seeds"]
    varied = differing(others) & dict(settings).keys()
    settings.sort(key=lambda setting: (setting[0] not in varied, setting[0]))
    rows = [
        TableRow((tag("code", path), value, "yes" if path in varied else ""), is_marked=path in varied)
        for path, value in settings
    ]
    columns = [Column("setting"), Column("value"), Column("varied")]
    told = tag("summary", f"{len(settings)} settings, {len(varied)} of which the study varied")
    return section("Configuration", tag("details", told, table("config", "Configuration", columns, rows)))
