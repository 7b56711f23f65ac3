"""The MLflow that a study is recorded in."""

from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.session.request import RunRequest
from pcl.studies.tracking.store import tracking_uri
from pcl.studies.tracking.tags import EXPERIMENTS, RunKind, Tag
from pcl.studies.tracking.tracker import StoreError, Tracker


def checked_tracker(request: RunRequest) -> Tracker:
    """Return a tracker, after checking that its MLflow can be used."""
    request.storage.require_tracking(request.tracking_uri)
    tracker = Tracker(tracking_uri(request.tracking_uri, request.storage.path.absolute()))
    tracker.check()
    return tracker


def require_free_name(tracker: Tracker, folder: StudyFolder) -> None:
    """Raise a ValueError if a server already has a study of a new one's name, such as another user's.

    The two would share their runs, and each would delete what it takes for an earlier attempt of its own.
    """
    store = tracker.store
    if store.database is not None or folder.has_begun():
        return
    tags = {Tag.STUDY: folder.name, Tag.KIND: RunKind.STUDY}
    try:
        found = store.find(store.experiments(EXPERIMENTS), tags, most=1)
    except StoreError as error:
        raise ValueError(f"The tracking store {store.shown_uri} cannot be used: {error}") from None
    if found:
        user = found[0].data.tags.get(Tag.USER, "")
        whose = f"{folder.name!r} of {user!r}" if user else repr(folder.name)
        raise ValueError(
            f"The tracking server {store.shown_uri} has a study {whose} already, whose folder is not in "
            f"{folder.path.parent}; give the new one a name of its own."
        )
