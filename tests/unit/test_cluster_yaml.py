"""cluster.yaml and its commented variants against the schema of Ray's cluster launcher."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError  # type: ignore[import-untyped]
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "cluster.yaml").read_text()
VARIANTS = re.findall(r"^# ---- variant: (\w+) ----$", TEXT, flags=re.MULTILINE)
PROVIDERS = ["local", *VARIANTS]


def load(provider: str) -> dict[str, Any]:
    """The file as it stands, with the sections of a commented variant in place of its own."""
    config: dict[str, Any] = yaml.safe_load(TEXT)
    return config if provider == "local" else config | yaml.safe_load(uncommented(provider))


def uncommented(provider: str) -> str:
    block = TEXT.split(f"# ---- variant: {provider} ----\n")[1].split("# ---- end ----")[0]
    lines = block.splitlines()
    start = lines.index("# provider:")  # what stands before is prose
    return "\n".join(line.removeprefix("# ") for line in lines[start:])


def validate(config: dict[str, Any]) -> None:
    validate_config(prepare_config(copy.deepcopy(config)))


def start_commands(config: dict[str, Any]) -> list[str]:
    commands = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    return [command for command in commands if "ray start" in command]


def ports(command: str) -> dict[str, int]:
    return {name: int(port) for name, port in re.findall(r"--([a-z-]*port)=(\d+)", command)}


def test_there_is_a_variant_for_aws_and_one_for_gcp() -> None:
    assert VARIANTS == ["aws", "gcp"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_ray_accepts(provider: str) -> None:
    config = load(provider)
    assert config["provider"]["type"] == provider
    validate(config)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_ray_refuses_a_misspelt_key(provider: str) -> None:
    with pytest.raises(ValidationError, match="max_wrokers"):
        validate(load(provider) | {"max_wrokers": 2})


@pytest.mark.parametrize("provider", VARIANTS)
def test_ray_refuses_a_misspelt_key_of_a_node_type(provider: str) -> None:
    config = load(provider)
    config["available_node_types"]["cpu_worker"]["min_wrokers"] = 0
    with pytest.raises(ValidationError, match="min_wrokers"):
        validate(config)


@pytest.mark.parametrize("provider", VARIANTS)
def test_a_cloud_has_a_head_spot_workers_and_an_idle_time_out(provider: str) -> None:
    config = load(provider)
    assert set(config["available_node_types"]) == {"head", "cpu_worker", "gpu_worker"}
    assert config["head_node_type"] == "head"
    assert config["idle_timeout_minutes"] > 0
    for name in ("cpu_worker", "gpu_worker"):
        node = config["available_node_types"][name]["node_config"]
        spot = {
            "aws": node.get("InstanceMarketOptions") == {"MarketType": "spot"},
            "gcp": node.get("scheduling", {}).get("preemptible"),
        }
        assert spot[provider], name


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_node_has_the_token_and_asks_for_it(provider: str) -> None:
    config = load(provider)
    assert {"~/.ray/auth_token": "~/.ray/auth_token"}.items() <= config["file_mounts"].items()
    assert any("chmod 600 ~/.ray/auth_token" in command for command in config["setup_commands"])
    commands = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    assert all("RAY_AUTH_MODE=token" in command for command in commands)
    assert len(start_commands(config)) == 2


def test_workers_of_ones_own_machines_are_started_by_the_autoscaler_that_can() -> None:
    head, _ = start_commands(load("local"))
    assert "RAY_enable_autoscaler_v2=0" in head


def test_ray_is_in_the_path_of_the_shell_that_ray_down_uses() -> None:
    commands = [command for command in load("local")["setup_commands"] if "~/.bashrc" in command]
    assert len(commands) == 1
    assert "PATH=~/grpo-env/bin:$PATH" in commands[0]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_dashboard_is_on_loopback(provider: str) -> None:
    hosts = re.findall(r"--dashboard-host=(\S+)", " ".join(start_commands(load(provider))))
    assert hosts == ["127.0.0.1"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_mounted_files_of_the_project_exist(provider: str) -> None:
    local = [path for path in load(provider)["file_mounts"].values() if not path.startswith("~")]
    assert local
    assert all((ROOT / path).is_file() for path in local)


def test_ports_are_fixed_distinct_and_in_the_table() -> None:
    table = {int(port) for line in TEXT.splitlines() for port in table_ports(line)}
    head, worker = (ports(command) for command in start_commands(load("local")))
    assert set(worker) == set(head) - {"port", "dashboard-port", "ray-client-server-port"}
    assert all(head[name] == port for name, port in worker.items())
    assert len(set(head.values())) == len(head)
    assert set(head.values()) <= table


def table_ports(line: str) -> list[str]:
    """The ports of a row of the table in the head comment."""
    row = re.match(r"#   (\d[\d, -]*\d)  ", line)
    return [] if row is None else re.findall(r"\d+", row[1])
