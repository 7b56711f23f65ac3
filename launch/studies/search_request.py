"""The search method that `launch/grid.py` is asked for, checked against the space and the warm start."""

from dataclasses import replace

from launch.studies.requests import SearchRequest
from pcl.studies.ledger.folders import Status, StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.space.search_method import ASHA, GRID, OPTUNA, TPE, Method, n_trials_of
from pcl.studies.space.search_space import SearchSpace


def asked_method(request: SearchRequest, space: SearchSpace) -> Method:
    """Return the search that was asked for.

    Raises:
        ValueError: If an option is for another search, or the space has ranges and is to be a grid.
    """
    kind = request.kind or GRID
    for name, kinds in _KINDS.items():
        if getattr(request, name) is not None and kind not in kinds:
            flag, fitting = f"--{name.replace('_', '-')}", " or ".join(f"`--search {kind}`" for kind in kinds)
            raise ValueError(f"`{flag}` goes with {fitting}, but the search is {kind!r}.")
    if kind == GRID:
        if space.is_sampled:
            raise ValueError(
                f"The space {space.name!r} has ranges, of which there is no grid: take `--search random` or "
                f"`--search optuna`, or list their values."
            )
        return Method(scheduler=_scheduler(request))
    seed = request.search_seed or 0
    if seed < 0:
        raise ValueError(f"`--search-seed` must be at least 0, but got {seed}.")
    n_trials = tuple(n_trials_of(stage, request.trials) for stage in space.stages)
    sampler = (request.sampler or TPE) if kind == OPTUNA else ""
    return Method(kind, n_trials, seed, sampler, request.warm_start or "", _scheduler(request))


def _scheduler(request: SearchRequest) -> str:
    """Return the scheduler that stops trials early, or nothing."""
    if request.scheduler == "pbt":
        raise ValueError(
            "`--scheduler pbt` is not possible: its trials take over each other's weights and change settings on the "
            "way, so that no configuration stands for what one has reached; take `--scheduler asha`, and search "
            "`training.lr` and `training.lr_schedule`."
        )
    if request.scheduler != ASHA:
        return ""
    if "," in (request.objectives or ""):
        raise ValueError("`--scheduler asha` goes by one metric: give one of `--objectives`, or leave them out.")
    return ASHA


_KINDS = {
    "trials": ("random", "optuna"), "search_seed": ("random", "optuna"), "sampler": ("optuna",),
    "warm_start": ("optuna",),
}  # fmt: skip


def check_warm_start(spec: StudySpec, folder: StudyFolder) -> None:
    """Raise a ValueError unless a study's trials are some that this one could have."""
    other = StudySpec.read(folder)
    folder.pull()
    if difference := spec.difference(replace(other, method=spec.method, space=spec.space, replicate=spec.replicate)):
        raise ValueError(
            f"`--warm-start` takes a study of the same space, objectives, seeds and settings, but {folder.name!r} is "
            f"another one ({difference})."
        )
    results = [trial.result() for trial in folder.trials()]
    if not any(result is not None and result.status is Status.FINISHED for result in results):
        raise ValueError(f"`--warm-start` takes a study with finished trials, but {folder.name!r} has none.")
