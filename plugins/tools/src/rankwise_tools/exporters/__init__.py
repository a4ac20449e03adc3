"""What a process has counted, for systems that monitor it: Prometheus and OpenTelemetry."""
