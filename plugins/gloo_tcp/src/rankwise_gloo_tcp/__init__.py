"""The backend `gloo` of rankwise: sockets between hosts, shared memory on one; see `rankwise_gloo_tcp.plugin`."""
