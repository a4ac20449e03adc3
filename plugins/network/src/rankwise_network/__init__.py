"""What a process finds around it: interfaces and addresses, processes, doors, the job secret, the launcher.

Whatever listens, connects or is launched uses these; each is a module of its own:

- `doors`: how many strangers a listener bears, and for how long;
- `interface`: at which addresses to listen, and by which others reach this machine;
- `ports`: when a port is free that a connection of this machine has had;
- `processes`: which processes of this machine have ended;
- `secret`: the job secret, and the keys that are derived from it;
- `launcher_env`: what the environment says about this process's place in a job, whichever launcher set it.
"""

from rankwise.backends import require_series

require_series("rankwise-network", "0.1")
