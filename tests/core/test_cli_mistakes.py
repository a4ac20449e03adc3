"""Mistyped commands and options are met with what was meant, and torchrun's options with an answer."""

import argparse

import pytest
from tests.command_line import run_here
from tests.core.launch_programs import ranks_of, tell

from rankwise.cli import main
from rankwise_launch.config import LaunchError
from rankwise_launch.options import _ANSWERS, _WITHOUT_EFFECT, add_options, to_config


def said(capsys, *arguments):
    """Return the exit code of a command line, and what it says; it has to show nothing."""
    code, out, err = run_here(capsys, *arguments)
    assert out == ""
    return code, err.strip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], "there is no command 'rnu'; did you mean run?"),
        (["benhc", "-n", "2"], "there is no command 'benhc'; did you mean bench?"),
        (["train.py", "--lr", "1"], "there is no command 'train.py'; did you mean rankwise run train.py?"),
        (["trace", ".", "--format", "perfeto"], "; did you mean perfetto?"),
        (["bench", "--ops", "all_reudce"], "cannot measure 'all_reudce'; did you mean all_reduce? There are"),
        (["zzz"], "there is no command 'zzz'\ncommands: run, demo"),
        (["doctor", "--quik"], "unrecognized arguments: --quik; did you mean --quick?"),
        (["run", "--nprocs", "4", "train.py"], "unrecognized arguments: --nprocs; did you mean --nproc-per-node?"),
        (["run", "--max-restart=3", "train.py"], "did you mean --max-restarts?"),
        (["bench", "--bakend", "gloo"], "did you mean --backend?"),
        (
            ["explain", "all_redcue"],
            "there is no collective 'all_redcue'; did you mean all_reduce? There are all_reduce,",
        ),
        (["explain", "zzz"], "there is no collective 'zzz'; there are all_reduce,"),
        (["bench", "-n", "2", "--sizes", "1:4:2:3"], "a range is FIRST:LAST:FACTOR"),
        (["bench", "-n", "2", "--sizes", "1KiB:2KiB:x"], "a range is FIRST:LAST:FACTOR"),
        (["bench", "-n", "2", "--sizes", "1KiB:2KiB"], "a range is FIRST:LAST:FACTOR"),
        (["bench", "-n", "2", "--sizes", ","], "is not a number of bytes"),
        (["top", "tcp://"], "'tcp://' is no address of a job; it must read like tcp://HOST:PORT"),
        (["top", "tcp://host:99999"], "is no address of a job; it must read like tcp://HOST:PORT"),
        (["top", "tcp://host:port"], "is no address of a job; it must read like tcp://HOST:PORT"),
        (["demo", "--completely-else"], "unrecognized arguments: --completely-else"),
        (["demo", "--elastic", "--steps", "9"], "--elastic goes with no --steps"),
        (["demo", "--elastic", "--backend", "mpi"], "with no --backend but gloo"),
        (["bench", "--ops", "all_redcue"], "cannot measure 'all_redcue'"),
        (["bench", "--sizes", "8:4:1"], "a factor of 2 or more"),
        (["bench", "--sizes", "lots"], "'lots' is not a number of bytes"),
        (["bench", "--sizes", "16MiB:1KiB:4"], "--sizes 16MiB:1KiB:4: 16MiB is more than 1KiB"),
        (["bench", "--warmup", "-1"], "--warmup cannot be -1"),
        (["bench", "--iterations", "0"], "at least 1 rank and 1 iteration"),
        (["bench", "-n", "0"], "at least 1 rank"),
        (["bench", "--compare", "magic"], "cannot compare with 'magic'"),
        (["explain", "all_reduce", "--ranks", "0"], "at least 1 rank is needed"),
        *(
            (["explain", "all_reduce", option, value], f"{option} must be a number")
            for option in ("--alpha-us", "--gbit-per-s", "--combine-gb-per-s")
            for value in ("nan", "inf", "-1")
        ),
        (["explain", "all_reduce", "--gbit-per-s", "0"], "--gbit-per-s must be a number above 0, not 0"),
        (["explain", "all_reduce", "--combine-gb-per-s", "0"], "--combine-gb-per-s must be a number above 0, not 0"),
    ],
)
def test_what_was_meant_is_named_before_anything_is_shown(capsys, arguments, words):
    code, text = said(capsys, *arguments)
    assert code == 2
    assert words in " ".join(text.split()) or words in text
    assert "Traceback" not in text


@pytest.mark.parametrize(("arguments", "asked"), [(["help"], ["--help"]), (["help", "top"], ["top", "--help"])])
def test_help_may_be_asked_for_as_a_command(capsys, arguments, asked):
    code, told, _ = run_here(capsys, *arguments)
    assert (code, told) == run_here(capsys, *asked)[:2]
    assert (code, told[:15]) == (0, "usage: rankwise")


def test_a_backend_that_is_not_installed_is_named(capsys):
    code, text = said(capsys, "bench", "--backend", "bogus")
    assert code == 69
    assert "no backend 'bogus' is installed" in text.replace("\n", " ")


def test_a_commands_mistakes_show_its_own_usage(capsys):
    _, text = said(capsys, "doctor", "--quik")
    assert text.startswith("usage: rankwise doctor")


def parse(*arguments):
    parser = argparse.ArgumentParser()
    add_options(parser)
    return to_config(parser.parse_args([*arguments, "train.py"]))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--nnodes", "1:1"], {"nnodes": 1}),
        (["--nnodes", "1:4", "--elastic", "--rdzv-endpoint", "head:29400"], {"nnodes": 4, "min_nodes": 1}),
        (["--nnodes=2", "--rdzv-endpoint", "head:29400"], {"nnodes": 2, "min_nodes": 2, "last_call_s": 30.0}),
        (["--nnodes=2:2", "--node-rank", "1", "--rdzv-endpoint", "head:29400"], {"nnodes": 2, "master_port": 29400}),
        (["--rdzv_endpoint=[::1]:5", "--rdzv_backend=c10d"], {"master_addr": "::1", "master_port": 5}),
        (["--rdzv-endpoint", "localhost"], {"master_addr": "localhost", "master_port": None}),
        (["--rdzv-endpoint", "localhost:0"], {"master_addr": "localhost", "master_port": None}),
        (["--rdzv-backend", "static", "--rdzv-id", "run7"], {"run_id": "run7"}),
        (["--role", "trainer"], {"role": "trainer"}),
        (["--local-ranks-filter", "0,2"], {"shown": frozenset({0, 2})}),
        (["--standalone", "--rdzv-endpoint", "elsewhere:1"], {"master_addr": "127.0.0.1", "master_port": None}),
    ],
)
def test_torchruns_options_are_understood(arguments, expected):
    config = parse(*arguments)
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize("name", _WITHOUT_EFFECT)
def test_what_makes_no_difference_is_taken(name):
    arguments = [name] if name == "--virtual-local-rank" else [name, "1"]
    assert parse(*arguments) == parse(arguments[0].replace("-", "_").replace("__", "--"), *arguments[1:]) == parse()


@pytest.mark.parametrize("name", _ANSWERS)
def test_every_other_option_of_torchrun_is_answered(capsys, name):
    code, text = said(capsys, "run", name, "something", "train.py")
    assert code == 2
    assert f"{name} is torchrun's, and not known here: {_ANSWERS[name]}" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nnodes", "some"], "'some' is not a number of nodes, nor MIN:MAX"),
        (["--nnodes", "3:2", "--rdzv-endpoint", "a:1"], "--nnodes 3:2: the first number is the least, and at least 1"),
        (["--nnodes", "0:2", "--rdzv-endpoint", "a:1"], "--nnodes 0:2: the first number is the least, and at least 1"),
        (["--rdzv-backend", "etcd"], "choose from"),
        (["--local-ranks-filter", "all"], "'all' must be local ranks, such as 0,1"),
        (["--rdzv-endpoint", "head:port"], "the port must be a number"),
        (["--rdzv-endpoint", "head:1", "--master-addr", "head"], "give it or them"),
    ],
)
def test_what_makes_no_sense_here_is_said(capsys, arguments, words):
    code, text = said(capsys, "run", *arguments, "train.py")
    assert code == 2
    assert words in text.replace("\n", " ")


def test_an_endpoint_given_twice_is_an_error_of_usage():
    with pytest.raises(LaunchError, match="give it or them"):
        parse("--rdzv-endpoint", "head:1", "--master-port", "2")


def test_only_the_ranks_that_are_asked_for_are_shown(capfd):
    options = ["--local-ranks-filter", "0,2", "--role", "me"]
    assert main(["run", "-n", "3", *options, *ranks_of(tell, "RANK", "ROLE_NAME")]) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0]: 0 me", "[2]: 2 me"]
