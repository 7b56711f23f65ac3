"""An ablation as a study: its variants as a list of trials, and the table of their differences."""

from pathlib import Path

from pcl.storage.files import write_text
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.report.outputs import trials_csv
from pcl.studies.report.paired_table import Reached, as_csv, as_text, compared
from pcl.studies.results.selection import Outcome
from pcl.studies.session.site import provenance
from pcl.studies.session.strategies import Say, TrialList
from pcl.studies.session.study_session import Study
from pcl.studies.space.ablation import Ablation, Cells
from pcl.studies.tracking.tracker import StudyTags

TABLE = "ablation.csv"  # in the study's folder: the differences


def cells_of(ablation: Ablation, spec: StudySpec) -> Cells:
    """Return the trials of an ablation's study, and the variants that have none; see `Ablation.cells`."""
    return ablation.cells(spec.profile, spec.scale, spec.report_seeds, spec.overrides, spec.data)


def ablation_study(folder: StudyFolder, ablation: Ablation, spec: StudySpec, say: Say) -> Study[TrialList]:
    """Return an ablation as a study."""
    trials = cells_of(ablation, spec).trials
    tags = StudyTags(
        f"ablations/{ablation.name}", spec.scale, spec.profile, ablation.objective.metric, spec.data, *provenance(),
        ablation.name, trials[ablation.baseline].key,
    )  # fmt: skip

    def written(outcomes: list[Outcome]) -> list[Path]:
        return _written(folder, ablation, spec, outcomes, say)

    return Study(folder, spec, tags, TrialList(ablation.objective, list(trials.values()), ablation.question, written))


def _written(folder: StudyFolder, ablation: Ablation, spec: StudySpec, outcomes: list[Outcome], say: Say) -> list[Path]:
    """Print the table and write it; return the files."""
    by_label = {str(outcome.trial.varied[ablation.axis]): outcome for outcome in outcomes}
    reached = [
        Reached(
            label,
            {seed: m for seed, m in o.by_seed.items() if seed not in o.failures and o.is_finished},
            o.cause or ("" if o.result is not None else "not run"),
        )
        for label in ablation.variants
        if (o := by_label.get(label)) is not None
    ]
    found = compared(reached, ablation.baseline, ablation.shown_metrics)
    seeds = " ".join(map(str, spec.report_seeds))
    told = [
        f"{ablation.name}: {ablation.question}",
        f"fidelity {spec.profile}, scale {spec.scale}, data {spec.data}, seeds {seeds}; differences from "
        f"{ablation.axis} = {ablation.baseline}, seed by seed",
        *as_text(found, spec.scale),
    ]
    files = [folder.path / name for name in ("ablation.txt", TABLE, "trials.csv")]
    contents = ("\n".join(told) + "\n", as_csv(found, spec.scale), trials_csv(outcomes))
    for path, content in zip(files, contents, strict=True):
        write_text(path, content)
    for line in ["", *told, ""]:
        say(line)
    say("written: " + ", ".join(map(str, files)))
    return files
