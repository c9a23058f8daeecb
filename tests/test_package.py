"""The package as a whole: what importing it costs, its version, its boundaries."""

import importlib
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import attn_jax

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def run_python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_import_takes_under_two_seconds():
    def seconds() -> float:
        # Processor time, which is the time on the clock of a machine at rest: other
        # tests run beside this one.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run_python("import attn_jax")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        user = after.ru_utime - before.ru_utime
        return user + after.ru_stime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 2.0


@pytest.mark.parametrize(
    "heavy", ["flax", "matplotlib", "orbax", "sklearn", "tensorflow_datasets", "torch"]
)
def test_import_is_light(heavy: str):
    loaded = run_python("import sys, attn_jax; print(*sys.modules)").split()
    assert "attn_jax.ops" in loaded
    assert heavy not in loaded


def test_every_public_name_resolves():
    assert sorted(set(attn_jax.__all__)) == sorted(attn_jax.__all__)
    for name in attn_jax.__all__:
        assert getattr(attn_jax, name) is not None
        assert name in dir(attn_jax)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = attn_jax.no_such_name


def test_version_is_that_of_pyproject():
    assert attn_jax.__version__ == PYPROJECT["project"]["version"]


def test_constraints_hold_names_and_versions_only():
    where = r'python_version (<|==|>=) "3\.\d+"'
    pin = re.compile(rf"[a-z0-9-]+==\d[0-9A-Za-z.+!]*( ; {where}( or {where})*)?")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not pin.fullmatch(line)] == []
    assert not re.search(r"https?:|[\\/]", "\n".join(pins))


def test_constraints_pin_every_dependency():
    project = PYPROJECT["project"]
    # The accelerators' packages depend on the machine and are left to pip; so are those
    # that are only measured, of which one wants another version of what is pinned.
    extras = [
        requirement
        for name, requirements in project["optional-dependencies"].items()
        if name not in ("cuda", "tpu", "peers")
        for requirement in requirements
    ]
    wanted = {
        re.sub(r"[-_.]+", "-", re.split(r"[<>=\[]", requirement)[0]).lower()
        for requirement in [*project["dependencies"], *extras]
    } - {"attn-jax"}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in lines}
    assert wanted <= pinned


def test_constraints_use_a_marker_where_pythons_differ(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.syspath_prepend(ROOT / "tools")
    pin = importlib.import_module("pin")
    text = pin.merge(
        {
            "3.11": {"same": "1", "old": "1", "split": "1", "gone": "2"},
            "3.12": {"same": "1", "old": "2", "split": "2"},
            "3.13": {"same": "1", "old": "2", "split": "1"},
        }
    )
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'gone==2 ; python_version < "3.12"',
        'old==1 ; python_version < "3.12"',
        'old==2 ; python_version >= "3.12"',
        "same==1",
        'split==1 ; python_version == "3.11" or python_version == "3.13"',
        'split==2 ; python_version == "3.12"',
    ]


def check(folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID"]
    return subprocess.run([*command, folder], capture_output=True, text=True)


@pytest.fixture
def copy_of_package(tmp_path: Path) -> Path:
    """A clone's package and lint rules, to break."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = tmp_path / "attn_jax"
    shutil.copytree(ROOT / "attn_jax", package)
    return package


def test_import_direction_holds(copy_of_package: Path):
    done = check(copy_of_package)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("package", "statement"),
    [
        ("ops", "import flax"),
        ("ops", "from flax import nnx"),
        ("ops", "import optax"),
        ("ops", "import scipy.special"),
        ("ops", "import attn_jax.nn"),
        ("ops", "from attn_jax import models"),
        ("ops", "from ..nn import Attention"),
        ("nn", "from attn_jax.models import Decoder"),
        ("nn", "from attn_jax import train"),
        ("nn", "import attn_jax.data.text"),
        ("models", "from attn_jax.train import fit"),
        ("models", "from attn_jax.decoding import greedy"),
        ("models", "import experiments.compare"),
        ("models", "from attn_jax import analysis"),
        ("decoding", "from attn_jax.train import fit"),
        ("decoding", "import experiments"),
        ("analysis", "from attn_jax.decoding import greedy"),
        ("data", "from flax import nnx"),
        ("data", "from attn_jax.nn import Attention"),
        ("train", "import experiments"),
        ("testing", "from attn_jax.nn import Attention"),
        ("train", "from attn_jax import interop"),
    ],
)
def test_import_against_the_arrows_fails_lint(
    copy_of_package: Path, package: str, statement: str
):
    offender = copy_of_package / package / "offender.py"
    # Inside a function, where an import is easy to overlook.
    offender.write_text(f"def late():\n    {statement}\n")
    done = check(copy_of_package)
    assert done.returncode == 1
    assert "TID251" in done.stdout
    assert "offender.py:2" in done.stdout


def test_ops_are_denied_every_other_dependency():
    rules = tomllib.loads((ROOT / "attn_jax" / "ops" / "ruff.toml").read_text())
    banned = set(rules["lint"]["flake8-tidy-imports"]["banned-api"])
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    requirements = [
        *project["dependencies"],
        *extras["data"],
        *extras["experiments"],
        *extras["images"],
        *extras["text"],
    ]
    names = {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}
    modules = {name.replace("-", "_") for name in names}
    modules -= {"orbax_checkpoint", "importlib_resources", "pillow", "scikit_learn"}
    modules |= {"orbax", "PIL", "sklearn"}
    modules -= {"attn_jax", "chex", "jax", "jaxtyping", "numpy"}
    assert modules <= banned


def test_every_package_states_its_direction():
    packages = [path.parent for path in (ROOT / "attn_jax").glob("*/__init__.py")]
    without = [path.name for path in packages if not (path / "ruff.toml").is_file()]
    assert without == []
