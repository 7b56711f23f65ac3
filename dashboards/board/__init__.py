"""The board: pages of what MLflow has recorded, served by `launch/board.py` or written as a static site.

    MLflow -> `database` (rows) -> `records` (studies, trials, seeds) -> pages -> `site` -> `server` | `export`

Pages are HTML with tables and drawings; scripts only sort, filter, brush, compare and check for updates. The board
reads what `pcl.studies.tracking.tracker` writes, and two more tags of a study's run: `pcl.ablation`, the name of its
ablation, and `pcl.baseline`, the key (`pcl.trial`) of the trial that others are paired with.
"""
