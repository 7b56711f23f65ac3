"""Installs commands, board and search spaces inside of pcl: their names are too general for the top level.

`launch` becomes pcl/installed/launch, and so on, which `pcl.storage.installation` finds. An editable installation
leaves everything where it is, with the checkout's folder on the path.
"""

import sys

from setuptools import find_packages, setup

beside = [] if "editable_wheel" in sys.argv else find_packages(include=["launch*", "dashboards*", "search_spaces*"])
inside = {f"pcl.installed.{name}": name.replace(".", "/") for name in beside}

setup(
    packages=[*find_packages(include=["pcl*"]), *inside],
    package_dir={"": ".", **inside},
    package_data={
        "pcl": ["py.typed"],
        "pcl.data": ["authors/*"],
        "pcl.studies.paper": ["published.json"],
        "pcl.installed.dashboards": ["results/**/*"],
        "pcl.installed.dashboards.board": ["static/*"],
        "pcl.installed.launch": ["cluster/*"],
        "pcl.installed.launch.benchmarks": ["*.jsonl"],
    },
)
