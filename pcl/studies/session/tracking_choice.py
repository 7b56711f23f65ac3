"""The MLflow that a study is recorded in."""

import os

from pcl.storage.object_stores import check_address
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.session.request import RunRequest
from pcl.studies.tracking.tracker import Tracker, tracking_uri


def require_tracking(storage: Storage, tracking_uri: str | None) -> None:
    """Raise a ValueError if studies are in an object store and no tracking server is given."""
    if not storage.is_store:
        return
    check_address(storage.mirror.uri)
    if not (tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")):
        raise ValueError(
            f"An MLflow server must be named for studies in {storage}: machines that share a store do not share a "
            f"database on one of them; give its address, or set MLFLOW_TRACKING_URI."
        )


def checked_tracker(request: RunRequest) -> Tracker:
    """Return MLflow, where it can be used."""
    require_tracking(request.storage, request.tracking_uri)
    tracker = Tracker(tracking_uri(request.tracking_uri, request.storage.path.absolute()))
    tracker.check()
    return tracker
