"""Search spaces that tests make."""

from typing import Any

from pcl.studies.space.search_space import SearchSpace, Stage, negatives_axis


def make(**changes: Any) -> SearchSpace:
    content: dict[str, Any] = {
        "name": "mine",
        "loss": "mc_info_nce",
        "stages": (Stage("grid", {"M": negatives_axis(0, 4), "loss.kappa_pos": (10, 20)}),),
    }
    return SearchSpace(**{**content, **changes})
