"""What we promise about safety, one test per promise."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from grpo_core.errors import ConfigError
from sweeps.cli import app
from sweeps.documents import parse_mapping
from sweeps.plan import plan
from sweeps.space import load_space
from sweeps.storage import open_sweep
from sweeps.tracking import mlflow_command
from tests.language_models import write_model

ROOT = Path(__file__).parents[2]
OURS = sorted(
    path for package in ("grpo_core", "sweeps") for path in (ROOT / package).rglob("*.py")
)
SPACE = "space: {actor.kl_ctl: [0.0, 0.1]}\nseeds: 1\nbudget: {steps: 1}\n"


# --- nothing is unpickled, nothing is evaluated --------------------------------------------------

PICKLES = frozenset({"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"})
UNSAFE_LOADERS = frozenset({"yaml.Loader", "yaml.FullLoader", "yaml.UnsafeLoader", "yaml.CLoader"})
IMPORTS_CODE = frozenset({"grpo_core/tasks/functions.py"})
"""The one place that imports what a configuration names."""


def complaints(source: str, path: str) -> list[str]:
    """What in a module could run code that somebody else supplied."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in PICKLES]
        elif isinstance(node, ast.ImportFrom) and node.module in PICKLES:
            found.append(str(node.module))
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in UNSAFE_LOADERS:
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Call):
            found += _bad_call(node, path)
    return [f"{path}: {what}" for what in found]


def _bad_call(node: ast.Call, path: str) -> Iterator[str]:
    name = ast.unparse(node.func)
    options = {word.arg: ast.unparse(word.value) for word in node.keywords}
    if name in {"eval", "exec", "__import__", "os.system", "yaml.unsafe_load", "yaml.full_load"}:
        yield name
    if name.endswith("import_module") and path not in IMPORTS_CODE:
        yield name
    if name == "torch.load" and options.get("weights_only") != "True":
        yield "torch.load without weights_only=True"
    if name in {"np.load", "numpy.load"} and options.get("allow_pickle", "False") != "False":
        yield "numpy.load with allow_pickle"
    if name == "YAML" and options.get("typ") not in {"'rt'", "'safe'"}:
        yield "ruamel.yaml without a safe type"
    for option, harmless in (("shell", "False"), ("trust_remote_code", "False")):
        if options.get(option, harmless) != harmless:
            yield f"{option}={options[option]}"


@pytest.mark.parametrize(
    ("source", "number"),
    [
        pytest.param("import pickle\npickle.loads(x)", 1, id="pickle"),
        pytest.param("from cloudpickle import loads", 1, id="from-cloudpickle"),
        pytest.param("torch.load(p)\ntorch.load(p, weights_only=False)", 2, id="torch"),
        pytest.param("torch.load(p, weights_only=True)\nnp.load(p)", 0, id="safe-ones"),
        pytest.param("np.load(p, allow_pickle=True)", 1, id="numpy"),
        pytest.param("eval(x)\nmodel.eval()", 1, id="eval"),
        pytest.param("importlib.import_module(x)", 1, id="import"),
        pytest.param("run(x, shell=True)\nload(x, trust_remote_code=True)", 2, id="options"),
        pytest.param(
            "yaml.load(x, Loader=yaml.Loader)\nyaml.compose(x, yaml.SafeLoader)", 1, id="yaml"
        ),
        pytest.param("class L(yaml.FullLoader): ...\nyaml.unsafe_load(x)", 2, id="yaml-loader"),
        pytest.param("YAML()\nYAML(typ='unsafe')\nYAML(typ='rt')", 2, id="ruamel"),
    ],
)
def test_the_search_for_unsafe_code_finds_it(source: str, number: int) -> None:
    assert len(complaints(source, "some.py")) == number


def test_our_code_unpickles_and_evaluates_nothing() -> None:
    assert len(OURS) > 100
    found = []
    for path in OURS:
        found += complaints(path.read_text(), str(path.relative_to(ROOT)))
    assert found == []


def test_a_space_that_is_a_python_object_is_refused_and_not_made(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    bad = f"name: !!python/object/apply:pathlib.Path.touch [{trace}]\n{SPACE}"
    with pytest.raises(ConfigError, match="the tag !!python/object/apply"):
        parse_mapping(bad, "bad.yaml")
    assert not trace.exists()
    # The file does run code where a loader lets it: the test above is not about a dead text.
    with pytest.raises(yaml.constructor.ConstructorError):
        yaml.safe_load(bad)


# --- the only code that a space may name ---------------------------------------------------------


@pytest.fixture
def space_with_code(tmp_path: Path) -> Path:
    (tmp_path / "sums.jsonl").write_text(
        "".join(f'{{"question": "{n}+1=?", "answer": "{n + 1}"}}\n' for n in range(40))
    )
    model = write_model(tmp_path / "model")
    file = tmp_path / "code.yaml"
    task = f"{{name: 'jsonl:{tmp_path}/sums.jsonl', reward_fn: 'evil_for_tests:reward'}}"
    file.write_text(f"policy: hf:{model}\ntask: {task}\n{SPACE}")
    (tmp_path / "evil_for_tests.py").write_text(
        f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\ndef reward(**_): ..."
    )
    return file


def test_no_code_refuses_a_function_before_it_is_imported(
    space_with_code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = space_with_code.parent
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    refused = CliRunner().invoke(app, ["run", str(space_with_code), "--no-code"])
    assert isinstance(refused.exception, ConfigError)
    assert refused.exception.problems == (
        "task.reward_fn=evil_for_tests:reward: --no-code forbids it",
    )
    assert not (folder / "ran").exists()
    assert not (folder / "sweep_results").exists()


def test_planning_imports_no_function_either(
    space_with_code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(space_with_code.parent))
    assert CliRunner().invoke(app, ["plan", str(space_with_code)]).exit_code == 0
    assert not (space_with_code.parent / "ran").exists()


# --- nothing is written outside the storage folder -----------------------------------------------


@pytest.mark.parametrize(
    "name", ["../up", "/etc/up", "a/b", "..", ".", ".hidden", "a\\b", "", "a\n", "~", "-rf", "a b"]
)
def test_a_name_in_a_space_cannot_leave_the_storage_folder(tmp_path: Path, name: str) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(f"{SPACE}name: {json.dumps(name)}\n")
    with pytest.raises(ConfigError, match="name: "):
        load_space(file)


def test_what_a_level_is_called_names_no_file(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    levels = "{'../../up': {actor.kl_ctl: 0.1}, '/etc/up': {actor.kl_ctl: 0.2}}"
    file.write_text(f"space:\n  change: {levels}\nseeds: 1\nbudget: {{steps: 1}}\n")
    planned = plan(load_space(file))
    record = open_sweep(planned, tmp_path / "results", None, resume=False)
    for trial in planned.trials:
        assert re.fullmatch(r"[0-9a-f]+", trial.id)
        for path in (record.checkpoint(trial.id), record.rollouts(trial.id)):
            assert (tmp_path / "results").resolve() in path.resolve().parents


# --- tokens and addresses ------------------------------------------------------------------------

DOCUMENTED = ("README.md", "docs/cluster.md", "cluster.yaml", "deploy/kuberay-rayjob.yaml")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_whatever_we_document_asks_for_the_token(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "ray start" in text or "RayJob" in text
    assert re.search(r"RAY_AUTH_MODE(=|\b.*\n\s*value: )\"?token", text)
    assert not re.search(r"RAY_AUTH_MODE\W+disabled", text)
    for address in re.findall(r"dashboard-host[=: \"]+([\w.]+)", text):
        assert address == "127.0.0.1" or name.startswith("deploy/")


def test_the_printed_command_serves_mlflow_on_loopback_behind_its_middleware(
    tmp_path: Path,
) -> None:
    command = mlflow_command(f"sqlite:///{tmp_path}/mlflow.db")
    assert command is not None
    words = shlex.split(command)
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert "DISABLE_SECURITY" not in command.upper()
    assert not {"--allowed-hosts", "--cors-allowed-origins"} & set(words)


def test_the_job_for_kubernetes_has_a_token_in_every_pod_and_a_volume_for_the_record() -> None:
    documents = yaml.safe_load_all((ROOT / "deploy" / "kuberay-rayjob.yaml").read_text())
    (job,) = (document for document in documents if document["kind"] == "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in container["env"]
        (mount,) = container["volumeMounts"]
        assert f"--storage {mount['mountPath']}" in job["spec"]["entrypoint"]
    file = re.search(r"search_spaces/\w+\.yaml", job["spec"]["entrypoint"])
    assert file is not None
    assert (ROOT / file[0]).exists()
