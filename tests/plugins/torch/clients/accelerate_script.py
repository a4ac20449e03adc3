"""Run one of the test scripts that accelerate ships; accelerate has "gloo" for the CPU, whatever it is told."""

import runpy
import sys

import ending
import torch

import rankwise_torch

rankwise_torch.install(as_gloo=True)
torch.set_num_threads(1)
runpy.run_module(f"accelerate.test_utils.scripts.{sys.argv.pop(1)}", run_name="__main__")
ending.well()
