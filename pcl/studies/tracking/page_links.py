"""Addresses of MLflow's pages, from the `#` on, to be appended to a server's address and a slash.

Every one names the workflow. Without it, a browser that is new to MLflow opens the pages for language models, which
show an experiment's traces and judges instead of its runs.
"""

from urllib.parse import quote, urlencode

from pcl.metrics.names import OBJECTIVE, larger_is_better
from pcl.studies.tracking.tags import RunKind, Tag


def experiments_page() -> str:
    """Return the address of the list of experiments.

    Example:
        >>> experiments_page()
        '#/experiments?workflowType=machine_learning'
    """
    return _page("experiments")


def run_page(experiment: str, run: str) -> str:
    """Return the address of a run's page.

    Example:
        >>> run_page("1", "c0ffee")
        '#/experiments/1/runs/c0ffee?workflowType=machine_learning'
    """
    return _page("experiments", experiment, "runs", run)


def model_page(name: str, version: str) -> str:
    """Return the address of the page of a registered model's version.

    Example:
        >>> model_page("toy_elk", "2")
        '#/models/toy_elk/versions/2?workflowType=machine_learning'
    """
    return _page("models", name, "versions", version)


def trials_page(experiment: str, study: str, objective: str) -> str:
    """Return the address of a study's trials, the best by its objective first; the filter keeps them unfolded.

    Example:
        >>> ["orderByAsc=true" in trials_page("1", "s", metric) for metric in ("eval/kappa_mae", "val/recall_at_1")]
        [True, False]
    """
    trials = f"tags.\"{Tag.KIND}\" = '{RunKind.TRIAL}' AND tags.\"{Tag.STUDY}\" = '{study}'"
    order = {"orderByKey": f"metrics.`{OBJECTIVE}`", "orderByAsc": str(larger_is_better(objective) is False).lower()}
    return _page("experiments", experiment, "runs", searchFilter=trials, **order)


def _page(*path: str, **query: str) -> str:
    words = urlencode({**query, "workflowType": "machine_learning"}, quote_via=quote)
    return f"#/{'/'.join(quote(part, safe='') for part in path)}?{words}"
