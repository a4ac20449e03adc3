"""Ray Train with torch: the workers' process group is rankwise's."""

import pytest

pytest.importorskip("rankwise_torch", reason="rankwise-torch is not in this environment: scripts/test-ray torch has it")
pytest.importorskip("ray.train", reason="what Ray Train needs is not installed", exc_type=ImportError)


def train(config):
    import pathlib

    import torch
    import torch.distributed as dist
    from ray.train.torch import prepare_model

    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(3, 1))
    model(torch.full((2, 3), dist.get_rank() + 1.0)).sum().backward()
    gradient = next(model.parameters()).grad[0][0].item()
    pathlib.Path(config["folder"], f"rank {dist.get_rank()}").write_text(f"{dist.get_backend()} {gradient}")


def test_gradients_are_averaged_over_rankwise(cluster, tmp_path):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from rankwise_ray.train_torch import RankwiseTorchConfig

    result = TorchTrainer(
        train,
        train_loop_config={"folder": str(tmp_path)},
        torch_config=RankwiseTorchConfig(),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "results"), name="run"),
    ).fit()
    assert result.error is None
    assert [(tmp_path / f"rank {rank}").read_text() for rank in range(2)] == ["rankwise 3.0"] * 2
