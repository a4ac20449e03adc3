"""A free-threaded Python without its lock is refused, with the way to turn it on; start this with PYTHON_GIL=0."""

try:
    import rankwise
except ImportError as error:
    assert "set PYTHON_GIL=1" in str(error), error
    print("refused")
else:
    raise SystemExit(f"rankwise {rankwise.__version__} was loaded without the lock")
