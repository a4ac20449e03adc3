"""The conformance suite: proves a backend's capability table cell by cell, and the contract beside it.

Run it by `pytest --pyargs rankwise_testing.suite --backend NAME`, `rankwise conformance NAME`, or
`rankwise_testing.conformance(NAME)`. Its options:

- `--device`: which kind of device to prove ("cpu").
- `--launch`: how ranks are started. "processes" starts them directly, "threads" makes them threads of one process, and
  anything else is a command such as "mpiexec -n {size}". Defaults to what the backend declares.
- `--env NAME=VALUE`: a variable for the ranks; `{rank}` in the value stands for the rank. May be repeated.
- `--variant NAME`: one of the ways in which the backend declares that it can work, such as a transport.
- `--patience S`: how long a test may take (60), for a backend that does not keep to its time-outs.
- `--max-size N`: leave larger worlds out, as where many ranks share few cores.
- `--plugin-module MODULE`: a module whose backend is registered first, for one that is not installed yet.
- `--report FILE`: where to write the declared and the measured table, and what was covered, as JSON.

A cell that is declared must work, and one that is not must be refused, and must not work behind the core's back either,
unless the backend says why it does not offer it.
"""
