"""The board: pages of what MLflow has recorded, served by `launch/ui.py` or written as a static site.

    MLflow -> `database` (rows) -> `records` (studies, trials, seeds) -> pages -> `site` -> `server` | `export`

Pages are HTML with tables and drawings in it; scripts only sort, filter, compare and look for news. What the board
reads of a run is what `pcl.studies.tracking` writes; two more tags of a study's run are understood: `pcl.ablation`, the
name of the ablation that it is, and `pcl.baseline`, the key (`pcl.trial`) of the trial that others are paired with.
"""
