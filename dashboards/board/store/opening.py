"""Opens MLflow's tables: its file where this program knows the schema, else a mirror filled by MLflow's client."""

from dashboards.board.store.mlflow_mirror import Mirror
from pcl.studies.tracking.database_file import Database, FileDatabase
from pcl.studies.tracking.store import Store


def open_database(store: Store) -> Database:
    """The tables of a store: its file's, where they are those that are known here, else a mirror's."""
    if store.database is not None:
        file = FileDatabase(store.database)
        if file.is_known():
            return file
    return Mirror(store)
