"""The compose file of a team's server: what can be checked of it without Docker."""

import re
import warnings
from importlib import import_module

import pytest
import yaml

from launch.board import _parser as board_parser
from tests.support.compose import FILE, PASSWORD, composed, words

TEAM = {**PASSWORD, "PCL_BIND": "0.0.0.0", "PCL_HOST": "tracking.example"}


def test_only_this_machine_reaches_it_unless_asked_otherwise() -> None:
    for environment, address in ((PASSWORD, "127.0.0.1"), (TEAM, "0.0.0.0")):
        services = composed(environment)
        published = {name: service.get("ports", []) for name, service in services.items()}
        assert published == {
            "postgres": [], "mlflow": [f"{address}:5000:5000"], "board": [f"{address}:8300:8300"],
        }  # fmt: skip


@pytest.mark.parametrize("environment", [{}, {"POSTGRES_PASSWORD": ""}])
def test_it_does_not_start_without_a_password(environment: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="POSTGRES_PASSWORD"):
        composed(environment)


def test_the_password_is_in_the_environment_alone() -> None:
    services = composed(PASSWORD)
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == PASSWORD["POSTGRES_PASSWORD"]
    assert services["mlflow"]["environment"]["PGPASSWORD"] == PASSWORD["POSTGRES_PASSWORD"]
    for service in services.values():
        assert PASSWORD["POSTGRES_PASSWORD"] not in str(service.get("command", "")) + str(service["healthcheck"])


def test_images_are_pinned_and_data_is_kept() -> None:
    content, services = yaml.safe_load(FILE.read_text()), composed(PASSWORD)
    assert re.fullmatch(r"postgres:\d+\.\d+-\w+", services["postgres"]["image"])
    recipe = (FILE.parents[2] / services["mlflow"]["build"]["dockerfile"]).read_text()
    assert re.search(r"^FROM python:\d+\.\d+\.\d+-[\w-]+$", recipe, re.MULTILINE)
    (installed,) = re.findall(r"--constraint /tmp/requirements.lock (.*)$", recipe, re.MULTILINE)
    lock = (FILE.parents[2] / "requirements.lock").read_text()
    assert all(re.search(rf"^{name}==", lock, re.MULTILINE) for name in installed.split())
    assert services["board"]["build"] == services["mlflow"]["build"]
    kept = {name: service["volumes"][0].split(":") for name, service in services.items() if name != "board"}
    assert kept["postgres"] == ["database", "/var/lib/postgresql/data"]
    assert kept["mlflow"] == ["artifacts", "/artifacts"]
    assert set(content["volumes"]) == {"database", "artifacts"}
    # The board has the code alone: what is beside compose.yaml has a password in it.
    place = services["board"]["working_dir"]
    assert services["board"]["volumes"] == [
        f"../../{name}:{place}/{name}:ro" for name in ("pcl", "dashboards", "launch")
    ]
    assert services["board"]["tmpfs"] == [f"{place}/launch/cluster"]
    assert (FILE.parents[2] / ".dockerignore").read_text().split() == ["*", "!requirements.lock"]


def test_a_service_waits_for_the_one_that_it_needs() -> None:
    services = composed(PASSWORD)
    assert all(service["healthcheck"]["test"][0] == "CMD" for service in services.values())
    for name, other in (("mlflow", "postgres"), ("board", "mlflow")):
        assert services[name]["depends_on"] == {other: {"condition": "service_healthy"}}


@pytest.mark.parametrize(("environment", "host"), [(PASSWORD, "127.0.0.1"), (TEAM, "tracking.example")])
def test_the_commands_are_what_mlflow_and_the_board_take(environment: dict[str, str], host: str) -> None:
    services = composed(environment)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow uses what SQLAlchemy 2.1 has deprecated
        server = import_module("mlflow.cli").server
    program, name, *options = words(services["mlflow"])
    given = server.make_context(f"{program} {name}", options).params
    assert given["serve_artifacts"]
    assert given["artifacts_destination"] == "/artifacts"
    assert f"{host}:5000" in given["allowed_hosts"].split(",")
    assert given["cors_allowed_origins"] == f"http://{host}:5000"

    python, flag, module, *options = words(services["board"])
    assert (python, flag, module) == ("python", "-m", "launch.board")
    asked = board_parser().parse_args(options)
    assert asked.tracking_uri.removeprefix("http://") in given["allowed_hosts"].split(",")
    assert asked.mlflow == f"http://{host}:5000"
    assert services["board"]["hostname"] in (host, "board")
