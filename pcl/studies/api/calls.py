"""Search a space or run an ablation from Python, with the same output as the commands."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pcl.config.run_config import Plain, RunConfig
from pcl.data.arrays import read_features
from pcl.data.sources import data_folder, resolve
from pcl.studies.api.study import Study
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.ledger.study_spec import MADE_IN_PYTHON
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.session.ablation_study import ablation_study
from pcl.studies.session.new_study import Runs, ablation_spec, folder_of, method_of, search_spec
from pcl.studies.session.request import AUTO, ResourceRequest, Runner, RunRequest, SearchRequest
from pcl.studies.session.site import check_site, default_scale, joined
from pcl.studies.session.strategies import Say, StageSearch, Strategy
from pcl.studies.session.study_session import Client, StudySession, search_study
from pcl.studies.session.study_session import Study as Planned
from pcl.studies.session.tracking_choice import checked_tracker, require_free_name
from pcl.studies.space.ablation import Ablation, load_ablation
from pcl.studies.space.declarations import recorded_name
from pcl.studies.space.search_space import SearchSpace, load_space

Declared = TypeVar("Declared", SearchSpace, Ablation)
_DATA, _SIDE, _WEIGHTS = "task.data", "task.side", "encoder.weights"


def search(
    space: str | Path | SearchSpace, *, scale: str | None = None, profile: str = "reference",
    settings: Mapping[str, Plain] | None = None, seeds: Sequence[int] = (), name: str | None = None,
    method: Literal["grid", "random", "optuna"] = "grid", n_trials: int | None = None, search_seed: int | None = None,
    scheduler: Literal["", "asha"] = "", objectives: Sequence[str] = (), replicate: bool = False,
    finalize: bool | None = None, storage: str | Path = "runs", tracking: str | None = None,
    runner: Literal["inline", "ray"] = "inline", address: str | None = None,
    resources: ResourceRequest | None = None, time_budget_s: float = 0.0, say: Say = print,
) -> Study:  # fmt: skip
    """Search a space; a call with the name of an existing study continues it.

    Args:
        space: A name of search_spaces/, the path of a file that defines SPACE, or a space made in Python.
        scale: smoke, quick or paper; None takes paper where there is a GPU, else quick.
        profile: Fidelity profile.
        settings: Settings of every run, by dotted path. Images need `task.data` and `encoder.weights` ("" for scratch).
        seeds: Seeds that select; by default the space's, or only its first below the scale paper.
        name: Name of the study; None makes a new one.
        method: How the space is searched.
        n_trials: Trials of each stage of a random or Optuna search; None is a tenth of the grid, from 10 to 100.
        search_seed: Seed of the draws and the sampler of a random or Optuna search; 0 by default.
        scheduler: "asha" stops trials that fall behind.
        objectives: Metrics of a Pareto front; the first decides. By default the space's.
        replicate: Whether the best get more seeds until it is clear which is best.
        finalize: Whether the best run on the report seeds; None means only at the scale paper.
        storage: Folder or store of studies.
        tracking: Address of MLflow; None takes the environment's, else a database in the storage.
        runner: Where trials run: in this process, or on Ray.
        address: Address of a Ray cluster; None starts one on this machine.
        resources: Resources of a trial.
        time_budget_s: Seconds after which the study stops cleanly; 0 for no bound.
        say: Function that prints a line.

    Returns:
        The study, as `open_study` opens it.

    Raises:
        ValueError: If something is not possible, before anything runs.
        KeyboardInterrupt: If it was stopped; it can be continued.
        RuntimeError: If it had to stop, such as for a full disk. Where Ray was killed, its threads end this process a
            minute later.
    """
    found, where = _declared(space, SearchSpace, load_space)
    run = _run_request(storage, tracking, runner, address, resources, time_budget_s, finalize)
    asked = SearchRequest(
        method, n_trials, search_seed, scheduler=scheduler or None, objectives=tuple(objectives),
        replicate=AUTO if replicate else None,
    )  # fmt: skip
    how = method_of(asked, found)
    spec = search_spec(found, where, _runs(found, profile, scale, settings or {}, seeds, run), how, asked)
    search = StageSearch(found, spec, run.is_finalized(spec.scale))
    return _conduct(search_study(folder_of(run.storage, name, found, spec), search), run, say)


def ablate(
    ablation: str | Path | Ablation, *, scale: str | None = None, profile: str = "reference",
    settings: Mapping[str, Plain] | None = None, seeds: Sequence[int] = (), name: str | None = None,
    storage: str | Path = "runs", tracking: str | None = None, runner: Literal["inline", "ray"] = "inline",
    address: str | None = None, resources: ResourceRequest | None = None, time_budget_s: float = 0.0,
    say: Say = print,
) -> Study:  # fmt: skip
    """Run an ablation; a call with the name of an existing study continues it.

    `ablation` is a name of search_spaces/ablations/, the path of a file that defines ABLATION, or one made in Python.
    `seeds` are those of every variant: by default 4 to 8, the first three at the scale quick and two at smoke.
    The other arguments and the exceptions are those of `search`; the study's table has a row for each variant.
    """
    found, where = _declared(ablation, Ablation, load_ablation)
    run = _run_request(storage, tracking, runner, address, resources, time_budget_s, None)
    spec = ablation_spec(found, where, _runs(found, profile, scale, settings or {}, seeds, run))
    return _conduct(ablation_study(folder_of(run.storage, name, found, spec), found, spec, say), run, say)


def _declared(
    given: str | Path | Declared, kind: type[Declared], load: Callable[[str], Declared]
) -> tuple[Declared, str]:
    """Return a space or an ablation, and the name that the study records for it."""
    if isinstance(given, kind):
        return given, f"{MADE_IN_PYTHON}{given.name}"
    return load(str(given)), recorded_name(str(given))


def _run_request(
    storage: str | Path, tracking: str | None, runner: str, address: str | None, resources: ResourceRequest | None,
    time_budget_s: float, finalize: bool | None,
) -> RunRequest:  # fmt: skip
    place = Storage.of(str(storage))
    place.check()
    return RunRequest(
        place, tracking, address, resources or ResourceRequest(), time_budget_s=time_budget_s, finalize=finalize,
        runner=Runner(runner),
    )  # fmt: skip


def _runs(
    found: SearchSpace | Ablation, profile: str, scale: str | None, settings: Mapping[str, Plain],
    seeds: Sequence[int], run: RunRequest,
) -> Runs:  # fmt: skip
    """Return the runs of a study, with the fingerprint of their images."""
    chosen, data = scale or default_scale(run.address), "toy"
    if found.experiment.has_images:
        names = {"loss": found.loss, "task": found.task, "encoder": found.encoder}
        sides = {path: value for path, value in {**found.base, **settings}.items() if path == _SIDE}
        config = RunConfig.of(sides, **names)
        needed = (_DATA,) if config.encoder.pretrained_width is None else (_DATA, _WEIGHTS)
        if missing := [path for path in needed if path not in settings]:
            raise ValueError(f"Runs of images need `settings` for {' and '.join(missing)}.")
        images = resolve(str(settings[_DATA]), data_folder(), side=config.task.inputs.shape[-1])
        data = f"{images.name}-{images.fingerprint}"
    if found.experiment.has_features:
        if _DATA not in settings:
            raise ValueError(f"Runs of features need `settings` for {_DATA}, an .npz file.")
        features = read_features(str(settings[_DATA]))
        settings = {**settings, "task.n_features": features.features.shape[1]}
        data = f"{features.name}-{features.fingerprint}"
    return Runs(profile, chosen, settings, seeds, data)


def _conduct(study: Planned[Strategy], run: RunRequest, say: Say) -> Study:
    """Run a study to its end and open it."""
    tracker = checked_tracker(run)
    require_free_name(tracker, study.folder)
    interrupt = Interrupt(run.time_budget_s)
    check_site(run)
    going_on = f"the same call, with name={study.folder.name!r}"
    client = Client(say, lambda _: going_on)
    with joined(run, interrupt, say, lambda: f"{going_on}, continues the study") as site:
        StudySession(study, run, tracker, interrupt, client).conduct(site)
    stop = interrupt.stop
    if stop is not None and stop.reason is not StopReason.TIME_BUDGET:
        kind = KeyboardInterrupt if stop.reason is StopReason.SIGNAL else RuntimeError
        raise kind(f"{stop}; {going_on}, continues the study")
    return Study(study.folder)
