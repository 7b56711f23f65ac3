"""Search a space or run an ablation from Python; what the commands print is said here too."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pcl.config.run_config import Plain, RunConfig
from pcl.data.sources import data_folder, resolve
from pcl.mathematics.random_streams import check_seeds
from pcl.studies.api.study import Study
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.ledger.study_names import check_new_name, default_name
from pcl.studies.ledger.study_spec import ABLATION, MADE_IN_PYTHON, StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.results.pareto import read_objectives
from pcl.studies.session.ablation_study import ablation_study
from pcl.studies.session.request import ResourceRequest, Runner, RunRequest
from pcl.studies.session.site import check_site, joined, machine
from pcl.studies.session.strategies import Say, StageSearch, Strategy, check_possible
from pcl.studies.session.study_session import Client, StudySession, search_study
from pcl.studies.session.study_session import Study as Planned
from pcl.studies.session.tracking_choice import checked_tracker
from pcl.studies.space.ablation import Ablation, load_ablation, seeds_at
from pcl.studies.space.search_method import GRID, OPTUNA, TPE, Method, n_trials_of
from pcl.studies.space.search_space import SearchSpace, load_space

Declared = TypeVar("Declared", SearchSpace, Ablation)
_DATA, _WEIGHTS = "task.data", "encoder.weights"


def search(
    space: str | Path | SearchSpace, *, scale: str | None = None, profile: str = "reference",
    settings: Mapping[str, Plain] | None = None, seeds: Sequence[int] = (), name: str | None = None,
    method: Literal["grid", "random", "optuna"] = "grid", n_trials: int | None = None, search_seed: int = 0,
    scheduler: Literal["", "asha"] = "", objectives: Sequence[str] = (), replicate: bool = False,
    finalize: bool | None = None, storage: str | Path = "runs", tracking: str | None = None,
    runner: Literal["inline", "ray"] = "inline", address: str | None = None,
    resources: ResourceRequest | None = None, time_budget_s: float = 0.0, say: Say = print,
) -> Study:  # fmt: skip
    """Search a space; called again with the same name, it goes on with the study.

    Args:
        space: A name of search_spaces/, the path of a file that defines SPACE, or a space made in Python.
        scale: smoke, quick or paper; None takes paper where there is a GPU, else quick.
        profile: Fidelity profile.
        settings: Of every run, by dotted path; of images, `task.data` and `encoder.weights` ("" from scratch) too.
        seeds: That select; by default the space's, its first below the scale paper.
        name: Of the study; None makes a new one.
        method: How the space is searched.
        n_trials: Of each stage of a random or Optuna search; None is a tenth of the grid, from 10 to 100.
        search_seed: Of the draws and the sampler.
        scheduler: "asha" stops trials early that fall behind.
        objectives: Metrics of a Pareto front; the first decides. By default the space's.
        replicate: Whether the best get more seeds until it is clear which is best.
        finalize: Whether the best run on the report seeds; None does at the scale paper.
        storage: Folder or store of studies.
        tracking: Address of MLflow; None for the environment's, else a database in the storage.
        runner: In this process, or on Ray.
        address: Of a Ray cluster; None starts one on this machine.
        resources: Of a trial.
        time_budget_s: After which the study stops cleanly; 0 for no bound.
        say: Prints a line.

    Returns:
        The study, as `open_study` opens it.

    Raises:
        ValueError: If something is not possible, before anything runs.
        KeyboardInterrupt: If it was stopped; so it can go on.
        RuntimeError: If it had to stop, such as for a full disk.
    """
    found, where = _declared(space, SearchSpace, load_space)
    run = _run_request(storage, tracking, runner, address, resources, time_budget_s, finalize)
    chosen, values, data = _runs(found, scale, settings or {}, run)
    if method == GRID and found.is_sampled:
        raise ValueError(f"The space {found.name!r} has ranges, of which there is no grid: take another `method`.")
    how = Method(scheduler=scheduler)
    if method != GRID:
        counts = tuple(n_trials_of(stage, n_trials) for stage in found.stages)
        how = Method(method, counts, search_seed, TPE if method == OPTUNA else "", "", scheduler)
    tuning = found.tuning_seeds if chosen == "paper" else found.tuning_seeds[:1]
    check_seeds(tuple(seeds) or tuning)
    spec = StudySpec(
        where, found.fingerprint(), profile, chosen, values, tuple(seeds) or tuning, found.report_seeds, data, how,
        read_objectives(",".join(objectives), found), "auto" if replicate else "",
    )  # fmt: skip
    check_possible(found, spec)
    folder = run.storage.study(default_name(found.name, data, chosen) if name is None else check_new_name(name))
    return _conduct(search_study(folder, StageSearch(found, spec, run.is_finalized(chosen))), run, say)


def ablate(
    ablation: str | Path | Ablation, *, scale: str | None = None, profile: str = "reference",
    settings: Mapping[str, Plain] | None = None, seeds: Sequence[int] = (), name: str | None = None,
    storage: str | Path = "runs", tracking: str | None = None, runner: Literal["inline", "ray"] = "inline",
    address: str | None = None, resources: ResourceRequest | None = None, time_budget_s: float = 0.0,
    say: Say = print,
) -> Study:  # fmt: skip
    """Run an ablation; called again with the same name, it goes on with the study.

    Args:
        ablation: A name of search_spaces/ablations/, the path of a file that defines ABLATION, or one made in Python.
        scale: As of `search`, which has the other arguments too.
        profile: Fidelity profile.
        settings: Of every run, by dotted path.
        seeds: Of every variant; by default 4 to 8, the first three at the scale quick and two at smoke.
        name: Of the study; None makes a new one.
        storage: Folder or store of studies.
        tracking: Address of MLflow.
        runner: In this process, or on Ray.
        address: Of a Ray cluster.
        resources: Of a trial.
        time_budget_s: After which the study stops cleanly; 0 for no bound.
        say: Prints a line.

    Returns:
        The study, as `open_study` opens it; its table has a row for each variant.

    Raises:
        ValueError: If something is not possible, before anything runs.
        KeyboardInterrupt: If it was stopped; so it can go on.
        RuntimeError: If it had to stop, such as for a full disk.
    """
    found, where = _declared(ablation, Ablation, load_ablation)
    check_seeds(tuple(seeds) or seeds_at("paper"))
    run = _run_request(storage, tracking, runner, address, resources, time_budget_s, None)
    chosen, values, data = _runs(found, scale, settings or {}, run)
    spec = StudySpec(
        where, found.fingerprint(), profile, chosen, values, (), tuple(seeds) or seeds_at(chosen), data, kind=ABLATION
    )
    folder = run.storage.study(default_name(found.name, data, chosen) if name is None else check_new_name(name))
    return _conduct(ablation_study(folder, found, spec, say), run, say)


def _declared(
    given: str | Path | Declared, kind: type[Declared], load: Callable[[str], Declared]
) -> tuple[Declared, str]:
    """Return a space or an ablation, and what the study says it is of."""
    if isinstance(given, kind):
        return given, f"{MADE_IN_PYTHON}{given.name}"
    text = str(given)
    found = load(text)
    return found, str(Path(text).absolute()) if text.endswith(".py") or "/" in text else found.name


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
    found: SearchSpace | Ablation, scale: str | None, settings: Mapping[str, Plain], run: RunRequest
) -> tuple[str, dict[str, Plain], str]:
    """Return scale, settings and data's fingerprint of a study's runs."""
    chosen = scale or ("paper" if machine(run.address).get("GPU") else "quick")
    if not found.experiment.has_images:
        return chosen, dict(settings), "toy"
    encoder = RunConfig.of(loss=found.loss, task=found.task, encoder=found.encoder).encoder
    needed = (_DATA,) if encoder.pretrained_width is None else (_DATA, _WEIGHTS)
    if missing := [path for path in needed if path not in settings]:
        raise ValueError(f"Runs of images need `settings` for {' and '.join(missing)}.")
    images = resolve(str(settings[_DATA]), data_folder())
    return chosen, dict(settings), f"{images.name}-{images.fingerprint}"


def _conduct(study: Planned[Strategy], run: RunRequest, say: Say) -> Study:
    """Run a study to its end and open it."""
    tracker = checked_tracker(run)
    interrupt = Interrupt(run.time_budget_s)
    check_site(run)
    going_on = f"the same call, with name={study.folder.name!r}"
    client = Client(say, lambda _: going_on)
    with joined(run, interrupt, say, lambda: f"{going_on}, goes on") as site:
        StudySession(study, run, tracker, interrupt, client).conduct(site)
    stop = interrupt.stop
    if stop is not None and stop.reason is not StopReason.TIME_BUDGET:
        kind = KeyboardInterrupt if stop.reason is StopReason.SIGNAL else RuntimeError
        raise kind(f"{stop}; {going_on}, goes on")
    return Study(study.folder)
