"""New studies: the checks of a request, and the specification that it becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pcl.config.canonical_settings import canonical_settings
from pcl.config.run_config import Plain
from pcl.mathematics.random_streams import check_seeds
from pcl.studies.ledger.folders import Status, StudyFolder
from pcl.studies.ledger.study_names import check_new_name, default_name
from pcl.studies.ledger.study_spec import ABLATION, StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.results.pareto import check_objectives
from pcl.studies.session.ablation_study import cells_of
from pcl.studies.session.request import SearchRequest
from pcl.studies.space.ablation import Ablation, seeds_at
from pcl.studies.space.search_method import ASHA, GRID, OPTUNA, RANDOM, TPE, Method, n_trials_of, searched
from pcl.studies.space.search_space import SearchSpace

# Field of a request -> what it is, and the searches that have it.
_KINDS = {
    "n_trials": ("A number of trials", (RANDOM, OPTUNA)), "search_seed": ("A search seed", (RANDOM, OPTUNA)),
    "sampler": ("A sampler", (OPTUNA,)), "warm_start": ("A warm start", (OPTUNA,)),
}  # fmt: skip


class Runs(NamedTuple):
    """The runs of a new study."""

    profile: str
    scale: str
    settings: Mapping[str, Plain]
    seeds: Sequence[int] = ()  # none for the default ones
    data: str = "toy"  # or name and fingerprint of the images


def method_of(asked: SearchRequest, space: SearchSpace) -> Method:
    """Return the requested search, after checking its method and objectives against the space.

    Raises:
        ValueError: If an option is for another search, or a grid is asked for in a space with ranges.
    """
    kind = asked.kind or GRID
    for name, (what, kinds) in _KINDS.items():
        if getattr(asked, name) is not None and kind not in kinds:
            raise ValueError(f"{what} goes with the search {' or '.join(kinds)}, but the search is {kind}.")
    if asked.scheduler == "pbt":
        raise ValueError(
            "The scheduler must be asha or none. Trials of PBT take over each other's weights and change "
            "settings on the way, so no configuration describes a trial's result; take asha, and search "
            "`training.lr` and `training.lr_schedule`."
        )
    scheduler = "" if asked.scheduler in (None, "none") else asked.scheduler
    if scheduler == ASHA and len(asked.objectives) > 1:
        raise ValueError(f"ASHA must go by one objective, but got {', '.join(asked.objectives)}; leave out the others.")
    check_objectives(asked.objectives, space)
    if kind == GRID:
        if space.is_sampled:
            raise ValueError(
                f"The space {space.name!r} has ranges, of which there is no grid: take the search random or optuna, "
                f"or list their values."
            )
        return Method(scheduler=scheduler)
    n_trials = tuple(n_trials_of(stage, asked.n_trials) for stage in space.stages)
    sampler = (asked.sampler or TPE) if kind == OPTUNA else ""
    return Method(kind, n_trials, asked.search_seed or 0, sampler, asked.warm_start or "", scheduler)


def search_spec(space: SearchSpace, where: str, runs: Runs, method: Method, asked: SearchRequest) -> StudySpec:
    """Return the specification of a search; `where` is the text by which the study finds its space again.

    Raises:
        ValueError: If the first stage's trials are not possible; for ranges, if those that are tried are not.
    """
    seeds = tuple(runs.seeds) or (space.tuning_seeds if runs.scale == "paper" else space.tuning_seeds[:1])
    check_seeds(seeds)
    spec = StudySpec(
        where, space.fingerprint(), runs.profile, runs.scale, canonical_settings(runs.settings, space.readers), seeds,
        space.report_seeds, runs.data, method, asked.objectives, asked.replicate or "",
    )  # fmt: skip
    if method.kind == OPTUNA or space.is_sampled:
        for name, axis in [item for stage in space.stages for item in stage.axes.items()]:
            try:
                searched(name, axis)
            except ValueError as error:
                raise ValueError(f"Search space {space.name!r}: {error}") from None
        spec.corners(space)
    if method.kind != OPTUNA:
        spec.trials(space, 0, {})
    return spec


def check_warm_start(spec: StudySpec, folder: StudyFolder) -> None:
    """Raise a ValueError unless this study could have the other study's trials."""
    other = StudySpec.read(folder)
    folder.pull()
    if difference := spec.difference(replace(other, method=spec.method, space=spec.space, replicate=spec.replicate)):
        raise ValueError(
            f"A warm start takes a study of the same space, objectives, seeds and settings, but {folder.name!r} is "
            f"another one ({difference})."
        )
    results = [trial.result() for trial in folder.trials()]
    if not any(result is not None and result.status is Status.FINISHED for result in results):
        raise ValueError(f"A warm start takes a study with finished trials, but {folder.name!r} has none.")


def ablation_spec(ablation: Ablation, where: str, runs: Runs) -> StudySpec:
    """Return the specification of an ablation, whose baseline must be possible; see `search_spec`."""
    seeds = tuple(runs.seeds) or seeds_at(runs.scale)
    check_seeds(seeds)
    spec = StudySpec(
        where, ablation.fingerprint(), runs.profile, runs.scale, canonical_settings(runs.settings, ablation.readers),
        (), seeds, runs.data, kind=ABLATION,
    )  # fmt: skip
    cells_of(ablation, spec)  # raises a ValueError if the baseline is not possible
    return spec


def folder_of(storage: Storage, name: str | None, declared: SearchSpace | Ablation, spec: StudySpec) -> StudyFolder:
    """Return a study's folder, by the given name, which is checked, or by a new one."""
    return storage.study(default_name(declared.name, spec.data, spec.scale) if name is None else check_new_name(name))
