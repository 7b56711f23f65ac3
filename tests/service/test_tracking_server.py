"""An MLflow server that goes, comes back and goes again while a study runs on Ray."""

from tests.support.services import (
    GRID,
    INLINE,
    LONG,
    ONE_WORKER,
    Home,
    Records,
    check_undisturbed,
    free_port,
    go_on,
    long_alone,
    on_disk,
    wait_for,
)
from tests.support.tracking_server import prepared

EXPECTED_SECONDS = 50


def test_a_tracking_server_may_go_and_come_back(joined: Home) -> None:
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    with prepared(joined.path, port, 3) as (server, again, at_last):
        server.start()
        space = joined.space("long", GRID, LONG)
        study = ["--space", space, "--scale", "smoke", "--name", "s", "--tracking-uri", uri]
        grid = joined.start(*study, *ONE_WORKER)
        workers = joined.hold_at("s", 7)
        server.kill()
        before = {trial.key: len(trial.rows()) for trial in joined.study("s").trials()}

        def goes_on_without_it() -> bool:
            """Of every trial that runs, the driver knows of a report since: a worker waits until the last is taken."""
            running = [trial for trial in joined.study("s").trials() if not trial.result()]
            is_known = all(len(trial.rows()) >= before.get(trial.key, 0) + 2 for trial in running)
            return is_known and joined.n_reports("s") > sum(before.values()) + 6

        go_on(workers)
        workers = joined.hold_when(goes_on_without_it, "training goes on without the server")
        again.start()  # the rest has to wait until the server has come and gone again
        records = Records(uri, "s")
        n_reports = joined.n_reports("s")
        wait_for(lambda: sum(len(records.steps(run)) for run in records.runs("trial")) == n_reports, "all is recorded")
        again.kill()
        go_on(workers)
        grid.ended()
        assert "MLflow lacks" in grid.said
        assert joined.cluster is not None
        where = ["--storage", str(joined.storage), "--tracking-uri", uri]
        going_on = [*ONE_WORKER, *where, "--address", joined.cluster.address]
        assert f"`python launch/grid.py --resume s {' '.join(going_on)}` sends them" in grid.said
        assert on_disk(joined.study("s")) == long_alone()

        at_last.start()
        joined.run("--resume", "s", *where, *INLINE)
        check_undisturbed(joined.study("s"), long_alone(), uri)
