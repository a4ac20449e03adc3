"""A free-threaded Python without its lock is refused, with the way to turn it on; start this with PYTHON_GIL=0."""

try:
    import rankwise
except ImportError as error:
    said = str(error)
else:
    said = f"rankwise {rankwise.__version__} was loaded without the lock"

if "set PYTHON_GIL=1" not in said:
    raise SystemExit(said)
print("refused")
