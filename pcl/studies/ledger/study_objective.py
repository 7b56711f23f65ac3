"""The metric that ranks a study's trials, in its folder: readers need neither its space, which is code, nor its end."""

import json
from contextlib import suppress

from pcl.storage.files import write_json
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.space.search_space import Mode, Objective

_FILE = "objective.json"


def write_objective(folder: StudyFolder, objective: Objective) -> None:
    """Write it."""
    write_json(folder.path / _FILE, {"metric": objective.metric, "mode": objective.mode.value})
    folder.mirror.push(_FILE)


def read_objective(folder: StudyFolder) -> Objective | None:
    """Return it; None of a study from before it was written."""
    with suppress(OSError, ValueError, KeyError):
        content = json.loads((folder.path / _FILE).read_text())
        return Objective(content["metric"], Mode(content["mode"]))
    return None
