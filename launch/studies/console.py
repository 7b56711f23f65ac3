"""The console of a command that runs a study: MLflow checked, addresses printed, a session's client."""

import sys
from pathlib import Path

from launch.shared.command import say
from launch.studies.resume_command import Resumption
from pcl.studies.session.study_session import Client
from pcl.studies.tracking.tracker import Tracker


def client_of(resumption: Resumption, tracker: Tracker) -> Client:
    """Return a command as a session's client, which says where to look once MLflow has the study."""
    return Client(
        say, resumption.command_line, resumption.guard, lambda site: say_addresses(site.dashboard, tracker)
    )  # fmt: skip


def say_addresses(dashboard: str, tracker: Tracker) -> None:
    """Say where to look."""
    if dashboard:
        say(f"Ray dashboard: {dashboard} (if it asks for a token: `ray get-auth-token`)")
    uri = tracker.shown_uri
    if uri.startswith("http"):
        say(f"MLflow UI: {uri.rstrip('/')}/{tracker.trials_page}")
    else:
        say(f"MLflow UI: {Path(sys.executable).parent / 'mlflow'} ui --backend-store-uri {uri}")
        say(f"           then http://127.0.0.1:5000/{tracker.trials_page}")
