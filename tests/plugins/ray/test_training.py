"""Ray Train without torch: its workers are ranks, with its numbers, also after one has died."""

import pytest

pytest.importorskip("ray.train", reason="what Ray Train needs is not installed", exc_type=ImportError)


def train(config):
    import os
    import pathlib
    import sys

    import numpy as np
    from ray import train as context

    import rankwise as dist

    rank = context.get_context().get_world_rank()
    assert (dist.get_rank(), dist.get_world_size()) == (rank, 2)
    array = np.full(4, rank + 1.0)
    dist.all_reduce(array)
    mark = pathlib.Path(config["mark"])
    if config["kill"] and rank == 1 and not mark.exists():
        mark.write_text("died")
        os.kill(os.getpid(), 9)
    dist.all_reduce(array)
    (mark.parent / f"rank {rank}").write_text(f"{array[0]} {'torch' in sys.modules}")


@pytest.mark.parametrize("kill", [False, True])
def test_workers_are_ranks(cluster, tmp_path, kill):
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from rankwise_ray.train import RankwiseConfig

    result = DataParallelTrainer(
        train,
        train_loop_config={"mark": str(tmp_path / "mark"), "kill": kill},
        backend_config=RankwiseConfig(),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=str(tmp_path / "results"), name="run", failure_config=FailureConfig(max_failures=1)
        ),
    ).fit()
    assert result.error is None
    assert [(tmp_path / f"rank {rank}").read_text() for rank in range(2)] == ["6.0 False"] * 2
    assert (tmp_path / "mark").exists() == kill
