"""Curves on a mesh, collectives counted in a program, and steps that are compiled."""

from experiments.scaling.curves import CurvesConfig, compare
from experiments.scaling.hlo import Collective, collectives
from experiments.scaling.main import main
from tests.experiments.commands import results_of
from tests.experiments.conftest import run

PROGRAM = """\
HloModule jit_step, is_scheduled=true

%inner (p: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %x = f32[2,4]{1,0} parameter(0)
  %g = f32[8,4]{1,0} all-gather(%x), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}
  %alone = f32[8,4]{1,0} all-reduce(%g), replica_groups={{0},{1}}, to_apply=%sum
  ROOT %t = (s32[], f32[8,4]) tuple(%i, %g)
}

%outer (p: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  ROOT %w = (s32[], f32[8,4]) while(%p), condition=%c, body=%inner, backend_config={"known_trip_count":{"n":"3"}}
}

ENTRY %main (a: f32[2,4]) -> f32[8,4] {
  %w = (s32[], f32[8,4]) while(%a), condition=%c, body=%outer, backend_config={"known_trip_count":{"n":"5"}}
  %r = (f32[4]{0}, bf16[6]{0}) all-reduce(%w, %a), replica_groups={{0,1},{2,3}}, to_apply=%sum
  %n = f32[2]{0} reduce-scatter(%a), replica_groups=mesh['a'=2,'b'=8], device_ids=([8,2]T(1,0)) {'a','b':(1)4}, to_apply=%sum
  ROOT %f = f32[8,4]{1,0} fusion(%w), kind=kLoop, calls=%nothing
}
"""  # noqa: E501


def test_collectives_in_loops_count_as_often_as_they_run():
    found = collectives(PROGRAM)
    assert found == [
        Collective("all-gather", 4, 15, 8 * 4 * 4),
        Collective("all-reduce", 2, 1, 4 * 4 + 6 * 2),
        Collective("reduce-scatter", 8, 1, 2 * 4),
    ]
    assert [each.wire_bytes() for each in found] == [15 * 128 * 3 / 4, 28, 7 * 8]


def test_a_curve_on_a_mesh_is_that_of_one_device():
    """A short form of `python -m experiments.scaling.curves`."""
    (line,) = compare(
        CurvesConfig(
            mechanisms=("factorized_random",),
            meshes=("fsdp=2,sequence=2",),
            long=(),
            steps=3,
            length=16,
        )
    )
    assert line["held"], line


def test_a_step_is_compiled_and_its_bytes_are_those_of_the_layout(tmp_path):
    options = ("--meshes", "fsdp=2,tensor=2", "--workdir", tmp_path)
    outcome = run(main, "smoke", *options)
    assert outcome.code == 0, outcome.err
    (row,) = results_of(tmp_path)["rows"]
    # Beside the state there is the batch: two rows of tokens, targets and weights.
    assert row["argument_bytes"] == row["state_bytes"] + 3 * 4 * 32 * 4
    assert row["temporary_bytes"] > 0
    kinds = {each["kind"] for each in row["collectives"]}
    assert {"all-gather", "all-reduce"} <= kinds
    assert "not run" in outcome.out
