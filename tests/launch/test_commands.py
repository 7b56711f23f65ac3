import importlib
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import torch

from launch.ablate import _parser as ablate_parser
from launch.ablate import main as ablate
from launch.ablate import request_of as ablation_request
from launch.bench import _parser as bench_parser
from launch.bench import main as bench
from launch.benchmarks.faults import EVENTS
from launch.benchmarks.loss import mc_info_nce_of_whole_samples
from launch.benchmarks.vmf import wood_sample
from launch.grid import _parser as grid_parser
from launch.grid import main as grid
from launch.grid import request_of as grid_request
from launch.reproduce import _parser as reproduce_parser
from launch.reproduce import request_of as reproduction_request
from launch.studies.resume_command import ABLATE, GRID, Resumption, asked_again, resumed_reproduction
from launch.testbed.processes import ROOT
from pcl.distributions import VonMisesFisher
from pcl.losses import MCInfoNCE
from pcl.mathematics.special import bessel_ratio
from pcl.studies.ledger.folders import StudyFolder
from tests.support.commands import called


@pytest.mark.parametrize(("command", "known"), [(grid, "toy_mcinfonce"), (ablate, "mc_samples")])
def test_what_there_is_is_listed_with_its_title(command: Callable[[], None], known: str) -> None:
    result = called("launch/grid.py", command, "--list")
    assert result.returncode == 0, result.stderr
    titles = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    file = ROOT / "search_spaces" / ("ablations" if command is ablate else "") / f"{known}.py"
    assert file.read_text().startswith(f'"""{titles[known]}')
    assert all(titles.values())


@pytest.mark.parametrize(
    "given",
    [
        "",
        " --no-finalize --gpus-per-trial 0.125 --storage /elsewhere",
        " --finalize --cpus-per-trial 2 --side-by-side 4 --max-concurrent 3 --address auto",
    ],
)
def test_what_goes_on_with_a_study_gives_its_trials_the_same(given: str) -> None:
    arguments = grid_parser().parse_args(["--space", "toy_elk", "--fail-fast", "--time-budget", "3", *given.split()])
    command = Resumption(GRID, grid_request(arguments).run).command_line(StudyFolder(Path("runs/s")))
    assert command == f"python launch/grid.py --resume s{given}"


def test_what_goes_on_with_an_ablation_and_a_reproduction() -> None:
    given = ["--gpus-per-trial", "0.5", "--storage", "/elsewhere"]
    ablation = ablation_request(ablate_parser().parse_args(["--ablation", "mc_samples", *given]))
    command = Resumption(ABLATE, ablation.run).command_line(StudyFolder(Path("/elsewhere/s")))
    assert command == "python launch/ablate.py --resume s --gpus-per-trial 0.5 --storage /elsewhere"
    asked = ["--scale", "smoke", "--table", "bench_results", "--row", "HIB", "--output", "my results"]
    reproduction = reproduction_request(reproduce_parser().parse_args([*asked, *given]))
    assert resumed_reproduction(reproduction).command_line() == (
        "python launch/reproduce.py --table bench_results --scale smoke --row HIB --output 'my results' "
        "--gpus-per-trial 0.5 --storage /elsewhere"
    )
    assert asked_again(reproduction) == "--table bench_results --scale smoke"  # what a kept table says, of all rows


@pytest.mark.parametrize("name", ["vmf", "loss", "toy", "cifar", "sharing", "study", "search", "faults", "load"])
def test_a_benchmark_takes_what_its_parser_gives(name: str) -> None:
    given = set(vars(bench_parser().parse_args([name]))) - {"benchmark", "output"}
    measure = importlib.import_module(f"launch.benchmarks.{name}").measure
    assert set(inspect.signature(measure).parameters) == given


def test_help_says_each_fault_once() -> None:
    shown = called("launch/bench.py", bench, "faults", "-h").stdout
    assert all(" ".join(shown.split()).count(f"'{event}'") == 1 for event in EVENTS)
    assert "{" not in shown


def test_bench_vmf(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "vmf.json"
    result = called("launch/bench.py", bench, "vmf", "--samples", "2000", "--repeats", "1", "--output", str(output))
    assert result.returncode == 0, result.stderr
    content = json.loads(output.read_text())
    assert {row["method"] for row in content["rows"]} >= {"pcl sample", "scipy rvs", "wood rejection in torch"}
    assert all(row["ms"] > 0 and row["ratio"] > 0 for row in content["rows"])
    assert content["hardware"]["threads"] == 1
    assert content["versions"]["torch"] == torch.__version__


class Pool:
    """As one of spawned processes, which take seconds to import torch: what it is given travels, and runs here."""

    def __init__(self, *_: object, **options: object) -> None:
        assert options == {"maxtasksperchild": 1}  # a loss has a process of its own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def apply(self, function: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
        found, given = pickle.loads(pickle.dumps((function, arguments)))
        return dict(found(*given))


def test_bench_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_context", lambda kind: {"spawn": SimpleNamespace(Pool=Pool)}[kind])
    output = tmp_path / "loss.json"
    sizes = ("--samples", "8", "--batch-size", "4", "--negatives", "2", "--dim", "3", "--repeats", "1")
    result = called("launch/bench.py", bench, "loss", *sizes, "--device", "cpu", "--output", str(output))
    assert result.returncode == 0, result.stderr
    rows = json.loads(output.read_text())["rows"]
    assert [row["loss"] for row in rows] == ["mc_info_nce", "mc_info_nce, whole samples", "hib", "elk", "info_nce"]
    assert all(row["forward_ms"] > 0 and row["backward_ms"] > 0 and row["n_samples"] == 8 for row in rows)


def test_bench_cifar(tmp_path: Path) -> None:
    output = tmp_path / "cifar.json"
    sizes = ("--data", "embedded", "--scale", "smoke", "--batches", "1")
    result = called("launch/bench.py", bench, "cifar", *sizes, "--device", "cpu", "--output", str(output))
    assert result.returncode == 0, result.stderr
    rows = json.loads(output.read_text())["rows"]
    phases, parts = ["mu phase, M = 0", "kappa phase, M = 4"], ["pairs", "encoder", "encoder and back", "evaluation"]
    assert [row["what"] for row in rows] == phases + parts
    assert all(row["ms_per_batch"] > 0 for row in rows)
    assert "a fold of 4 batches with an evaluation every 2" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vmf", "--dim", "1"), "`--dim >= 2` must hold, but got 1."),
        (("vmf", "--samples", "0"), "argument --samples: a whole number of at least 1 must be given, but got '0'; `--"),
        (("vmf", "--samples", "abc"), "a whole number of at least 1 must be given, but got 'abc'; `--help`"),
        (("vmf", "--output", "tests"), "`--output` must name a file, but tests is a folder."),
        (("vmf", "--output", "README.md/x.json"), "README.md"),
        (("loss", "--device", "tpu"), "argument --device: invalid choice: 'tpu'"),
        (("sharing", "--device", "cpu"), "needs a GPU"),
        (("nothing",), "invalid choice: 'nothing'"),
        (("vmf", "--\x1b[31m\x1e\n"), r"unrecognized arguments: --\x1b[31m\x1e\n; `--help` shows"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(arguments: tuple[str, ...], message: str) -> None:
    result = called("launch/bench.py", bench, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_interrupt_stops_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By any command's frame; tests/launch/test_train_command.py sends the signal to a process."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("launch.benchmarks.vmf.wood_sample", interrupted)
    result = called("launch/bench.py", bench, "vmf", "--samples", "10", "--output", str(tmp_path / "vmf.json"))
    assert result.returncode == 130
    assert "samples" in result.stdout  # it was at work
    assert "stopped" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_wood_twin_samples_the_same_distribution() -> None:
    """The twin is a fair one: its mean cosine is A_D(kappa), like ours."""
    torch.manual_seed(0)
    mu = torch.nn.functional.normalize(torch.ones(10), dim=0)
    for kappa in (0.5, 20.0, 10_000.0):
        cosine = wood_sample(mu, kappa, 100_000) @ mu
        error = cosine.std().item() / 100_000**0.5
        assert abs(cosine.mean().item() - bessel_ratio(torch.tensor(kappa), 10).item()) < 4 * error + 1e-6


def test_whole_sample_twin_computes_the_same_loss() -> None:
    generator = torch.Generator().manual_seed(0)

    def posterior(*batch: int) -> VonMisesFisher:
        mu = torch.nn.functional.normalize(torch.randn(*batch, 10, generator=generator), dim=-1)
        return VonMisesFisher(mu, 20.0)

    anchor, positive, negatives = (
        d.expand([1000, *d.batch_shape[1:]]) for d in (posterior(1), posterior(1), posterior(1, 4))
    )
    ours = MCInfoNCE.Config(n_samples=64).build()(anchor, positive, negatives, generator=generator)
    twin = mc_info_nce_of_whole_samples(anchor, positive, negatives, n_samples=64, kappa_pos=20.0)
    error = (ours.var().item() + twin.var().item()) ** 0.5 / 1000**0.5
    assert abs(ours.mean().item() - twin.mean().item()) < 4 * error


SHOWS = """
import sys
from pathlib import Path
from launch.shared.command import run
run(lambda: print(*sys.argv[1:], Path("/proc/self/cmdline").read_text(), sep="\\0"))
"""


def test_passwords_on_a_command_line_are_not_listed() -> None:
    """A list of processes has them no more once the command runs, which still reads them."""
    words = ["--tracking-uri=http://me:pass@word@host:1/a", "http://host/b@c"]
    ended = subprocess.run([sys.executable, "-c", SHOWS, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    found = ended.stdout.strip("\0\n").split("\0")
    assert found[:2] == words
    assert found[-2:] == ["--tracking-uri=http://************@host:1/a", "http://host/b@c"]
