"""A trial: a configuration with its seeds, and the key that identifies it."""

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

REPORT_STAGE, REPLICATE_STAGE = "report", "replicate"  # stages after those of a search space


@dataclass(frozen=True)
class Trial:
    """One configuration, trained for several seeds side by side."""

    config: dict[str, Plain]  # the whole configuration, by dotted path
    seeds: tuple[int, ...]  # seeds that train side by side
    stage: str  # name of the search space's stage, or "report" for the final runs of the best
    varied: dict[str, Plain] = field(default_factory=dict)  # what the search varied, by axis
    data: str = "toy"  # fingerprint of the data

    @cached_property
    def key(self) -> str:
        """Twenty hexadecimal digits: equal for equal configuration, seeds, data and numerics version."""
        return self._digest(list(self.seeds))

    @cached_property
    def cell(self) -> str:
        """The same without the seeds: equal for all trials that differ in their seeds alone."""
        return self._digest([])

    @property
    def run_config(self) -> RunConfig:
        return RunConfig.from_flat(self.config)

    @property
    def label(self) -> str:
        """Varied values in a line, each after the last part of its path."""
        return label(self.varied) or "(base)"

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Trial":
        """Create a trial from what `asdict` returned, possibly by way of JSON."""
        return cls(**{**content, "seeds": tuple(content["seeds"])})

    def numerics_of(self, key: str) -> int | None:
        """Return the numerics version that gave this trial the key; None where none did."""
        versions = range(MATHS_VERSION, 0, -1)
        return next((version for version in versions if self._digest(list(self.seeds), version) == key), None)

    def is_of_older_numerics(self, key: str) -> bool:
        """Return whether an earlier numerics version gave this trial the key."""
        return self.numerics_of(key) in range(1, MATHS_VERSION)

    def _digest(self, seeds: list[int], version: int = MATHS_VERSION) -> str:
        identity = [dict(sorted(portable(self.config).items())), seeds, self.data, version]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]
