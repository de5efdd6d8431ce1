import pytest

from accel_bench import mesh
from accel_bench.errors import RequestError


def test_axes_keep_their_order():
    axes = mesh.parse("data:4,model:2")
    assert list(axes.items()) == [("data", 4), ("model", 2)]
    assert mesh.size(axes) == 8
    assert mesh.size(mesh.parse("")) == 1


def test_a_star_takes_what_the_others_leave():
    assert mesh.check("fsdp:*,model:8", 512, "") == {"fsdp": 64, "model": 8}
    assert mesh.check("data:*", 1, "") == {"data": 1}
    assert mesh.text(mesh.parse("fsdp:*,model:8")) == "fsdp:*,model:8"
    with pytest.raises(RequestError, match="needs a multiple of 8 devices, but there are 12"):
        mesh.check("fsdp:*,model:8", 12, "tpu:v5e:x")
    with pytest.raises(RequestError, match="only one axis can take the rest"):
        mesh.parse("data:*,fsdp:*")


@pytest.mark.parametrize("text", ["data", "data:0", "data:x", "4", "data:2,data:4", "Data:2", ":2"])
def test_what_is_no_mesh_is_refused(text):
    with pytest.raises(RequestError, match=f"--mesh={text}"):
        mesh.parse(text)


def test_sizes_must_multiply_to_the_devices():
    with pytest.raises(RequestError) as error:
        mesh.check("data:4,model:2", 4, "gpu: 4 x NVIDIA H100")
    assert str(error.value) == (
        "--mesh=data:4,model:2 needs 4 x 2 = 8 devices, but there are 4 (gpu: 4 x NVIDIA H100): "
        "choose sizes that multiply to 4"
    )
    assert mesh.check("data:4,model:2", 8, "") == {"data": 4, "model": 2}
