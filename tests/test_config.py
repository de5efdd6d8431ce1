import json

import pytest

from accel_bench import config as configs
from accel_bench import config_files
from accel_bench.cases import expand
from accel_bench.errors import RequestError


@pytest.mark.parametrize("name", config_files.known())
@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_every_config_loads_and_has_distinct_cases_on_every_platform(name, platform):
    config = config_files.load(name)
    if platform != "cpu" and name.startswith("network"):  # processes that stand for hosts
        with pytest.raises(RequestError, match="are started on this machine's CPU and measured"):
            expand(config, platform, {})
        return
    cases = expand(config, platform, {})
    assert cases
    assert len({case.key for case in cases}) == len(cases)


@pytest.mark.parametrize("name", config_files.known())
def test_every_config_opens_with_its_command(name):
    path = config_files.known()[name]
    command = "python main.py" if name == "default" else f"--config=configs/{name}.py"
    assert command in path.read_text().split('"""')[1]


@pytest.mark.parametrize("name", config_files.known())
def test_json_gives_the_same_experiment_back(name, tmp_path):
    config = config_files.load(name)
    configs.write_json(config, tmp_path / "config.json")
    again = configs.read_json(tmp_path / "config.json")
    assert configs.to_plain(again) == configs.to_plain(config)
    assert configs.config_hash(again) == configs.config_hash(config)
    assert expand(again, "cpu", {}) == expand(config, "cpu", {})


def test_the_hash_covers_what_is_measured_and_not_where_or_how_long():
    config = config_files.load("smoke")
    before = configs.config_hash(config)
    config.device, config.precision, config.timeout_s = "gpu", ("bf16",), 5.0
    config.measure.max_seconds = 60.0
    assert configs.config_hash(config) == before
    config.huge_pages = False
    assert configs.config_hash(config) != before
    config.huge_pages = True
    config.seed = 1
    assert configs.config_hash(config) != before


def test_what_differs_is_named():
    one, other = ({"a": {"b": n, "c": 1}, "d": "x"} for n in (1, 2))
    assert configs.differing_fields(one, other) == ["a.b: 1 against 2"]


def test_a_size_that_two_cases_share_is_set_for_one_alone():
    config = config_files.load("inference")
    assert config.cases.prefill.batch == config.cases.decode.batch
    config.cases.prefill.batch.cpu = (1,)
    assert len(config.cases.decode.batch.cpu) > 1


def test_by_platform_needs_every_platform():
    assert configs.by_platform(cpu=1, accelerator=2) == {"cpu": 1, "gpu": 2, "tpu": 2}
    with pytest.raises(ValueError, match="by_platform needs"):
        configs.by_platform(cpu=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "cannot read the config"), ("[]", "is not a config"), ('{"cases": {}, "x": 1}', "x")],
)
def test_a_file_that_is_no_config_is_refused(text, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=message):
        configs.read_json(path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"cases": {"a": 3}}, "config.cases.a must name a workload"),
        ({"cases": {"a": {"workload": ["dispatch"]}}}, "config.cases.a must name a workload"),
        ({"precision": None}, "config.precision must be a list of names, not null"),
        ({"precision": [3]}, "config.precision must be a list of names"),
        ({"mesh": None}, "config.mesh must be text, not null"),
        ({"timeout_s": None}, "config.timeout_s must be a number, not null"),
        ({"fake_devices": 1.5}, "config.fake_devices must be a whole number, not 1.5"),
        ({"mesh": {}}, "config.mesh must be text"),
        ({"precision": {}}, "config.precision must be a list of names"),
        ({"measure": 5}, "config.measure must be a group of fields, not 5"),
        ({"model": []}, "config.model must be a group of fields"),
        ({"seed": "many"}, "config.seed must be a whole number, not"),
        ({"seed": -1}, "choose a whole number from 0"),
        ({"seed": 10**20}, "choose a whole number from 0"),
        ({"measure": {"max_secs": 3}}, "did you mean 'max_seconds'"),
        ({"model": {"num_layer": 3}}, "did you mean 'num_layers'"),
    ],
    ids=str,
)
def test_a_config_edited_to_nonsense_is_refused_by_field(edit, message, tmp_path):
    plain = configs.to_plain(config_files.load("smoke")) | edit
    path = tmp_path / "config.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(RequestError, match=message):
        configs.read_json(path)


@pytest.mark.parametrize("body", ["raise SystemExit(7)", "1 / 0", "return None", "return 3"])
def test_a_config_file_with_a_mistake_is_refused(body, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"def get_config():\n    {body}\n")
    with pytest.raises(RequestError, match="mine.py"):
        config_files.load(str(path))


def test_configs_are_found_by_path_by_name_and_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert config_files.find("smoke") == config_files.find("configs/smoke.py")
    with pytest.raises(RequestError, match="did you mean 'configs/smoke.py'"):
        config_files.find("configs/smoked.py")
