"""Body of `launch/champion.py`: register a study's winner and print the result."""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from launch.shared.command import say
from pcl.storage.credentials import shown_uri
from pcl.storage.installation import command
from pcl.studies.api.study import Study, open_study
from pcl.studies.ledger.study_spec import SEARCH
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.registry.registration import Registered
from pcl.studies.tracking.store import tracking_uri

_PORT = 5001  # MLflow's default, 5000, is also that of its own pages


@dataclass(frozen=True)
class ChampionRequest:
    """A request to `launch/champion.py`.

    Attributes:
        study: Name, folder or address.
        alias: Alias of the version.
        name: Name of the registered model; None for the space's.
        seed: Trained seed to register; None for the first that has not failed.
        storage: Where studies are kept.
        tracking_uri: MLflow's store; None for the environment's or the storage's own.
    """

    study: str
    alias: str
    name: str | None
    seed: int | None
    storage: Storage
    tracking_uri: str | None


def register_champion(request: ChampionRequest) -> None:
    """Register the winner, and print its version and how to use it.

    Raises:
        ValueError: If there is no such study, or it has no winner that can be registered.
    """
    request.storage.require_tracking(request.tracking_uri)
    study = open_study(request.study, str(request.storage))
    made = study.register(request.name, request.alias, request.seed, request.tracking_uri)
    _tell(study, made, request)


def _tell(study: Study, made: Registered, request: ChampionRequest) -> None:
    champion = made.champion
    seeds = ", ".join(map(str, champion.taken.trial.seeds))
    found = champion.metrics[champion.objective]
    interval = f", 95% interval {found.low:.4g} to {found.high:.4g}" if found.has_interval else ""
    say(f"winner: {champion.taken.trial.label}, seed {made.seed} of {seeds} ({champion.checkpoint})")
    say(f"{champion.objective}: {found.mean:.4g}{interval} ({found.n} {'seed' if found.n == 1 else 'seeds'})")
    for shortcoming in champion.shortcomings:
        say(shortcoming)
    if not champion.is_reported and study.spec.kind == SEARCH:
        place = str(request.storage) if request.storage.is_store else str(study.path.parent)
        where = "" if study.path.parent.absolute() == Path("runs").absolute() else f" --storage {shlex.quote(place)}"
        again = f"{command('grid')} --resume {study.name} --finalize{where}"
        say(f"these seeds selected it: `{again}` trains it on the report seeds; then run this command again")
    for note in made.notes:
        say(note)
    state = "registered" if made.is_new else "unchanged since it was registered"
    say(f"{made.name} version {made.version}: {state}, alias {made.alias}")
    uri = tracking_uri(request.tracking_uri, study.path.parent)
    if shown_uri(uri) != uri:
        say("before you serve it, put MLflow's user into MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
    say(f"serve it: {_serving(shown_uri(uri), made.uri)}")


def _serving(tracking: str, model: str) -> str:
    """Return a shell command that works in any folder, even if the environment is not activated."""
    folder, found = Path(sys.executable).parent, shutil.which("mlflow")
    is_active = found is not None and (Path(found).parent == folder or not (folder / "mlflow").exists())
    # MLflow looks for uvicorn on PATH; a PATH set for a command need not be the one that finds the command itself.
    path = "" if is_active else f'PATH={shlex.quote(str(folder))}:"$PATH" '
    program = "mlflow" if is_active else shlex.quote(str(folder / "mlflow"))
    words = f"models serve -m {model} --env-manager local -p {_PORT}"
    return f"{path}MLFLOW_TRACKING_URI={shlex.quote(tracking)} {program} {words}"
