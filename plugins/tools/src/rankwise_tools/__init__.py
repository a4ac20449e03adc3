"""For those who look at jobs: `top`, `trace`, `bench`, `explain`, `completion`, and exporters of figures."""
