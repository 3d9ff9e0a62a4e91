"""Where the arrays of a block of samples lie."""

from fedrec.federation.engines.fused.backend.cuda.blocks import Local, places, samples_of_block, stride


def test_arrays_that_are_needed_at_the_same_time_lie_apart():
    arrays = [
        Local("a", 4, stage=0, born=0, dies=2),
        Local("b", 12, stage=0, born=0, dies=1),
        Local("c", 4, stage=0, born=2, dies=3),
        Local("d", 12, stage=0, born=3, dies=3),
        Local("e", 12, stage=1, born=0, dies=0),
    ]
    given, width = places(arrays)
    for one in arrays:
        end = given[one.name] + one.stride
        assert end <= width
        for other in arrays:
            together = one.stage == other.stage and one.born <= other.dies and other.born <= one.dies
            if one is not other and together:
                assert end <= given[other.name] or given[other.name] + other.stride <= given[one.name]
    assert given["c"] == given["b"]
    assert given["e"] == 0
    assert width == sum(stride(count) for count in (4, 4, 12))


def test_samples_of_neighbours_begin_in_different_banks():
    for count in (8, 16, 32, 64, 128):
        assert stride(count) % 4 == 0
        assert len({row * stride(count) % 32 for row in range(8)}) == 8
    assert stride(1) == 1


def test_a_block_has_as_many_samples_as_find_room():
    assert samples_of_block(100, 4, 100_000) == 240
    assert samples_of_block(1, 4, 1_000_000) == 256
    assert samples_of_block(1000, 8, 100_000) == 0
