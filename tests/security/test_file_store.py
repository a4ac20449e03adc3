"""The file of a `FileStore`: who may have prepared it, whose it is, and what a changed bit in it does."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rankwise as dist
from rankwise.errors import DistStoreError
from rankwise_network import secret
from rankwise_stores import FileStore
from rankwise_stores.records import HEADER_NBYTES

SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32
A_STRANGER = 54321


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def disown(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Have a file belong to another user: really, where we may do that, and else by being another user ourselves."""

    def disown(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, A_STRANGER, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: A_STRANGER)

    return disown


# ---------------------------------------------------------------------- files and folders that are not ours alone


def test_the_file_is_readable_by_its_user_alone_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        with FileStore(path):
            assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o640, 0o620, 0o666])
@pytest.mark.parametrize("in_use", [False, True], ids=["left over", "in use"])
def test_a_file_that_others_may_read_or_write_is_refused(path: Path, mode: int, in_use: bool) -> None:
    with FileStore(path) as store:
        if not in_use:
            shutil.copyfile(path, f"{path}.copy")
            os.replace(f"{path}.copy", path)
        path.chmod(mode)
        with pytest.raises(DistStoreError, match=rf"{path} \(mode {mode:o}\); remove it"):
            FileStore(path)
        del store


def test_a_file_of_another_user_is_refused(path: Path, disown: Callable[[Path], None]) -> None:
    path.touch(0o600)
    disown(path)
    with pytest.raises(DistStoreError, match=rf"{path} belongs to user \d+, not to this one .*mkdir -m 700"):
        FileStore(path)


def test_a_symbolic_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    for target in (tmp_path / "another", tmp_path / "missing"):
        path.symlink_to(target)
        with pytest.raises(DistStoreError, match="is a symbolic link, which is not followed"):
            FileStore(path)
        assert not target.exists()
        path.unlink()


def test_a_link_that_takes_the_place_of_the_open_file_is_noticed(path: Path) -> None:
    with FileStore(path) as store:
        path.rename(f"{path}.moved")
        path.symlink_to(f"{path}.moved")
        with pytest.raises(DistStoreError, match="removed or replaced"):
            store.set("key", "v")


def test_a_hard_link_to_another_file_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "another").touch(0o600)
    path.hardlink_to(tmp_path / "another")
    with pytest.raises(DistStoreError, match="hard link"):
        FileStore(path)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_folder_where_others_may_write_is_refused_at_any_depth(tmp_path: Path, mode: int, depth: int) -> None:
    folders = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    folders[-1].mkdir(parents=True, mode=0o700)
    folders[depth].chmod(mode)
    with pytest.raises(DistStoreError, match=rf"folder {folders[depth]} \(mode {mode:o}\).*mkdir -m 700"):
        FileStore(folders[-1] / "store")
    assert list(folders[-1].iterdir()) == []


def test_the_sticky_bit_lets_a_folder_be_shared(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    with FileStore(folder / "store") as store:
        store.set("key", "v")
        assert (folder / "store").stat().st_mode & 0o777 == 0o600


def test_a_folder_of_another_user_is_refused(tmp_path: Path, disown: Callable[[Path], None]) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(0o700)
    disown(folder)
    with pytest.raises(DistStoreError, match=r"folder .* belongs to user \d+; name a file in a folder"):
        FileStore(folder / "store")


def test_a_link_to_a_folder_is_looked_through_once(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(0o700)
    link.symlink_to(real)
    with FileStore(link / "store") as store:
        link.unlink()  # from now on it could lead anywhere
        store.set("key", "v")
        assert store.path == str(real / "store")
        with FileStore(real / "store") as other:
            assert other.get("key") == b"v"


def test_init_process_group_refuses_a_prepared_file(path: Path) -> None:
    path.touch(0o666)
    path.chmod(0o666)
    with pytest.raises(DistStoreError, match="others may read or write"):
        dist.init_process_group("gloo", f"file://{path}", rank=0, world_size=2, timeout=5)
    assert not dist.is_initialized()


# ---------------------------------------------------------------------- two jobs at one path


@pytest.mark.parametrize(
    ("first", "second"), [(SECRET, OTHER_SECRET), (SECRET, None), (None, SECRET)], ids=["two", "first", "second"]
)
def test_a_job_with_another_secret_is_refused_and_disturbs_nobody(
    path: Path, first: bytes | None, second: bytes | None
) -> None:
    with FileStore(path, secret=first) as store:
        store.set("key", "v")
        before = path.read_bytes()
        with pytest.raises(DistStoreError, match=rf"{path} is in use by another job"):
            FileStore(path, secret=second)
        assert path.read_bytes() == before
        with FileStore(path, secret=first) as other:
            assert other.get("key") == b"v"
    with FileStore(path, secret=second) as later:  # once the others have gone it is anybody's
        assert later.num_keys() == 0


def test_a_job_of_another_name_is_refused_where_there_is_no_secret(path: Path) -> None:
    with FileStore(path, job="17.0") as store:
        with pytest.raises(DistStoreError, match="another launcher's job"):
            FileStore(path, job="18.0")
        with FileStore(path, job="17.0") as other:
            other.set("key", "v")
        assert store.get("key") == b"v"


def test_a_secret_says_all_about_who_belongs_together(path: Path) -> None:
    with FileStore(path, secret=SECRET, job="17.0") as store, FileStore(path, secret=SECRET, job="17.1") as other:
        other.set("key", "v")
        assert store.get("key") == b"v"


def test_the_environments_secret_and_job_count_for_a_file_url(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file://{path}?rank=0&world_size=2"
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    store, _, _ = next(dist.rendezvous(url))
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    with store, pytest.raises(DistStoreError, match="in use by another job"):
        next(dist.rendezvous(url))
    secret.new_file(path.with_suffix(".secret"))
    monkeypatch.setenv("RANKWISE_SECRET_FILE", str(path.with_suffix(".secret")))
    store, _, _ = next(dist.rendezvous(url))
    with store, pytest.raises(DistStoreError, match="in use by another job"):
        FileStore(path, secret=SECRET)


def test_a_secret_of_the_wrong_length_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="a job secret has 32 bytes, not 5"):
        FileStore(path, secret=b"short")
    assert not path.exists()


def test_the_secret_is_not_in_the_file(path: Path) -> None:
    with FileStore(path, secret=SECRET) as store:
        store.set("key", "v")
        assert SECRET not in path.read_bytes()


# ---------------------------------------------------------------------- changed bytes


@pytest.fixture(params=[None, SECRET], ids=["no secret", "secret"])
def journal(request: pytest.FixtureRequest, path: Path) -> Iterator[FileStore]:
    """Yield a small store with all kinds of records: a change, a deletion, text that is not ASCII."""
    with FileStore(path, secret=request.param) as store:
        store.set("key", "value")
        store.set("k\xe9y", "another")
        store.set("gone", "soon")
        store.delete_key("gone")
        yield store


def read_all(path: Path, store: FileStore) -> dict[str, bytes]:
    with store.clone() as fresh:
        return {key: fresh.get(key, timeout=0) for key in fresh.list_keys()}


def test_every_flipped_bit_is_an_error(path: Path, journal: FileStore) -> None:
    content = path.read_bytes()
    good = read_all(path, journal)
    assert good == {"key": b"value", "k\xe9y": b"another"}
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        write_in_place(path, bytes(flipped))
        with pytest.raises(DistStoreError, match=str(path)):
            read_all(path, journal)
    write_in_place(path, content)
    assert read_all(path, journal) == good


def test_a_flipped_bit_never_reaches_who_has_the_store_open(path: Path, journal: FileStore) -> None:
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        write_in_place(path, bytes(flipped))
        with contextlib.suppress(DistStoreError):
            assert journal.get("key", timeout=0) == b"value"  # what it has read before it need not read again
        write_in_place(path, content)
        assert journal.get("key", timeout=0) == b"value"


def test_every_truncation_is_an_error(path: Path, journal: FileStore) -> None:
    content = path.read_bytes()
    for nbytes in range(len(content)):
        write_in_place(path, content[:nbytes])
        with pytest.raises(DistStoreError, match=str(path)):
            read_all(path, journal)
    write_in_place(path, content)


def test_records_that_were_exchanged_or_repeated_are_an_error(path: Path) -> None:
    with FileStore(path) as store:
        ends = [path.stat().st_size]
        for key in ("a", "b", "c"):
            store.set(key, key.upper())
            ends.append(path.stat().st_size)
        content = path.read_bytes()
        records = [content[begin:end] for begin, end in itertools.pairwise(ends)]
        for order in ((1, 0, 2), (0, 0, 2), (0, 2, 1), (2, 2, 2)):
            write_in_place(path, content[: ends[0]] + b"".join(records[index] for index in order))
            with pytest.raises(DistStoreError, match="not as a store has written it"):
                read_all(path, store)
        write_in_place(path, content)


def test_an_earlier_content_is_not_taken_back(path: Path) -> None:
    with FileStore(path, secret=SECRET) as store:
        store.set("key", "old")
        earlier = path.read_bytes()
        store.set("key", "new")
        write_in_place(path, earlier)
        with pytest.raises(DistStoreError, match="earlier content"):
            store.get("key", timeout=0)


def test_who_does_not_know_the_secret_cannot_write_a_value(tmp_path: Path) -> None:
    with FileStore(tmp_path / "ours", secret=SECRET) as ours, FileStore(tmp_path / "theirs", secret=OTHER_SECRET) as t:
        ours.set("key", "v")
        t.set("key", "w")
        size = (tmp_path / "theirs").stat().st_size
        content = (tmp_path / "ours").read_bytes()
        forged = content[:HEADER_NBYTES] + (tmp_path / "theirs").read_bytes()[HEADER_NBYTES:size]
        assert len(forged) == len(content)
        write_in_place(tmp_path / "ours", forged)
        with pytest.raises(DistStoreError):
            read_all(tmp_path / "ours", ours)


def write_in_place(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
