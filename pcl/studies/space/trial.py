"""A trial: what is trained, and the key that it is found again by."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pcl.config.run_config import Plain, RunConfig
from pcl.config.user_files import portable
from pcl.studies.space.labels import label
from pcl.studies.space.numerics_version import MATHS_VERSION


@dataclass(frozen=True)
class Trial:
    """One configuration, trained for some seeds side by side.

    Attributes:
        config: The whole configuration, by dotted path.
        seeds: Seeds that train side by side.
        stage: Name of the search space's stage, or "report" for the final runs of the best.
        varied: What the search varied, by axis.
        data: Fingerprint of the data.
    """

    config: dict[str, Plain]
    seeds: tuple[int, ...]
    stage: str
    varied: dict[str, Plain] = field(default_factory=dict)
    data: str = "toy"

    @cached_property
    def key(self) -> str:
        """Twenty hexadecimal digits: equal for equal configuration, seeds, data and mathematics."""
        return self._digest(list(self.seeds))

    @cached_property
    def cell(self) -> str:
        """As `key`, but equal for all trials that differ in their seeds alone."""
        return self._digest([])

    @property
    def run_config(self) -> RunConfig:
        """The configuration, typed and checked."""
        return RunConfig.from_flat(self.config)

    @property
    def label(self) -> str:
        """The varied values in a line, each by the last part of its path."""
        return label(self.varied) or "(base)"

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Trial":
        """From what `asdict` returned, perhaps by way of JSON."""
        return cls(**{**content, "seeds": tuple(content["seeds"])})

    def _digest(self, seeds: list[int]) -> str:
        identity = [dict(sorted(portable(self.config).items())), seeds, self.data, MATHS_VERSION]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]
