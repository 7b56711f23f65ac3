"""Clusters, servers and processes that benchmarks and service tests start, disturb and end."""
