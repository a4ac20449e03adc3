"""URLs of Redis and etcd: what they mean, what they must not be, and that no password is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from rankwise.store.rendezvous import rendezvous
from rankwise_stores import EtcdStore, RedisStore
from rankwise_stores.server_urls import etcd_place, redis_place

PATIENCE_S = 30.0
LAUNCHERS = re.compile("RANK|WORLD|MASTER|TORCHELASTIC|OMPI|PMI|SLURM|MPI_|SECRET|IFNAME")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if LAUNCHERS.search(name):
            monkeypatch.delenv(name)


def test_a_url_of_redis_tells_all() -> None:
    place = redis_place("redis://me:s%40cret@db.example:7000/3?prefix=job42&rank=0&world_size=2")
    assert place[1:] == ("db.example", 7000, None, 3, "me", "s@cret", "job42", None)
    assert place.shown == "redis://me:...@db.example:7000/3?prefix=job42"
    assert redis_place("redis://[::1]")[1:] == ("::1", 6379, None, 0, None, None, "rankwise", None)
    assert redis_place("rediss://h?ca=a.pem&cert=b.pem&key=c.pem").tls == {
        "ca": "a.pem",
        "cert": "b.pem",
        "key": "c.pem",
    }
    assert redis_place("redis+unix:///run/redis.sock?db=2")[1:5] == (None, 6379, "/run/redis.sock", 2)


def test_a_url_of_etcd_tells_all() -> None:
    place = etcd_place("etcd://me:word@one:1234,two,[::1]:3/jobs/job42?rank=1")
    assert place.members == (("one", 1234), ("two", 2379), ("::1", 3))
    assert place[2:] == ("me", "word", "jobs/job42", None)
    assert "word" not in place.shown
    assert etcd_place("etcds://one?ca=a.pem").tls == {"ca": "a.pem"}


SENSELESS = {
    "must name a host": ["redis://", "redis:///0", "etcd:///job", "etcd://one,,two"],
    "must name one host": ["redis://one,two"],
    "[Pp]ort": ["redis://one:port", "etcd://one:65536", "redis://one:0"],
    "database must be a number": ["redis://one/zero", "redis+unix:///run/socket?db=-1"],
    "three slashes": ["redis+unix://run/socket"],
    "'x' means nothing here; the query may tell prefix, rank": ["redis://one?x=1"],
    "'prefix' means nothing here": ["etcd://one?prefix=job"],
    "'ca' means nothing here": ["redis://one?ca=file"],
    "prefix must be a name": ["redis://one?prefix=", "redis://one?prefix=%0a", "etcd://one/" + "p" * 201],
    "prefix is given twice": ["redis://one?prefix=a&prefix=b"],
    "rank is missing": ["redis://one", "etcd://one"],
    "world_size is missing": ["redis://one?rank=0"],
    "rank 2 is not in a world of 2": ["redis://one?rank=2&world_size=2"],
}


@pytest.mark.parametrize(("url", "why"), [(url, why) for why, urls in SENSELESS.items() for url in urls])
def test_a_url_that_makes_no_sense_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        next(
            rendezvous(
                url if "rank" in url or "missing" in why else f"{url}{'&' if '?' in url else '?'}rank=0&world_size=1"
            )
        )


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:pa#ss-word@one",
        "redis://me:pass-word@one?x=1",
        "redis://me:pass-word@one?rank=0&rank=0",
        "redis://me:pass-word@one?password=pass-word",
        "etcd://:pass-word@one:port?rank=0&world_size=1",
        "nothing://me:pass-word@one",
        "redis://me:p@ss-word@one/x?rank=0&world_size=1",
    ],
)
def test_no_error_tells_a_password(url: str) -> None:
    with pytest.raises(ValueError, match="rendezvous at") as caught:
        next(rendezvous(url))
    assert "ss-word" not in str(caught.value)


def test_a_store_takes_the_schemes_of_its_server_alone() -> None:
    with pytest.raises(ValueError, match="RedisStore is at redis://"):
        RedisStore("etcd://one")
    with pytest.raises(ValueError, match="EtcdStore is at etcd://"):
        EtcdStore("redis://one")


def test_the_environment_tells_rank_and_size_where_the_url_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "5")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(ValueError, match="rank 5 is not in a world of 4"):
        next(rendezvous("redis://one"))
    with pytest.raises(ValueError, match="rank 5 is not in a world of 2"):
        next(rendezvous("etcd://one", world_size=2))


def test_who_lacks_the_package_is_told_how_to_install_it() -> None:
    program = """
import sys
sys.modules["redis"] = None
from rankwise.errors import PluginError
from rankwise.store.rendezvous import rendezvous
try:
    next(rendezvous("redis://one?rank=0&world_size=1"))
except PluginError as error:
    print(error.remedy)
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    remedy, text = ran.stdout.splitlines()
    assert remedy == "pip install 'rankwise-stores[redis]'"
    assert text.endswith(remedy)


def test_etcd_and_the_names_of_both_need_no_package() -> None:
    program = (
        'import sys; sys.modules["redis"] = None; import rankwise_stores; print(rankwise_stores.EtcdStore.__name__)'
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stdout == "EtcdStore\n"
